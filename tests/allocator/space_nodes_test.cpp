// space/: free memory kept apart by NUMA node. Machines with several are rare, so the program is linked with --wrap for
// the two questions that the library asks about nodes, and each thread says on which one it is: the library needs
// no way in for tests. What is tested is which runs go where and which pages go first; where the kernel then puts new
// ones is the kernel's matter.
#include "space_runs.h"
#include "stress_seed.h"

#include <sched.h>

#include <cstring>
#include <map>
#include <thread>
#include <vector>

namespace
{

unsigned simulated_nodes = 2;
thread_local unsigned simulated_node = 0;
std::atomic<size_t> questions{0};
std::atomic<bool> purging_is_refused{false};
std::atomic<size_t> splits{0};

} // namespace

extern "C" {
unsigned __real_platform_node_count(void);
unsigned __real_platform_node(void);
unsigned __wrap_platform_node_count(void)
{
    return simulated_nodes;
}
unsigned __wrap_platform_node(void)
{
    questions++;
    return simulated_node;
}
bool __real_platform_purge(void *start, size_t size);
bool __wrap_platform_purge(void *start, size_t size)
{
    return !purging_is_refused && __real_platform_purge(start, size);
}
void __real_platform_split_huge_pages(void *start, size_t size);
void __wrap_platform_split_huge_pages(void *start, size_t size)
{
    splits++;
    __real_platform_split_huge_pages(start, size);
}
}

