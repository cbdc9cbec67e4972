// Every call into platform/ that can fail is made to fail, one after the other: malloc returns NULL with ENOMEM, what is
// live stays as it was, and all works again afterwards. The program is linked with --wrap for these calls.
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "model.h"
#include "space_walker.h"
#include "system.h"

extern "C" {
void *__real_platform_reserve(size_t size, size_t alignment);
bool __real_platform_reserve_at(void *start, size_t size);
bool __real_platform_commit(void *start, size_t size);
bool __real_platform_purge(void *start, size_t size);
bool __real_platform_make_readable(void *start, size_t size);
enum platform_move __real_platform_move_pages(void *from, void *to, size_t size);
}

namespace
{

// The calls with numbers in [first, end) fail.
struct Injection {
    std::atomic<unsigned> calls{0};
    unsigned first = 0, end = 0;

    bool fails()
    {
        unsigned number = calls++;
        return number >= first && number < end;
    }
} injection;

} // namespace

extern "C" {
void *__wrap_platform_reserve(size_t size, size_t alignment)
{
    return injection.fails() ? nullptr : __real_platform_reserve(size, alignment);
}
bool __wrap_platform_reserve_at(void *start, size_t size)
{
    return !injection.fails() && __real_platform_reserve_at(start, size);
}
bool __wrap_platform_commit(void *start, size_t size)
{
    return !injection.fails() && __real_platform_commit(start, size);
}
bool __wrap_platform_purge(void *start, size_t size)
{
    return !injection.fails() && __real_platform_purge(start, size);
}
bool __wrap_platform_make_readable(void *start, size_t size)
{
    return !injection.fails() && __real_platform_make_readable(start, size);
}
enum platform_move __wrap_platform_move_pages(void *from, void *to, size_t size)
{
    return injection.fails() ? MOVE_REFUSED : __real_platform_move_pages(from, to, size);
}
}

namespace
{

constexpr size_t RESERVATION = 1024 * model::MIB; // of which half will do, should reserving it fail

class Workload
{
  public:
    // The same calls every time, whatever is refused. True when nothing was.
    bool run()
    {
        refused_ = 0;
        for (size_t size : {16, 100, 1000, 5000, 30000}) allocate(size, 60);
        on_another_thread();
        release_some();
        heap_trim();
        for (size_t size : {model::SPAN, 3 * model::MIB, 5 * model::MIB}) allocate(size, 2);
        for (size_t size : {6 * model::MIB, 7 * model::MIB, 20 * model::MIB, model::MIB, size_t{50}}) resize_last(size);
        release_some();
        allocate(8 * model::MIB, 2);
        for (int kind : {HF_DEFRAG_DODGING, HF_REGION}) in_context(kind);
        release_all();
        heap_trim();
        return refused_ == 0;
    }

  private:
    void refuse()
    {
        EXPECT_EQ(ENOMEM, errno);
        refused_++;
    }

    void allocate(size_t size, int count)
    {
        for (int i = 0; i < count; i++) {
            errno = 0;
            auto *start = static_cast<unsigned char *>(i % 3 == 0 ? heap_calloc(size) : heap_malloc(size));
            if (start == nullptr) {
                refuse();
                continue;
            }
            if (i % 3 == 0) model::expect_zeroed(start, size);
            keep(start, size);
        }
    }

    void keep(unsigned char *start, size_t size)
    {
        blocks_.push_back({start, size, heap_usable_size(start), ++tag_});
        model::fill(blocks_.back());
    }

    // Its heap is born under failure and abandoned with live blocks, which this thread frees.
    void on_another_thread()
    {
        pthread_t thread;
        auto body = [](void *argument) -> void * {
            static_cast<Workload *>(argument)->allocate(200, 300);
            return nullptr;
        };
        ASSERT_EQ(0, pthread_create(&thread, nullptr, body, this));
        pthread_join(thread, nullptr);
    }

    void in_context(int kind)
    {
        hf_context_config config{};
        config.kind = kind;
        config.chunk_size = model::MIB;
        config.huge_pages = 1;
        errno = 0;
        hf_context *context = hf_context_create(&config);
        if (context == nullptr) return refuse();
        for (int transaction = 0; transaction < 2; transaction++) {
            // Small ones, one of several segments, one with a chunk of its own; the first becomes all of that in turn.
            std::vector<model::Block> blocks;
            for (size_t size : {size_t{100}, size_t{9000}, 2 * model::SPAN - 100, 3 * model::MIB})
                for (int i = 0; i < 40 && (i < 2 || size < model::SPAN); i++) allocate_in(context, size, blocks);
            if (!blocks.empty()) resize_in(context, blocks.front());
            for (const model::Block &block : blocks) model::expect_intact(block);
            for (size_t i = 0; i < blocks.size(); i += 2) heap_free(blocks[i].start);
            hf_context_free_all(context);
        }
        hf_context_stats stats;
        hf_context_stats_get(context, &stats, sizeof stats);
        EXPECT_EQ(0u, stats.live_bytes);
        EXPECT_EQ(stats.chunks * config.chunk_size, stats.footprint) << "a chunk that was refused was counted";
        hf_context_destroy(context);
    }

