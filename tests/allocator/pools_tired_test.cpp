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
        thread_heap->quiet = false;
        thread_heap->woken_at = thread_heap->refills;
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

// A chain whose parts are in the site table, on a stack of frames of four words.
class Behind : public Tired
{
  protected:
    static constexpr uintptr_t OUTER = 0x2000, CALLER = 0x3000;
    static constexpr frame_rule RULE = {32, -8, 0, 0, FRAME_KNOWN};

    void SetUp() override
    {
        Tired::SetUp();
        stack_[3] = OUTER;
        stack_[7] = CALLER;
        uint64_t one = chain_key(0, WRAPPER), two = chain_key(one, OUTER);
        three_ = chain_key(two, CALLER);
        uint64_t deeper = rule_packed(&RULE) << VERDICT_KIND_BITS | VERDICT_DEEPER;
        site_put(WRAPPER, deeper);
        site_put(two, deeper);
    }
    void *allocate()
    {
        auto stack = reinterpret_cast<uintptr_t>(stack_);
        frame caller = {WRAPPER, stack, stack};
        void *object = pools_pop(SIZE, thread_heap, WRAPPER);
        return object != nullptr ? object : pools_malloc_at(SIZE, thread_heap, &caller);
    }

    uint64_t three_;
    alignas(64) uintptr_t stack_[8] = {};
};

TEST_F(Behind, AllWrappersIsWhereAChainLeads)
{
    uint32_t pool;
    ASSERT_TRUE(place_pool(&pool, 48));
    thread_heap->bins[BIN_COUNT + pool].borrowed = BORROWED_MAX; // beyond its first objects, which are ordinary
    site_put(three_, verdict_word(place_verdict(pool)));
    void *object = allocate();
    EXPECT_EQ(pool, place_of(span_of_offset(space_offset(object))));
    EXPECT_EQ(0U, asked);
    stack_[7] = CALLER + 64; // another caller
    EXPECT_EQ(POOL_NONE, place_of(span_of_offset(space_offset(allocate()))));
    EXPECT_EQ(1U, asked);
}

TEST_F(Behind, AWrapperThatIsLeftByItsFramePointer)
{
    constexpr frame_rule by_base = {32, -8, 0, 1, FRAME_KNOWN};
    site_put(WRAPPER, rule_packed(&by_base) << VERDICT_KIND_BITS | VERDICT_DEEPER);
    site_put(three_, verdict_word(ORDINARY));
    ASSERT_TRUE(allocate() != nullptr);
    EXPECT_EQ(0U, asked);
}

TEST_F(Behind, AStackThatIsOtherwiseIsAskedAbout)
{
    site_put(three_, verdict_word(ORDINARY));
    ASSERT_TRUE(allocate() != nullptr);
    EXPECT_EQ(0U, asked);
    constexpr frame_rule nowhere = {1 << 20, -8, 0, 0, FRAME_KNOWN};
    site_put(WRAPPER, rule_packed(&nowhere) << VERDICT_KIND_BITS | VERDICT_DEEPER);
    ASSERT_TRUE(allocate() != nullptr);
    EXPECT_EQ(1U, asked);
}

TEST_F(Behind, WhatIsOrdinaryTiresTheWrapper)
{
    site_put(three_, verdict_word(ORDINARY));
    for (int i = 0; i < 5000; i++) heap_free(allocate());
    EXPECT_LT(asked, 100U) << "when a bin has no blocks";
    EXPECT_TRUE(verdict_of_word(site_word(WRAPPER)).tired);
}

TEST_F(Tired, AHeapIsQuietUntilSomethingIsToBeWatched)
{
    site_answer = WRAPPER;
    allocate_and_keep(100000);
    EXPECT_TRUE(thread_heap->quiet);
    asked = 0;
    answer = WATCHED;
    site_answer = 0x5000;
    for (int i = 0; i < 10000; i++) ASSERT_TRUE(allocate(0x5000) != nullptr);
    EXPECT_FALSE(thread_heap->quiet);
    EXPECT_GT(watched, 8000U) << "from the first time on that the bin has no blocks";
}

TEST_F(Tired, AHeapWithWatchedObjectsNowAndThenIsNotQuiet)
{
    for (unsigned i = 1; i <= 100000; i++) {
        answer = i % 1000 == 0 ? WATCHED : ORDINARY;
        ASSERT_TRUE(allocate() != nullptr);
    }
    EXPECT_FALSE(thread_heap->quiet);
}

TEST_F(Tired, ASiteThatLeadsToOneGroupIsAskedOnce)
{
    site_answer = WRAPPER;
    allocate_and_free(1000);
    EXPECT_EQ(1U, asked);
}

} // namespace
