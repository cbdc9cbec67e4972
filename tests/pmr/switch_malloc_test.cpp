// heapfit::switch_to where heapfit is the program's malloc: code that knows nothing of contexts lands in one.

#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heapfit/pmr.hpp>

namespace
{

using heapfit::context;
using heapfit::switch_to;

using words = std::map<std::string, std::vector<std::string>>;

// Ordinary code: new, malloc and std::allocator.
words count_words()
{
    words counted;
    for (int i = 0; i < 100; i++)
        counted["a rather long word, number " + std::to_string(i)].assign(3, "and its equally long kin");
    return counted;
}

TEST(SwitchToMalloc, DivertsMallocAndOperatorNew)
{
    const context home;
    bool plain, aligned, in_new;
    {
        const switch_to guard(home);
        void *object = std::malloc(10);
        void *page = std::aligned_alloc(4096, 4096);
        const auto number = std::make_unique<int>(5);
        plain = home.owns(object);
        aligned = home.owns(page);
        in_new = home.owns(number.get());
        std::free(page);
        std::free(object);
    }
    EXPECT_TRUE(plain);
    EXPECT_TRUE(aligned);
    EXPECT_TRUE(in_new);
    EXPECT_EQ(home.stats().live_bytes, 0u);
}

TEST(SwitchToMalloc, OrdinaryContainersCanBeForgottenWithTheirContext)
{
    context home;
    for (int transaction = 0; transaction < 10; transaction++) {
        words *forgotten;
        {
            const switch_to guard(home);
            forgotten = new words(count_words());
        }
        ASSERT_TRUE(home.owns(forgotten));
        ASSERT_EQ(forgotten->size(), 100u);
        home.free_all();
    }
    EXPECT_EQ(home.stats().live_bytes, 0u);
}

TEST(SwitchToMalloc, AnExceptionCaughtWhileItsContextLivesIsWhole)
{
    context home;
    std::string message;
    try {
        const switch_to guard(home);
        throw std::runtime_error("a message that is long enough to be allocated apart");
    } catch (const std::runtime_error &error) {
        EXPECT_TRUE(home.owns(error.what())) << "an exception is allocated where the thread has switched to";
        message = error.what();
    }
    home.free_all();
    EXPECT_EQ(message, "a message that is long enough to be allocated apart");
    EXPECT_EQ(home.stats().live_bytes, 0u);
}

} // namespace
