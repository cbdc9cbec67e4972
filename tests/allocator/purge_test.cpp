// How memory goes back over time: at any age, in steps that no call notices, and whatever is locked. The program is
// linked with --wrap for the clock, which it shifts, and for the call that gives memory back.
#include "heap_internals.h"
#include "heap_isolated.h"
#include "space_runs.h"
#include "system.h"

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
            acquire(60 * STEP_SPANS); // else each is much of the heap
            struct span *old = fenced_run(3 * STEP_SPANS), *young = fenced_run(3 * STEP_SPANS);
            space_release(old);
            let_pass(2 * DECAY);
            space_release(young);
            EXPECT_EQ(3 * PURGE_STEP, purge_bytes);
            EXPECT_EQ(3 * PURGE_STEP, figures_now().dirty);
        },
        1024 * MIB);
}

constexpr uint32_t BURST_SPANS = 4 * STEP_SPANS;

void let_go_what_is_due()
{
    while (space_purge_old() == SPACE_LEFT_OLD) {
    }
}

// What is in use for a moment, in parts that are none of them large, after so long a rest; returns how much of it the kernel has got
// meanwhile.
size_t burst_after(uint64_t rest)
{
    size_t before = purge_bytes;
    let_pass(rest);
    let_go_what_is_due();
    struct span *parts[32];
    for (struct span *&part : parts) part = acquire(BURST_SPANS / 32);
    for (struct span *part : parts) space_release(part);
    return purge_bytes - before;
}

TEST(Patience, IsLearntFromBurstsThatComeAgain)
{
    in_new_space([] {
        space_settings.decay_ms = DECAY;
        burst_after(0);
        for (int i = 0; i < 2; i++) EXPECT_EQ(4 * PURGE_STEP, burst_after(3 * DECAY)) << "it is not known yet";
        for (int i = 0; i < 20; i++) EXPECT_EQ(0u, burst_after(3 * DECAY)) << i;
        let_pass(4 * DECAY);
        let_go_what_is_due();
        EXPECT_EQ(0u, figures_now().dirty) << "when they cease";
        burst_after(20 * DECAY);
        EXPECT_EQ(4 * PURGE_STEP, burst_after(3 * DECAY)) << "what was learnt is forgotten";
    });
}

TEST(Patience, EndsWhereBurstsAreTooFarApart)
{
    in_new_space([] {
        space_settings.decay_ms = DECAY;
        burst_after(0);
        for (int i = 0; i < 10; i++) EXPECT_EQ(4 * PURGE_STEP, burst_after(9 * DECAY)) << i;
    });
}

// As much is let go as is in use, and something else is taken: that is no rest.
TEST(Patience, IsNotHadWithMoreThanHalfOfWhatIsInUse)
{
    in_new_space(
        [] {
            space_settings.decay_ms = DECAY;
            struct span *used = acquire(BURST_SPANS);
            for (uint32_t i = 1; i < 10; i++) {
                struct span *next = acquire(BURST_SPANS + i);
                space_release(used);
                used = next;
                let_pass(2 * DECAY);
                let_go_what_is_due();
                EXPECT_LE(figures_now().dirty, BURST_SPANS * SPAN_SIZE / 2) << i;
            }
        },
        1024 * MIB);
}

constexpr uint32_t TABLE_SPANS = 2 * STEP_SPANS, LEAST_SPENT = MIB / SPAN_SIZE;

// A table that doubles three times by being copied, and goes; returns how much the kernel has got meanwhile.
size_t grow_a_table()
{
    size_t before = purge_bytes;
    struct span *table = acquire(TABLE_SPANS);
    for (uint32_t spans = 2 * TABLE_SPANS; spans <= 8 * TABLE_SPANS; spans *= 2) {
        struct span *larger = acquire(spans);
        space_release(table);
        table = larger;
    }
    space_release(table);
    return purge_bytes - before;
}

TEST(ASpentBlock, GoesBackAtOnceUntilItIsNeededAgainAndAgain)
{
    in_new_space(
        [] {
            space_settings.decay_ms = DECAY;
            acquire(10 * TABLE_SPANS);
            EXPECT_EQ((1 + 2 + 4 + 8) * TABLE_SPANS * SPAN_SIZE, grow_a_table());
            EXPECT_EQ(0u, figures_now().dirty);
            for (int i = 0; i < 3; i++) grow_a_table();
            EXPECT_EQ(0u, grow_a_table());
        },
        1024 * MIB);
}

