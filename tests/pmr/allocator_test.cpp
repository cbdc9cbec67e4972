// heapfit::allocator<T>: containers without virtual calls, and how an allocator follows them.

#include <limits>
#include <list>
#include <map>
#include <scoped_allocator>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include <heapfit/pmr.hpp>

namespace
{

using heapfit::allocator;
using heapfit::context;
using text = std::basic_string<char, std::char_traits<char>, allocator<char>>;
template <class T> using vector = std::vector<T, allocator<T>>;
template <class T> using scoped = std::scoped_allocator_adaptor<allocator<T>>;

const char *const long_word = "a word that is longer than what a string keeps in its own place";

TEST(Allocator, PutsEveryContainerIntoItsContext)
{
    const context home;
    const text word(long_word, home);
    const vector<int> numbers(1000, 3, home);
    const std::list<int, allocator<int>> list(10, 3, home);
    std::map<int, int, std::less<>, allocator<std::pair<const int, int>>> map(home);
    std::unordered_map<int, int, std::hash<int>, std::equal_to<>, allocator<std::pair<const int, int>>> table(
        16, std::hash<int>(), std::equal_to<>(), home);
    for (int i = 0; i < 1000; i++) map[i] = table[i] = i;
    EXPECT_TRUE(home.owns(word.data()));
    EXPECT_TRUE(home.owns(numbers.data()));
    for (const auto &each : list) EXPECT_TRUE(home.owns(&each));
    for (const auto &each : map) EXPECT_TRUE(home.owns(&each));
    for (const auto &each : table) EXPECT_TRUE(home.owns(&each));
}

TEST(Allocator, WithoutAContextIsTheThreadHeaps)
{
    const vector<int> numbers(1000, 3);
    EXPECT_EQ(numbers.get_allocator().context(), nullptr);
    EXPECT_TRUE(hf_is_ours(numbers.data()));

    const context home;
    const heapfit::switch_to request(home);
    const vector<int> more(1000, 3);
    EXPECT_FALSE(home.owns(more.data())) << "also while the thread has switched";
}

TEST(Allocator, AreEqualWhenTheirContextsAre)
{
    const context one, other;
    EXPECT_EQ(allocator<int>(one), allocator<char>(one));
    EXPECT_NE(allocator<int>(one), allocator<int>(other));
    EXPECT_NE(allocator<int>(one), allocator<int>());
    EXPECT_EQ(allocator<int>(), allocator<char>(nullptr));
    EXPECT_EQ(allocator<int>(allocator<char>(one)).context(), one.get());
}

TEST(Allocator, AssignmentKeepsTheTargetsContext)
{
    const context request, session;
    vector<int> kept(session);
    vector<int> made(1000, 3, request);
    kept = made;
    EXPECT_TRUE(session.owns(kept.data()));
    kept = std::move(made);
    EXPECT_TRUE(session.owns(kept.data()));
    EXPECT_EQ(kept, vector<int>(1000, 3));
}

TEST(Allocator, ThrowsWhereNoSizeCanSayHowMany)
{
    const context home;
    allocator<long> in_context(home), in_heap;
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    EXPECT_THROW(static_cast<void>(in_context.allocate(most)), std::bad_array_new_length);
    EXPECT_THROW(static_cast<void>(in_heap.allocate(most / 8)), std::bad_array_new_length);
    EXPECT_THROW(static_cast<void>(in_context.allocate(most / 16 - 1)), std::bad_alloc);
}

} // namespace
