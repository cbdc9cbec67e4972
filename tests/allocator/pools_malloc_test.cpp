// The malloc family of the library with pools: each asks for its caller's frame, and goes where the verdict on the caller says.
#include "pools_internals.h"

#include "heapfit/heapfit.h"

#include <gtest/gtest.h>

#include <malloc.h>

#include <cstdlib>
#include <new>
#include <thread>

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

TEST(PoolsMalloc, SoDoesPosixMemalign)
{
    void *object = nullptr;
    call(probe<int, void **, size_t, size_t>, &object, size_t{16}, size_t{40});
    watching = true;
    asked = 0;
    EXPECT_EQ(0, call(posix_memalign, &object, size_t{16}, size_t{40}));
    watching = false;
    std::free(object);
    EXPECT_EQ(1, asked);
    EXPECT_EQ(wanted.return_address, seen.return_address);
    EXPECT_EQ(wanted.stack, seen.stack);
    EXPECT_EQ(wanted.base, seen.base);
}

uint32_t pool_of(const void *object)
{
    return place_of(span_of_offset(space_offset(object)));
}

TEST(PoolsMalloc, AVerdictOnTheCallerSendsItsObjectsIntoThePool)
{
    uint32_t pool, mixed;
    ASSERT_TRUE(place_pool(&pool, 48));
    ASSERT_TRUE(place_mixed(&mixed));
    for (uint32_t each : {pool, mixed}) // a thread's first objects of a pool are ordinary: let them be behind this one
        thread_heap->bins[BIN_COUNT + each].borrowed = BORROWED_MAX;
    void *(*const functions[])(size_t) = {malloc, hf_malloc, operator new, operator new[] };
    call(probe<void *, size_t>, size_t{40});
    site_put(wanted.return_address, verdict_word(place_verdict(pool)));
    for (auto function : functions) {
        for (int i = 0; i < 10000; i++) {
            void *object = call(function, size_t{40});
            ASSERT_EQ(pool, pool_of(object));
            if (i % 2 == 0) std::free(object);
        }
        EXPECT_EQ(POOL_NONE, pool_of(call(function, size_t{80})));
    }
    site_put(wanted.return_address, verdict_word(place_verdict(mixed)));
    for (auto function : functions)
        for (size_t size = 0; size < 200; size++) ASSERT_EQ(mixed, pool_of(call(function, size))) << size;
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

TEST(PoolsMalloc, AThreadsFirstObjectIsOrdinary)
{
    std::thread([] {
        // The thread's start may have allocated already: what counts is that none of it fails.
        for (int i = 0; i < 1000; i++) std::free(std::malloc(static_cast<size_t>(i)));
    }).join();
}

TEST(PoolsMalloc, SwitchedOffItLearnsEachCallerOnce)
{
    enum pool_placing placing = pool_settings.placing;
    pool_settings.placing = POOL_PLACING_OFF;
    asked = 0;
    watching = true;
    for (int i = 0; i < 100; i++) std::free(std::malloc(24));
    watching = false;
    EXPECT_EQ(0, asked);
    pool_settings.placing = placing;
}

} // namespace