    void allocate_in(hf_context *context, size_t size, std::vector<model::Block> &blocks)
    {
        errno = 0;
        auto *start = static_cast<unsigned char *>(hf_context_malloc(context, size));
        if (start == nullptr) return refuse();
        blocks.push_back({start, size, size / 8 * 8, ++tag_});
        model::fill(blocks.back());
    }

    void resize_in(hf_context *context, model::Block &block)
    {
        for (size_t size : {size_t{20000}, 2 * model::SPAN, 2 * model::MIB, 5 * model::MIB}) {
            errno = 0;
            auto *start = static_cast<unsigned char *>(hf_context_realloc(context, block.start, size));
            if (start == nullptr) return refuse();
            block.start = start;
            ASSERT_EQ(block.usable, model::first_difference(block, block.usable));
        }
    }

    void release_some()
    {
        for (size_t i = 0; i < blocks_.size(); i += 2) release(i);
    }

    void release(size_t place)
    {
        model::expect_intact(blocks_[place]);
        heap_free(blocks_[place].start);
        blocks_[place] = blocks_.back();
        blocks_.pop_back();
    }

    void resize_last(size_t size)
    {
        if (blocks_.empty()) return;
        model::Block block = blocks_.back();
        errno = 0;
        auto *start = static_cast<unsigned char *>(heap_realloc(block.start, size));
        if (start == nullptr) {
            EXPECT_GT(size, block.usable) << "shrinking was refused";
            refuse();
            return model::expect_intact(block);
        }
        blocks_.pop_back();
        block.start = start;
        size_t kept = std::min(block.usable, size);
        ASSERT_EQ(kept, model::first_difference(block, kept));
        keep(start, size);
    }

    void release_all()
    {
        while (!blocks_.empty()) release(blocks_.size() - 1);
    }

    std::vector<model::Block> blocks_;
    uint64_t tag_ = 0;
    int refused_ = 0;
};

// In a process that has not allocated yet. `end` == `first`: nothing fails.
void run_with_failures(unsigned first, unsigned end)
{
    space_settings.reservation = RESERVATION;
    space_settings.decay_ms = 0;
    injection.first = first;
    injection.end = end;
    Workload().run();
    injection.end = injection.first;
    EXPECT_TRUE(Workload().run()) << "refused although nothing fails any more";
    if (space.base != 0) space_walker::check();
}

unsigned calls_without_failure()
{
    int pipe_ends[2];
    unsigned calls = 0;
    EXPECT_EQ(0, pipe(pipe_ends));
    isolated::expect_passes([&] {
        space_settings.reservation = RESERVATION;
        space_settings.decay_ms = 0;
        EXPECT_TRUE(Workload().run());
        calls = injection.calls;
        EXPECT_EQ(static_cast<ssize_t>(sizeof calls), write(pipe_ends[1], &calls, sizeof calls));
    });
    EXPECT_EQ(static_cast<ssize_t>(sizeof calls), read(pipe_ends[0], &calls, sizeof calls));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    return calls;
}

// A run takes a second or so under a sanitizer or an emulator: then not every call.
#if HEAPFIT_TEST_EMULATED
constexpr unsigned STRIDE = 50;
#else
constexpr unsigned STRIDE = HEAPFIT_TEST_SANITIZED ? 10 : 1;
#endif

TEST(Injection, EachSingleCallMayFail)
{
    unsigned calls = calls_without_failure();
    RecordProperty("calls", static_cast<int>(calls));
    EXPECT_GT(calls, 20u) << "the workload reaches too little";
    for (unsigned number = 0; number < calls && !HasFailure(); number += STRIDE) {
        SCOPED_TRACE("call " + std::to_string(number) + " fails");
        isolated::expect_passes([&] { run_with_failures(number, number + 1); });
    }
}

TEST(Injection, AllCallsMayFailFromAnyPointOn)
{
    unsigned calls = calls_without_failure();
    for (unsigned number = 0; number < calls && !HasFailure(); number += STRIDE) {
        SCOPED_TRACE("all calls from " + std::to_string(number) + " on fail");
        isolated::expect_passes([&] { run_with_failures(number, UINT32_MAX); });
    }
}

} // namespace
