// Chains of real code: through wrappers of this program and of libraries that come and go. Only what functions do with an
// object is told by a stand-in: the wrappers are named.
#include "pools_internals.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <algorithm>
#include <set>
#include <vector>

namespace
{

#define FRAME __attribute__((noinline))

std::set<uintptr_t> wrappers; // where they begin
unsigned analysed;
struct group {
    std::vector<uintptr_t> chain; // as far as kept
    unsigned length;
};
std::vector<group> groups;

using site = unsigned (*)();

// Stands for malloc.
FRAME unsigned allocate()
{
    frame caller = {reinterpret_cast<uintptr_t>(__builtin_return_address(0)),
                    reinterpret_cast<uintptr_t>(__builtin_dwarf_cfa()),
                    *static_cast<uintptr_t *>(__builtin_frame_address(0))};
    return chain_group(&caller);
}

// Not a jump at the end, so that the function has a frame.
unsigned kept(unsigned group)
{
    __asm__ volatile("");
    return group;
}

FRAME unsigned wrapper()
{
    return kept(allocate());
}

FRAME unsigned outer_wrapper()
{
    return kept(wrapper());
}

FRAME unsigned uses_directly()
{
    return kept(allocate());
}

FRAME unsigned uses_one()
{
    return kept(outer_wrapper());
}

FRAME unsigned uses_other()
{
    return kept(outer_wrapper());
}

FRAME unsigned uses_plugin(unsigned (*plugin_wrapper)(site))
{
    return kept(plugin_wrapper(allocate));
}

// Runs the same code whatever function is called.
std::vector<unsigned> groups_of(const std::vector<site> &sites, int times)
{
    std::vector<unsigned> result;
    for (site function : sites)
        for (int i = 0; i < times; i++) result.push_back(function());
    return result;
}

void are_wrappers(const std::vector<site> &functions)
{
    for (site function : functions) wrappers.insert(reinterpret_cast<uintptr_t>(function));
}

} // namespace

extern "C" {
struct pool_settings pool_settings = {POOL_CHAIN_ADAPTIVE, POOL_PLACING_JUDGED, true, false, 4096, 100, 128, ""};

follow follow_pointer(uintptr_t, uintptr_t start, uintptr_t, int *, unsigned *)
{
    analysed++;
    return wrappers.count(start) != 0 ? FOLLOW_PASSED_ON : FOLLOW_USED;
}

uint32_t group_new(const uintptr_t *chain, unsigned length, bool)
{
    groups.push_back({{chain, chain + std::min(length, unsigned{CHAIN_KEPT})}, length});
    return static_cast<uint32_t>(groups.size() - 1);
}

verdict group_verdict(uint32_t)
{
    return {};
}

void site_learn(uintptr_t, uint64_t) {}

void site_drop(uintptr_t) {}

void sites_drop() {}
}

namespace
{

TEST(ChainsOfCode, TellTheCallersOfWrappersApart)
{
    are_wrappers({wrapper, outer_wrapper});
    EXPECT_EQ((std::vector<unsigned>{0, 0, 1, 1, 2, 2}), groups_of({uses_directly, uses_one, uses_other}, 2));
    ASSERT_EQ(3U, groups.size());
    EXPECT_EQ(1U, groups[0].length);
    EXPECT_EQ(3U, groups[1].length);
    EXPECT_EQ(3U, groups[2].length);
    EXPECT_EQ(groups[1].chain[1], groups[2].chain[1]) << "the outer wrapper";
    EXPECT_EQ(5U, analysed);
}

TEST(ChainsOfCode, OfFullLengthReachWhoCalledMain)
{
    pool_settings.chain = POOL_CHAIN_FULL;
    unsigned here = allocate();
    unsigned there = uses_one();
    EXPECT_NE(here, there);
    EXPECT_EQ(groups[here].length + 3, groups[there].length);
}

// Of a library that is loaded anew, what was known before is not believed.
TEST(ChainsOfCode, ForgetALibraryThatIsUnloaded)
{
    constexpr unsigned ROUNDS = 5;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        void *library = dlopen(HEAPFIT_POOLS_PLUGIN, RTLD_NOW);
        ASSERT_TRUE(library != nullptr) << dlerror();
        auto call = reinterpret_cast<unsigned (*)(site)>(dlsym(library, "plugin_wrapper"));
        wrappers = {reinterpret_cast<uintptr_t>(call)};
        unsigned group = uses_plugin(call);
        EXPECT_EQ(group, uses_plugin(call));
        EXPECT_EQ(2U, groups[group].length);
        EXPECT_GE(analysed, round + 1) << "the wrapper in each round, its caller once at least";
        ASSERT_EQ(0, dlclose(library));
        chain_forget();
    }
}

} // namespace
