// heapfit::switch_to: what it diverts and where it goes back to. hf_malloc stands for malloc here, so that the tests run with
// instrumented libraries too.

#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include <heapfit/pmr.hpp>

namespace
{

using heapfit::context;
using heapfit::switch_to;

// Whether hf_malloc takes from `home` now.
bool allocates_in(const context &home)
{
    void *object = hf_malloc(100);
    const bool inside = home.owns(object);
    hf_free(object);
    return inside;
}

TEST(SwitchTo, NestsAndGoesBackStepByStep)
{
    const context outer, inner;
    const switch_to first(outer);
    {
        const switch_to second(inner);
        EXPECT_EQ(second.before(), outer.get());
        EXPECT_TRUE(allocates_in(inner));
        {
            const switch_to heap(nullptr);
            EXPECT_FALSE(allocates_in(inner));
            EXPECT_FALSE(allocates_in(outer));
        }
        EXPECT_TRUE(allocates_in(inner));
        {
            const switch_to again(outer);
            EXPECT_TRUE(allocates_in(outer));
        }
    }
    EXPECT_TRUE(allocates_in(outer));
}

TEST(SwitchTo, TakesResourcesToo)
{
    const heapfit::region_resource region;
    const heapfit::context_resource same(region.get());
    const switch_to first(region), second(same);
    EXPECT_EQ(hf_context_current(), region.get());
}

TEST(SwitchTo, GoesBackWhenAnExceptionPasses)
{
    const context home;
    const auto fails = [&] {
        const switch_to guard(home);
        throw std::runtime_error("in the middle of a transaction");
    };
    EXPECT_THROW(fails(), std::runtime_error);
    EXPECT_EQ(hf_context_current(), nullptr);
}

TEST(SwitchTo, EntersAContextThatSomebodyHasLeft)
{
    context home;
    home.leave();
    std::thread([&] {
        const switch_to guard(home);
        EXPECT_TRUE(allocates_in(home));
    }).join();
}

} // namespace
