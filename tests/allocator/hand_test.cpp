// Blocks at hand: of a class of which few blocks fit a span, what was freed last is what is handed out next.
#include "new_heap.h"
#include "sleepers.h"
#include "system.h"

namespace
{

constexpr size_t SIZE = 20'000, SPANS = HAND_BLOCKS + 2;

// As a program's heap, whose objects nobody picks.
void keep()
{
    heap_settings.thread_spans_cached = 16;
    pick_wanted = false;
}

struct span *span_of(const void *block)
{
    return span_of_offset(reinterpret_cast<uintptr_t>(block) - space.base);
}

unsigned bin_of_size()
{
    return heap_size_class(SIZE);
}

uint32_t at_hand()
{
    return thread_heap->hands[bin_of_size() - HAND_BIN_MIN].count;
}

// All blocks of so many spans; none of their bin is left over.
std::vector<void *> full_spans()
{
    std::vector<void *> blocks;
    while (blocks.size() < SPANS * (SPAN_SIZE / SIZE)) blocks.push_back(heap_malloc(SIZE));
    EXPECT_EQ(0u, thread_heap->bins[bin_of_size()].spans_listed);
    EXPECT_TRUE(list_is_empty(thread_heap->free[bin_of_size()]));
    return blocks;
}

// The first block of each span.
std::vector<void *> free_one_of_each(const std::vector<void *> &blocks)
{
    std::vector<void *> freed;
    for (size_t i = 0; i < blocks.size(); i += SPAN_SIZE / SIZE) freed.push_back(blocks[i]);
    for (void *block : freed) heap_free(block);
    return freed;
}

TEST(Hand, HandsOutTheYoungestAndListsNoSpanForThem)
{
    in_new_heap([] {
        keep();
        std::vector<void *> blocks = full_spans(), freed = free_one_of_each(blocks);
        EXPECT_EQ(static_cast<uint32_t>(HAND_BLOCKS), at_hand());
        EXPECT_EQ(SPANS - HAND_BLOCKS, thread_heap->bins[bin_of_size()].spans_listed)
            << "those for which there is no room";
        for (int i = HAND_BLOCKS; i-- > 0;) EXPECT_EQ(freed[static_cast<size_t>(i)], heap_malloc(SIZE));
        EXPECT_EQ(0u, at_hand());
        for (size_t i = HAND_BLOCKS; i < SPANS; i++) heap_malloc(SIZE);
        for (void *block : blocks) heap_free(block);
        heap_trim();
        EXPECT_EQ(0u, at_hand());
        EXPECT_EQ(0u, figures::in_use());
    });
}

TEST(Hand, AnObjectThatComesAndGoesIsTheSame)
{
    in_new_heap([] {
        keep();
        std::vector<void *> blocks = full_spans();
        size_t refills = thread_heap->refills;
        for (int i = 0; i < 1000; i++) {
            heap_free(blocks.back());
            EXPECT_EQ(1u, at_hand());
            EXPECT_EQ(blocks.back(), heap_malloc(SIZE));
        }
        EXPECT_EQ(refills + 1000, thread_heap->refills) << "each comes by its chores";
    });
}

TEST(Hand, IsReturnedWithTheBins)
{
    in_new_heap([] {
        keep();
        std::vector<void *> blocks = full_spans();
        free_one_of_each(blocks);
        heap_return_blocks(thread_heap);
        EXPECT_EQ(0u, at_hand());
        EXPECT_EQ(SPANS, thread_heap->bins[bin_of_size()].spans_listed);
        for (size_t i = 0; i < blocks.size(); i += SPAN_SIZE / SIZE) {
            const struct span *span = span_of(blocks[i]);
            EXPECT_EQ(span->carved - 1, span->countdown + span->held_back);
        }
    });
}

TEST(Hand, HoldsNothingWhereNothingIsKept)
{
    in_new_heap([] {
        keep();
        heap_settings.thread_spans_cached = 0;
        free_one_of_each(full_spans());
        EXPECT_EQ(0u, at_hand());
    });
}

TEST(Hand, AThreadThatEndsLeavesNothing)
{
    in_new_heap([] {
        keep();
        std::thread([] {
            std::vector<void *> blocks = full_spans();
            free_one_of_each(blocks);
            EXPECT_EQ(static_cast<uint32_t>(HAND_BLOCKS), at_hand());
            for (size_t i = 0; i < blocks.size(); i++)
                if (i % (SPAN_SIZE / SIZE) != 0) heap_free(blocks[i]);
        }).join();
        heap_trim();
        EXPECT_EQ(0u, figures::in_use());
    });
}

TEST(Hand, ASecondFreeIsNoticed)
{
    in_new_heap([] {
        keep();
        std::vector<void *> blocks = full_spans(), freed = free_one_of_each(blocks);
        EXPECT_EXIT(heap_free(freed[0]), ::testing::KilledBySignal(SIGABRT), "double free");
    });
}

// Without its help: its slow paths, which alone touch what is at hand, are kept out meanwhile.
TEST(Hand, GoesBackWhileItsThreadRests)
{
    if (!platform_barrier_prepare()) GTEST_SKIP() << "emulators have no such barrier";
    in_new_heap([] {
        ASSERT_TRUE(platform_barrier_prepare());
        keep();
        void *live = nullptr;
        Sleepers sleeper(
            1,
            [&live] {
                heap_free(heap_malloc(SIZE));
                heap_chores_expect(thread_heap); // when it first does, it returns its bins
                std::vector<void *> blocks = full_spans();
                free_one_of_each(blocks);
                live = blocks[1]; // beside the oldest at hand
                for (size_t i = 2; i < blocks.size(); i++)
                    if (i % (SPAN_SIZE / SIZE) != 0) heap_free(blocks[i]);
                EXPECT_EQ(static_cast<uint32_t>(HAND_BLOCKS), at_hand());
            },
            [&live] {
                EXPECT_EQ(0u, at_hand());
                heap_free(live);
                live = heap_malloc(SIZE);
                heap_free(live);
            });
        uint64_t now = platform_clock_ms();
        for (uint64_t pass = 1; pass <= 4; pass++) heap_all_release_old(now + pass * 1000, 100, RESTING_CLAIMED);
        EXPECT_EQ(size_t{SPAN_SIZE}, figures::in_use()) << "that of the object that lives";
        sleeper.wake();
        heap_trim();
        EXPECT_EQ(0u, figures::in_use());
    });
}

} // namespace
