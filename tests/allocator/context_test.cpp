// Contexts on one thread: sizes, order, large objects, configuration, limits, figures, switching. By the functions of
// heapfit.h alone, so that sanitizers, which want malloc for themselves, can look on.
#include "context_subject.h"
#include "system.h"

using namespace contexts;

namespace
{

size_t first_at_least(const std::vector<size_t> &sizes, size_t size)
{
    for (size_t candidate : sizes)
        if (candidate >= size) return candidate;
    return 0;
}

void expect_sizes(const Context &context, const std::vector<size_t> &sizes)
{
    for (size_t size = 0; size <= SEGMENT / 2; size += size < 2048 ? 1 : 97) {
        void *object = hf_context_malloc(context.get(), size);
        ASSERT_EQ(first_at_least(sizes, size), hf_usable_size(object)) << "for " << size;
        hf_context_free(context.get(), object);
    }
}

Context make_with_sizes(const std::vector<uint32_t> &sizes, size_t alignment = 0)
{
    hf_context_config config{};
    config.sizes = sizes.data();
    config.sizes_count = sizes.size();
    config.alignment = alignment;
    return Context(hf_context_create(&config));
}

void expect_refused(const hf_context_config &config, const char *why)
{
    errno = 0;
    EXPECT_EQ(nullptr, hf_context_create(&config)) << why;
    EXPECT_EQ(EINVAL, errno) << why;
}

// The addresses of `count` objects of some sizes, in the order in which they were allocated.
std::vector<void *> allocate_many(const Context &context, size_t count)
{
    std::vector<void *> objects;
    for (size_t i = 0; i < count; i++) objects.push_back(hf_context_malloc(context.get(), 1 + i * 37 % 3000));
    return objects;
}

TEST(ContextSizes, MayBeTheProgramsOwn)
{
    expect_sizes(make_with_sizes({24, 48, 1000, 5000}, 8), {24, 48, 1000, 5000, SEGMENT / 2});
}

TEST(ContextOrder, ObjectsOfASizeAreNeighboursInTheOrderOfAllocation)
{
    Context context = make();
    auto *first = static_cast<char *>(hf_context_malloc(context.get(), 96));
    EXPECT_TRUE(is_aligned(first, SEGMENT)) << "a segment has no header";
    for (size_t i = 1; i < SEGMENT / 96; i++) ASSERT_EQ(first + i * 96, hf_context_malloc(context.get(), 96));
    auto *next = static_cast<char *>(hf_context_malloc(context.get(), 96));
    EXPECT_TRUE(is_aligned(next, SEGMENT)) << "what is left of a segment is too short";
    EXPECT_NE(first, next);
}

TEST(ContextOrder, AfterFreeAllTheSameCallsReturnTheSameAddresses)
{
    for (const Context &context : {make(), make_region()}) {
        std::vector<void *> before = allocate_many(context, 5000);
        for (size_t i = 0; i < before.size(); i += 3) hf_context_free(context.get(), before[i]);
        hf_context_free_all(context.get());
        EXPECT_EQ(before, allocate_many(context, 5000));
        EXPECT_EQ(1u, figures(context).free_alls);
    }
}

TEST(ContextLarge, WhatNoMachineHasIsRefused)
{
    for (const Context &context : {make(), make_region()}) {
        void *object = hf_context_malloc(context.get(), 2 * SEGMENT);
        size_t too_large[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX / 2 + 1, SIZE_MAX / 2, size_t{1} << 62,
                              // wraps to one segment in 32 bits
                              (size_t{1} << 47) + SEGMENT};
        for (size_t size : too_large) {
            errno = 0;
            EXPECT_EQ(nullptr, hf_context_malloc(context.get(), size)) << size;
            EXPECT_EQ(ENOMEM, errno);
            errno = 0;
            EXPECT_EQ(nullptr, hf_context_realloc(context.get(), object, size)) << size;
            EXPECT_EQ(ENOMEM, errno);
            EXPECT_EQ(nullptr, hf_context_aligned_alloc(context.get(), 64, size));
            EXPECT_EQ(nullptr, hf_context_calloc(context.get(), size, 2));
        }
        for (size_t alignment = size_t{1} << 48; alignment != 0; alignment *= 2)
            EXPECT_EQ(nullptr, hf_context_aligned_alloc(context.get(), alignment, 100));
        hf_context_free(context.get(), object);
        EXPECT_NE(nullptr, hf_context_malloc(context.get(), 100));
    }
}

TEST(Region, ObjectsFollowEachOtherRoundedUpToTheAlignment)
{
    hf_context_config config{};
    config.kind = HF_REGION;
    config.alignment = 8;
    Context context = make(config);
    auto *first = static_cast<char *>(hf_context_malloc(context.get(), 13));
    EXPECT_EQ(first + 16, hf_context_malloc(context.get(), 24));
    EXPECT_EQ(first + 40, hf_context_malloc(context.get(), 1));
    EXPECT_EQ(48u, figures(context).live_bytes);
}

TEST(Region, FreeingGivesNothingBackBeforeAllIs)
{
    Context context = make_region();
    void *object = hf_context_malloc(context.get(), 100);
    hf_context_free(context.get(), object);
    hf_free(object);
    EXPECT_NE(object, hf_context_malloc(context.get(), 100));
    EXPECT_EQ(0u, hf_usable_size(object));
    hf_context_free_all(context.get());
    EXPECT_EQ(object, hf_context_malloc(context.get(), 100));
}

TEST(Region, TheNewestObjectGrowsAndShrinksWhereItIs)
{
    Context context = make_region();
    auto *object = static_cast<char *>(hf_context_malloc(context.get(), 100));
    EXPECT_EQ(object, hf_context_realloc(context.get(), object, 5000));
    EXPECT_EQ(object, hf_context_realloc(context.get(), object, 50));
    EXPECT_EQ(64u, figures(context).used_bytes);
    EXPECT_EQ(object + 64, hf_context_malloc(context.get(), 1));
    EXPECT_NE(object, hf_context_realloc(context.get(), object, 65)) << "no longer the newest";
}

TEST(ContextConfiguration, WhatBreaksARuleIsRefused)
{
    hf_context_config config{};
    config.kind = 2;
    expect_refused(config, "no such kind");
    for (size_t alignment : {1, 4, 12, 32}) {
        config = {};
        config.alignment = alignment;
        expect_refused(config, "alignment");
    }
    for (size_t chunk : {size_t{1}, 64 * KIB - 1, 96 * KIB, SIZE_MAX, SIZE_MAX & ~(64 * KIB - 1)}) {
        config = {};
        config.chunk_size = chunk;
        expect_refused(config, "chunk");
        config.kind = HF_REGION;
        expect_refused(config, "a region's chunk");
    }
    for (size_t segment : {size_t{1}, 4 * KIB, 24 * KIB, 16 * KIB /* 128 in a chunk */, 4 * MIB /* more than one */}) {
        config = {};
        config.segment_size = segment;
        expect_refused(config, "segment");
    }
    config = {};
    config.chunk_size = 192 * KIB;
    config.segment_size = 128 * KIB;
    expect_refused(config, "a chunk holds one and a half segments");
    config.chunk_size = config.segment_size = size_t{16} << 30;
    expect_refused(config, "sizes of more than 32 bits");
}

TEST(ContextLimit, MayBeChangedButNotBelowWhatThereIs)
{
    Context context = make();
    hf_context_malloc(context.get(), 100);
    errno = 0;
    EXPECT_EQ(-1, hf_context_set_limit(context.get(), CHUNK - 1));
    EXPECT_EQ(ENOMEM, errno);
    EXPECT_EQ(0, hf_context_set_limit(context.get(), CHUNK));
    EXPECT_EQ(nullptr, hf_context_malloc(context.get(), 2 * CHUNK));
    EXPECT_EQ(0, hf_context_set_limit(context.get(), 0));
    EXPECT_NE(nullptr, hf_context_malloc(context.get(), 2 * CHUNK));
}

TEST(ContextLimit, AFailedReallocLeavesTheObject)
{
    for (int kind : {HF_DEFRAG_DODGING, HF_REGION}) {
        hf_context_config config{};
        config.kind = kind;
        config.chunk_size = config.limit = CHUNK;
        Context context = make(config);
        void *object = hf_context_malloc(context.get(), 40000);
        hf_context_malloc(context.get(), 40000);
        fill(object, 40000, 4);
        EXPECT_EQ(nullptr, hf_context_realloc(context.get(), object, 2 * CHUNK));
        EXPECT_EQ(ENOMEM, errno);
        EXPECT_TRUE(holds(object, 40000, 4));
        hf_context_free(context.get(), object);
    }
}

TEST(ContextOwns, EveryAddressInItsMemoryAndNoOther)
{
    Context one = make(), other = make_region();
    int local;
    auto *small = static_cast<char *>(hf_context_malloc(one.get(), 100));
    auto *large = static_cast<char *>(hf_context_malloc(one.get(), 10 * CHUNK));
    auto *elsewhere = static_cast<char *>(hf_malloc(100));
    for (char *inside : {small, small + 99, large, large + 5 * CHUNK, large + 10 * CHUNK - 1}) {
        EXPECT_TRUE(hf_context_owns(one.get(), inside));
        EXPECT_FALSE(hf_context_owns(other.get(), inside));
        EXPECT_TRUE(hf_is_ours(inside));
    }
    for (const void *outside :
         {static_cast<void *>(&local), static_cast<void *>(elsewhere), static_cast<void *>(nullptr)})
        EXPECT_FALSE(hf_context_owns(one.get(), outside));
    hf_context_free(one.get(), large);
    EXPECT_FALSE(hf_context_owns(one.get(), large + 5 * CHUNK)) << "given back";
    hf_free(elsewhere);
}

void use_chunks(const Context &context, size_t count)
{
    for (size_t bytes = 0; bytes < count * CHUNK; bytes += 16 * KIB)
        ASSERT_NE(nullptr, hf_context_malloc(context.get(), 16 * KIB));
}

} // namespace

