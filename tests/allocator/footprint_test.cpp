// The switch of speed for memory, as a program sees it: hf_footprint_shrink and hf_footprint_restore.
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "patience.h"
#include "sleepers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace
{

constexpr size_t MIB = size_t{1} << 20;
// Sanitizers make a call some ten times slower.
constexpr unsigned SHARE = HEAPFIT_TEST_SANITIZED || HEAPFIT_TEST_EMULATED ? 10 : 1;

void set(const char *name, const char *value)
{
    ASSERT_EQ(0, hf_option_set(name, value)) << name << ':' << value;
}

std::string get(const char *name)
{
    char buffer[32] = "";
    EXPECT_EQ(0, hf_option_get(name, buffer, sizeof buffer));
    return buffer;
}

// Everything is kept for ever.
void keep_everything()
{
    for (const char *name : {"thread_span_threshold", "free_page_threshold", "shared_span_threshold", "decay_ms"})
        set(name, "unlimited");
}

hf_stats stats_now()
{
    hf_stats stats;
    EXPECT_EQ(0, hf_stats_get(&stats, sizeof stats));
    return stats;
}

size_t resident()
{
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string line; std::getline(rollup, line);)
        if (line.rfind("Rss:", 0) == 0) return std::strtoull(line.c_str() + 4, nullptr, 10) * 1024;
    ADD_FAILURE() << "the kernel does not tell what is resident";
    return 0;
}

// Pages that are in memory of where an object was. Allocates nothing: that could come from just there.
size_t resident_pages(void *start, size_t size)
{
    static std::array<unsigned char, 64 * MIB / 4096> pages;
    size_t count = 0;
    EXPECT_LE(size / 4096, pages.size());
    EXPECT_EQ(0, mincore(start, size, pages.data()));
    for (size_t page = 0; page < size / 4096; page++) count += pages[page] & 1;
    return count;
}

void *touched(size_t size)
{
    void *object = hf_malloc(size);
    EXPECT_NE(nullptr, object);
    std::memset(object, 1, size);
    return object;
}

// A phase of work: small objects and large ones, all freed at the end, some small ones elsewhere.
void work(size_t bytes)
{
    std::vector<void *> objects;
    for (size_t had = 0; had < bytes;) {
        size_t size = objects.size() % 50 == 0 ? 600 * 1024 : 100 + objects.size() % 1000;
        objects.push_back(touched(size));
        had += size;
    }
    for (void *object : objects) hf_free(object);
}

// Threads that work, sleep, and work a little more once they are woken.
class Workers : public Sleepers
{
  public:
    Workers(size_t count, size_t bytes) : Sleepers(count, [=] { work(bytes); }, [=] { work(bytes / 10); }) {}
};

TEST(Footprint, OptionsKeepTheirValuesWhileItIsShrunk)
{
    isolated::expect_passes([] {
        set("thread_span_threshold", "2m");
        hf_footprint_shrink();
        EXPECT_EQ("2097152", get("thread_span_threshold"));
        EXPECT_EQ("500", get("decay_ms"));
        EXPECT_EQ("unlimited", get("free_page_threshold"));
        set("decay_ms", "77");
        EXPECT_EQ("77", get("decay_ms"));
        hf_footprint_restore();
        EXPECT_EQ("77", get("decay_ms"));
        EXPECT_EQ("2097152", get("thread_span_threshold"));
    });
}

// What all threads together may have to hand to each other while it is shrunk.
constexpr size_t KEPT_SHRUNK = 4 * MIB;

TEST(Footprint, HardlyAnythingIsKeptFromShrinkingToRestoring)
{
    isolated::expect_passes([] {
        constexpr size_t SIZE = 2 * KEPT_SHRUNK;
        keep_everything();
        void *object = touched(SIZE);
        hf_free(object);
        EXPECT_EQ(SIZE / 4096, resident_pages(object, SIZE));
        EXPECT_GE(hf_footprint_shrink(), SIZE);
        EXPECT_EQ(0u, resident_pages(object, SIZE));

        object = touched(SIZE);
        hf_free(object);
        EXPECT_EQ(0u, resident_pages(object, SIZE)) << "kept although shrunk";
        set("thread_span_threshold", "16m");
        object = touched(SIZE);
        hf_free(object);
        EXPECT_EQ(0u, resident_pages(object, SIZE)) << "an option was set meanwhile, and took effect";

        hf_footprint_restore();
        object = touched(SIZE);
        hf_free(object);
        EXPECT_EQ(SIZE / 4096, resident_pages(object, SIZE)) << "not kept although restored";
    });
}

