// heapfit's contexts for C++17 and later: an owning handle, memory resources for std::pmr containers, an allocator for other
// containers, and a guard that diverts malloc and operator new. Header only, on top of heapfit.h, which says what a context
// is, who may use it, and what its limits are.
//
//     context                  owns a context: creates it, frees all of its objects at once, hands it to another thread
//     context_resource         a std::pmr::memory_resource over a context that somebody else owns
//     defrag_dodging_resource  the same with a context of its own, of either kind
//     region_resource
//     thread_heap()            a std::pmr::memory_resource over the thread heap, whatever the thread has switched to
//     allocator<T>             an allocator over a context, without virtual calls
//     switch_to                a guard: malloc and operator new of this thread take from a context while it lives
//
// As with std::pmr::unsynchronized_pool_resource, everything here that takes a context may be used by one thread at a time:
// its owner. Freeing can be told to work on every thread, see `freeing`.
//
// An object that is still alive when its context is emptied or destroyed is gone without its destructor having run. That is the
// point of a context for objects whose destructors only free memory of that same context; it is an error for any other.
#ifndef HEAPFIT_PMR_HPP
#define HEAPFIT_PMR_HPP

#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "heapfit/heapfit.h"

namespace heapfit
{

// ---- options ---------------------------------------------------------------------------------------------------------------

// How a context treats objects that are freed one by one.
enum class context_kind : int {
    defrag_dodging = HF_DEFRAG_DODGING, // they are reused at once
    region = HF_REGION, // they are not reused before free_all
};

// How a context is made: hf_context_config in C++. 0, false, and no sizes stand for the defaults, which heapfit.h gives.
struct context_options {
    context_kind kind = context_kind::defrag_dodging;
    bool huge_pages = false;
    std::size_t alignment = 0; // of objects that ask for no more: 16 or 8
    std::size_t chunk_size = 0; // bytes, a multiple of 64 KiB
    std::size_t segment_size = 0; // bytes, a power of two; not for regions
    std::vector<std::uint32_t> sizes = {}; // that objects are rounded up to, ascending; not for regions
    std::size_t limit = 0; // bytes of address space
    std::size_t retain = 0; // bytes of it that free_all keeps
};

// ---- what the rest is made of -------------------------------------------------------------------------------------------

namespace detail
{

// Every context aligns its objects to this without being asked; what hf_context_malloc may be called for.
inline constexpr std::size_t least_alignment = 8;
// What malloc promises.
inline constexpr std::size_t malloc_alignment = 16;

// What has a context to show: context, context_resource and what is derived from it, smart pointers to hf_context.
template <class Holder>
using if_holder = std::enable_if_t<std::is_convertible_v<decltype(std::declval<const Holder &>().get()), hf_context *>>;

inline void *checked(void *object)
{
    if (object == nullptr) throw std::bad_alloc();
    return object;
}

[[nodiscard]] inline void *context_allocate(hf_context *context, std::size_t bytes, std::size_t alignment)
{
    return checked(alignment <= least_alignment ? hf_context_malloc(context, bytes)
                                                : hf_context_aligned_alloc(context, alignment, bytes));
}

[[nodiscard]] inline void *heap_allocate(std::size_t bytes, std::size_t alignment)
{
    return checked(alignment <= malloc_alignment ? hf_malloc(bytes) : hf_aligned_alloc(alignment, bytes));
}

[[nodiscard]] inline hf_context *context_create(const context_options &options)
{
    hf_context_config config = {};
    config.kind = static_cast<int>(options.kind);
    config.huge_pages = options.huge_pages ? 1 : 0;
    config.alignment = options.alignment;
    config.chunk_size = options.chunk_size;
    config.segment_size = options.segment_size;
    config.sizes = options.sizes.empty() ? nullptr : options.sizes.data();
    config.sizes_count = options.sizes.size();
    config.limit = options.limit;
    config.retain = options.retain;
    const int before = errno;
    hf_context *context = hf_context_create(&config);
    if (context != nullptr) return context;
    const bool refused = errno == EINVAL;
    errno = before; // the exception says it
    if (refused) throw std::invalid_argument("heapfit::context: options that break a rule of hf_context_config");
    throw std::bad_alloc();
}

} // namespace detail

// ---- switch_to ---------------------------------------------------------------------------------------------------------------

// While it lives, the thread's malloc, operator new and hf_malloc take their memory from a context, where heapfit is the
// program's malloc; else hf_malloc alone does. Guards nest: each goes back to what the thread had switched to before it. To be
// destroyed on the thread that made it, in reverse order.
//
// What is allocated meanwhile must be dead or forgotten when the context is emptied. That holds for exceptions too: the
// runtime library allocates them with malloc. Let the context outlive the handler that catches what was thrown while
// switched.
class [[nodiscard]] switch_to
{
  public:
    // To a context, which the calling thread enters if it is not its owner; nullptr: to the thread's own heap, for what has to
    // outlive a context that somebody further up has switched to.
    explicit switch_to(hf_context *context) noexcept : before_(hf_context_switch(context)) {}
    explicit switch_to(std::nullptr_t) noexcept : switch_to(static_cast<hf_context *>(nullptr)) {}
    // To the context of anything that has one, such as context or context_resource, and outlives the guard.
    template <class Holder, class = detail::if_holder<Holder>>
    explicit switch_to(const Holder &holder) noexcept : switch_to(holder.get())
    {
    }
    template <class Holder, class = detail::if_holder<Holder>> explicit switch_to(const Holder &&) = delete;

