// Threads beyond the limit share heaps: all that malloc does works for them as for others, and what they free, and what is left
// when they exit, goes where it belongs.
#include "actor.h"
#include "figures.h"
#include "heap_internals.h"
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "model.h"
#include "space_walker.h"
#include "system.h"

namespace
{

using figures::in_use;

bool shares()
{
    return thread_heap_own() == &heap_sharing;
}

// In a process of which at most so many threads, and the main thread first, have heaps of their own.
template <typename Body> void with_limit(uint32_t limit, Body body)
{
    isolated::expect_passes([&] {
        heap_settings.lockless_threads = limit;
        heap_free(heap_malloc(1));
        body();
        heap_trim();
        EXPECT_EQ(0u, in_use()) << "spans with no live block in them";
        space_walker::check();
    });
}

constexpr unsigned CROWD = 200;

// So many threads at once; returns how many of them share.
unsigned gather_crowd()
{
    static std::atomic<unsigned> sharing;
    sharing = 0;
    pthread_barrier_t here;
    pthread_barrier_init(&here, nullptr, CROWD + 1);
    std::vector<std::thread> crowd;
    for (unsigned i = 0; i < CROWD; i++) {
        crowd.emplace_back([&here, i] {
            model::Blocks blocks(i, model::MIB);
            for (int step = 0; step < 50; step++) blocks.step(60);
            if (shares()) sharing++;
            pthread_barrier_wait(&here);
            pthread_barrier_wait(&here);
            blocks.release_all();
        });
    }
    pthread_barrier_wait(&here);
    EXPECT_EQ(sharing + (shares() ? 1 : 0), figures::of_heaps().sharing);
    pthread_barrier_wait(&here);
    for (auto &thread : crowd) thread.join();
    pthread_barrier_destroy(&here);
    return sharing;
}

TEST(Sharing, AsManyThreadsAsMayHaveHeapsOfTheirOwnAndSuccessorsTakeTheirPlaces)
{
    with_limit(3, [] {
        for (int round = 0; round < 3; round++) {
            EXPECT_EQ(CROWD - 2, gather_crowd());
            EXPECT_EQ(3u, figures::of_heaps().made);
            EXPECT_EQ(2u, figures::of_heaps().idle);
            EXPECT_EQ(0u, figures::of_heaps().sharing);
        }
        EXPECT_FALSE(shares());
    });
}

constexpr uint32_t FIRST = 50;

// Threads that have allocated once, the last of which shares: so many for each processor have had heaps of their own at once.
std::vector<std::unique_ptr<Actor>> a_crowd_of_which_the_last_shares()
{
    std::vector<std::unique_ptr<Actor>> crowd;
    bool last_shares = false;
    while (!last_shares && crowd.size() < size_t{1000} + 4 * platform_processors()) {
        crowd.push_back(std::make_unique<Actor>());
        (*crowd.back())([&] {
            heap_free(heap_malloc(100));
            last_shares = shares();
        });
    }
    EXPECT_EQ(4 * platform_processors(), crowd.size()) << "besides the main thread";
    return crowd;
}

TEST(Sharing, AThreadOfManySharesAtFirstAndGetsAHeapOfItsOwnWhenItGoesOnToAllocate)
{
    with_limit(UINT32_MAX, [] {
        heap_settings.share_first = FIRST;
        auto crowd = a_crowd_of_which_the_last_shares();
        (*crowd.back())([] {
            std::vector<void *> blocks(FIRST);
            for (auto &block : blocks) {
                EXPECT_TRUE(shares());
                block = heap_malloc(100);
            }
            heap_free(heap_malloc(100));
            EXPECT_FALSE(shares());
            EXPECT_EQ(0u, figures::of_heaps().sharing);
            for (void *block : blocks) heap_free(block); // which belong to the heap that it shared
        });
    });
}

// As the background thread does.
TEST(Sharing, WhatASharedHeapHoldsGoesBackWhenNobodyHasUsedItForAWhile)
{
    with_limit(0, [] {
        constexpr uint32_t AGE = 1000;
        uint64_t now = platform_clock_ms();
        std::vector<void *> blocks(1000);
        for (auto &block : blocks) block = heap_malloc(3000);
        for (void *block : blocks) heap_free(block);
        EXPECT_EQ(CHORES_LATER, shared_step(now, AGE));
        EXPECT_EQ(CHORES_LATER, shared_step(now + AGE - 1, AGE));
        EXPECT_LT(0u, in_use());
        shared_step(now + AGE, AGE);
        EXPECT_EQ(0u, in_use());
    });
}

#if !HEAPFIT_TEST_SANITIZED && !HEAPFIT_TEST_EMULATED // neither survives a fork among threads

TEST(Sharing, NoLockIsHeldInTheChildOfAFork)
{
    with_limit(1, [] {
        ASSERT_EQ(0, pthread_atfork(heap_fork_begin, heap_fork_end, heap_fork_end_in_child));
        std::atomic<bool> stop{false};
        std::vector<std::thread> threads;
        for (uint64_t i = 0; i < 4; i++) {
            threads.emplace_back([&, i] {
                model::Blocks blocks(i, model::MIB);
                while (!stop) blocks.step(50);
                blocks.release_all();
            });
        }
        for (int i = 0; i < 50; i++) {
            isolated::expect_passes([] {
                std::vector<std::thread> own;
                for (uint64_t k = 0; k < 4; k++)
                    own.emplace_back([k] {
                        model::Blocks blocks(k, model::MIB);
                        for (int step = 0; step < 50; step++) blocks.step(50);
                        blocks.release_all();
                    });
                for (auto &thread : own) thread.join();
                heap_trim();
            });
        }
        stop = true;
        for (auto &thread : threads) thread.join();
    });
}

#endif

// Four threads: two with heaps of their own and two that share. The first free has arrived when the second comes, and every thread
// looks what was freed for it.
void free_twice(int allocates, int frees, int frees_again)
{
    heap_settings.lockless_threads = 2;
    heap_settings.remote_free_batch = 1;
    std::array<Actor, 4> actors;
    std::vector<void *> others(4); // their neighbours live, so that spans do
    void *block = nullptr;
    for (size_t i = 0; i < actors.size(); i++) {
        actors[i]([&] {
            others[i] = heap_malloc(100);
            if (shares() != (i >= 2)) std::abort();
        });
    }
    actors[static_cast<size_t>(allocates)]([&] { block = heap_malloc(100); });
    actors[static_cast<size_t>(frees)]([&] { heap_free(block); });
    actors[static_cast<size_t>(frees_again)]([&] { heap_free(block); });
    for (auto &actor : actors) actor([] { heap_trim(); });
}

class SharingDeathTest : public testing::TestWithParam<int>
{
};

TEST_P(SharingDeathTest, ADoubleFreeIsCaughtWhoeverFrees)
{
    for (int frees = 0; frees < 4; frees++) {
        for (int frees_again = 0; frees_again < 4; frees_again++) {
            EXPECT_DEATH(free_twice(GetParam(), frees, frees_again), "double free of 0x")
                << GetParam() << " allocates, " << frees << " frees, " << frees_again << " frees again";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Allocates, SharingDeathTest, testing::Range(0, 4));

} // namespace