TEST(ContextRetention, KeepsWhatTheConfigurationSays)
{
    hf_context_config config{};
    config.retain = 3 * CHUNK;
    Context some = make(config);
    config.retain = SIZE_MAX;
    Context all = make(config);
    for (const Context *context : {&some, &all}) {
        use_chunks(*context, 10);
        EXPECT_EQ(10u, figures(*context).chunks);
        hf_context_free_all(context->get());
    }
    EXPECT_EQ(3u, figures(some).chunks);
    EXPECT_EQ(10u, figures(all).chunks);
}

TEST(ContextSwitch, AnObjectThatIsReallocatedStaysWhereItIsFrom)
{
    Context context = make();
    void *own = hf_malloc(100), *large = hf_malloc(200000);
    void *contexts_own = hf_context_malloc(context.get(), 100);
    hf_context_switch(context.get());
    own = hf_realloc(own, 5000);
    own = hf_realloc(own, 500000);
    large = hf_realloc(large, 100);
    hf_context_switch(nullptr);
    contexts_own = hf_realloc(contexts_own, 5000);
    contexts_own = hf_realloc(contexts_own, 500000);
    EXPECT_FALSE(hf_context_owns(context.get(), own) || hf_context_owns(context.get(), large));
    EXPECT_TRUE(hf_context_owns(context.get(), contexts_own));
    hf_free(own);
    hf_free(large);
}

TEST(ContextSwitch, DestroyingOrLeavingTheContextSwitchesBack)
{
    Context context = make();
    hf_context_switch(context.get());
    hf_context_leave(context.get());
    EXPECT_EQ(nullptr, hf_context_current());
    void *object = hf_malloc(10);
    EXPECT_FALSE(hf_context_owns(context.get(), object));
    hf_free(object);
    hf_context_switch(context.get()); // enters it again
    context.reset();
    EXPECT_EQ(nullptr, hf_context_current());
    object = hf_malloc(10);
    hf_free(object);
}