    switch_to(const switch_to &) = delete;
    switch_to &operator=(const switch_to &) = delete;
    ~switch_to()
    {
        hf_context_switch(before_);
    }

    // What this guard goes back to; nullptr: the thread's own heap.
    [[nodiscard]] hf_context *before() const noexcept
    {
        return before_;
    }

  private:
    hf_context *before_;
};

namespace detail
{

// From the thread heap, whatever the thread has switched to.
[[nodiscard]] inline void *thread_heap_allocate(std::size_t bytes, std::size_t alignment)
{
    if (hf_context_current() == nullptr) return heap_allocate(bytes, alignment);
    const switch_to heap(nullptr);
    return heap_allocate(bytes, alignment);
}

} // namespace detail

// ---- allocator ------------------------------------------------------------------------------------------------------------------

// An allocator (C++17 [allocator.requirements]) that takes memory from a context, or from the thread heap when it was made
// without one. Two are equal when they have the same context.
//
// It follows a container as std::pmr::polymorphic_allocator does, so that nothing slips into a context, or out of it,
// unseen: assignment and swap leave each container its own allocator (swapping containers of different contexts is
// undefined), move construction passes it on, and a copy of a container lies in the thread heap unless an allocator is
// named. With std::scoped_allocator_adaptor the elements lie where their container does.
template <class T> class allocator
{
  public:
    using value_type = T;
    using propagate_on_container_copy_assignment = std::false_type;
    using propagate_on_container_move_assignment = std::false_type;
    using propagate_on_container_swap = std::false_type;
    using is_always_equal = std::false_type;

    // Over the thread heap: memory may be freed by any thread.
    constexpr allocator() noexcept = default;
    // Over a context that has to outlive the allocator; to be used by its owner only. nullptr: the thread heap.
    constexpr allocator(hf_context *context) noexcept : context_(context) {}
    template <class Holder, class = detail::if_holder<Holder>>
    constexpr allocator(const Holder &holder) noexcept : context_(holder.get())
    {
    }
    template <class Holder, class = detail::if_holder<Holder>> allocator(const Holder &&) = delete;
    template <class U> constexpr allocator(const allocator<U> &other) noexcept : context_(other.context()) {}

    // Memory for `count` objects. Throws std::bad_array_new_length where no size can say so many, std::bad_alloc when memory
    // has run out or the context's limit is reached.
    [[nodiscard]] T *allocate(std::size_t count)
    {
        constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T);
        if (count > most) throw std::bad_array_new_length();
        const std::size_t bytes = count * sizeof(T);
        return static_cast<T *>(context_ == nullptr ? detail::thread_heap_allocate(bytes, alignof(T))
                                                    : detail::context_allocate(context_, bytes, alignof(T)));
    }
    // Give back what an equal allocator has allocated.
    void deallocate(T *objects, std::size_t) noexcept
    {
        if (context_ == nullptr) hf_free(objects);
        else hf_context_free(context_, objects);
    }

    // nullptr: the thread heap.
    [[nodiscard]] constexpr hf_context *context() const noexcept
    {
        return context_;
    }
    // What a copy of a container gets: the thread heap.
    [[nodiscard]] constexpr allocator select_on_container_copy_construction() const noexcept
    {
        return allocator();
    }

  private:
    hf_context *context_ = nullptr;
};

