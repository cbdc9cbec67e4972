// The memory resources: std::pmr containers in contexts and in the thread heap.

#include <limits>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <unordered_map>

#include <gtest/gtest.h>

#include <heapfit/pmr.hpp>

namespace
{

using heapfit::context;
using heapfit::context_resource;

const std::string long_word(200, 'w'); // too long for a string's own place

struct order {
    using allocator_type = std::pmr::polymorphic_allocator<char>;
    explicit order(const allocator_type &allocator)
        : name(allocator), words(allocator), index(allocator), lines(allocator)
    {
    }
    std::pmr::string name;
    std::pmr::map<int, std::pmr::string> words;
    std::pmr::unordered_map<std::pmr::string, int> index;
    std::pmr::list<std::pmr::vector<int>> lines;
};

void fill(order &filled)
{
    filled.name = long_word;
    for (int i = 0; i < 300; i++) {
        filled.words.emplace(i, long_word);
        filled.index.emplace(std::pmr::string(long_word) + std::to_string(i).c_str(), i);
        filled.lines.emplace_back(50, i);
    }
}

// Whether all that `filled` has allocated lies in `home`.
bool lies_in(const order &filled, const context &home)
{
    bool inside = home.owns(filled.name.data());
    for (const auto &each : filled.words) inside = inside && home.owns(&each) && home.owns(each.second.data());
    for (const auto &each : filled.index) inside = inside && home.owns(&each) && home.owns(each.first.data());
    for (const auto &each : filled.lines) inside = inside && home.owns(&each) && home.owns(each.data());
    return inside;
}

template <class Resource> class OwningResource : public testing::Test
{
};
using owning_resources = testing::Types<heapfit::defrag_dodging_resource, heapfit::region_resource>;
TYPED_TEST_SUITE(OwningResource, owning_resources, );

TYPED_TEST(OwningResource, HoldsAllThatNestedContainersAllocate)
{
    TypeParam resource;
    order placed(&resource);
    fill(placed);
    EXPECT_TRUE(lies_in(placed, resource.context()));
    EXPECT_EQ(placed.index.at(std::pmr::string(long_word) + "299"), 299);
    EXPECT_EQ(placed.lines.back(), std::pmr::vector<int>(50, 299));
}

TYPED_TEST(OwningResource, ReleaseForgetsContainersThatWereNeverDestroyed)
{
    TypeParam resource;
    std::size_t footprint = 0;
    for (int transaction = 0; transaction < 20; transaction++) {
        void *place = resource.allocate(sizeof(order), alignof(order));
        auto *forgotten = ::new (place) order(&resource);
        fill(*forgotten);
        ASSERT_EQ(forgotten->words.size(), 300u);
        if (transaction == 0) footprint = resource.context().stats().footprint;
        EXPECT_EQ(resource.context().stats().footprint, footprint) << "transaction " << transaction;
        resource.release();
        EXPECT_EQ(resource.context().stats().live_bytes, 0u);
    }
}

TEST(ContextResource, IsEqualToEveryResourceOverTheSameContext)
{
    const context one, other;
    const context_resource first(one), second(one, heapfit::freeing::by_any_thread), third(other);
    EXPECT_EQ(first, second);
    EXPECT_NE(first, third);
    EXPECT_NE(first, *std::pmr::new_delete_resource());
    EXPECT_NE(first, *heapfit::thread_heap());
    const heapfit::defrag_dodging_resource owning;
    EXPECT_EQ(owning, context_resource(owning.get()));
}

TEST(ContextResource, CopyOfAContainerLeavesTheContextAndMoveStays)
{
    heapfit::defrag_dodging_resource resource;
    std::pmr::vector<int> original(1000, 7, &resource);
    const auto copy = original;
    const auto moved = std::move(original);
    EXPECT_FALSE(resource.context().owns(copy.data()));
    EXPECT_TRUE(resource.context().owns(moved.data()));
}

TEST(ContextResource, AnyThreadFreesWhereTheResourceSaysSo)
{
    const context home;
    context_resource resource(home, heapfit::freeing::by_any_thread);
    constexpr std::size_t words = 10000;
    std::pmr::vector<std::pmr::string> made(words, std::pmr::string(long_word), &resource);
    std::thread([consumed = std::move(made)]() mutable {
        EXPECT_EQ(consumed.back(), long_word.c_str());
        consumed.clear();
        consumed.shrink_to_fit();
    }).join();
    const std::size_t used = home.stats().used_bytes;
    const std::pmr::vector<std::pmr::string> again(words, std::pmr::string(long_word), &resource);
    EXPECT_LT(home.stats().used_bytes, used + used / 4) << "what the other thread freed is used again";
}

TEST(ContextResource, AContainerAtTheLimitKeepsWhatItHas)
{
    heapfit::context_options options;
    options.limit = 4u << 20;
    heapfit::defrag_dodging_resource resource(options);
    std::pmr::vector<int> numbers(&resource);
    const auto grow = [&] {
        for (int i = 0;; i++) numbers.push_back(i);
    };
    EXPECT_THROW(grow(), std::bad_alloc);
    ASSERT_GT(numbers.size(), 1000u);
    for (std::size_t i = 0; i < numbers.size(); i++) ASSERT_EQ(numbers[i], static_cast<int>(i));
}

TEST(ThreadHeap, IsOneResourceThatAnyThreadFreesTo)
{
    EXPECT_EQ(heapfit::thread_heap(), heapfit::thread_heap());
    EXPECT_NE(*heapfit::thread_heap(), *std::pmr::new_delete_resource());
    std::pmr::vector<int> numbers(1000, 1, heapfit::thread_heap());
    EXPECT_TRUE(hf_is_ours(numbers.data()));
    std::thread([freed = std::move(numbers)]() mutable {
        freed = std::pmr::vector<int>(heapfit::thread_heap());
    }).join();
}

TEST(ThreadHeap, ThrowsWhenASizeCannotBe)
{
    const volatile std::size_t size =
        std::numeric_limits<std::size_t>::max() / 2 + 2; // the compiler knows it cannot be
    EXPECT_THROW(static_cast<void>(heapfit::thread_heap()->allocate(size)), std::bad_alloc);
}

} // namespace
