// How memory goes back over time: at any age, in steps that no call notices, and whatever the kernel refuses. The program is
// linked with --wrap for the clock, which it shifts, and for the call that gives memory back.
#include "heap_internals.h"
#include "heap_isolated.h"
#include "space_runs.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

namespace
{

uint64_t clock_shift_ms; // what has passed that nobody waited for
size_t purge_calls, purge_bytes;
bool purging_is_refused;

// Addresses that the kernel refuses to take.
struct range {
    const char *start;
    size_t size;
};
std::vector<range> refused;

bool is_refused(const void *start, size_t size)
{
    auto *from = static_cast<const char *>(start);
    auto overlaps = [&](const range &each) { return from < each.start + each.size && each.start < from + size; };
    return purging_is_refused || std::any_of(refused.begin(), refused.end(), overlaps);
}

} // namespace

extern "C" {
uint64_t __real_platform_clock_ms(void);
uint64_t __wrap_platform_clock_ms(void)
{
    return __real_platform_clock_ms() + clock_shift_ms;
}
bool __real_platform_purge(void *start, size_t size);
bool __wrap_platform_purge(void *start, size_t size)
{
    purge_calls++;
    purge_bytes += size;
    return !is_refused(start, size) && __real_platform_purge(start, size);
}
}

namespace
{

using namespace space_runs;

constexpr uint64_t SECOND = 1000, DAY = 24 * 3600 * SECOND, YEAR = 365 * DAY;
constexpr uint32_t DECAY = 1000, STEP_SPANS = PURGE_STEP / SPAN_SIZE;

void let_pass(uint64_t milliseconds)
{
    clock_shift_ms += milliseconds;
}

// A run that stays apart when it is released, and holds memory.
struct span *fenced_run(uint32_t spans)
{
    struct span *run = acquire(spans);
    acquire(1);
    std::memset(bytes_of(run), 1, spans * SPAN_SIZE);
    return run;
}

range whole(struct span *run)
{
    return {bytes_of(run), run->run_spans * SPAN_SIZE};
}

// Bytes that a call purged.
template <typename Call> size_t purged_by(Call call)
{
    size_t before = purge_bytes;
    call();
    return purge_bytes - before;
}

// ---- how old --------------------------------------------------------------------------------------------------------

TEST(Age, IsToldAfterWeeksAndYears)
{
    for (uint64_t age : {25 * DAY, 37 * DAY, 50 * DAY, 100 * DAY, YEAR, 4 * YEAR}) {
        in_new_space([age] {
            struct span *old = fenced_run(20);
            struct span *young = fenced_run(20);
            space_release(old); // too little by itself would be left where it is
            let_pass(age);
            space_release(young);
            space_settings.decay_ms = DECAY;
            EXPECT_EQ(SPACE_LEFT_YOUNG, space_purge_old());
            EXPECT_TRUE(reads_as_zeros(old)) << age / DAY << " days";
            EXPECT_FALSE(reads_as_zeros(young)) << age / DAY << " days";
            let_pass(2 * DECAY);
            space_purge_old();
            EXPECT_TRUE(reads_as_zeros(young)) << "nothing is in its way";
        });
    }
}

TEST(Age, OfAProcessThatHasSleptForMonthsDoesNotStopItsChores)
{
    isolated::expect_passes([] {
        space_settings.decay_ms = DECAY;
        constexpr size_t BLOCKS = 20000, BYTES = 1000;
        std::vector<void *> blocks(BLOCKS);
        for (uint64_t sleep : {26 * DAY, 51 * DAY, YEAR}) {
            for (auto &block : blocks) block = heap_malloc(BYTES);
            for (void *block : blocks) heap_free(block);
            let_pass(sleep);
            struct space_figures before = figures_now();
            for (int i = 0; i < 200; i++) { // refills
                let_pass(1);
                for (int k = 0; k < 100; k++) blocks[static_cast<size_t>(k)] = heap_malloc(BYTES);
                for (int k = 0; k < 100; k++) heap_free(blocks[static_cast<size_t>(k)]);
            }
            EXPECT_GE(figures_now().purged - before.purged, BLOCKS * BYTES / 2) << sleep / DAY << " days";
        }
    });
}

TEST(Age, OfAClockThatAnotherThreadHasReadLaterIsNone)
{
    in_new_space([] {
        struct span *run = fenced_run(40);
        let_pass(10);
        space_release(run);
        clock_shift_ms -= 10;
        space_settings.decay_ms = DECAY;
        EXPECT_EQ(SPACE_LEFT_YOUNG, space_purge_old());
        EXPECT_FALSE(reads_as_zeros(run));
    });
}

// ---- how much at a time ---------------------------------------------------------------------------------------------

TEST(ACall, PurgesNoMoreThanAStepBecauseOfAge)
{
    in_new_space([] {
        struct span *large = fenced_run(9 * STEP_SPANS);
        std::vector<struct span *> small;
        for (int i = 0; i < 20; i++) small.push_back(fenced_run(1));
        space_release(large);
        let_pass(2 * DECAY);
        space_settings.decay_ms = DECAY;
        size_t calls = 0;
        for (auto *run : small) {
            let_pass(1);
            size_t purged = purged_by([run] { space_release(run); });
            EXPECT_LE(purged, PURGE_STEP);
            calls += purged != 0;
        }
        EXPECT_GE(calls, 9u);
        EXPECT_TRUE(reads_as_zeros(large)) << "step by step, all of it";
    });
}

TEST(ACall, PurgesOneStepInATickOfTheClockHoweverManyRunsItReleases)
{
    in_new_space([] {
        struct span *large = fenced_run(9 * STEP_SPANS);
        std::vector<struct span *> small;
        for (int i = 0; i < 32; i++) small.push_back(fenced_run(1));
        space_release(large);
        let_pass(2 * DECAY);
        space_settings.decay_ms = DECAY;
        uint64_t before = platform_clock_ms();
        size_t purged = purged_by([&small] {
            for (auto *run : small) space_release(run);
        });
        EXPECT_LE(purged, PURGE_STEP * (1 + platform_clock_ms() - before));
    });
}

TEST(ACall, ReachesALoweredThresholdStepByStep)
{
    in_new_space([] {
        struct span *large = fenced_run(9 * STEP_SPANS);
        std::vector<struct span *> small;
        for (int i = 0; i < 20; i++) small.push_back(fenced_run(1));
        space_release(large);
        space_settings.shared_dirty_max = 0;
        for (auto *run : small) {
            EXPECT_LE(purged_by([run] { space_release(run); }), PURGE_STEP + SPAN_SIZE);
        }
        EXPECT_EQ(0u, figures_now().dirty);
        struct span *again = fenced_run(9 * STEP_SPANS);
        space_release(again);
        EXPECT_EQ(0u, figures_now().dirty) << "what a call releases itself is not kept";
    });
}

TEST(ACall, LooksThroughSparseSpansStepByStep)
{
    isolated::expect_passes([] {
        space_settings.decay_ms = DECAY;
        constexpr size_t SPANS = 400, BYTES = 512, IN_A_SPAN = SPAN_SIZE / BYTES;
        std::vector<void *> blocks(SPANS * IN_A_SPAN);
        for (auto &block : blocks) block = heap_malloc(BYTES);
        for (size_t i = 0; i < blocks.size(); i++)
            if (i % IN_A_SPAN != 0) heap_free(blocks[i]);
        let_pass(2 * DECAY);
        size_t most = 0, all = 0;
        for (int i = 0; i < 400; i++) {
            let_pass(2);
            size_t purged = purged_by([] { heap_malloc(BYTES); });
            most = std::max(most, purged);
            all += purged;
        }
        EXPECT_GE(all, SPANS * SPAN_SIZE / 2);
        EXPECT_LE(most, 32 * SPAN_SIZE + PURGE_STEP);
    });
}

// ---- what the kernel refuses ----------------------------------------------------------------------------------------

// The kernel's own call: sanitizers have a mlock that does nothing.
bool lock_memory(const void *start, size_t size)
{
    return syscall(SYS_mlock, start, size) == 0;
}

TEST(ALockedPage, KeepsNoMoreThanItsSpan)
{
    if (HEAPFIT_TEST_EMULATED) GTEST_SKIP() << "the emulator gives locked pages back";
    in_new_space([] {
        std::vector<struct span *> runs;
        for (uint32_t spans : {40, 200, 40}) runs.push_back(fenced_run(spans));
        ASSERT_TRUE(lock_memory(bytes_of(runs[1]) + 100 * SPAN_SIZE, 1));
        for (auto *run : runs) space_release(run);
        let_pass(2 * DECAY);
        space_settings.decay_ms = DECAY;
        for (int i = 0; i < 8; i++) space_purge_old();
        EXPECT_EQ(SPAN_SIZE, figures_now().dirty);
    });
}

TEST(ALockedPage, IsNotInTheWayOfAnythingWhenMuchIsLocked)
{
    if (HEAPFIT_TEST_EMULATED) GTEST_SKIP() << "the emulator gives locked pages back";
    in_new_space([] {
        struct span *locked = fenced_run(100), *free = fenced_run(300);
        if (!lock_memory(bytes_of(locked), 100 * SPAN_SIZE)) GTEST_SKIP() << "RLIMIT_MEMLOCK is less than 7 MiB";
        space_release(locked);
        space_release(free);
        let_pass(2 * DECAY);
        space_settings.decay_ms = DECAY;
        for (int i = 0; i < 8; i++) space_purge_old();
        EXPECT_TRUE(reads_as_zeros(free));
        EXPECT_EQ(100 * SPAN_SIZE, figures_now().dirty);
    });
}

// That the kernel takes a part shows that the process has not locked all its memory.
TEST(ALockedPage, DoesNotCountAsALockedProcess)
{
    in_new_space([] {
        std::vector<struct span *> runs;
        for (int i = 0; i < 5; i++) runs.push_back(fenced_run(2));
        space_settings.shared_dirty_max = 0;
        // Each release asks for the run that has waited longest, until one is refused: twice the first, then the second.
        refused = {whole(runs[0]), whole(runs[2]), whole(runs[3]), {bytes_of(runs[1]), SPAN_SIZE}};
        for (int i = 0; i < 4; i++) space_release(runs[i]);
        EXPECT_LT(figures_now().dirty, 8 * SPAN_SIZE) << "a part of the second was taken";
        size_t before = purge_calls;
        space_release(runs[4]);
        EXPECT_GT(purge_calls, before) << "the kernel is asked further";
    });
}

TEST(ALockedProcess, IsNotAskedAllTheTime)
{
    in_new_space([] {
        purging_is_refused = true;
        std::vector<struct span *> runs;
        for (int i = 0; i < 100; i++) runs.push_back(fenced_run(2));
        space_settings.shared_dirty_max = 0;
        for (auto *run : runs) space_release(run);
        EXPECT_LE(purge_calls, 20u);
        EXPECT_EQ(200 * SPAN_SIZE, figures_now().dirty);
        purging_is_refused = false;
        let_pass(11 * SECOND);
        space_purge_all();
        EXPECT_EQ(0u, figures_now().dirty);
    });
}

} // namespace
