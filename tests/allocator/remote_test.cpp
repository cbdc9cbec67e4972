// When blocks that a thread has freed for others are handed over: at the limits, when it refills, and what is counted of it.
#include "actor.h"
#include "figures.h"
#include "heap_internals.h"
#include "heap_isolated.h"
#include "space_walker.h"
#include "stress_seed.h"

#include <array>
#include <atomic>
#include <thread>
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

TEST(Remote, ABatchOfOneGoesAtOnce)
{
    for (bool by_bytes : {false, true}) {
        with_blocks(300, [=](std::vector<void *> &blocks, Actor &other) {
            if (by_bytes) heap_settings.remote_free_bytes = 1;
            else heap_settings.remote_free_batch = 1;
            for (size_t i = 0; i < blocks.size(); i++) {
                other([&] { heap_free(blocks[i]); });
                EXPECT_EQ(i + 1, figures::of_heaps().remote_batches);
                EXPECT_EQ(i + 1, figures::of_heaps().remote_blocks);
            }
            heap_trim();
            EXPECT_LE(in_use(), 2 * SPAN_SIZE) << "the other thread's own span";
        });
    }
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

TEST(Remote, WithoutLimitsAllWaitsForTheEndOfTheThread)
{
    with_blocks(4000, [](std::vector<void *> &blocks, Actor &) {
        heap_settings.remote_free_batch = 4096;
        heap_settings.remote_free_bytes = size_t{1} << 46;
        size_t within = 1;
        std::thread([&] {
            free_all(blocks);
            within = figures::of_heaps().remote_blocks;
        }).join();
        EXPECT_EQ(0u, within);
        EXPECT_EQ(4000u, figures::of_heaps().remote_blocks) << "the heap is idle, and its figures still count";
        EXPECT_GT(400u, figures::of_heaps().remote_batches);
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

TEST(Remote, BlocksOfThreadsWithoutAHeapAreCountedToo)
{
    with_blocks(10, [](std::vector<void *> &blocks, Actor &) {
        heap_settings.lockless_threads = 0;
        std::thread(free_all, blocks).join();
        EXPECT_EQ(10u, figures::of_heaps().remote_batches);
        EXPECT_EQ(10u, figures::of_heaps().remote_blocks);
    });
}

// Who takes in for an owner that sleeps stops when that one comes back, and leaves the rest to it.
TEST(Remote, WhatIsNotTakenInForAnOwnerThatComesBackIsStillThere)
{
    with_blocks(300, [](std::vector<void *> &blocks, Actor &other) {
        heap_settings.remote_free_batch = 1;
        other([&] { free_all(blocks); });
        struct heap *own = thread_heap_own();
        EXPECT_FALSE(remote_lent_take_in(own, [](const struct heap *) { return true; }));
        EXPECT_TRUE(remote_inbox_is_filled(own));
        EXPECT_TRUE(remote_lent_take_in(own, [](const struct heap *) { return false; }));
        EXPECT_FALSE(remote_inbox_is_filled(own));
    });
}

// Every thread frees what others allocated, while the options run through their extremes.
TEST(Remote, OptionsMayBeSetWhileThreadsFree)
{
    SCOPED_TRACE(stress::how_to_repeat());
    isolated::expect_passes([] {
        static std::array<std::atomic<void *>, 256> places;
        std::atomic<bool> stop{false};
        std::vector<std::thread> threads;
        for (uint64_t i = 0; i < 4; i++) {
            threads.emplace_back([&, i] {
                stress::Random random(stress::seed() + i);
                while (!stop) heap_free(places[random.below(places.size())].exchange(heap_malloc(random.below(2000))));
            });
        }
        stress::Deadline deadline(2);
        stress::Random random(stress::seed());
        while (figures::of_heaps().remote_blocks == 0 || !deadline.passed()) {
            heap_settings.remote_free_batch = random.chance(50) ? 1 : 4096;
            heap_settings.remote_free_bytes = random.chance(50) ? 1 : size_t{1} << 46;
            heap_settings.remote_hand_over = random.chance(50) ? REMOTE_HAND_OVER_FULL : REMOTE_HAND_OVER_REFILL;
            heap_settings.lockless_threads = static_cast<uint32_t>(2 + random.below(4)); // two at least have their own
            std::thread([] { heap_free(heap_malloc(1)); }).join();
        }
        stop = true;
        for (auto &thread : threads) thread.join();
        for (auto &place : places) heap_free(place);
        heap_trim();
        EXPECT_EQ(0u, in_use());
    });
}

} // namespace
