// Compiled, not run: <heapfit/pmr.hpp> as the first thing that a file includes, its templates instantiated, and what it must
// refuse to compile.
#include <heapfit/pmr.hpp>

#include <list>
#include <map>
#include <memory>
#include <scoped_allocator>
#include <string>
#include <unordered_map>

template class heapfit::allocator<char>;
template class heapfit::allocator<std::string>;
template class heapfit::detail::owning_resource<heapfit::context_kind::defrag_dodging>;
template class heapfit::detail::owning_resource<heapfit::context_kind::region>;

namespace
{

template <class T> using nested = std::scoped_allocator_adaptor<heapfit::allocator<T>>;
using text = std::basic_string<char, std::char_traits<char>, heapfit::allocator<char>>;
using entry = std::pair<const text, std::list<text, nested<text>>>;
using table = std::map<text, std::list<text, nested<text>>, std::less<>, nested<entry>>;

static_assert(std::is_nothrow_move_constructible_v<heapfit::context>);
static_assert(std::is_nothrow_move_assignable_v<heapfit::context>);
static_assert(std::is_nothrow_swappable_v<heapfit::context>);
static_assert(!std::is_copy_constructible_v<heapfit::context>);
static_assert(!std::is_convertible_v<hf_context *, heapfit::context>);
static_assert(!std::is_convertible_v<heapfit::context_kind, heapfit::context>);

static_assert(std::is_nothrow_copy_constructible_v<heapfit::allocator<int>>);
static_assert(std::is_nothrow_default_constructible_v<heapfit::allocator<int>>);
static_assert(std::is_nothrow_constructible_v<heapfit::allocator<int>, const heapfit::context &>);
static_assert(std::is_convertible_v<heapfit::context &, heapfit::allocator<int>>);
static_assert(!std::is_constructible_v<heapfit::allocator<int>, heapfit::context>, "a temporary dies too early");
static_assert(!std::is_constructible_v<heapfit::allocator<int>, heapfit::region_resource>, "likewise");
static_assert(std::is_convertible_v<std::unique_ptr<hf_context, void (*)(hf_context *)> &, heapfit::allocator<int>>);
static_assert(!std::is_constructible_v<heapfit::allocator<int>, std::unique_ptr<int> &>);
static_assert(!std::allocator_traits<heapfit::allocator<int>>::is_always_equal::value);

static_assert(!std::is_copy_constructible_v<heapfit::switch_to>);
static_assert(!std::is_move_constructible_v<heapfit::switch_to>);
static_assert(!std::is_constructible_v<heapfit::switch_to, heapfit::context>, "a temporary dies too early");
static_assert(!std::is_constructible_v<heapfit::context_resource, heapfit::context>, "a temporary dies too early");
static_assert(!std::is_copy_constructible_v<heapfit::region_resource>);

static_assert(noexcept(std::declval<heapfit::context &>().free_all()));
static_assert(noexcept(std::declval<heapfit::context &>().deallocate(nullptr)));
static_assert(noexcept(std::declval<heapfit::context &>().release()));
static_assert(noexcept(heapfit::thread_heap()));

} // namespace

// Instantiates what containers ask of an allocator.
std::size_t use(const heapfit::context &context, const heapfit::defrag_dodging_resource &resource);
std::size_t use(const heapfit::context &context, const heapfit::defrag_dodging_resource &resource)
{
    const heapfit::switch_to by_resource(resource);
    table words{nested<entry>(context)};
    words["one"].emplace_back("two");
    const std::unordered_map<int, int, std::hash<int>, std::equal_to<>, heapfit::allocator<std::pair<const int, int>>>
        numbers(0, std::hash<int>(), std::equal_to<>(), resource);
    return words.size() + numbers.size();
}
