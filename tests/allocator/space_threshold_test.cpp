// space/: when free runs go back to the kernel: shared_span_threshold and decay_ms. The program is linked with --wrap
// for the call that gives them back, to count and to refuse it.
#include "space_runs.h"
#include "stress_seed.h"

#include <cstring>
#include <thread>
#include <vector>

namespace
{

std::atomic<size_t> purges{0};
std::atomic<bool> purging_is_refused{false};

} // namespace

extern "C" {
bool __real_platform_purge(void *start, size_t size);
bool __wrap_platform_purge(void *start, size_t size)
{
    purges++;
    return !purging_is_refused && __real_platform_purge(start, size);
}
}

namespace
{

using namespace space_runs;

void set_threshold(size_t bytes)
{
    space_settings.shared_dirty_max.store(bytes);
}

// Runs of these lengths that stay apart when they are released.
std::vector<struct span *> fenced_runs(const std::vector<uint32_t> &lengths)
{
    std::vector<struct span *> runs;
    for (uint32_t spans : lengths) {
        runs.push_back(acquire(spans));
        acquire(1);
        std::memset(bytes_of(runs.back()), 1, spans * SPAN_SIZE);
    }
    return runs;
}

// The clock that ages are taken from advances every few milliseconds.
void let_time_pass()
{
    uint64_t start = platform_clock_ms();
    while (platform_clock_ms() == start) std::this_thread::yield();
}

TEST(SharedSpanThreshold, OfZeroGivesEachRunBackAtItsRelease)
{
    in_new_space([] {
        set_threshold(0);
        auto runs = fenced_runs({1, 20, 1, 3});
        for (size_t i = 0; i < runs.size(); i++) {
            space_release(runs[i]);
            EXPECT_EQ(i + 1, purges);
            EXPECT_EQ(0u, figures_now().dirty);
        }
        EXPECT_TRUE(reads_as_zeros(space_acquire(20, 1, SPAN_LARGE, nullptr)));
    });
}

TEST(SharedSpanThreshold, IsNotPassedAndTheOldestGoFirst)
{
    in_new_space([] {
        set_threshold(5 * SPAN_SIZE);
        auto runs = fenced_runs({2, 3, 2});
        for (auto *run : runs) {
            space_release(run);
            let_time_pass();
        }
        EXPECT_EQ(1u, purges) << "as few as will do";
        EXPECT_EQ(5 * SPAN_SIZE, figures_now().dirty);
        EXPECT_TRUE(reads_as_zeros(runs[0]));
        EXPECT_FALSE(reads_as_zeros(runs[1]));
    });
}

TEST(SharedSpanThreshold, HoldsForARunThatIsLargerThanIt)
{
    in_new_space([] {
        set_threshold(5 * SPAN_SIZE);
        auto runs = fenced_runs({1, 100});
        for (auto *run : runs) space_release(run);
        EXPECT_GE(5 * SPAN_SIZE, figures_now().dirty);
        EXPECT_TRUE(reads_as_zeros(runs[1]));
    });
}

TEST(SharedSpanThreshold, HoldsForWhatAShorterRunGivesUp)
{
    in_new_space([] {
        set_threshold(0);
        auto runs = fenced_runs({8});
        ASSERT_TRUE(space_resize(runs[0], 2));
        EXPECT_EQ(1u, purges);
        EXPECT_EQ(6 * SPAN_SIZE, figures_now().purged);
        EXPECT_EQ(1, bytes_of(runs[0])[2 * SPAN_SIZE - 1]);
        EXPECT_EQ(0, bytes_of(runs[0])[2 * SPAN_SIZE]);
    });
}

TEST(SharedSpanThreshold, LessThanASpanIsNone)
{
    in_new_space([] {
        set_threshold(SPAN_SIZE - 1);
        space_release(fenced_runs({1})[0]);
        EXPECT_EQ(0u, figures_now().dirty);
    });
}

TEST(SharedSpanThreshold, LoweredTakesEffectAtTheNextReleaseOrChore)
{
    in_new_space([] {
        auto runs = fenced_runs({4, 4, 1, 1});
        space_release(runs[0]);
        space_release(runs[1]);
        set_threshold(2 * SPAN_SIZE);
        EXPECT_EQ(8 * SPAN_SIZE, figures_now().dirty);
        space_release(runs[2]);
        EXPECT_EQ(SPAN_SIZE, figures_now().dirty) << "what has just been released is the youngest";
        set_threshold(0);
        EXPECT_FALSE(space_purge_old());
        EXPECT_EQ(0u, figures_now().dirty);
    });
}

TEST(SharedSpanThreshold, RaisedAgainKeepsWhatIsReleased)
{
    in_new_space([] {
        set_threshold(0);
        auto runs = fenced_runs({4, 4});
        space_release(runs[0]);
        set_threshold(SIZE_MAX);
        space_release(runs[1]);
        EXPECT_EQ(1u, purges);
        EXPECT_EQ(4 * SPAN_SIZE, figures_now().dirty);
    });
}

TEST(SharedSpanThreshold, BeyondAllMemoryIsNone)
{
    for (size_t bytes : {SIZE_MAX, SIZE_MAX - 1, size_t{1} << 46, 2 * platform_physical_memory()}) {
        in_new_space([bytes] {
            set_threshold(bytes);
            struct span *run = acquire(SMALL_RESERVATION / SPAN_SIZE);
            ASSERT_NE(nullptr, run);
            space_release(run);
            EXPECT_EQ(SMALL_RESERVATION, figures_now().dirty);
            EXPECT_EQ(0u, purges);
        });
    }
}

TEST(SharedSpanThreshold, IsNotInsistedOnWhenTheKernelRefuses)
{
    in_new_space([] {
        set_threshold(0);
        purging_is_refused = true;
        auto runs = fenced_runs(std::vector<uint32_t>(50, 2));
        for (auto *run : runs) space_release(run);
        EXPECT_LE(purges, 20u) << "asked again too soon";
        EXPECT_EQ(100 * SPAN_SIZE, figures_now().dirty);
    });
}

TEST(SharedSpanThreshold, MayChangeWhileThreadsAllocate)
{
    in_new_space([] {
        std::atomic<bool> done{false};
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; i++) {
            threads.emplace_back([&done, i] {
                stress::Random random(stress::seed() + static_cast<unsigned>(i));
                while (!done) {
                    bool zeroed;
                    auto spans = static_cast<uint32_t>(random.between(1, 40));
                    struct span *run = space_acquire(spans, 1, SPAN_LARGE, &zeroed);
                    if (run == nullptr) continue;
                    if (zeroed) {
                        ASSERT_TRUE(reads_as_zeros(run));
                    }
                    std::memset(bytes_of(run), 0xA5, 64);
                    if (random.chance(30)) space_resize(run, static_cast<uint32_t>(random.between(1, 40)));
                    space_release(run);
                }
            });
        }
        stress::Random random(stress::seed());
        stress::Deadline deadline(2);
        while (!deadline.passed()) {
            const size_t thresholds[] = {0, SPAN_SIZE, 30 * SPAN_SIZE, SIZE_MAX};
            set_threshold(thresholds[random.below(4)]);
            space_settings.decay_ms = random.chance(50) ? DECAY_NEVER : static_cast<uint32_t>(random.below(3));
            std::this_thread::yield();
        }
        done = true;
        for (auto &thread : threads) thread.join();
        space_walker::check();
        space_settings.decay_ms = DECAY_NEVER;
        set_threshold(0);
        // A threshold that has been lowered is reached step by step.
        for (int step = 0; step < 100 && figures_now().dirty != 0; step++) space_purge_old();
        EXPECT_EQ(0u, figures_now().dirty);
    });
}

