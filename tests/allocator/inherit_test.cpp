// What a fork's child takes over from the heaps of threads that it does not have.
#include "figures.h"
#include "heap_isolated.h"
#include "model.h"
#include "space_walker.h"
#include "system.h"

namespace
{

__attribute__((constructor)) void register_the_allocator()
{
    pthread_atfork(heap_fork_begin, heap_fork_end, heap_fork_end_in_child);
}

template <typename Body> void in_child_of(Body body)
{
    pid_t child = fork();
    if (child == 0) {
        body();
        std::fflush(stdout);
        _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    EXPECT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
}

template <typename Body> void in_child_of_thread(Body body)
{
    std::thread([=] {
        heap_free(heap_malloc(1));
        in_child_of(body);
    }).join();
}

void expect_nothing_is_left_behind()
{
    for (const heap *each = *heap_list_at; each != nullptr; each = each->made_before) EXPECT_FALSE(each->left_behind);
}

size_t blocks_in(const struct span *span)
{
    size_t blocks = 0;
    for (uintptr_t block = span->free; !list_is_empty(block); blocks++) {
        EXPECT_EQ(span, span_of_offset(block - space.base)) << "a list leads to another span";
        block = list_next(block);
    }
    return blocks;
}

void check_everything()
{
    for (const struct span_chain *chain : {&heap_orphans.owned, &heap_orphans.sparse}) {
        uint32_t spans = 0;
        for (uint32_t index = chain->first; index != SPAN_NONE; index = span_at(index)->owned_next, spans++) {
            const struct span *span = span_at(index);
            EXPECT_EQ(&heap_orphans, span->owner.load());
            EXPECT_EQ(span->carved - span_live(span), blocks_in(span));
        }
        EXPECT_EQ(chain->spans, spans);
    }
    if (!HARDENED) space_walker::check(); // which has runs of guards
}

constexpr size_t BLOCKS = 200'000;
constexpr size_t SIZES[] = {16, 100, 512, 3000, 20'000};

// A half of the blocks lives; what the main thread has freed of the rest, the child of another one uses.
TEST(Inherit, BlocksThatWereFreeAreUsedAgain)
{
    for (size_t size : SIZES) {
        SCOPED_TRACE(size);
        isolated::expect_passes([=] {
            std::vector<void *> blocks(BLOCKS * 16 / size + 1000);
            for (auto &block : blocks) block = heap_malloc(size);
            for (size_t i = 0; i < blocks.size(); i += 2) heap_free(blocks[i]);
            in_child_of_thread([&] {
                size_t before = figures_now().handed_out;
                for (size_t i = 0; i < blocks.size(); i += 2) blocks[i] = heap_malloc(size);
                EXPECT_LE(figures_now().handed_out, before + 17 * SPAN_SIZE) << "more than it takes first";
                expect_nothing_is_left_behind();
                check_everything();
                for (void *block : blocks) heap_free(block);
                heap_trim_everywhere();
                check_everything();
                EXPECT_EQ(0u, heap_spans(&heap_orphans));
            });
        });
    }
}

// Those that were on their way: the main thread has handed some over to its worker, and the other way round.
TEST(Inherit, BlocksOnTheirWayArrive)
{
    isolated::expect_passes([] {
        heap_settings.remote_free_batch = 1;
        static std::vector<void *> mine(100), theirs(100);
        static std::atomic<int> step;
        for (auto &block : mine) block = heap_malloc(64);
        std::thread worker([] {
            for (auto &block : theirs) block = heap_malloc(64);
            for (void *block : mine) heap_free(block);
            step = 1;
            while (step != 2) std::this_thread::yield();
        });
        while (step != 1) std::this_thread::yield();
        for (void *block : theirs) heap_free(block);
        in_child_of_thread([] {
            std::vector<void *> large;
            for (int i = 0; i < 20; i++) large.push_back(heap_malloc(SPAN_SIZE + 1)); // until it looks
            expect_nothing_is_left_behind();
            for (void *block : large) heap_free(block);
            heap_trim_everywhere();
            check_everything();
            EXPECT_EQ(0u, heap_spans(&heap_orphans));
        });
        step = 2;
        worker.join();
    });
}

#ifndef HEAPFIT_HARDENED // which keeps what is freed for a while first
constexpr size_t OUTBOX_WORDS = 64; // of its lists, which come first

// What a thread has collected for others may be half written. Nobody goes on with it, nor with what is left of it.
TEST(Inherit, BlocksThatWereBeingCollectedAreForgotten)
{
    isolated::expect_passes([] {
        static std::atomic<int> step;
        static void *mine[2];
        for (auto &block : mine) block = heap_malloc(64);
        std::thread worker([] {
            heap_free(heap_malloc(64));
            heap_free(mine[0]);
            for (size_t word = 0; word < OUTBOX_WORDS; word++)
                reinterpret_cast<uintptr_t *>(thread_heap->outbox)[word] |= 16;
            step = 1;
            while (step != 2) std::this_thread::yield();
            _exit(testing::Test::HasFailure() ? isolated::FAILED : isolated::PASSED); // it cannot go on itself
        });
        while (step != 1) std::this_thread::yield();
        in_child_of_thread([] {
            std::vector<void *> large;
            for (int i = 0; i < 20; i++) large.push_back(heap_malloc(SPAN_SIZE + 1));
            expect_nothing_is_left_behind();
            std::thread([] { heap_free(mine[1]); }).join(); // in one of those heaps
            for (void *block : large) heap_free(block);
            check_everything();
        });
        step = 2;
        worker.join();
    });
}
#endif

// Whatever other threads were doing, the child's heaps are in order, and no block is handed out twice: the model would see it.
TEST(Inherit, ThreadsMayHaveBeenAnywhere)
{
    SCOPED_TRACE(stress::how_to_repeat());
    isolated::expect_passes([] {
        static std::atomic<bool> stop;
        std::vector<std::thread> busy;
        for (uint64_t i = 0; i < 3; i++)
            busy.emplace_back([i] {
                model::Blocks blocks(stress::seed() + i, 4 * model::MIB);
                while (!stop && !stress::failed()) {
                    blocks.step(60);
                    if (blocks.random().below(1000) == 0) heap_trim();
                }
            });
        stress::Deadline deadline(8);
        uint64_t round = 0;
        do
            in_child_of_thread([=] {
                model::Blocks blocks(stress::seed() + 77 * round, 16 * model::MIB);
                for (int i = 0; i < 2000; i++) blocks.step(70);
                expect_nothing_is_left_behind();
                check_everything();
                blocks.release_all();
                heap_trim_everywhere();
                check_everything();
            });
        while (round++ < 3 || (!deadline.passed() && !stress::failed()));
        stop = true;
        for (auto &thread : busy) thread.join();
    });
}

#ifdef HEAPFIT_HARDENED // of the full run, since a container may forbid it
// The first process of a namespace of processes that forks into another one, and so has a child of its own number.
TEST(Inherit, AProcessIsNotTakenForItsParentOfTheSameNumber)
{
    isolated::expect_passes([] {
        if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) GTEST_SKIP() << "no namespaces here";
        in_child_of([] {
            EXPECT_EQ(1, getpid());
            uint64_t own = platform_process_identity();
            EXPECT_EQ(own, platform_process_identity());
            ASSERT_EQ(0, unshare(CLONE_NEWPID));
            in_child_of([own] {
                EXPECT_EQ(1, getpid());
                EXPECT_NE(own, platform_process_identity());
            });
        });
    });
}
#endif

} // namespace
