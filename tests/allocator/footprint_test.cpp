// The switch of speed for memory, as a program sees it: hf_footprint_shrink and hf_footprint_restore.
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "system.h"

namespace
{

constexpr size_t MIB = size_t{1} << 20;

void set(const char *name, const char *value)
{
    ASSERT_EQ(0, hf_option_set(name, value)) << name << ':' << value;
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