namespace
{

using namespace space_runs;

template <typename Body> void in_new_space_of_nodes(unsigned nodes, Body body)
{
    space_settings.numa = true;
    simulated_nodes = nodes;
    in_new_space(body);
}

struct span *acquire_on(unsigned node, uint32_t spans, bool *zeroed = nullptr)
{
    simulated_node = node;
    return space_acquire(spans, 1, SPAN_LARGE, zeroed);
}

struct span *acquire_touched_on(unsigned node, uint32_t spans)
{
    struct span *run = acquire_on(node, spans);
    std::memset(bytes_of(run), 1, spans * SPAN_SIZE);
    return run;
}

std::vector<struct space_node_figures> node_figures()
{
    std::vector<struct space_node_figures> figures(figures_now().nodes);
    space_node_figures(figures.data(), figures.size());
    return figures;
}

TEST(Nodes, OneNodeIsNeverAskedFor)
{
    in_new_space_of_nodes(1, [] {
        space_release(acquire(3));
        acquire(3);
        EXPECT_EQ(0u, questions);
        EXPECT_EQ(1u, figures_now().nodes);
    });
}

TEST(Nodes, AreNotAskedForWhenSwitchedOff)
{
    simulated_nodes = 2;
    space_settings.numa = false;
    in_new_space([] {
        space_release(acquire(3));
        acquire(3);
        EXPECT_EQ(0u, questions);
        EXPECT_EQ(1u, figures_now().nodes);
    });
}

TEST(Nodes, AReleasedRunGoesBackToItsOwn)
{
    in_new_space_of_nodes(2, [] {
        struct span *run = acquire_touched_on(0, 4);
        space_release(run);
        EXPECT_EQ(4 * SPAN_SIZE, node_figures()[0].dirty);
        EXPECT_EQ(0u, node_figures()[1].dirty);
        bool zeroed;
        struct span *other = acquire_on(1, 4, &zeroed);
        EXPECT_NE(run, other);
        EXPECT_TRUE(zeroed);
        EXPECT_EQ(run, acquire_on(0, 4, &zeroed));
        EXPECT_FALSE(zeroed);
        EXPECT_EQ(1, bytes_of(run)[0]) << "its pages were given back for nothing";
    });
}

TEST(Nodes, WhoeverReleasesARun)
{
    in_new_space_of_nodes(2, [] {
        struct span *run = acquire_touched_on(1, 4);
        simulated_node = 0;
        space_release(run);
        EXPECT_EQ(4 * SPAN_SIZE, node_figures()[1].dirty);
        EXPECT_NE(run, acquire_on(0, 4));
        EXPECT_EQ(run, acquire_on(1, 4));
    });
}

TEST(Nodes, WhatIsCleanBelongsToNone)
{
    in_new_space_of_nodes(2, [] {
        struct span *run = acquire_touched_on(0, 4);
        space_release(run);
        space_purge_all();
        bool zeroed;
        EXPECT_EQ(run, acquire_on(1, 4, &zeroed));
        EXPECT_TRUE(zeroed);
        space_release(run);
        EXPECT_EQ(4 * SPAN_SIZE, node_figures()[1].dirty) << "its pages come from where it was touched last";
    });
}

TEST(Nodes, NeighboursOfDifferentOnesMergeOnlyWhenClean)
{
    in_new_space_of_nodes(2, [] {
        struct span *runs[] = {acquire_on(0, 3), acquire_on(1, 3), acquire_on(1, 3), acquire_on(0, 3)};
        acquire(1);
        for (auto *run : runs) {
            space_release(run);
            space_walker::check();
        }
        EXPECT_EQ(6 * SPAN_SIZE, node_figures()[0].dirty);
        EXPECT_EQ(runs[1], acquire_on(1, 6)) << "neighbours of one node are one run";
        space_release(runs[1]);
        space_purge_all();
        EXPECT_EQ(runs[0], acquire_on(0, 12));
    });
}

TEST(Nodes, ARunCrossesOnlyWhenNothingElseIsFreeAndLeavesItsPagesBehind)
{
    in_new_space_of_nodes(2, [] {
        uint32_t all = SMALL_RESERVATION / SPAN_SIZE;
        struct span *run = acquire_touched_on(0, 8);
        acquire_on(0, all - 16);
        struct span *last = acquire_touched_on(0, 8);
        space_release(run);
        space_release(last);
        bool zeroed = false;
        struct span *crossed = acquire_on(1, 5, &zeroed);
        ASSERT_NE(nullptr, crossed);
        EXPECT_TRUE(zeroed);
        EXPECT_TRUE(reads_as_zeros(crossed));
        EXPECT_EQ(1u, node_figures()[0].crossings);
        EXPECT_EQ(0u, node_figures()[1].crossings);
        EXPECT_EQ(5 * SPAN_SIZE, figures_now().purged) << "only what crosses is purged";
        EXPECT_EQ(11 * SPAN_SIZE, node_figures()[0].dirty);
        space_walker::check();
        space_release(crossed);
        EXPECT_EQ(5 * SPAN_SIZE, node_figures()[1].dirty);
    });
}

TEST(Nodes, PiecesOfBothAreJoinedBeforeARequestIsRefused)
{
    in_new_space_of_nodes(2, [] {
        uint32_t all = SMALL_RESERVATION / SPAN_SIZE;
        struct span *halves[] = {acquire_on(0, all / 2), acquire_on(1, all / 2)};
        for (auto *half : halves) space_release(half);
        EXPECT_NE(nullptr, acquire_on(0, all));
    });
}

TEST(Nodes, ARunThatGrowsOverAnothersPagesLeavesThemBehind)
{
    in_new_space_of_nodes(2, [] {
        struct span *run = acquire_touched_on(0, 2);
        struct span *own = acquire_touched_on(0, 2);
        struct span *foreign = acquire_touched_on(1, 3);
        struct span *fence = acquire(1);
        space_release(own);
        space_release(foreign);
        ASSERT_TRUE(space_resize(run, 4));
        EXPECT_EQ(0u, figures_now().purge_calls);
        EXPECT_EQ(1, bytes_of(run)[2 * SPAN_SIZE]) << "pages of its own node are as good as new ones";
        ASSERT_TRUE(space_resize(run, 6));
        EXPECT_EQ(1u, figures_now().purge_calls);
        EXPECT_EQ(1u, node_figures()[1].crossings);
        EXPECT_EQ(0, bytes_of(run)[4 * SPAN_SIZE]);
        EXPECT_EQ(0, bytes_of(run)[5 * SPAN_SIZE]);
        EXPECT_EQ(1, bytes_of(run)[4 * SPAN_SIZE - 1]);
        space_walker::check();
        space_release(run);
        EXPECT_EQ(6 * SPAN_SIZE, node_figures()[0].dirty);
        EXPECT_EQ(SPAN_SIZE, node_figures()[1].dirty);
        (void)fence;
    });
}

// Otherwise the kernel would keep the page whole for the part that is left.
TEST(Nodes, ARunThatGrowsOverAPartOfAnothersHugePageSplitsIt)
{
    constexpr uint32_t UNIT_SPANS = PLATFORM_HUGE_PAGE / SPAN_SIZE;
    in_new_space_of_nodes(2, [] {
        space_settings.huge_page_price = UINT32_MAX; // whatever they cost
        for (int i = 0; i < 20; i++) acquire_touched_on(0, UNIT_SPANS);
        struct span *run = acquire_touched_on(0, 4);
        struct span *foreign = acquire_touched_on(1, 4);
        acquire(1);
        ASSERT_GT(figures_now().huge, 0u);
        space_release(foreign);
        splits = 0;
        ASSERT_TRUE(space_resize(run, 8));
        EXPECT_EQ(1u, splits);
    });
}

// As it does with memory that is locked.
TEST(Nodes, PagesThatTheKernelWillNotTakeBackAreUsedFromAfar)
{
    in_new_space_of_nodes(2, [] {
        struct span *run = acquire_touched_on(1, SMALL_RESERVATION / SPAN_SIZE);
        purging_is_refused = true;
        space_release(run);
        space_purge_all();
        EXPECT_EQ(SMALL_RESERVATION, node_figures()[1].dirty) << "a run left its node, but its pages did not";
        bool zeroed = true;
        EXPECT_EQ(run, acquire_on(0, 2, &zeroed));
        EXPECT_FALSE(zeroed);
        ASSERT_TRUE(space_resize(run, 4));
    });
}

TEST(Nodes, EachHasTheWholeThreshold)
{
    in_new_space_of_nodes(2, [] {
        space_settings.shared_dirty_max = 4 * SPAN_SIZE;
        std::vector<struct span *> runs;
        for (unsigned i = 0; i < 8; i++) {
            runs.push_back(acquire_on(i % 2, 2));
            acquire(1);
        }
        for (auto *run : runs) space_release(run);
        EXPECT_EQ(4 * SPAN_SIZE, node_figures()[0].dirty);
        EXPECT_EQ(4 * SPAN_SIZE, node_figures()[1].dirty);
    });
}

TEST(Nodes, BeyondTheSixteenthShare)
{
    in_new_space_of_nodes(40, [] {
        EXPECT_EQ(16u, figures_now().nodes);
        struct span *run = acquire_touched_on(39, 2);
        space_release(run);
        EXPECT_EQ(2 * SPAN_SIZE, node_figures()[39 % 16].dirty);
        EXPECT_NE(run, acquire_on(38, 2));
        EXPECT_EQ(run, acquire_on(7, 2));
    });
}

TEST(Nodes, NumberedAnewWhileWeRunAreNoHarm)
{
    in_new_space_of_nodes(2, [] {
        space_release(acquire_on(5, 2));
        EXPECT_EQ(2 * SPAN_SIZE, node_figures()[1].dirty);
    });
}

TEST(Nodes, FiguresAreThoseOfAsManyAsFit)
{
    in_new_space_of_nodes(3, [] {
        space_release(acquire_on(0, 2));
        struct space_node_figures figures[2] = {{1, 1, 1}, {1, 1, 1}};
        EXPECT_EQ(3u, space_node_figures(figures, 1));
        EXPECT_EQ(2 * SPAN_SIZE, figures[0].dirty);
        EXPECT_EQ(1u, figures[1].dirty) << "beyond what was asked for";
        EXPECT_EQ(3u, space_node_figures(nullptr, 0));
    });
}

TEST(Nodes, KernelsListOfThemIsUnderstood)
{
    EXPECT_EQ(1u, platform_nodes_in_list("0\n"));
    EXPECT_EQ(1u, platform_nodes_in_list(""));
    EXPECT_EQ(1u, platform_nodes_in_list("\n"));
    EXPECT_EQ(1u, platform_nodes_in_list("3\n")) << "one, whatever its number";
    EXPECT_EQ(2u, platform_nodes_in_list("0-1\n"));
    EXPECT_EQ(9u, platform_nodes_in_list("0-3,8\n"));
    EXPECT_EQ(13u, platform_nodes_in_list("0,4,12"));
    EXPECT_EQ(128u, platform_nodes_in_list("0-127\n"));
}

TEST(Nodes, AThreadsIsWhereItsProcessorIs)
{
    cpu_set_t allowed;
    ASSERT_EQ(0, sched_getaffinity(0, sizeof allowed, &allowed));
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        cpu_set_t only;
        CPU_ZERO(&only);
        CPU_SET(cpu, &only);
        ASSERT_EQ(0, sched_setaffinity(0, sizeof only, &only));
        unsigned node = 0;
        ASSERT_EQ(0, getcpu(nullptr, &node));
        EXPECT_EQ(node, __real_platform_node());
        EXPECT_TRUE(node < __real_platform_node_count() || __real_platform_node_count() == 1);
    }
    sched_setaffinity(0, sizeof allowed, &allowed);
}

