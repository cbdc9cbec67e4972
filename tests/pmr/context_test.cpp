// heapfit::context, the handle: making, moving, handing over, emptying, limiting.

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <future>
#include <stdexcept>

#include <gtest/gtest.h>

#include <heapfit/pmr.hpp>

namespace
{

constexpr std::size_t kib = 1024, mib = 1024 * kib;

std::size_t contexts_alive()
{
    hf_stats stats;
    hf_stats_get(&stats, sizeof stats);
    return stats.contexts;
}

bool is_aligned(const void *object, std::size_t alignment)
{
    return reinterpret_cast<std::uintptr_t>(object) % alignment == 0;
}

TEST(Context, LivesAsLongAsItsHandle)
{
    const std::size_t before = contexts_alive();
    {
        const heapfit::context context;
        EXPECT_TRUE(context);
        EXPECT_EQ(contexts_alive(), before + 1);
    }
    EXPECT_EQ(contexts_alive(), before);
}

TEST(Context, OptionsReachTheContext)
{
    heapfit::context_options options;
    options.chunk_size = 1 * mib;
    options.segment_size = 16 * kib;
    options.sizes = {16, 48, 8192};
    heapfit::context context(options);
    void *object = context.allocate(17);
    EXPECT_EQ(hf_usable_size(object), 48u);
    EXPECT_EQ(context.stats().footprint, options.chunk_size);
    EXPECT_EQ(context.stats().used_bytes, options.segment_size);
}

TEST(Context, OptionsThatBreakARuleAreAnInvalidArgument)
{
    heapfit::context_options options;
    options.segment_size = 1000;
    const std::size_t before = contexts_alive();
    errno = 7;
    EXPECT_THROW(heapfit::context{options}, std::invalid_argument);
    EXPECT_EQ(errno, 7) << "the exception says it; errno is the caller's";
    EXPECT_EQ(contexts_alive(), before);
}

TEST(Context, MemoryIsAlignedAsAsked)
{
    for (const auto kind : {heapfit::context_kind::defrag_dodging, heapfit::context_kind::region}) {
        heapfit::context_options options;
        options.kind = kind;
        options.alignment = 8;
        heapfit::context context(options);
        for (std::size_t alignment = 1; alignment <= 4 * kib; alignment *= 2)
            for (const std::size_t bytes : {std::size_t(0), std::size_t(1), std::size_t(24), 100 * kib})
                EXPECT_TRUE(is_aligned(context.allocate(bytes, alignment), alignment)) << alignment << ' ' << bytes;
        EXPECT_TRUE(is_aligned(context.allocate(24), alignof(std::max_align_t)));
    }
}

TEST(Context, MovingHandsOverTheContextAndLeavesAnEmptyHandle)
{
    heapfit::context first;
    hf_context *raw = first.get();
    heapfit::context second(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_EQ(second.get(), raw);

    const std::size_t before = contexts_alive();
    heapfit::context third;
    third = std::move(second);
    EXPECT_EQ(third.get(), raw);
    EXPECT_EQ(contexts_alive(), before) << "what the target owned is destroyed";

    third = std::move(*&third);
    EXPECT_EQ(third.get(), raw) << "moved to itself";
}

TEST(Context, ReleaseAndAdoptMoveTheDutyToDestroy)
{
    const std::size_t before = contexts_alive();
    heapfit::context context;
    hf_context *raw = context.release();
    EXPECT_FALSE(context);
    EXPECT_EQ(contexts_alive(), before + 1);
    {
        const heapfit::context again = heapfit::context::adopt(raw);
        EXPECT_EQ(again.get(), raw);
    }
    EXPECT_EQ(contexts_alive(), before);
    EXPECT_EQ(context, heapfit::context::adopt(nullptr));
}

TEST(Context, AtItsLimitItThrowsAndServesAgainOnceEmptied)
{
    heapfit::context_options options;
    options.limit = 2 * mib;
    heapfit::context context(options);
    std::size_t objects = 0;
    const auto fill = [&] {
        for (;; objects++) static_cast<void>(context.allocate(1000));
    };
    EXPECT_THROW(fill(), std::bad_alloc);
    EXPECT_GT(objects, mib / 1024);
    EXPECT_LE(context.stats().footprint, options.limit);
    context.free_all();
    EXPECT_NE(context.allocate(1000), nullptr);
}

TEST(Context, IsHandedToAnotherThreadWithItsObjects)
{
    heapfit::context context;
    auto *word = static_cast<char *>(context.allocate(6));
    std::strcpy(word, "hello");
    context.leave();
    auto there = std::async(std::launch::async, [word, theirs = std::move(context)]() mutable {
        theirs.enter();
        const bool arrived = std::strcmp(word, "hello") == 0;
        theirs.deallocate(word);
        static_cast<void>(theirs.allocate(100));
        theirs.free_all();
        theirs.leave();
        return arrived ? std::move(theirs) : heapfit::context::adopt(nullptr);
    });
    heapfit::context back = there.get();
    ASSERT_TRUE(back);
    back.enter();
    EXPECT_EQ(back.stats().free_alls, 1u);
    EXPECT_NE(back.allocate(6), nullptr);
}

} // namespace
