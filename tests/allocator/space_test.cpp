// space/: runs of spans. Each case runs in a process of its own, because there is one reservation in each.
#include "space_runs.h"
#include "space_state.h"
#include "stress_seed.h"
#include "system.h"

#include <cstring>

namespace
{

using namespace space_runs;

// Another library's handler may take its time, while other threads go on.
TEST(Space, RunsThatAreReleasedDuringAForkAreUsedAgainWhateverTheirLength)
{
    in_new_space([] {
        space_fork_begin();
        for (uint32_t spans : {1, 2, 3, 5, 17}) {
            struct span *runs[2] = {acquire(spans), acquire(spans)};
            size_t before = figures_now().handed_out;
            for (int i = 0; i < 100; i++) {
                for (auto &run : runs) {
                    space_release(run);
                    bool zeroed = true; // as calloc asks
                    run = space_acquire(spans, 1, SPAN_LARGE, &zeroed);
                    ASSERT_NE(nullptr, run);
                    EXPECT_EQ(spans, run->run_spans);
                    EXPECT_FALSE(zeroed) << "it holds what its last user left";
                }
            }
            EXPECT_EQ(before, figures_now().handed_out);
            for (auto *run : runs) space_release(run);
        }
        space_fork_end();
        EXPECT_EQ(0u, figures_now().handed_out);
    });
}

// A signal's handler forks while the interrupted thread takes a run out of what was released during another thread's fork: in the
// child it goes on with that, and the runs must still be where it was looking.
TEST(Space, AThreadThatWorksBesideTheSpaceEndsInAForksChildBeforeTheSpaceIsEntered)
{
    in_new_space([] {
        auto *run = acquire(4);
        space_fork_begin();
        space_release(run);
        ASSERT_EQ(SPACE_BESIDE, space_enter());
        space_fork_child();
        EXPECT_TRUE(space_state.any_deferred) << "taken in while a thread works with it";
        EXPECT_EQ(SPACE_DENIED, space_enter());
        space_leave(SPACE_BESIDE);
        enum space_access access = space_enter();
        EXPECT_EQ(SPACE_WHOLE, access);
        EXPECT_FALSE(space_state.any_deferred);
        space_leave(access);
        EXPECT_EQ(0u, figures_now().handed_out);
    });
}

// Threads work beside a fork, with runs of several lengths; returns where the frontier is afterwards.
uint32_t frontier_after_fork(int rounds, uint32_t alignment)
{
    std::vector<struct span *> runs;
    space_fork_begin();
    for (int i = 0; i < rounds; i++) {
        for (uint32_t spans = 1; spans <= 6; spans++) {
            runs.push_back(space_acquire(spans, alignment, SPAN_LARGE, nullptr));
            EXPECT_EQ(0u, span_start(runs.back()) % (alignment * SPAN_SIZE));
        }
        space_release(runs.front());
        runs.erase(runs.begin());
    }
    space_fork_end();
    for (auto *run : runs) space_release(run);
    return space_spans();
}

// A process forks for as long as it lives, and each fork could take new addresses for good: until its heap is longer than the machine's
// memory, and the kernel refuses to copy it.
TEST(Space, ForksTakeNoNewAddressesOnceThereAreEnough)
{
    for (uint32_t alignment : {1, 16})
        for (bool is_purged : {false, true})
            in_new_space(
                [=] {
                    uint32_t before = 0;
                    for (int i = 0; i < 50; i++) {
                        uint32_t after = frontier_after_fork(10, alignment);
                        if (is_purged) space_purge_all();
                        if (i == 5) before = after;
                    }
                    EXPECT_EQ(before, space_spans());
                    EXPECT_EQ(0u, figures_now().handed_out);
                },
                1024 * MIB);
}

// What is cut off longer runs while a fork lasts, however long, is bounded by what is live at once.
TEST(Space, ALongForkTakesNoMoreThanIsLive)
{
    in_new_space(
        [] {
            stress::Random random(1);
            std::vector<struct span *> runs(50);
            space_fork_begin();
            for (auto &run : runs) run = acquire(1 + static_cast<uint32_t>(random.below(5)));
            uint32_t live = space_spans();
            for (int i = 0; i < 100000; i++) {
                auto &run = runs[random.below(runs.size())];
                space_release(run);
                run = acquire(1 + static_cast<uint32_t>(random.below(5)));
            }
            EXPECT_LE(space_spans(), 4 * live);
            space_fork_end();
        },
        1024 * MIB);
}

// What a fork puts aside is free all the same: a heap that is mostly clean must not look full meanwhile.
TEST(Space, CleanRunsThatAForkPutsAsideDoNotCountAsKept)
{
    in_new_space(
        [] {
            frontier_after_fork(1, 1); // from now on it does
            space_release(acquire(1000));
            space_purge_all();
            size_t kept = space_kept();
            auto figures = figures_now();
            space_fork_begin();
            EXPECT_TRUE(space_state.any_deferred);
            EXPECT_EQ(kept, space_kept());
            EXPECT_EQ(figures.handed_out, figures_now().handed_out);
            EXPECT_EQ(figures.clean, figures_now().clean);
            auto *run = acquire(3);
            EXPECT_EQ(kept + 3 * SPAN_SIZE, space_kept());
            space_fork_end();
            space_release(run);
            EXPECT_EQ(0u, figures_now().handed_out);
        },
        1024 * MIB);
}

TEST(Space, RunsThatWereAlignedAreUsedAgainForAlignedOnes)
{
    in_new_space(
        [] {
            constexpr uint32_t ALIGNMENT = 32;
            stress::Random random(1);
            std::vector<struct span *> runs;
            for (int i = 0; i < 100; i++) runs.push_back(space_acquire(1 + i % 3, ALIGNMENT, SPAN_LARGE, nullptr));
            uint32_t spans = space_spans();
            for (int i = 0; i < 10000; i++) {
                size_t which = random.below(runs.size());
                space_release(runs[which]);
                runs[which] = space_acquire(1 + static_cast<uint32_t>(random.below(3)), ALIGNMENT, SPAN_LARGE, nullptr);
                ASSERT_NE(nullptr, runs[which]);
            }
            EXPECT_LE(space_spans(), spans + spans / 4);
        },
        1024 * MIB);
}

TEST(Space, ALongerRunIsTakenWhereManyThatAreTooShortStandBeforeOneThatWouldDo)
{
    in_new_space(
        [] {
            auto fenced = [](uint32_t spans) {
                struct span *run = acquire(spans);
                acquire(1);
                return run;
            };
            struct span *fits = fenced(47), *longer = fenced(100);
            std::vector<struct span *> shorter(40);
            for (auto &run : shorter) run = fenced(40);
            space_release(longer);
            space_release(fits);
            for (auto *run : shorter) space_release(run);
            EXPECT_EQ(longer, acquire(45));
        },
        1024 * MIB);
}

// As where a limit leaves no more addresses: a run longer than what is beyond the frontier begins before it.
TEST(Frontier, AFreeRunBeforeItIsTheBeginningOfALongerOne)
{
    for (uint32_t alignment : {1, 16})
        for (bool purged : {false, true})
            in_new_space([=] {
                struct span *run = acquire(600);
                std::memset(bytes_of(run), 1, 600 * SPAN_SIZE);
                space_release(run);
                if (purged) space_purge_all();
                bool zeroed = !purged;
                struct span *longer = space_acquire(900, alignment, SPAN_LARGE, &zeroed);
                ASSERT_NE(nullptr, longer);
                EXPECT_EQ(purged, zeroed);
                std::memset(bytes_of(longer), 2, 900 * SPAN_SIZE);
                space_walker::check();
                space_release(longer);
            });
}

} // namespace