// What the options promise: everything unlimited, and a program in a steady state asks the kernel for nothing.
TEST(NothingIsPurged, WhenAllIsUnlimitedAndThereIsRoom)
{
    in_new_space([] {
        stress::Random random(stress::seed());
        std::vector<struct span *> runs;
        for (int step = 0; step < 20000; step++) {
            while (runs.size() < 20) runs.push_back(acquire(static_cast<uint32_t>(random.between(1, 20))));
            ASSERT_NE(nullptr, runs.back());
            std::swap(runs[random.below(runs.size())], runs.back());
            space_release(runs.back());
            runs.pop_back();
            EXPECT_FALSE(space_purge_old()) << "nothing will ever be due";
        }
        EXPECT_EQ(0u, purges);
        size_t commits = figures_now().commit_calls;
        uint32_t room = runs.back()->run_spans; // for more there may be no hole
        space_release(runs.back());
        for (int step = 0; step < 1000; step++) space_release(acquire(static_cast<uint32_t>(random.between(1, room))));
        EXPECT_EQ(commits, figures_now().commit_calls);
    });
}

TEST(NothingIsPurged, ByAge)
{
    in_new_space([] {
        space_release(acquire(100));
        let_time_pass();
        EXPECT_FALSE(space_purge_old());
        EXPECT_EQ(0u, purges);
        space_settings.decay_ms = 1;
        let_time_pass();
        space_purge_old();
        EXPECT_EQ(1u, purges) << "the option holds from now on";
    });
}

TEST(NothingIsPurged, UnlessMemoryHasRunOut)
{
    in_new_space([] {
        uint32_t all = SMALL_RESERVATION / SPAN_SIZE;
        struct span *first = acquire(all / 2);
        struct span *second = acquire(all / 2);
        space_release(first);
        space_purge_all();
        space_release(second);
        size_t before = purges;
        EXPECT_NE(nullptr, acquire(all));
        EXPECT_EQ(before + 1, purges);
    });
}

} // namespace
