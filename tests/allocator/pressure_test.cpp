// When memory runs short. The program is linked with --wrap for what the kernel says of its limits, and for the clock.
#include "heap_internals.h"
#include "heap_isolated.h"
#include "heapfit/heapfit.h"

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace
{

constexpr size_t MIB = size_t{1} << 20;

platform_memory said;
std::atomic<unsigned> reads;
uint64_t clock_shift_ms;

} // namespace

extern "C" {
void __wrap_platform_memory_read(const platform_memory_files *files, platform_memory *memory);
void __wrap_platform_memory_read(const platform_memory_files *, platform_memory *memory)
{
    reads++;
    *memory = said;
}
uint64_t __real_platform_clock_ms(void);
uint64_t __wrap_platform_clock_ms(void)
{
    return __real_platform_clock_ms() + clock_shift_ms;
}
}

namespace
{

hf_stats stats_now()
{
    hf_stats stats;
    EXPECT_EQ(0, hf_stats_get(&stats, sizeof stats));
    return stats;
}

size_t kept_free()
{
    return stats_now().dirty_bytes + stats_now().cached_bytes;
}

void set(const char *name, const char *value)
{
    ASSERT_EQ(0, hf_option_set(name, value)) << name << ':' << value;
}

void keep_everything()
{
    for (const char *name : {"thread_span_threshold", "free_page_threshold", "shared_span_threshold"})
        set(name, "unlimited");
    set("decay_ms", "3600000");
}

void is_limited(size_t limit, size_t used)
{
    said.limit = limit;
    said.used = used;
}

// As a program goes on that neither grows nor rests.
void work_on()
{
    for (int i = 0; i < 200; i++) {
        std::vector<void *> objects; // more than a bin holds; then spans are empty
        for (int j = 0; j < 500; j++) objects.push_back(heap_malloc(3000));
        for (void *object : objects) heap_free(object);
    }
}

// Unless it is touched, what counts is what the heap has.
void take_and_free(size_t bytes, bool touched = false)
{
    std::vector<void *> objects;
    for (size_t taken = 0; taken < bytes; taken += MIB) {
        objects.push_back(heap_malloc(MIB));
        if (touched) memset(objects.back(), 1, MIB);
    }
    for (void *object : objects) heap_free(object);
}

// Each alone in its process.
void in_a_process(void (*test)())
{
    isolated::expect_passes([test] {
        said = {SIZE_MAX, 0, 0, 0};
        keep_everything();
        test();
    });
}

TEST(Pressure, NobodyAsksWhileTheHeapIsSmall)
{
    in_a_process([] {
        is_limited(64 * MIB, 60 * MIB);
        for (const char *name : {"decay_ms", "shared_span_threshold", "thread_span_threshold"}) set(name, "0");
        for (int i = 0; i < 10; i++) {
            take_and_free(8 * MIB); // which it gets from the kernel again and again
            work_on();
        }
        EXPECT_EQ(0u, reads.load());
    });
}

TEST(Pressure, WithoutALimitWhatIsFreeStays)
{
    in_a_process([] {
        take_and_free(300 * MIB);
        EXPECT_LE(295 * MIB, kept_free());
        EXPECT_LE(1u, reads.load());
        EXPECT_GE(20u, reads.load());
    });
}

TEST(Pressure, FarFromTheLimitWhatIsFreeStays)
{
    in_a_process([] {
        is_limited(1000 * MIB, 100 * MIB);
        take_and_free(300 * MIB);
        work_on();
        EXPECT_LE(295 * MIB, kept_free());
    });
}

TEST(Pressure, AtTheLimitNothingFreeIsKept)
{
    in_a_process([] {
        is_limited(1000 * MIB, 950 * MIB);
        take_and_free(100 * MIB);
        EXPECT_GE(MIB, kept_free());
    });
}

TEST(Pressure, WhatIsFreeGoesBackWhenTheLimitComesNear)
{
    in_a_process([] {
        is_limited(1000 * MIB, 500 * MIB);
        take_and_free(100 * MIB);
        EXPECT_LE(95 * MIB, kept_free());
        said.used = 960 * MIB; // by others
        clock_shift_ms += 5000;
        work_on();
        EXPECT_GE(MIB, kept_free());
    });
}

TEST(Pressure, ALimitThatIsLoweredBelowWhatIsUsedIsSeen)
{
    in_a_process([] {
        is_limited(1000 * MIB, 200 * MIB);
        take_and_free(100 * MIB);
        EXPECT_LE(95 * MIB, kept_free());
        said.limit = 150 * MIB;
        clock_shift_ms += 5000;
        work_on();
        EXPECT_GE(MIB, kept_free());
    });
}

TEST(Pressure, AnObjectThatWouldNotFitMakesRoomFirst)
{
    in_a_process([] {
        is_limited(1000 * MIB, 300 * MIB);
        take_and_free(200 * MIB);
        EXPECT_LE(195 * MIB, kept_free());
        void *object = heap_malloc(650 * MIB);
        EXPECT_GE(MIB, kept_free());
        heap_free(object);
    });
}

TEST(Pressure, EndsWhenThereIsRoomAgain)
{
    in_a_process([] {
        is_limited(1000 * MIB, 950 * MIB);
        take_and_free(100 * MIB);
        EXPECT_GE(MIB, kept_free());
        said.used = 100 * MIB;
        clock_shift_ms += 5000;
        take_and_free(100 * MIB);
        EXPECT_LE(95 * MIB, kept_free());
    });
}

TEST(Pressure, AtTheLimitNoMoreHugePagesAreAskedFor)
{
    in_a_process([] {
        is_limited(1000 * MIB, 950 * MIB);
        take_and_free(50 * MIB);
        size_t before = stats_now().huge_bytes; // purging takes from it
        void *large = heap_malloc(64 * MIB);
        size_t at_the_limit = stats_now().huge_bytes;
        EXPECT_GE(before, at_the_limit);
        heap_free(large);
        said.used = 100 * MIB;
        clock_shift_ms += 5000;
        take_and_free(50 * MIB);
        large = heap_malloc(64 * MIB);
        EXPECT_LE(at_the_limit + 60 * MIB, stats_now().huge_bytes) << "and then they are again";
        heap_free(large);
    });
}

// So that it does not come and go.
TEST(Pressure, LastsUntilThereIsTwiceTheRoom)
{
    in_a_process([] {
        is_limited(1000 * MIB, 950 * MIB);
        take_and_free(100 * MIB);
        said.used = 850 * MIB; // little is less than 125 MiB
        take_and_free(100 * MIB);
        EXPECT_GE(MIB, kept_free());
    });
}

TEST(Pressure, AProgramThatTouchesLittleOfWhatItHasIsNotShort)
{
    in_a_process([] {
        is_limited(1000 * MIB, 200 * MIB);
        void *untouched = heap_malloc(900 * MIB);
        clock_shift_ms += 5000;
        take_and_free(100 * MIB); // beside 900 MiB it is near, if all were touched
        EXPECT_LE(95 * MIB, kept_free());
        heap_free(untouched);
    });
}

// Where all might be touched, caches are bounded.
TEST(Pressure, NearTheLimitLittleIsKept)
{
    in_a_process([] {
        is_limited(1000 * MIB, 600 * MIB);
        void *untouched = heap_malloc(380 * MIB);
        clock_shift_ms += 5000;
        take_and_free(100 * MIB);
        EXPECT_GE(5 * MIB, kept_free());
        heap_free(untouched);
    });
}

TEST(Pressure, WhatTheKernelWarnsOfGoesBackOnce)
{
    in_a_process([] {
        is_limited(1000 * MIB, 100 * MIB);
        take_and_free(100 * MIB);
        EXPECT_LE(95 * MIB, kept_free());
        said.events++;
        clock_shift_ms += 5000;
        work_on();
        EXPECT_GE(4 * MIB, kept_free()); // what it has freed since
        take_and_free(100 * MIB);
        EXPECT_LE(95 * MIB, kept_free()) << "and then is kept again";
    });
}

TEST(Pressure, StallsAreWarnings)
{
    in_a_process([] {
        is_limited(1000 * MIB, 100 * MIB);
        take_and_free(100 * MIB);
        clock_shift_ms += 2500;
        said.stalled_us += 100'000; // of two seconds and a half: too little
        work_on();
        EXPECT_LE(95 * MIB, kept_free());
        clock_shift_ms += 2500;
        said.stalled_us += 1'000'000;
        work_on();
        EXPECT_GE(4 * MIB, kept_free()); // what it has freed since
    });
}

TEST(Pressure, OptionsKeepTheirValues)
{
    in_a_process([] {
        is_limited(1000 * MIB, 990 * MIB);
        take_and_free(100 * MIB);
        char value[32];
        ASSERT_EQ(0, hf_option_get("decay_ms", value, sizeof value));
        EXPECT_STREQ("3600000", value);
        set("decay_ms", "unlimited"); // bounded all the same
        take_and_free(100 * MIB);
        EXPECT_GE(MIB, kept_free());
    });
}

TEST(Pressure, ALimitOfTheUsersHoldsForThisProcess)
{
    in_a_process([] {
        is_limited(1000 * MIB, 990 * MIB);
        set("memory_limit", "4g");
        take_and_free(100 * MIB, true);
        EXPECT_LE(95 * MIB, kept_free());
        EXPECT_EQ(0u, reads.load());
        set("memory_limit", "100m");
        take_and_free(120 * MIB, true);
        EXPECT_GE(MIB, kept_free());
        EXPECT_EQ(0u, reads.load());
    });
}

TEST(Pressure, WithLimitsOfNoInterestNobodyAsks)
{
    in_a_process([] {
        is_limited(1000 * MIB, 990 * MIB);
        set("memory_limit", "none");
        take_and_free(300 * MIB);
        EXPECT_LE(295 * MIB, kept_free());
        EXPECT_EQ(0u, reads.load());
    });
}

TEST(Pressure, TheOptionHasWords)
{
    in_a_process([] {
        char value[32];
        for (const char *word : {"auto", "none"}) {
            set("memory_limit", word);
            ASSERT_EQ(0, hf_option_get("memory_limit", value, sizeof value));
            EXPECT_STREQ(word, value);
        }
        set("memory_limit", "0");
        ASSERT_EQ(0, hf_option_get("memory_limit", value, sizeof value));
        EXPECT_STREQ("auto", value);
        EXPECT_EQ(-1, hf_option_set("memory_limit", "some"));
        EXPECT_EQ(EINVAL, errno);
    });
}

// Blocks of which of 64 in a row, as many as are in a span, so many live.
std::vector<void *> leave_free_pages(size_t bytes, size_t lives)
{
    std::vector<void *> live, free;
    for (size_t i = 0; i < bytes / 1024; i++) {
        (i % 64 < lives ? live : free).push_back(heap_malloc(1024));
        memset(i % 64 < lives ? live.back() : free.back(), 1, 1024);
    }
    for (void *object : free) heap_free(object);
    return live;
}

// Each thread gives back its own when it next fills a bin.
TEST(Pressure, AtTheLimitPagesBetweenLiveBlocksGoBack)
{
    in_a_process([] {
        is_limited(1000 * MIB, 100 * MIB);
        std::vector<void *> live = leave_free_pages(50 * MIB, 1);
        size_t before = stats_now().resident;
        said.used = 950 * MIB;
        clock_shift_ms += 5000;
        work_on();
        EXPECT_GT(before - 40 * MIB, stats_now().resident);
        for (void *object : live) heap_free(object);
    });
}

// It fills no bin.
TEST(Pressure, AThreadOfLargeObjectsAloneGivesThemBackToo)
{
    in_a_process([] {
        is_limited(1000 * MIB, 100 * MIB);
        std::vector<void *> live = leave_free_pages(50 * MIB, 1);
        size_t before = stats_now().resident;
        said.used = 950 * MIB;
        std::array<void *, 300> large;
        for (void *&object : large) object = heap_malloc(MIB);
        EXPECT_GT(before - 20 * MIB, stats_now().resident);
        for (void *object : large) heap_free(object);
        for (void *object : live) heap_free(object);
    });
}

// Pages of spans too that are mostly in use, which nobody else looks for.
TEST(Pressure, WhileHardlyAnythingIsLeftAllIsLookedThroughAgain)
{
    in_a_process([] {
        is_limited(1000 * MIB, 990 * MIB);
        take_and_free(50 * MIB);
        std::vector<void *> live = leave_free_pages(50 * MIB, 40);
        size_t before = stats_now().resident;
        clock_shift_ms += 6000;
        work_on();
        clock_shift_ms += 6000;
        work_on();
        EXPECT_GT(before - 10 * MIB, stats_now().resident);
        for (void *object : live) heap_free(object);
    });
}

TEST(Pressure, ManyThreadsLookAtOnce)
{
    in_a_process([] {
        is_limited(1000 * MIB, 950 * MIB);
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; i++) {
            threads.emplace_back([] {
                for (int j = 0; j < 5; j++) {
                    take_and_free(20 * MIB);
                    work_on();
                }
            });
        }
        for (std::thread &thread : threads) thread.join();
        EXPECT_GE(8 * MIB, kept_free());
    });
}

// All heaps behind locks.
TEST(Pressure, ThreadsThatShareHeapsGiveBackToo)
{
    in_a_process([] {
        set("lockless_threads", "0");
        is_limited(1000 * MIB, 950 * MIB);
        std::thread([] {
            take_and_free(100 * MIB);
            work_on();
        }).join();
        EXPECT_GE(2 * MIB, kept_free());
    });
}

} // namespace