TEST(ASpentBlock, IsKeptWhereItIsLittleBesideTheHeap)
{
    in_new_space(
        [] {
            space_settings.decay_ms = DECAY;
            space_release(acquire(LEAST_SPENT - 1)); // most of the heap, but small
            acquire(20 * TABLE_SPANS);
            space_release(acquire(TABLE_SPANS));
            EXPECT_EQ(0u, purge_bytes);
            space_settings.decay_ms = DECAY_NEVER;
            grow_a_table();
            EXPECT_EQ(0u, purge_bytes);
        },
        1024 * MIB);
}

TEST(ASpentBlock, IsKeptBesideMoreFreeMemoryThanItHasItself)
{
    for (uint32_t beside : {3u, 10u}) {
        in_new_space([beside] {
            space_settings.decay_ms = DECAY;
            constexpr uint32_t SMALL = LEAST_SPENT - 1, LARGE = 6 * LEAST_SPENT;
            std::vector<struct span *> small;
            for (uint32_t i = 0; i < beside; i++) small.push_back(acquire(SMALL));
            struct span *large = acquire(LARGE);
            acquire(1);
            for (struct span *run : small) space_release(run);
            space_release(large);
            EXPECT_EQ(beside * SMALL > LARGE ? 0 : (beside * SMALL + LARGE) * SPAN_SIZE, purge_bytes) << beside;
        });
    }
}

TEST(ASpentBlock, OfAnotherLengthIsLearntOfByItself)
{
    in_new_space([] {
        space_settings.decay_ms = DECAY;
        for (int i = 0; i < 10; i++) space_release(acquire(LEAST_SPENT));
        size_t before = purge_bytes;
        space_release(acquire(LEAST_SPENT));
        EXPECT_EQ(before, purge_bytes);
        space_release(acquire(4 * LEAST_SPENT));
        EXPECT_GE(purge_bytes - before, 4 * LEAST_SPENT * SPAN_SIZE);
    });
}

// As a buffer does that is read into.
TEST(ASpentBlock, IsLearntOfWhenItGrowsInPlace)
{
    in_new_space(
        [] {
            space_settings.decay_ms = DECAY;
            size_t before = 0;
            for (int i = 0; i < 10; i++) {
                before = purge_bytes;
                struct span *buffer = acquire(16);
                for (uint32_t spans = 32; spans <= 1024; spans *= 2) ASSERT_TRUE(space_resize(buffer, spans, false));
                space_release(buffer);
            }
            EXPECT_EQ(before, purge_bytes);
            EXPECT_GT(purge_bytes, 0u);
            let_pass(61 * SECOND);
            space_release(acquire(1024));
            EXPECT_GE(purge_bytes - before, 1024 * SPAN_SIZE) << "a minute later it is tried again";
        },
        1024 * MIB);
}

constexpr uint32_t PHASE_SPANS = 32 * MIB / SPAN_SIZE;

TEST(APhase, GivesItsBlockBackAtOnceUntilItIsNeededAgainAndAgain)
{
    in_new_space(
        [] {
            space_settings.decay_ms = DECAY;
            for (size_t expected : {32 * MIB, 32 * MIB, size_t{0}, size_t{0}}) {
                size_t before = purge_bytes;
                space_release(acquire(PHASE_SPANS));
                EXPECT_EQ(expected, purge_bytes - before);
            }
        },
        1024 * MIB);
}

// Of many runs, each of which is little.
TEST(APhase, ThatLeavesMostOfTheHeapFreeGivesItBackSooner)
{
    in_new_space(
        [] {
            constexpr uint32_t LONG = 100 * DECAY; // beside what the machine takes for this
            space_settings.decay_ms = LONG;
            std::vector<struct span *> runs;
            for (int i = 0; i < 100; i++) runs.push_back(acquire(STEP_SPANS / 2));
            for (int i = 0; i < 75; i++) space_release(runs[static_cast<size_t>(i)]);
            let_pass(LONG / 8 - LONG / 20);
            let_go_what_is_due();
            EXPECT_EQ(0u, purge_bytes);
            let_pass(LONG / 10);
            let_go_what_is_due();
            EXPECT_GE(150 * MIB - purge_bytes, 50 * MIB) << "as much as is in use stays for the decay time";
            EXPECT_LE(150 * MIB - purge_bytes, 50 * MIB + PURGE_STEP);
        },
        1024 * MIB);
}

#ifdef HEAPFIT_TEST_FULL // a container may lock less
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
#endif

} // namespace
