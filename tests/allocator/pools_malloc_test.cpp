// The malloc family of the library with pools: each asks for its caller's frame, and goes where the verdict on the caller says.
#include "pools_internals.h"

#include "heapfit/heapfit.h"

#include <gtest/gtest.h>

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace
{

__thread bool watching;
__thread struct frame seen;
__thread int asked;

} // namespace

extern "C" uint32_t __real_chain_group(const struct frame *frame);
extern "C" uint32_t __wrap_chain_group(const struct frame *frame)
{
    if (!watching) return __real_chain_group(frame);
    seen = *frame;
    asked++;
    return GROUP_NONE;
}

namespace
{

struct frame wanted;

// Each function is called from the place in the code from which one of ours was, that tells what the other is to find out.
// Of that, a compiler must not make copies for functions or sizes that it knows.
#ifdef __clang__
#define ONE_PLACE __attribute__((noinline))
#else
#define ONE_PLACE __attribute__((noipa))
#endif

template <typename Result, typename... Arguments>
ONE_PLACE Result call_any(Result (*function)(Arguments...), Arguments... arguments)
{
    Result result = function(arguments...);
    __asm__ volatile("" : "+r"(result)); // so it does not end by a jump to the function
    return result;
}

template <typename Result, typename... Arguments> Result call(Result (*function)(Arguments...), Arguments... arguments)
{
    __asm__ volatile("" : "+r"(function)); // clang has no noipa: it may not know which function this is
    return call_any<Result, Arguments...>(function, arguments...);
}

template <typename Result, typename... Arguments> __attribute__((noinline)) Result probe(Arguments...)
{
    wanted = frame_of_caller();
    return Result{};
}

template <typename... Arguments>
void expect_frame(const char *name, void *(*function)(Arguments...), Arguments... arguments)
{
    SCOPED_TRACE(name);
    call<void *, Arguments...>(probe<void *, Arguments...>, arguments...);
    watching = true;
    asked = 0;
    std::free(call<void *, Arguments...>(function, arguments...));
    watching = false;
    EXPECT_EQ(1, asked);
    EXPECT_EQ(wanted.return_address, seen.return_address);
    EXPECT_EQ(wanted.stack, seen.stack);
    EXPECT_EQ(wanted.base, seen.base);
}

TEST(PoolsMalloc, EachFunctionThatAllocatesFindsItsCallersFrame)
{
    using Align = std::align_val_t;
    using Nothrow = const std::nothrow_t &;
    expect_frame<size_t>("malloc", malloc, 40);
    expect_frame<size_t>("hf_malloc", hf_malloc, 40);
    expect_frame<size_t, size_t>("calloc", calloc, 1, 40);
    expect_frame<size_t, size_t>("hf_calloc", hf_calloc, 1, 40);
    expect_frame<void *, size_t>("realloc", realloc, nullptr, 40);
    expect_frame<void *, size_t>("hf_realloc", hf_realloc, nullptr, 40);
    expect_frame<void *, size_t, size_t>("reallocarray", reallocarray, nullptr, 1, 40);
    expect_frame<size_t, size_t>("aligned_alloc", aligned_alloc, 16, 40);
    expect_frame<size_t, size_t>("memalign", memalign, 16, 40);
    expect_frame<size_t>("new", operator new, 40);
    expect_frame<size_t>("new[]", operator new[], 40);
    expect_frame<size_t, Align>("new(align)", operator new, 40, Align{16});
    expect_frame<size_t, Align>("new[](align)", operator new[], 40, Align{16});
    expect_frame<size_t, Nothrow>("new(nothrow)", operator new, 40, std::nothrow);
    expect_frame<size_t, Nothrow>("new[](nothrow)", operator new[], 40, std::nothrow);
    expect_frame<size_t, Align, Nothrow>("new(align, nothrow)", operator new, 40, Align{16}, std::nothrow);
    expect_frame<size_t, Align, Nothrow>("new[](align, nothrow)", operator new[], 40, Align{16}, std::nothrow);
}

TEST(PoolsMalloc, LargeObjectsAndThoseAlignedToMoreAskForNothing)
{
    watching = true;
    asked = 0;
    std::free(std::malloc(FAST_MAX + 1));
    std::free(std::calloc(1, FAST_MAX + 1));
    std::free(aligned_alloc(32, 64));
    watching = false;
    EXPECT_EQ(0, asked);
}

} // namespace
