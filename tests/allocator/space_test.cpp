// space/: runs of spans. Each case runs in a process of its own, because there is one reservation in each.
#include "heap_internals.h"
#include "space_runs.h"
#include "stress_seed.h"

#define _Atomic(type) std::atomic<type>
#define _Static_assert static_assert
extern "C" {
#include "space/state.h"
}
#undef _Atomic
#undef _Static_assert

#include <cstring>
#include <map>
#include <vector>

namespace
{

using namespace space_runs;

// ---- a random walk against a model ---------------------------------------------------------------------------------

class RandomWalk
{
  public:
    explicit RandomWalk(uint64_t seed) : random_(seed) {}

    void step()
    {
        switch (random_.below(10)) {
        case 0:
        case 1:
        case 2:
        case 3:
            acquire_one();
            break;
        case 4:
        case 5:
        case 6:
            release_one();
            break;
        case 7:
        case 8:
            resize_one();
            break;
        default:
            purge();
            break;
        }
    }

    void purge()
    {
        if (random_.chance(20)) space_purge_all();
        else space_purge_old();
    }

    void release_all()
    {
        while (!runs_.empty()) release_one();
    }

  private:
    uint32_t random_length()
    {
        return static_cast<uint32_t>(random_.chance(70) ? random_.between(1, 8) : random_.between(1, 120));
    }

    // Marks each span with its run, so that two runs that share one are noticed.
    static void mark(struct span *run, uint32_t from, uint64_t tag)
    {
        for (uint32_t i = from; i < run->run_spans; i++)
            *reinterpret_cast<uint64_t *>(bytes_of(run) + i * SPAN_SIZE) = tag + i;
    }

    static void expect_marked(struct span *run, uint32_t spans, uint64_t tag)
    {
        for (uint32_t i = 0; i < spans; i++)
            ASSERT_EQ(tag + i, *reinterpret_cast<uint64_t *>(bytes_of(run) + i * SPAN_SIZE)) << "span " << i;
    }

    void acquire_one()
    {
        uint32_t spans = random_length();
        uint32_t alignment = random_.chance(80) ? 1 : 1u << random_.below(8);
        bool zeroed;
        struct span *run = space_acquire(spans, alignment, SPAN_LARGE, &zeroed);
        if (run == nullptr) return;
        ASSERT_EQ(spans, run->run_spans);
        ASSERT_EQ(0u, span_start(run) % (alignment * SPAN_SIZE));
        if (zeroed) {
            ASSERT_TRUE(reads_as_zeros(run));
        }
        uint64_t tag = random_.next();
        mark(run, 0, tag);
        ASSERT_TRUE(runs_.emplace(run, tag).second);
    }

    std::map<struct span *, uint64_t>::iterator any_run()
    {
        auto place = runs_.begin();
        std::advance(place, random_.below(runs_.size()));
        return place;
    }

    void release_one()
    {
        if (runs_.empty()) return;
        auto place = any_run();
        expect_marked(place->first, place->first->run_spans, place->second);
        space_release(place->first);
        runs_.erase(place);
    }

    void resize_one()
    {
        if (runs_.empty()) return;
        auto [run, tag] = *any_run();
        uint32_t old = run->run_spans;
        uint32_t wanted = random_length();
        bool done = space_resize(run, wanted, random_.chance(50));
        ASSERT_EQ(done ? wanted : old, run->run_spans);
        ASSERT_TRUE(done || wanted > old) << "shrinking always succeeds";
        expect_marked(run, done && wanted < old ? wanted : old, tag);
        if (done && wanted > old) mark(run, old, tag);
    }

    stress::Random random_;
    std::map<struct span *, uint64_t> runs_;
};

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

TEST(Space, ARandomWalkKeepsRunsApartAndTheTableSound)
{
    SCOPED_TRACE(stress::how_to_repeat());
    in_new_space([] {
        RandomWalk walk(stress::seed());
        stress::Deadline deadline(3);
        do {
            for (int i = 0; i < 50 && !testing::Test::HasFatalFailure(); i++) walk.step();
            space_walker::check();
        } while (!deadline.passed() && !testing::Test::HasFailure());
        walk.release_all();
        space_purge_all();
        EXPECT_EQ(0u, figures_now().handed_out);
    });
}

} // namespace