// ---- a random walk against a model ---------------------------------------------------------------------------------

// Every span holds a stamp of the node whose thread touched it last; memory that has never been touched since it was
// purged holds none.
constexpr uint64_t NO_STAMP = 0;

uint64_t *stamp_of(struct span *run, uint32_t span)
{
    return reinterpret_cast<uint64_t *>(bytes_of(run) + span * SPAN_SIZE);
}

uint64_t stamp_of_node(unsigned node)
{
    return 0xA5A5A5A500000001 + node;
}

class NodeWalk
{
  public:
    NodeWalk(uint64_t seed, unsigned nodes) : random_(seed), nodes_(nodes) {}

    void step()
    {
        simulated_node = static_cast<unsigned>(random_.below(nodes_));
        uint64_t what = random_.below(100);
        if (what < 45) acquire_one();
        else if (what < 80) release_one();
        else if (what < 98) resize_one();
        else space_purge_all();
    }

    // Whether free dirty memory lies with its node, and as much of it as was touched there.
    void check() const
    {
        for (uint32_t index = 0; index < frontier();) {
            struct span *run = span_at(index);
            for (uint32_t i = 0; run->kind == SPAN_FREE && i < run->run_spans; i++) {
                uint64_t stamp = *stamp_of(run, i);
                ASSERT_EQ(run->pool == 0 ? NO_STAMP : stamp_of_node(run->pool - 1u), stamp)
                    << "span " << i << " of the free run " << index;
            }
            index += run->run_spans;
        }
        space_walker::check();
    }

