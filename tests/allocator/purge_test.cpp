// How memory goes back over time: at any age, in steps that no call notices, and whatever is locked. The program is
// linked with --wrap for the clock, which it shifts, and for the call that gives memory back.
#include "heap_internals.h"
#include "heap_isolated.h"
#include "space_runs.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace
{

uint64_t clock_shift_ms; // what has passed that nobody waited for
size_t purge_bytes;

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
    purge_bytes += size;
    return __real_platform_purge(start, size);
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

// ---- how old --------------------------------------------------------------------------------------------------------

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

// A program of few calls, each with much memory.
TEST(Age, OneCallGivesBackAsMuchAsItReleases)
{
    in_new_space(
        [] {
            space_settings.decay_ms = DECAY;
            struct span *old = fenced_run(20 * STEP_SPANS), *young = fenced_run(20 * STEP_SPANS);
            space_release(old);
            let_pass(2 * DECAY);
            space_release(young);
            EXPECT_EQ(20 * PURGE_STEP, purge_bytes);
            EXPECT_EQ(20 * PURGE_STEP, figures_now().dirty);
        },
        1024 * MIB);
}

// ---- what the kernel refuses ----------------------------------------------------------------------------------------

// The kernel's own call: sanitizers have a mlock that does nothing.
bool lock_memory(const void *start, size_t size)
{
    return syscall(SYS_mlock, start, size) == 0;
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

} // namespace
