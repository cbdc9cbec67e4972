// Memory does not get lost between threads: what the layers hold is bounded by what is live, whoever frees it and
// whichever thread has died. Figures come from space/ itself, so they are exact.
#include "figures.h"
#include "heap_internals.h"
#include "heap_isolated.h"
#include "space_walker.h"
#include "stress_seed.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

namespace
{

constexpr size_t MIB = size_t{1} << 20;
// Sanitizers make a call some ten times slower.
constexpr unsigned SHARE = HEAPFIT_TEST_SANITIZED ? 20 : 1;

using figures::in_use;

size_t resident()
{
    std::ifstream statm("/proc/self/statm");
    size_t pages = 0;
    statm >> pages >> pages;
    return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t heaps_made()
{
    return figures::of_heaps().made;
}

// In a process whose main thread has a heap and nothing else.
template <typename Body> void in_new_heap(Body body)
{
    isolated::expect_passes([&] {
        heap_free(heap_malloc(1));
        heap_trim();
        ASSERT_EQ(0u, in_use());
        body();
        space_walker::check();
    });
}

void expect_nothing_left()
{
    heap_trim();
    EXPECT_EQ(0u, in_use()) << "spans with no live block in them";
}

// ---- one thread ----------------------------------------------------------------------------------------------------

TEST(Heap, EmptiedSpansGoBackForEverySizeAndOrder)
{
    in_new_heap([] {
        stress::Random random(1);
        for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
            for (int order = 0; order < 3; order++) {
                std::vector<void *> blocks(4 * SPAN_SIZE / size_class_bytes(bin) + 1);
                for (auto &block : blocks) block = heap_malloc(size_class_bytes(bin));
                if (order == 1) std::reverse(blocks.begin(), blocks.end());
                if (order == 2)
                    for (auto &block : blocks) std::swap(block, blocks[random.below(blocks.size())]);
                for (void *block : blocks) heap_free(block);
                expect_nothing_left();
            }
        }
    });
}

TEST(Heap, FreedSpansServeOtherSizes)
{
    in_new_heap([] {
        size_t peak = 0;
        for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
            std::vector<void *> blocks(2 * MIB / size_class_bytes(bin));
            for (auto &block : blocks) block = heap_malloc(size_class_bytes(bin));
            peak = std::max(peak, in_use());
            for (void *block : blocks) heap_free(block);
        }
        // Each bin may keep one empty span, the heap a few more.
        EXPECT_LE(peak, 3 * MIB + (BIN_COUNT + heap_settings.thread_spans_cached) * SPAN_SIZE);
    });
}