    size_t crossings() const
    {
        size_t sum = 0;
        for (const auto &figures : node_figures()) sum += figures.crossings;
        return sum;
    }

  private:
    static uint32_t frontier()
    {
        struct space_figures figures = figures_now();
        return static_cast<uint32_t>((figures.handed_out + figures.dirty + figures.clean) / SPAN_SIZE);
    }

    uint32_t random_length()
    {
        return static_cast<uint32_t>(random_.chance(70) ? random_.between(1, 8) : random_.between(1, 120));
    }

    static void stamp(struct span *run, uint32_t from, unsigned node)
    {
        for (uint32_t i = from; i < run->run_spans; i++) *stamp_of(run, i) = stamp_of_node(node);
    }

    void acquire_one()
    {
        bool zeroed = false;
        struct span *run = space_acquire(random_length(), 1u << random_.below(3), SPAN_LARGE, &zeroed);
        if (run == nullptr) return;
        if (zeroed) {
            ASSERT_TRUE(reads_as_zeros(run));
        }
        for (uint32_t i = 0; i < run->run_spans && !zeroed; i++)
            ASSERT_EQ(stamp_of_node(simulated_node), *stamp_of(run, i)) << "memory of another node";
        stamp(run, 0, simulated_node);
        runs_[run] = simulated_node;
    }

