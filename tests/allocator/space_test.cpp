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
