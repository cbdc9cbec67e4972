// space/: free memory kept apart by NUMA node. Machines with several are rare, so the program is linked with --wrap for
// the two questions that the library asks about nodes, and each thread says on which one it is: the library needs
// no way in for tests. What is tested is which runs go where and which pages go first; where the kernel then puts new
// ones is the kernel's matter.
#include "space_runs.h"
#include "stress_seed.h"
#include "system.h"

namespace
{

unsigned simulated_nodes = 2;
thread_local unsigned simulated_node = 0;

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
    return simulated_node;
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

std::vector<struct space_node_figures> node_figures()
{
    std::vector<struct space_node_figures> figures(figures_now().nodes);
    space_node_figures(figures.data(), figures.size());
    return figures;
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

bool is_of(uint64_t stamp, unsigned node)
{
    return stamp == NO_STAMP || stamp == stamp_of_node(node);
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
        for (uint32_t i = 0; i < run->run_spans && !zeroed; i++) // it may end beyond the frontier
            ASSERT_TRUE(is_of(*stamp_of(run, i), simulated_node)) << "memory of another node";
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
        if (!space_resize(run, random_length(), false)) return;
        for (uint32_t i = old; i < run->run_spans; i++) {
            ASSERT_TRUE(is_of(*stamp_of(run, i), node)) << "grew over memory of another node";
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

} // namespace