TEST(Footprint, WhatGoesRoundWhileItIsShrunkStaysForAMoment)
{
    isolated::expect_passes([] {
        constexpr size_t SIZE = KEPT_SHRUNK / 2;
        keep_everything();
        hf_footprint_shrink();
        void *object = nullptr;
        // Once is enough: where another has the processor between the two calls, the moment may be over.
        EXPECT_TRUE(patience::comes_true([&] {
            hf_free(touched(SIZE));
            object = hf_malloc(SIZE);
            if (resident_pages(object, SIZE) != 0) return true;
            hf_free(object);
            return false;
        })) << "it was not there for the next who needed it";
        hf_free(object);
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        hf_free(touched(64 * 1024)); // comes by the clock
        EXPECT_EQ(0u, resident_pages(object, SIZE)) << "not needed again, and kept";
    });
}

TEST(Footprint, MayBeShrunkBeforeAnythingWasAllocated)
{
    isolated::expect_passes([] {
        hf_footprint_shrink();
        hf_footprint_restore();
        hf_footprint_restore();
        hf_free(touched(MIB));
        hf_footprint_shrink();
        hf_footprint_shrink();
        hf_free(touched(MIB));
    });
}

TEST(Footprint, SleepingThreadsGiveUpTheSpansThatTheyKeep)
{
    isolated::expect_passes([] {
        constexpr size_t THREADS = 8, BYTES = 24 * MIB / SHARE;
        keep_everything();
        set("share_first", "0"); // each has spans of its own
        hf_free(touched(1));
        Workers(1, 1); // what the C library needs for threads
        size_t before = resident();
        Workers threads(THREADS, BYTES);
        size_t peak = resident();
        size_t given_back = hf_footprint_shrink();
        size_t after = resident();
        EXPECT_GE(peak - before, THREADS * BYTES) << "nothing was kept: this test tests nothing";
        EXPECT_GE(given_back, THREADS * BYTES * 9 / 10);
        // A bin may keep a span until its thread comes by, a thread has a stack, and a sanitizer shadows.
        if (!HEAPFIT_TEST_SANITIZED) {
            EXPECT_LE(after, before + THREADS * 3 * MIB);
        }
        threads.wake();
        EXPECT_LE(stats_now().dirty_bytes, KEPT_SHRUNK);
        hf_footprint_restore();
    });
}

TEST(Footprint, AThreadGivesUpItsFreePagesWhenItNextNeedsBlocks)
{
    isolated::expect_passes([] {
        keep_everything();
        static std::atomic<int> turn{0};
        static size_t purged;
        std::thread thread([] {
            std::vector<void *> blocks(100'000);
            for (void *&block : blocks) block = touched(100);
            for (size_t i = 0; i < blocks.size(); i++)
                if (i % 1000 != 0) hf_free(blocks[i]);
            turn = 1;
            while (turn != 2) std::this_thread::yield();
            for (int i = 0; i < 2000; i++) touched(1000); // refills
            purged = stats_now().purged;
            for (size_t i = 0; i < blocks.size(); i += 1000) hf_free(blocks[i]);
        });
        while (turn != 1) std::this_thread::yield();
        size_t before = stats_now().purged;
        hf_footprint_shrink();
        hf_footprint_restore(); // also if it was for a moment only
        turn = 2;
        thread.join();
        EXPECT_GE(purged - before, 5 * MIB);
    });
}

// Shrinks and restores all the time while others allocate, are born and die, set options, and fork.
TEST(Footprint, MayBeSwitchedAnyTimeByAnyThread)
{
    SCOPED_TRACE(stress::how_to_repeat());
    isolated::expect_passes([] {
        static std::atomic<bool> stop{false};
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; i++) {
            threads.emplace_back([] {
                while (!stop) work(3 * MIB);
            });
        }
        threads.emplace_back([] {
            while (!stop) std::thread([] { work(MIB); }).join();
        });
        for (uint64_t i = 0; i < 2; i++) {
            threads.emplace_back([i] {
                stress::Random random(stress::seed() + i);
                while (!stop) {
                    random.chance(50) ? static_cast<void>(hf_footprint_shrink()) : hf_footprint_restore();
                    set("thread_span_threshold", random.chance(50) ? "1m" : "unlimited");
                    std::this_thread::sleep_for(std::chrono::microseconds(random.below(3000)));
                }
            });
        }
        stress::Deadline deadline(4);
        while (!deadline.passed()) {
#if HEAPFIT_TEST_SANITIZED || HEAPFIT_TEST_EMULATED // neither survives a fork among threads
            work(MIB);
#else
            pid_t child = fork();
            if (child == 0) {
                alarm(isolated::TIMEOUT_SECONDS);
                hf_footprint_shrink();
                work(MIB);
                hf_footprint_restore();
                set("thread_span_threshold", "64k");
                std::thread([] { work(MIB); }).join();
                hf_footprint_shrink();
                _exit(isolated::PASSED);
            }
            int status = -1;
            waitpid(child, &status, 0);
            EXPECT_EQ(isolated::PASSED, status) << "signal " << WTERMSIG(status);
#endif
        }
        stop = true;
        for (auto &thread : threads) thread.join();
        hf_footprint_shrink();
        EXPECT_EQ(0u, stats_now().dirty_bytes);
    });
}

} // namespace
