// Random programs of several threads, whose objects are known from the order in which everything happened: whatever way
// the events are cut into blocks and passes, the reader finds the same objects.
#include "trace_file.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace
{

struct Totals {
    uint64_t events = 0, allocations = 0, frees = 0, reallocs = 0, in_place = 0, failed = 0, bytes = 0, unmatched = 0;
    uint64_t live_bytes = 0, peak_bytes = 0, peak_objects = 0, peak_ns = 0;
};

// Everything happens on one clock, an event at a time; a realloc ends some events of other threads after it began.
class Program
{
  public:
    std::vector<std::vector<trace_event>> threads;
    std::vector<Event> events; // in order
    std::vector<Object> objects; // in order of death, then those that live in order of birth
    Totals totals;
    std::map<std::pair<uint32_t, uint32_t>, std::pair<uint64_t, uint64_t>> flow;
    std::vector<struct trace_site_totals> sites;

    Program(unsigned seed, uint32_t thread_count, size_t count)
        : threads(thread_count), sites(site_count), random_(seed), pending_(thread_count), last_site_(thread_count)
    {
        for (size_t i = 0; i < count; i++) step();
        for (uint32_t thread = 0; thread < thread_count; thread++) finish_realloc(thread);
        for (auto &[id, object] : in_order_of_birth()) objects.push_back(object);
    }

    static constexpr uint32_t site_count = 9;

  private:
    struct Pending {
        bool is = false;
        size_t event = 0; // of `events`
        uint64_t previous = 0;
    };
    std::mt19937_64 random_;
    uint64_t now_ = 1000, next_ = 0x7f0000000000;
    std::map<uint64_t, Object> live_; // by address
    std::vector<uint64_t> hidden_; // born before the recording
    std::vector<Pending> pending_;
    std::vector<std::map<unsigned, uint32_t>> last_site_;
    std::set<uint64_t> freed_;

    uint64_t draw(uint64_t below)
    {
        return random_() % below;
    }

    uint64_t tick()
    {
        return now_ += 1 + draw(draw(50) == 0 ? 3000000 : 300);
    }

    uint64_t new_address()
    {
        if (!freed_.empty() && draw(3) != 0) {
            auto at = freed_.lower_bound(next_ - draw(1 << 16));
            if (at == freed_.end()) at = freed_.begin();
            uint64_t address = *at;
            freed_.erase(at);
            return address;
        }
        return next_ += 16 * (1 + draw(40)) + (draw(20) == 0);
    }

    std::map<uint64_t, Object> in_order_of_birth() const
    {
        std::map<uint64_t, Object> order;
        for (const auto &[address, object] : live_) order[object.id] = object;
        return order;
    }

    uint64_t draw_size()
    {
        return draw(4) == 0 ? draw(100000) : draw(500);
    }

    void step()
    {
        auto thread = static_cast<uint32_t>(draw(threads.size()));
        if (pending_[thread].is) return finish_realloc(thread);
        uint64_t what = draw(20);
        if (what < 9) allocate(thread);
        else if (what < 16) free_one(thread);
        else if (what < 19) begin_realloc(thread);
        else fail(thread);
    }

    void note(uint32_t thread, const trace_event &event)
    {
        threads[thread].push_back(event);
        bool failed = event.address == 0 && event.kind != TRACE_FREE;
        events.push_back({event.tick, event.address, event.old, event.size, event.usable, event.lasted, thread,
                          event.site, static_cast<uint8_t>(event.kind | (failed ? TRACE_FAILED : 0)), event.alignment});
        totals.events++;
    }

    void birth(uint32_t thread, const trace_event &event, uint64_t tick, uint64_t previous)
    {
        totals.bytes += event.size;
        totals.live_bytes += event.size;
        live_[event.address] = {
            ++totals.allocations, previous, event.address, event.size, event.usable, tick, UINT64_MAX,     totals.bytes,
            UINT64_MAX,           thread,   UINT32_MAX,    event.site, event.kind,   255,  event.alignment};
        if (totals.live_bytes > totals.peak_bytes) {
            totals.peak_bytes = totals.live_bytes;
            totals.peak_objects = live_.size();
            totals.peak_ns = tick;
        }
        auto &site = sites[event.site];
        site.allocations++;
        site.bytes += event.size;
        site.live_objects++;
        site.live_bytes += event.size;
        site.peak_live_bytes = std::max(site.peak_live_bytes, site.live_bytes);
        auto [last, first] = last_site_[thread].try_emplace(trace_context(event.size), event.site);
        if (!first && last->second != event.site) site.switches++;
        last->second = event.site;
    }

    uint64_t death(uint32_t thread, uint64_t address, uint64_t tick, uint8_t kind)
    {
        auto at = live_.find(address);
        if (at == live_.end()) {
            totals.unmatched++;
            return 0;
        }
        Object object = at->second;
        object.died_ns = tick;
        object.died_bytes = totals.bytes;
        object.died_thread = thread;
        object.died_kind = kind;
        objects.push_back(object);
        live_.erase(at);
        totals.live_bytes -= object.size;
        sites[object.site].live_objects--;
        sites[object.site].live_bytes -= object.size;
        auto &pair = flow[{object.born_thread, thread}];
        pair.first++;
        pair.second += object.size;
        return object.id;
    }

    void allocate(uint32_t thread)
    {
        static const uint8_t kinds[] = {TRACE_MALLOC, TRACE_CALLOC, TRACE_NEW, TRACE_ALIGNED, TRACE_NEW_ALIGNED};
        trace_event event = allocation(tick(), new_address(), draw_size(), static_cast<uint32_t>(draw(site_count)),
                                       kinds[draw(std::size(kinds))]);
        if (event.kind == TRACE_ALIGNED || event.kind == TRACE_NEW_ALIGNED)
            event.alignment = static_cast<uint8_t>(draw(22));
        note(thread, event);
        birth(thread, event, event.tick, 0);
    }

    // Some block that lives, or one that nobody knows.
    uint64_t some_block()
    {
        if (live_.empty() || draw(30) == 0) return 0x1000 + 8 * draw(1000);
        auto at = live_.lower_bound(next_ - draw(1 << 18));
        return at == live_.end() ? live_.begin()->first : at->first;
    }

    void free_one(uint32_t thread)
    {
        trace_event event = release(tick(), some_block(), draw(2) == 0 ? TRACE_FREE : TRACE_DELETE);
        note(thread, event);
        totals.frees++;
        if (death(thread, event.address, event.tick, event.kind) != 0) freed_.insert(event.address);
    }

    void begin_realloc(uint32_t thread)
    {
        uint64_t old = some_block();
        trace_event event = reallocation(tick(), old, 0, draw_size(), 0, static_cast<uint32_t>(draw(site_count)));
        note(thread, event); // its result is filled in when it is there
        totals.reallocs++;
        pending_[thread] = {true, events.size() - 1, death(thread, old, event.tick, TRACE_REALLOC)};
        if (pending_[thread].previous != 0 && draw(3) != 0) freed_.insert(old);
    }

    void finish_realloc(uint32_t thread)
    {
        Pending &pending = pending_[thread];
        if (!pending.is) return;
        pending.is = false;
        trace_event &event = threads[thread].back();
        auto old_is_free = freed_.find(event.old);
        bool in_place = old_is_free != freed_.end() && draw(2) == 0;
        if (in_place) freed_.erase(old_is_free);
        event.address = in_place ? event.old : new_address();
        event.usable = event.size + draw(64);
        uint64_t end = tick();
        event.lasted = end - event.tick;
        totals.in_place += event.address == event.old;
        Event &known = events[pending.event];
        known.address = event.address;
        known.usable = event.usable;
        known.lasted_ns = event.lasted;
        known.kind = TRACE_REALLOC;
        birth(thread, event, end, pending.previous);
    }

    void fail(uint32_t thread)
    {
        bool realloc = draw(2) == 0;
        trace_event event = realloc ? reallocation(tick(), some_block(), 0, UINT64_MAX / 3, 0, 3)
                                    : allocation(tick(), 0, UINT64_MAX / 3, 3);
        note(thread, event);
        totals.failed++;
    }
};

// The events in passes, as a recorder writes them: each writes what some threads noted until it came by.
TraceFile write_in_passes(const Program &program, unsigned seed, bool compressed)
{
    std::mt19937_64 random(seed);
    TraceFile file;
    file.compressed = compressed;
    file.info(nanosecond_info, 0);
    std::vector<std::pair<uint64_t, uint64_t>> sites;
    for (uint32_t i = 1; i < Program::site_count; i++) sites.emplace_back(i - 1, 0x400000 + i);
    file.sites(1, sites);
    std::vector<size_t> written(program.threads.size());
    uint64_t last = program.events.back().ns + 10000000;
    for (uint64_t now = 0; now < last; now += 1 + random() % 2000000) {
        for (uint32_t thread = 0; thread < program.threads.size(); thread++) {
            const auto &events = program.threads[thread];
            while (written[thread] < events.size() &&
                   events[written[thread]].tick + events[written[thread]].lasted < now) {
                std::vector<trace_event> block;
                size_t most = 1 + random() % 300;
                while (block.size() < most && written[thread] < events.size() &&
                       events[written[thread]].tick + events[written[thread]].lasted < now)
                    block.push_back(events[written[thread]++]);
                file.events(thread, block);
            }
        }
        uint64_t complete = now; // a realloc that has not returned has not been written
        for (uint32_t thread = 0; thread < program.threads.size(); thread++)
            if (written[thread] < program.threads[thread].size())
                complete = std::min(complete, program.threads[thread][written[thread]].tick);
        file.mark(now, complete);
    }
    for (uint32_t thread = 0; thread < program.threads.size(); thread++)
        file.events(thread, {program.threads[thread].begin() + static_cast<ptrdiff_t>(written[thread]),
                             program.threads[thread].end()});
    return file.end();
}

class TraceModel : public testing::TestWithParam<unsigned>
{
  protected:
    Program program{GetParam(), 1 + GetParam() % 7, 20000};
    TraceFile file = write_in_passes(program, GetParam(), GetParam() % 2 == 0);
    Reader reader = open_file(file);

    void nothing_is_wrong()
    {
        struct trace_problems problems = trace_problems(reader.get());
        EXPECT_EQ(problems.damaged_bytes + problems.damaged_blocks + problems.unknown_blocks + problems.missing_blocks,
                  0);
        EXPECT_EQ(problems.late_events, 0);
        EXPECT_EQ(problems.backward_clocks, 0);
        EXPECT_FALSE(problems.cut_short);
        EXPECT_EQ(problems.error, 0);
    }
};

TEST_P(TraceModel, ObjectsAreThoseOfTheProgram)
{
    std::vector<Object> objects = all_objects(reader.get(), 1 + GetParam() * 13);
    nothing_is_wrong();
    ASSERT_EQ(objects.size(), program.objects.size());
    for (size_t i = 0; i < objects.size(); i++) ASSERT_EQ(objects[i], program.objects[i]) << "row " << i;
}

TEST_P(TraceModel, EventsComeInTheOrderOfTime)
{
    std::vector<Event> events = all_events(reader.get(), 1 + GetParam() * 13);
    nothing_is_wrong();
    ASSERT_EQ(events.size(), program.events.size());
    for (size_t i = 0; i < events.size(); i++) ASSERT_EQ(events[i], program.events[i]) << "row " << i;
}

TEST_P(TraceModel, TotalsAreThoseOfTheProgram)
{
    all_objects(reader.get());
    struct trace_totals totals = trace_totals(reader.get());
    EXPECT_EQ(totals.events, program.totals.events);
    EXPECT_EQ(totals.allocations, program.totals.allocations);
    EXPECT_EQ(totals.frees, program.totals.frees);
    EXPECT_EQ(totals.reallocs, program.totals.reallocs);
    EXPECT_EQ(totals.reallocs_in_place, program.totals.in_place);
    EXPECT_EQ(totals.failed, program.totals.failed);
    EXPECT_EQ(totals.bytes, program.totals.bytes);
    EXPECT_EQ(totals.unmatched_frees, program.totals.unmatched);
    EXPECT_EQ(totals.replaced, 0);
    EXPECT_EQ(totals.peak_bytes, program.totals.peak_bytes);
    EXPECT_EQ(totals.peak_objects, program.totals.peak_objects);
    EXPECT_EQ(totals.peak_ns, program.totals.peak_ns);
    EXPECT_EQ(totals.end_bytes, program.totals.live_bytes);
}

TEST_P(TraceModel, SitesAndFlowAreThoseOfTheProgram)
{
    all_objects(reader.get());
    const struct trace_site_totals *sites;
    ASSERT_EQ(trace_site_totals(reader.get(), &sites), program.sites.size());
    for (size_t i = 0; i < program.sites.size(); i++)
        EXPECT_EQ(std::memcmp(&sites[i], &program.sites[i], sizeof *sites), 0) << "site " << i;
    const struct trace_flow *pairs;
    ASSERT_EQ(trace_flow(reader.get(), &pairs), program.flow.size());
    for (const auto &[threads, blocks_and_bytes] : program.flow) {
        EXPECT_EQ(pairs->born_thread, threads.first);
        EXPECT_EQ(pairs->died_thread, threads.second);
        EXPECT_EQ(pairs->blocks, blocks_and_bytes.first);
        EXPECT_EQ(pairs->bytes, blocks_and_bytes.second);
        pairs++;
    }
}

TEST_P(TraceModel, ThreadsAreThoseOfTheProgram)
{
    all_objects(reader.get());
    const struct trace_thread *threads;
    ASSERT_EQ(trace_threads(reader.get(), &threads), program.threads.size());
    for (size_t i = 0; i < program.threads.size(); i++) {
        const auto &events = program.threads[i];
        EXPECT_EQ(threads[i].index, i);
        EXPECT_EQ(threads[i].events, events.size());
        EXPECT_EQ(threads[i].first_ns, events.front().tick);
        EXPECT_EQ(threads[i].last_ns, events.back().tick + events.back().lasted);
    }
}

TEST_P(TraceModel, TheCourseOfMemoryLeadsFromNothingToTheEnd)
{
    all_objects(reader.get());
    const struct trace_memory *points;
    size_t count = trace_memory(reader.get(), &points);
    struct trace_totals totals = trace_totals(reader.get());
    ASSERT_GT(count, 2);
    EXPECT_EQ(points[0].allocations, 0);
    for (size_t i = 1; i < count; i++) {
        ASSERT_LE(points[i - 1].ns, points[i].ns) << "point " << i;
        ASSERT_LE(points[i - 1].allocations, points[i].allocations) << "point " << i;
    }
    EXPECT_EQ(points[count - 1].allocations, totals.allocations);
    EXPECT_EQ(points[count - 1].frees, totals.frees);
    EXPECT_EQ(points[count - 1].live_bytes, totals.end_bytes);
    EXPECT_EQ(points[count - 1].live_objects, totals.end_objects);
    EXPECT_EQ(points[count - 1].allocated_bytes, totals.bytes);
}

INSTANTIATE_TEST_SUITE_P(Programs, TraceModel, testing::Range(1u, 9u));

} // namespace
