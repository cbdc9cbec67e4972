// Guarded objects as programs meet them: the option, the figures, and the functions of heapfit.h; and those of contexts.
#include "context_subject.h"
#include "heap_isolated.h"
#include "sanitizer_faults.h"
#include "system.h"

namespace
{

void set_option(const char *value)
{
    ASSERT_EQ(hf_option_set("guard_sample", value), 0);
}

hf_stats stats_now()
{
    hf_stats stats;
    EXPECT_EQ(hf_stats_get(&stats, sizeof stats), 0);
    return stats;
}

// An object that is guarded. What is allocated on the way there stays.
template <typename Allocate> char *guarded_by(Allocate allocate)
{
    set_option("1");
    void *object;
    size_t before = stats_now().guard_samples;
    do object = allocate();
    while (object != nullptr && stats_now().guard_samples == before);
    set_option("0");
    return static_cast<char *>(object);
}

template <typename Pointer> Pointer *hidden(Pointer *pointer)
{
    Pointer *volatile copy = pointer;
    return copy;
}

void read_from(const char *place)
{
    (void)*const_cast<const volatile char *>(hidden(place));
}

TEST(GuardOption, IsOffAndMayBeSetAtAnyTime)
{
    char value[32];
    ASSERT_EQ(hf_option_get("guard_sample", value, sizeof value), 0);
    EXPECT_STREQ(value, "0");
    for (int i = 0; i < 10000; i++) hf_free(hf_malloc(64));
    EXPECT_EQ(stats_now().guard_slots, 0u);
    set_option("4k");
    ASSERT_EQ(hf_option_get("guard_sample", value, sizeof value), 0);
    EXPECT_STREQ(value, "4096");
    for (int i = 0; i < 10000; i++) hf_free(hf_malloc(64));
    hf_stats stats = stats_now();
    EXPECT_GT(stats.guard_samples, 50u); // about 156
    EXPECT_LT(stats.guard_samples, 350u);
    EXPECT_EQ(stats.guard_objects, 0u);
    EXPECT_GE(stats.guard_slots, 16u);
    EXPECT_EQ(stats.guard_missed, 0u);
    set_option("0");
    for (int i = 0; i < 10000; i++) hf_free(hf_malloc(64));
    EXPECT_EQ(stats_now().guard_samples, stats.guard_samples);
    EXPECT_EQ(hf_option_set("guard_sample", "-1"), -1);
    EXPECT_EQ(errno, EINVAL);
}

TEST(GuardFigures, WhatAllOfItMayTakeIsBounded)
{
    set_option("1");
    for (int i = 0; i < 5000; i++) hf_malloc(16);
    hf_stats stats = stats_now();
    size_t bytes = stats.own_bytes;
    EXPECT_GT(stats.guard_missed, 0u);
    EXPECT_LT(bytes, size_t{6} << 20);
    set_option("0");
}

using namespace contexts;

char *guarded_in(const Context &context, size_t size)
{
    return guarded_by([&] { return hf_context_malloc(context.get(), size); });
}
} // namespace

TEST(GuardContext, GuardedObjectsBelongToTheirContext)
{
    Context context = make(), other = make();
    char *object = guarded_in(context, 64);
    EXPECT_TRUE(hf_context_owns(context.get(), object));
    EXPECT_FALSE(hf_context_owns(other.get(), object));
    EXPECT_GE(figures(context).live_bytes, 64u);
    EXPECT_EQ(hf_usable_size(object), 64u);
    hf_context_free(context.get(), object);
    EXPECT_FALSE(hf_context_owns(context.get(), object));
    char *freed = guarded_in(other, 64);
    std::thread([freed] { hf_free(freed); }).join();
    char *kept = guarded_in(context, 64);
    hf_context_free_all(other.get());
    fill(kept, 64, 7); // another context's
    hf_context_destroy(context.release());
    EXPECT_EQ(stats_now().guard_objects, 0u);
}

TEST(GuardContextDeath, AUseAfterFreeAllIsFound)
{
    Context context = make();
    char *object = guarded_in(context, 64);
    hf_context_free_all(context.get());
    EXPECT_EXIT(
        read_from(object + 1), testing::KilledBySignal(SIGSEGV),
        "^heapfit: use after free: (read of|access to) 0x[0-9a-f]+, byte 2 of the block at 0x[0-9a-f]+ of 64 bytes\n");
    EXPECT_EXIT(hf_context_free(context.get(), hidden(object)), testing::KilledBySignal(SIGABRT),
                "^heapfit: (hf_context_free of 0x[0-9a-f]+, a block of 64 bytes, which was freed|a context is given)");
}

TEST(GuardContextDeath, AnObjectOfAnotherContextIsNotFreed)
{
    Context context = make(), other = make();
    char *object = guarded_in(context, 64);
    EXPECT_EXIT(hf_context_free(other.get(), object), testing::KilledBySignal(SIGABRT),
                "^heapfit: (hf_context_free of 0x[0-9a-f]+, a block of 64 bytes, which is not of this context|a "
                "context is given)");
}