template <class T, class U>
[[nodiscard]] constexpr bool operator==(const allocator<T> &left, const allocator<U> &right) noexcept
{
    return left.context() == right.context();
}

template <class T, class U>
[[nodiscard]] constexpr bool operator!=(const allocator<T> &left, const allocator<U> &right) noexcept
{
    return !(left == right);
}

// ---- context ---------------------------------------------------------------------------------------------------------------------

// A context and the duty to destroy it. Moved, never copied; empty after it was moved from or released, and then only to be
// assigned to, asked whether it is empty, or destroyed. The thread that makes one is its owner.
class context
{
  public:
    // A context. Throws std::invalid_argument when the options break a rule, std::bad_alloc when memory has run out.
    context() : context(context_options()) {}
    explicit context(context_kind kind) : context(of_kind(kind)) {}
    explicit context(const context_options &options) : context_(detail::context_create(options)) {}
    // Take over a context made in C, or released by another handle. nullptr: an empty one.
    [[nodiscard]] static context adopt(hf_context *adopted) noexcept
    {
        return context(adopted, taken_over());
    }

    context(context &&other) noexcept : context_(other.release()) {}
    context &operator=(context &&other) noexcept
    {
        context(std::move(other)).swap(*this);
        return *this;
    }
    // Ends every object in it, without destructors. By the owner, or by any thread when there is none.
    ~context()
    {
        hf_context_destroy(context_);
    }

    void swap(context &other) noexcept
    {
        std::swap(context_, other.context_);
    }
    friend void swap(context &left, context &right) noexcept
    {
        left.swap(right);
    }

    // Whether there is a context.
    [[nodiscard]] explicit operator bool() const noexcept
    {
        return context_ != nullptr;
    }
    // The context, for heapfit.h; it stays this handle's. nullptr: empty.
    [[nodiscard]] hf_context *get() const noexcept
    {
        return context_;
    }
    // The context, to be destroyed by the caller. The handle is empty then.
    [[nodiscard]] hf_context *release() noexcept
    {
        return std::exchange(context_, nullptr);
    }

    // Memory at a multiple of `alignment`, a power of two. Throws std::bad_alloc when memory has run out or the limit is
    // reached.
    [[nodiscard]] void *allocate(std::size_t bytes, std::size_t alignment = detail::malloc_alignment)
    {
        return detail::context_allocate(context_, bytes, alignment);
    }
    // Give one object back. nullptr is ignored.
    void deallocate(void *object) noexcept
    {
        hf_context_free(context_, object);
    }

    // End every object in the context, without destructors, at a cost that does not depend on their number.
    void free_all() noexcept
    {
        hf_context_free_all(context_);
    }

    // Bytes of address space that the context may have from now on; 0: no limit. Throws std::invalid_argument and changes
    // nothing when it has more already.
    void limit(std::size_t bytes)
    {
        if (hf_context_set_limit(context_, bytes) != 0)
            throw std::invalid_argument("heapfit::context: a limit below what the context has already");
    }
    // What the context holds. Takes time in proportion to the objects that were freed one by one.
    [[nodiscard]] hf_context_stats stats() const noexcept
    {
        hf_context_stats all = {};
        hf_context_stats_get(context_, &all, sizeof all);
        return all;
    }
    // Whether an address lies in memory of the context. Any thread may ask.
    [[nodiscard]] bool owns(const void *address) const noexcept
    {
        return hf_context_owns(context_, address) != 0;
    }

    // Hand the context to another thread: this one leaves, the two synchronise by any means, the other one enters. A thread
    // that leaves must have switched away.
    void leave() noexcept
    {
        assert(hf_context_current() != context_);
        hf_context_leave(context_);
    }
    void enter() noexcept
    {
        hf_context_enter(context_);
    }

    // Two handles are equal only when both are empty, or one is compared with itself.
    [[nodiscard]] friend bool operator==(const context &left, const context &right) noexcept
    {
        return left.context_ == right.context_;
    }
    [[nodiscard]] friend bool operator!=(const context &left, const context &right) noexcept
    {
        return !(left == right);
    }

  private:
    struct taken_over {
    };
    context(hf_context *adopted, taken_over) noexcept : context_(adopted) {}

    static context_options of_kind(context_kind kind)
    {
        context_options options;
        options.kind = kind;
        return options;
    }

    hf_context *context_;
};

// ---- memory resources ---------------------------------------------------------------------------------------------------------

