// The order in which events are given out, and what becomes of those that a clock or a recorder has put out of order.
#include "trace_file.hpp"

namespace
{

std::vector<uint64_t> addresses(const std::vector<Event> &events)
{
    std::vector<uint64_t> found;
    for (const Event &event : events) found.push_back(event.address);
    return found;
}

using Addresses = std::vector<uint64_t>;

TEST(TraceOrder, AnEventThatComesTooLateIsGivenOutAtOnceAndCounted)
{
    TraceFile file;
    file.info().events(0, {allocation(10, 0x10, 8), allocation(50, 0x50, 8)}).mark(70, 60);
    file.events(1, {allocation(45, 0x45, 8), allocation(80, 0x80, 8)}).mark(100, 90).end();
    Reader reader = open_file(file);
    std::vector<Event> events = all_events(reader.get());
    EXPECT_EQ(addresses(events), (Addresses{0x10, 0x50, 0x45, 0x80}));
    EXPECT_EQ(events[2].ns, 50);
    EXPECT_EQ(trace_problems(reader.get()).late_events, 1);
}

TEST(TraceOrder, AThreadsClockThatGoesBackwardsIsLiftedAndCounted)
{
    TraceFile file;
    file.info().events(0, {allocation(50, 0x50, 8), allocation(30, 0x30, 8), release(60, 0x30)}).mark(100, 90).end();
    Reader reader = open_file(file);
    std::vector<Event> events = all_events(reader.get());
    EXPECT_EQ(addresses(events), (Addresses{0x50, 0x30, 0x30}));
    EXPECT_EQ(events[1].ns, 50);
    EXPECT_EQ(events[2].ns, 60);
    EXPECT_EQ(trace_problems(reader.get()).backward_clocks, 1);
}

TEST(TraceOrder, WithinATickFreesComeFirst)
{
    TraceFile file;
    file.info().events(0, {allocation(10, 0xA0, 8), allocation(20, 0xB0, 8)});
    file.events(1, {release(20, 0xA0)}).mark(100, 90).end();
    EXPECT_EQ(addresses(all_events(open_file(file).get())), (Addresses{0xA0, 0xA0, 0xB0}));
}

TEST(TraceOrder, MarksTieTicksToNanoseconds)
{
    TraceFile file;
    auto mark = [&file](uint64_t tick, uint64_t ns) {
        trace_mark mark = {tick, ns, tick, 0, 0, 0};
        file.block(TRACE_MARK, std::string(reinterpret_cast<const char *>(&mark), sizeof mark));
    };
    file.info(R"({"ticks_per_second_guess": 2000000000})", 1000);
    mark(1000, 5000000);
    mark(3000, 5001000);
    mark(4000, 5003000);
    file.end();
    Reader reader = open_file(file);
    all_events(reader.get());
    EXPECT_EQ(trace_nanoseconds(reader.get(), 0), 0);
    EXPECT_EQ(trace_nanoseconds(reader.get(), 1000), 0);
    EXPECT_EQ(trace_nanoseconds(reader.get(), 2000), 500);
    EXPECT_EQ(trace_nanoseconds(reader.get(), 3000), 1000);
    EXPECT_EQ(trace_nanoseconds(reader.get(), 3500), 2000);
    EXPECT_EQ(trace_nanoseconds(reader.get(), 4000), 3000);
    EXPECT_EQ(trace_nanoseconds(reader.get(), 7000), 6000); // as all marks together
    const struct trace_mark *marks;
    ASSERT_EQ(trace_marks(reader.get(), &marks), 3);
    EXPECT_EQ(marks[2].tick, 3000);
    EXPECT_EQ(marks[2].monotonic_ns, 5003000);
}

TEST(TraceOrder, AReallocIsOneEventAndTellsHowLongItLasted)
{
    TraceFile file;
    file.info().events(0, {allocation(10, 0x100, 8), reallocation(20, 0x100, 0x200, 80, 15)}).mark(100, 90).end();
    std::vector<Event> events = all_events(open_file(file).get());
    ASSERT_EQ(events.size(), 2);
    EXPECT_EQ(events[1].old, 0x100);
    EXPECT_EQ(events[1].address, 0x200);
    EXPECT_EQ(events[1].size, 80);
    EXPECT_EQ(events[1].ns, 20);
    EXPECT_EQ(events[1].lasted_ns, 15);
}

} // namespace