    std::map<struct span *, unsigned>::iterator any_run()
    {
        return std::next(runs_.begin(), static_cast<long>(random_.below(runs_.size())));
    }

    void release_one()
    {
        if (runs_.empty()) return;
        auto [run, node] = *any_run();
        size_t dirty = node_figures()[node].dirty + run->run_spans * SPAN_SIZE;
        runs_.erase(run);
        space_release(run);
        ASSERT_EQ(dirty, node_figures()[node].dirty) << "not back where it came from";
    }

    void resize_one()
    {
        if (runs_.empty()) return;
        auto [run, node] = *any_run();
        uint32_t old = run->run_spans;
        if (!space_resize(run, random_length())) return;
        for (uint32_t i = old; i < run->run_spans; i++) {
            uint64_t stamp = *stamp_of(run, i);
            ASSERT_TRUE(stamp == NO_STAMP || stamp == stamp_of_node(node)) << "grew over memory of another node";
        }
        stamp(run, old, node); // by the thread that has it: a run stays with its node
    }

    stress::Random random_;
    unsigned nodes_;
    std::map<struct span *, unsigned> runs_;
};

TEST(Nodes, ARandomWalkNeverMixesThem)
{
    SCOPED_TRACE(stress::how_to_repeat());
    for (unsigned nodes : {2u, 3u}) {
        in_new_space_of_nodes(nodes, [nodes] {
            NodeWalk walk(stress::seed(), nodes);
            stress::Deadline deadline(2);
            do {
                for (int i = 0; i < 50 && !testing::Test::HasFatalFailure(); i++) walk.step();
                walk.check();
            } while ((walk.crossings() == 0 || !deadline.passed()) && !testing::Test::HasFailure());
        });
    }
}

// The same with real threads, each pinned to a node, which release each other's runs.
class Exchange
{
  public:
    // Leaves a run for others, and returns one that has been left, or nullptr.
    struct span *swap(struct span *run, size_t place)
    {
        // Acquire and release: the run's descriptor and contents go with it.
        return places_[place % PLACES].exchange(run, std::memory_order_acq_rel);
    }

  private:
    static constexpr size_t PLACES = 8;
    std::atomic<struct span *> places_[PLACES] = {};
};

void allocate_on_node(unsigned node, uint64_t seed, const std::atomic<bool> &done, Exchange &exchange)
{
    simulated_node = node;
    stress::Random random(seed);
    while (!done && !stress::failed()) {
        bool zeroed = false;
        struct span *run = space_acquire(static_cast<uint32_t>(random.between(1, 60)), 1, SPAN_LARGE, &zeroed);
        if (run == nullptr) continue;
        for (uint32_t i = 0; i < run->run_spans; i++) {
            ASSERT_EQ(zeroed ? NO_STAMP : stamp_of_node(node), *stamp_of(run, i));
            *stamp_of(run, i) = stamp_of_node(node);
        }
        struct span *released = random.chance(70) ? exchange.swap(run, random.next()) : run;
        if (released != nullptr) space_release(released);
    }
}

TEST(Nodes, ThreadsGetMemoryOfTheirOwnOrNone)
{
    SCOPED_TRACE(stress::how_to_repeat());
    in_new_space_of_nodes(2, [] {
        std::atomic<bool> done{false};
        Exchange exchange;
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 4; i++)
            threads.emplace_back([&, i] { allocate_on_node(i % 2, stress::seed() + i, done, exchange); });
        stress::Random random(stress::seed());
        stress::Deadline deadline(2);
        while (!deadline.passed()) {
            space_settings.shared_dirty_max = random.chance(50) ? SIZE_MAX : random.below(100) * SPAN_SIZE;
            if (random.chance(10)) space_purge_all();
            std::this_thread::yield();
        }
        done = true;
        for (auto &thread : threads) thread.join();
        for (size_t place = 0; place < 8; place++) {
            struct span *left = exchange.swap(nullptr, place);
            if (left != nullptr) space_release(left);
        }
        space_purge_all();
        EXPECT_EQ(0u, figures_now().handed_out);
    });
}

} // namespace