// Which threads may deallocate. Allocating is the owner's alone in any case.
enum class freeing : bool {
    by_owner, // the fastest; another thread's deallocate corrupts the context, or in a build with checks ends the program
    by_any_thread, // an object may die wherever it is used last, but not after its context has been emptied
};

// A memory resource over a context that has to outlive it. Equal to every resource over the same context.
class context_resource : public std::pmr::memory_resource
{
  public:
    // `context` is not nullptr. It may be destroyed, or belong to another thread, once the resource is no longer used.
    explicit context_resource(hf_context *context, freeing who = freeing::by_owner) noexcept
        : context_(context), freeing_(who)
    {
    }
    explicit context_resource(const context &owner, freeing who = freeing::by_owner) noexcept
        : context_resource(owner.get(), who)
    {
    }
    explicit context_resource(const context &&, freeing = freeing::by_owner) = delete; // it would not outlive this
    context_resource(const context_resource &) = default;
    context_resource &operator=(const context_resource &) = delete;
    ~context_resource() override = default;

    [[nodiscard]] hf_context *get() const noexcept
    {
        return context_;
    }

  protected:
    // Throws std::bad_alloc when memory has run out or the context's limit is reached.
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        return detail::context_allocate(context_, bytes, alignment);
    }
    void do_deallocate(void *object, std::size_t, std::size_t) override
    {
        if (freeing_ == freeing::by_owner) hf_context_free(context_, object);
        else hf_free(object);
    }
    [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        if (this == &other) return true;
        const auto *same_kind = dynamic_cast<const context_resource *>(&other);
        return same_kind != nullptr && same_kind->context_ == context_;
    }

  private:
    hf_context *context_;
    freeing freeing_;
};

namespace detail
{

// A base, so that the context is made before the resource over it, and destroyed after.
struct context_owner {
    context_owner(context_kind kind, context_options options) : owned((options.kind = kind, std::move(options))) {}
    context owned;
};

template <context_kind Kind> class owning_resource : private context_owner, public context_resource
{
  public:
    // With a context of this kind; `options.kind` is not looked at. Throws as context's constructor does.
    owning_resource() : owning_resource(context_options()) {}
    explicit owning_resource(context_options options, freeing who = freeing::by_owner)
        : context_owner(Kind, std::move(options)), context_resource(owned, who)
    {
    }
    owning_resource(const owning_resource &) = delete;
    owning_resource &operator=(const owning_resource &) = delete;
    ~owning_resource() override = default;

    // Free all memory, also what has not been deallocated: what the resources of std::pmr call so.
    void release() noexcept
    {
        owned.free_all();
    }

    // The context itself: its statistics, its limit, handing it to another thread. To stay where it is: not to be moved from.
    [[nodiscard]] heapfit::context &context() noexcept
    {
        return owned;
    }
    [[nodiscard]] const heapfit::context &context() const noexcept
    {
        return owned;
    }

  protected:
    void do_deallocate(void *object, std::size_t bytes, std::size_t alignment) override
    {
        // A region does nothing with it, so the call is saved.
        if constexpr (Kind != context_kind::region) context_resource::do_deallocate(object, bytes, alignment);
    }
};

class thread_heap_resource final : public std::pmr::memory_resource
{
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        return detail::thread_heap_allocate(bytes, alignment);
    }
    void do_deallocate(void *object, std::size_t, std::size_t) override
    {
        hf_free(object);
    }
    [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other || dynamic_cast<const thread_heap_resource *>(&other) != nullptr;
    }
};

} // namespace detail

// Memory resources that own their context. They deallocate what is deallocated, and free the rest in release() and when they
// are destroyed. Neither copied nor moved.
using defrag_dodging_resource = detail::owning_resource<context_kind::defrag_dodging>;
using region_resource = detail::owning_resource<context_kind::region>;

// The thread heap's memory resource: never nullptr, not to be deleted, usable until the program ends. Any thread may
// allocate and deallocate. It allocates in the heap even while the thread has switched to a context: for caches and whatever
// else must outlive the transaction in which it happens to be filled.
[[nodiscard]] inline std::pmr::memory_resource *thread_heap() noexcept
{
    // Never destroyed: containers with static storage may deallocate after everything else.
    alignas(detail::thread_heap_resource) static std::byte place[sizeof(detail::thread_heap_resource)];
    static auto *const resource = ::new (static_cast<void *>(place)) detail::thread_heap_resource();
    return resource;
}

} // namespace heapfit

#endif
