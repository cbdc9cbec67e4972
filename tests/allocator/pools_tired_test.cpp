// Wrappers through which nothing is allocated that gains by a place of its own: after a while they cost no walk of the chain, and
// as soon as there is something, they do again. What groups there are, and their verdicts, are each test's to say.
#include "pools_internals.h"

#include <gtest/gtest.h>

namespace
{

constexpr uintptr_t WRAPPER = 0x1000;
constexpr size_t SIZE = 40;
constexpr verdict ORDINARY = {VERDICT_ORDINARY, 0, 0, false, POOL_NONE};
constexpr verdict WATCHED = {VERDICT_SLOW, 0, 0, false, 0};
constexpr verdict NOT_PLACED = {VERDICT_ORDINARY, 0, 0, false, 3}; // pools:none

unsigned asked, watched;
verdict answer;
uint32_t group_answer;
uintptr_t site_answer;

// As malloc does, called from the wrapper.
void *allocate(uintptr_t site = WRAPPER)
{
    frame caller = {site, 0, 0};
    void *object = pools_pop(SIZE, thread_heap, site);
    return object != nullptr ? object : pools_malloc_at(SIZE, thread_heap, &caller);
}

void allocate_and_free(unsigned times)
{
    for (unsigned i = 0; i < times; i++) heap_free(allocate());
}

// All live, so that bins run out of blocks.
void allocate_and_keep(unsigned times)
{
    for (unsigned i = 0; i < times; i++) ASSERT_TRUE(allocate() != nullptr);
}

class Tired : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        heap_free(heap_malloc(1)); // a heap of its own, first
        asked = watched = 0;
        answer = ORDINARY;
        group_answer = 5;
        site_answer = 0;
        sites_drop();
    }
};

} // namespace

extern "C" {
uint32_t __wrap_chain_group(const struct frame *)
{
    asked++;
    return group_answer;
}

verdict __wrap_group_verdict(uint32_t)
{
    return answer;
}

uintptr_t __wrap_chain_site(uint32_t)
{
    return site_answer;
}

void __wrap_group_watch(uint32_t, void *, size_t)
{
    watched++;
}
}

namespace
{

TEST_F(Tired, AfterSomeThousandObjectsChainsAreHardlyWalked)
{
    allocate_and_free(4096);
    EXPECT_EQ(4096U, asked);
    asked = 0;
    allocate_and_keep(10000);
    EXPECT_GT(asked, 0U) << "when a bin has no blocks";
    EXPECT_LT(asked, 1000U);
}

TEST_F(Tired, TheyAreWhenAnObjectIsToBeWatched)
{
    allocate_and_free(4096);
    answer = WATCHED;
    allocate_and_keep(2000);
    asked = watched = 0;
    allocate_and_keep(1000);
    EXPECT_EQ(1000U, asked);
    EXPECT_EQ(1000U, watched);
}

TEST_F(Tired, OneObjectInAThousandKeepsAWrapperAwake)
{
    for (unsigned i = 1; i <= 50000; i++) {
        answer = i % 1000 == 0 ? WATCHED : ORDINARY;
        heap_free(allocate());
    }
    EXPECT_EQ(50000U, asked);
}

TEST_F(Tired, SoDoPoolsThatAreMadeAndNotUsed)
{
    answer = NOT_PLACED;
    allocate_and_free(20000);
    EXPECT_EQ(20000U, asked);
}

TEST_F(Tired, ChainsThatCannotBeToldAreAsGoodAsOrdinary)
{
    group_answer = GROUP_NONE;
    allocate_and_free(20000);
    EXPECT_LT(asked, 6000U);
}

TEST_F(Tired, ASiteThatLeadsToOneGroupIsAskedOnce)
{
    site_answer = WRAPPER;
    allocate_and_free(1000);
    EXPECT_EQ(1U, asked);
}

} // namespace
