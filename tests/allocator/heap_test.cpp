// heap/: the bookkeeping of one thread's heap, after random calls and while chores give memory back.
#include "heap_isolated.h"
#include "heap_walker.h"
#include "model.h"
#include "space_walker.h"

#include <atomic>
#include <thread>

namespace
{

void check_everything()
{
    heap_walker::check(thread_heap);
    heap_walker::check(&heap_orphans);
    space_walker::check();
}

void walk_at_random(uint32_t decay_ms, size_t budget)
{
    SCOPED_TRACE(stress::how_to_repeat());
    isolated::expect_passes([=] {
        space_settings.decay_ms = decay_ms;
        model::Blocks blocks(stress::seed(), budget);
        stress::Deadline deadline(3);
        do {
            unsigned growth = blocks.random().chance(50) ? 75 : 25;
            for (int i = 0; i < 500 && !stress::failed(); i++) blocks.step(growth);
            check_everything();
        } while (!deadline.passed() && !stress::failed());
        blocks.release_all();
        heap_trim();
        check_everything();
        EXPECT_EQ(0u, heap_spans(thread_heap)) << "spans with no live block in them";
    });
}

TEST(Heap, CountsAndListsAgreeAfterRandomCalls)
{
    walk_at_random(1u << 30, 16 * model::MIB);
}

TEST(Heap, CountsAndListsAgreeWhileChoresAreDoneAllTheTime)
{
    walk_at_random(0, 4 * model::MIB);
}

// Looking at all lists after each free takes minutes there.
constexpr size_t FREES_PER_LOOK = HEAPFIT_TEST_SANITIZED || HEAPFIT_TEST_EMULATED ? 29 : 1;

// Each block is freed where all spans become sparse one after the other, and the first of them brings chores.
TEST(Heap, CountsAgreeWhenASpanBecomesSparse)
{
    isolated::expect_passes([] {
        for (size_t size : {16, 48, 100, 512, 2000}) {
            heap_trim();
            thread_heap->chores = false;
            std::vector<void *> blocks(3 * SPAN_SIZE / size + 7); // the last span is not carved to its end
            for (auto &block : blocks) block = heap_malloc(size);
            for (size_t i = blocks.size(); i-- > 0 && !HasFailure();) {
                heap_free(blocks[i]);
                if (i % FREES_PER_LOOK == 0) heap_walker::check(thread_heap);
            }
        }
        heap_trim();
        EXPECT_EQ(0u, heap_spans(thread_heap));
    });
}

// While the owner examines its sparse spans, another thread frees blocks in them: what is on its way is not free yet.
TEST(Heap, SparseSpansAreTidiedWhileOthersFreeTheirBlocks)
{
    isolated::expect_passes([] {
        space_settings.decay_ms = 0;
        constexpr size_t KEPT = 4096;
        static std::atomic<void *> kept[KEPT];
        static std::atomic<bool> stop;
        std::thread other([] {
            stress::Random random(3);
            while (!stop) heap_free(kept[random.below(KEPT)].exchange(nullptr));
        });
        stress::Random random(stress::seed());
        stress::Deadline deadline(4);
        while (!deadline.passed() && !stress::failed()) {
            size_t size = 16 * random.between(1, 8);
            for (int i = 0; i < 20000; i++) {
                auto *block = static_cast<unsigned char *>(heap_malloc(size));
                ASSERT_NE(nullptr, block);
                std::memset(block, 0xAA, size);
                if (random.below(100) == 0)
                    block = static_cast<unsigned char *>(kept[random.below(KEPT)].exchange(block));
                heap_free(block);
            }
        }
        stop = true;
        other.join();
        for (auto &place : kept) heap_free(place);
        heap_trim();
        check_everything();
        EXPECT_EQ(0u, heap_spans(thread_heap));
    });
}

} // namespace