TEST(Heap, HolesAreFilledBeforeNewSpansAreTaken)
{
    in_new_heap([] {
        std::vector<void *> blocks(100000);
        for (auto &block : blocks) block = heap_malloc(100);
        size_t full = in_use();
        for (int round = 0; round < 20; round++) {
            for (size_t i = 0; i < blocks.size(); i += 2) heap_free(blocks[i]);
            for (size_t i = 0; i < blocks.size(); i += 2) blocks[i] = heap_malloc(100);
        }
        EXPECT_LE(in_use(), full + full / 10);
        for (void *block : blocks) heap_free(block);
        expect_nothing_left();
    });
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

// ---- producer to consumer --------------------------------------------------------------------------------------------

// A ring between one producer and one consumer, so that few blocks are live at a time.
constexpr size_t RING = 4096;

struct Ring {
    std::array<std::atomic<void *>, RING> slots{};

    void put(size_t number, void *block)
    {
        auto &slot = slots[number % RING];
        while (slot.load(std::memory_order_relaxed) != nullptr) std::this_thread::yield();
        slot.store(block, std::memory_order_release);
    }

    void *take(size_t number)
    {
        auto &slot = slots[number % RING];
        void *block;
        while ((block = slot.exchange(nullptr, std::memory_order_acquire)) == nullptr) std::this_thread::yield();
        return block;
    }
};

TEST(Threads, AProducersMemoryIsBoundedByWhatIsLive)
{
    in_new_heap([] {
        static Ring ring;
        constexpr size_t BLOCKS = 10'000'000 / SHARE, BLOCK_BYTES = 64;
        std::thread consumer([] {
            for (size_t i = 0; i < BLOCKS; i++) heap_free(ring.take(i));
        });
        size_t peak = 0;
        for (size_t i = 0; i < BLOCKS; i++) {
            ring.put(i, heap_malloc(BLOCK_BYTES));
            if (i % 100'000 == 0) peak = std::max(peak, in_use());
        }
        consumer.join();
        EXPECT_LE(peak, 2 * RING * BLOCK_BYTES + MIB);
        expect_nothing_left();
    });
}

// A chain of threads, each of which frees what the one before allocated and passes on new blocks.
TEST(Threads, ABucketBrigadeIsBoundedByWhatIsLive)
{
    in_new_heap([] {
        constexpr size_t LINKS = 5, BLOCKS = 500'000 / SHARE, BLOCK_BYTES = 200;
        static std::array<Ring, LINKS> rings;
        std::vector<std::thread> threads;
        for (size_t link = 1; link < LINKS; link++) {
            threads.emplace_back([link] {
                for (size_t i = 0; i < BLOCKS; i++) {
                    heap_free(rings[link - 1].take(i));
                    rings[link].put(i, heap_malloc(BLOCK_BYTES));
                }
            });
        }
        threads.emplace_back([] {
            for (size_t i = 0; i < BLOCKS; i++) heap_free(rings[LINKS - 1].take(i));
        });
        size_t peak = 0;
        for (size_t i = 0; i < BLOCKS; i++) {
            rings[0].put(i, heap_malloc(BLOCK_BYTES));
            if (i % 10'000 == 0) peak = std::max(peak, in_use());
        }
        for (auto &thread : threads) thread.join();
        EXPECT_LE(peak, 2 * LINKS * RING * BLOCK_BYTES + LINKS * MIB);
        expect_nothing_left();
    });
}

// ---- threads are born and die ------------------------------------------------------------------------------------------

TEST(Threads, ManyThreadsOneAfterTheOtherLeaveNothingBehind)
{
    in_new_heap([] {
        for (unsigned i = 0; i < 10'000 / SHARE; i++) {
            std::thread([] {
                void *blocks[50];
                for (size_t k = 0; k < 50; k++) blocks[k] = heap_malloc(16 + 40 * k);
                for (void *block : blocks) heap_free(block);
            }).join();
        }
        EXPECT_EQ(0u, in_use());
        EXPECT_LE(heaps_made(), 2u) << "heaps were not reused";
    });
}

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

TEST(Threads, ManyThreadsAtOnceAreAdoptedByTheNextOnes)
{
    in_new_heap([] {
        constexpr int GENERATIONS = 40, AT_ONCE = 50;
        std::vector<void *> left(AT_ONCE, nullptr);
        for (int generation = 0; generation < GENERATIONS; generation++) {
            std::vector<std::thread> threads;
            for (size_t i = 0; i < AT_ONCE; i++) {
                threads.emplace_back([i, &left] {
                    heap_free(left[i]);
                    std::vector<void *> blocks(200);
                    for (auto &block : blocks) block = heap_malloc(300);
                    left[i] = blocks.back();
                    blocks.pop_back();
                    for (void *block : blocks) heap_free(block);
                });
            }
            for (auto &thread : threads) thread.join();
        }
        // One for each thread, and one that each may be settling at the moment when another thread looks for an idle one.
        EXPECT_LE(heaps_made(), 2 * AT_ONCE + 1u);
        EXPECT_LE(in_use(), AT_ONCE * 2 * SPAN_SIZE);
        for (void *block : left) heap_free(block);
        expect_nothing_left();
    });
}

// All of them live at the same moment, each with a few blocks, of which the main thread frees half when they are gone.
class Crowd
{
  public:
    static constexpr size_t THREADS_AT_ONCE = HEAPFIT_TEST_EMULATED ? 100 : 2000 / SHARE, BLOCKS_EACH = 8;
    // A page per block, since each has a size of its own; the thread heap; the thread's stack and what libc keeps for it.
    static constexpr size_t RESIDENT_EACH_MAX = (BLOCKS_EACH + 4 + 8) * 4096;

    void gather_and_leave()
    {
        ASSERT_EQ(0, pthread_barrier_init(&all_here_, nullptr, THREADS_AT_ONCE + 1));
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 256 * 1024);
        std::vector<pthread_t> threads(THREADS_AT_ONCE);
        for (pthread_t &thread : threads)
            ASSERT_EQ(0, pthread_create(&thread, &attributes, take_part, this)) << "the system has too few threads";
        pthread_barrier_wait(&all_here_);
        resident_at_once_ = resident();
        pthread_barrier_wait(&all_here_);
        for (pthread_t thread : threads) pthread_join(thread, nullptr);
        pthread_attr_destroy(&attributes);
        pthread_barrier_destroy(&all_here_);
        for (size_t i = 0; i < left_; i++) heap_free(left_behind_[i]);
        left_ = 0;
    }

    size_t resident_at_once() const
    {
        return resident_at_once_;
    }

  private:
    static void *take_part(void *argument)
    {
        auto *crowd = static_cast<Crowd *>(argument);
        void *blocks[BLOCKS_EACH];
        for (size_t i = 0; i < BLOCKS_EACH; i++) {
            blocks[i] = heap_malloc(24 + 40 * i);
            std::memset(blocks[i], 1, 24 + 40 * i);
        }
        pthread_barrier_wait(&crowd->all_here_);
        pthread_barrier_wait(&crowd->all_here_);
        for (size_t i = 0; i < BLOCKS_EACH; i++) {
            if (i % 2 == 0) heap_free(blocks[i]);
            else crowd->left_behind_[crowd->left_++] = blocks[i];
        }
        return nullptr;
    }

    pthread_barrier_t all_here_;
    size_t resident_at_once_ = 0;
    std::atomic<size_t> left_{0};
    std::array<void *, THREADS_AT_ONCE * BLOCKS_EACH> left_behind_{};
};

TEST(Threads, ThousandsAtOnceCostLittleAndLeaveNothingBehind)
{
    in_new_heap([] {
        static Crowd crowd;
        size_t before = resident();
        crowd.gather_and_leave();
        size_t each = (crowd.resident_at_once() - before) / Crowd::THREADS_AT_ONCE;
        RecordProperty("bytes", static_cast<int>(each));
        if (!HEAPFIT_TEST_SANITIZED && !HEAPFIT_TEST_EMULATED) { // these have memory of their own for each thread
            EXPECT_LE(each, Crowd::RESIDENT_EACH_MAX);
        }
        expect_nothing_left();
        size_t heaps = heaps_made();
        EXPECT_LE(heaps, Crowd::THREADS_AT_ONCE + 1);
        crowd.gather_and_leave();
        EXPECT_EQ(heaps, heaps_made()) << "heaps were not reused";
        expect_nothing_left();
    });
}

// A thread that has exited still owns nothing: frees from a thread that never had a heap settle its heap at once.
TEST(Threads, AThreadWithoutAHeapSettlesWhatItFrees)
{
    in_new_heap([] {
        std::vector<void *> blocks(1000);
        std::thread([&] {
            for (auto &block : blocks) block = heap_malloc(500);
        }).join();
        EXPECT_GT(in_use(), 0u);
        std::thread([&] {
            for (void *block : blocks) heap_free(block);
        }).join();
        EXPECT_EQ(0u, in_use());
    });
}

// The owner lives but sleeps: what it is sent must come back to it when it next needs memory.
TEST(Threads, AnIdleOwnerTakesBackItsBlocksWhenItAllocatesAgain)
{
    in_new_heap([] {
        constexpr size_t ROUNDS = 50, BLOCKS = 20'000;
        size_t first = 0;
        std::vector<void *> blocks(BLOCKS);
        for (size_t round = 0; round < ROUNDS / (SHARE > 1 ? 10 : 1); round++) {
            for (auto &block : blocks) block = heap_malloc(128);
            if (round == 0) first = in_use();
            EXPECT_LE(in_use(), first + MIB);
            std::thread([&] {
                for (void *block : blocks) heap_free(block);
            }).join();
        }
        expect_nothing_left();
    });
}

} // namespace
