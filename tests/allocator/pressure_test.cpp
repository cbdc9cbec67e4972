// When memory runs short. The program is linked with --wrap for what the kernel says of its limits, and for the clock.
#include "heap_internals.h"
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "system.h"

namespace
{

constexpr size_t MIB = size_t{1} << 20;

// Of 1000 MiB: a quarter of an eighth, and what the last call freed.
constexpr size_t KEPT_AT_LIMIT = 32 * MIB;

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

TEST(Pressure, WhatIsFreeGoesBackWhenTheLimitComesNear)
{
    in_a_process([] {
        is_limited(1000 * MIB, 500 * MIB);
        take_and_free(100 * MIB);
        EXPECT_LE(95 * MIB, kept_free());
        said.used = 960 * MIB; // by others
        clock_shift_ms += 5000;
        work_on();
        EXPECT_GE(KEPT_AT_LIMIT, kept_free());
    });
}

// What is used again at once is not given back in between, however little is left.
TEST(Pressure, AtTheLimitAProgramKeepsItsPace)
{
    in_a_process([] {
        is_limited(1000 * MIB, 990 * MIB);
        take_and_free(30 * MIB);
        size_t before = stats_now().purges;
        for (int i = 0; i < 10000; i++) heap_free(heap_malloc(MIB));
        EXPECT_GE(before + 1000, stats_now().purges);
    });
}

// As when a container is made smaller while it runs.
TEST(Pressure, AtALimitThatFallsLessIsKept)
{
    in_a_process([] {
        is_limited(2000 * MIB, 1850 * MIB);
        take_and_free(60 * MIB);
        EXPECT_LE(40 * MIB, kept_free());
        is_limited(256 * MIB, 236 * MIB);
        clock_shift_ms += 5000;
        take_and_free(60 * MIB);
        EXPECT_GE(10 * MIB, kept_free());
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
        EXPECT_GE(75 * MIB, kept_free()) << "while less than that was resident, nothing had to go";
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
        EXPECT_GE(KEPT_AT_LIMIT + 8 * MIB, kept_free());
    });
}

} // namespace
