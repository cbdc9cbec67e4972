// When blocks that a thread has freed for others are handed over: at the limits, when it refills, and what is counted of it.
#include "actor.h"
#include "figures.h"
#include "heap_internals.h"
#include "heap_isolated.h"
#include "space_walker.h"
#include "stress_seed.h"

#include <vector>

namespace
{

constexpr size_t BLOCK = 100;

using figures::in_use;

// In a process with blocks of the main thread, and another thread that has a heap.
template <typename Body> void with_blocks(size_t count, Body body)
{
    isolated::expect_passes([&] {
        std::vector<void *> blocks(count);
        for (auto &block : blocks) block = heap_malloc(BLOCK);
        {
            Actor other;
            other([] { heap_free(heap_malloc(1)); });
            body(blocks, other);
        }
        heap_trim();
        EXPECT_EQ(0u, in_use());
        space_walker::check();
    });
}

void free_all(const std::vector<void *> &blocks)
{
    for (void *block : blocks) heap_free(block);
}

TEST(Remote, TheBytesOfABatchAreBounded)
{
    with_blocks(64, [](std::vector<void *> &blocks, Actor &other) {
        heap_settings.remote_free_bytes = 16 * heap_good_size(BLOCK);
        other([&] { free_all(blocks); });
        EXPECT_EQ(4u, figures::of_heaps().remote_batches);
        EXPECT_EQ(64u, figures::of_heaps().remote_blocks);
    });
}

// Allocates until a bin has been filled.
void refill()
{
    std::vector<void *> blocks(2000);
    for (auto &block : blocks) block = heap_malloc(500);
    free_all(blocks);
}

TEST(Remote, BlocksMayBeHandedOverWheneverABinIsRefilled)
{
    for (auto hand_over : {REMOTE_HAND_OVER_FULL, REMOTE_HAND_OVER_REFILL}) {
        with_blocks(10, [=](std::vector<void *> &blocks, Actor &other) {
            heap_settings.remote_hand_over = hand_over;
            other([&] { free_all(blocks); });
            EXPECT_EQ(0u, figures::of_heaps().remote_blocks);
            other(refill);
            EXPECT_EQ(hand_over == REMOTE_HAND_OVER_REFILL ? 10u : 0u, figures::of_heaps().remote_blocks);
        });
    }
}

} // namespace
