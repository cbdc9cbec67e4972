// Memory does not get lost between threads: what the layers hold is bounded by what is live, whoever frees it and
// whichever thread has died. Figures come from space/ itself, so they are exact.
#include "heap_internals.h"
#include "new_heap.h"
#include "stress_seed.h"
#include "system.h"

namespace
{

constexpr size_t MIB = size_t{1} << 20;

using figures::in_use;

void expect_nothing_left()
{
    heap_trim();
    EXPECT_EQ(0u, in_use()) << "spans with no live block in them";
}

// What its bins were given while it was busy would last an idle thread for long, and only a refill looks at the clock.
TEST(Heap, AThreadThatRestsAfterItHasFreedMuchGivesItBack)
{
    in_new_heap([] {
        constexpr size_t BLOCK = 56, BLOCKS = 16 * MIB / BLOCK;
        space_settings.decay_ms = 20;
        std::vector<void *> blocks(BLOCKS);
        struct space_figures before, after;
        for (int phase = 0; phase < 3; phase++) { // after the first there are chores, and the thread is busy
            for (auto &block : blocks) block = heap_malloc(BLOCK);
            space_figures(&before); // of the last phase; where frees are slow, much goes back while they last
            for (void *block : blocks) heap_free(block);
        }
        size_t in_a_span = SPAN_SIZE / BLOCK;
        for (size_t pair = 0; pair < in_a_span / 2; pair++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            heap_free(heap_malloc(BLOCK));
        }
        space_figures(&after);
        EXPECT_GE(after.purged - before.purged, 12 * MIB);
        expect_nothing_left();
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
        space_walker::check();
        EXPECT_EQ(0u, in_use());
    });
}

} // namespace
