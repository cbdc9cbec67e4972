// Memory does not get lost between threads: what the layers hold is bounded by what is live, whoever frees it and
// whichever thread has died. Figures come from space/ itself, so they are exact.
#include "heap_internals.h"
#include "new_heap.h"
#include "stress_seed.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace
{

constexpr size_t MIB = size_t{1} << 20;
// Sanitizers make a call some ten times slower.
constexpr unsigned SHARE = HEAPFIT_TEST_SANITIZED ? 20 : 1;

using figures::in_use;

void expect_nothing_left()
{
    heap_trim();
    EXPECT_EQ(0u, in_use()) << "spans with no live block in them";
}

// ---- one thread ----------------------------------------------------------------------------------------------------

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

// ---- threads are born and die ------------------------------------------------------------------------------------------

// The last blocks of dead threads are freed by the main thread, late and in another order.
TEST(Threads, BlocksThatOutliveTheirThreadsGiveTheirMemoryBack)
{
    in_new_heap([] {
        constexpr size_t THREADS_BORN = 10'000 / SHARE, LIVE = 500;
        std::vector<void *> alive(LIVE, nullptr);
        stress::Random random(7);
        size_t peak = 0;
        for (size_t i = 0; i < THREADS_BORN; i++) {
            void *survivor = nullptr;
            std::thread([&survivor] {
                void *others[20];
                for (auto &other : others) other = heap_malloc(1000);
                survivor = heap_malloc(1000);
                for (void *other : others) heap_free(other);
            }).join();
            void *&place = alive[random.below(LIVE)];
            heap_free(place);
            place = survivor;
            peak = std::max(peak, in_use());
        }
        // A survivor may have a span to itself, at the very worst.
        EXPECT_LE(peak, LIVE * 4096 + 4 * MIB);
        for (void *block : alive) heap_free(block);
        heap_trim();
        EXPECT_EQ(0u, in_use());
    });
}

} // namespace
