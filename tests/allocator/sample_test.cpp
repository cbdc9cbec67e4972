// Sampled objects: who is sampled, that a sample ends with its object whatever way that goes, and what samples are worth. Once with
// objects of the ordinary heap, once with some of them in pools.
#include "heap_isolated.h"
#include "heap_subject.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

namespace
{
bool refuses_metadata;
}

extern "C" {
void *__real_space_metadata(size_t size);
void *__wrap_space_metadata(size_t size)
{
    return refuses_metadata ? nullptr : __real_space_metadata(size);
}
}

namespace
{

enum : size_t { ALL = 1, NONE = 0 }; // means: every object has a point, or none

void set_mean(size_t mean)
{
    sample_mean = mean;
    pick_wanted = true;
}

template <typename Allocate> void *sampled_by(Allocate allocate)
{
    set_mean(ALL);
    void *object = nullptr;
    // What a bin holds ready is not picked from.
    for (size_t before = sample_figures().taken; sample_figures().taken == before;) object = allocate();
    set_mean(NONE);
    return object;
}

void *sampled(size_t size)
{
    return sampled_by([size] { return subject::allocate(size); });
}

const std::vector<struct sampled> &live()
{
    static thread_local std::vector<struct sampled> found;
    found.clear();
    EXPECT_TRUE(sample_visit([](const struct sampled *each,
                                void *all) { static_cast<std::vector<struct sampled> *>(all)->push_back(*each); },
                             &found));
    return found;
}

// The test's own vectors come from elsewhere: the layers are not the program's malloc.
size_t live_count()
{
    return live().size();
}

// ---- how a sample ends --------------------------------------------------------------------------------------------------

// Much is allocated where it was, by nobody who is sampled. Whether that had its block again.
bool is_had_again(void *address, size_t size)
{
    std::vector<void *> others;
    bool had = false;
    for (size_t bytes = 0; bytes < 32 << 20; bytes += size) {
        others.push_back(subject::allocate(size));
        memset(others.back(), 1, size); // it must not look free
        had |= others.back() == address;
    }
    EXPECT_EQ(live_count(), 0u);
    for (void *other : others) subject::release(other);
    return had;
}

// A span gives blocks once so many of them have been freed.
void free_others(size_t size)
{
    std::vector<void *> others;
    for (int i = 0; i < 200; i++) others.push_back(subject::allocate(size));
    for (void *other : others) subject::release(other);
}

class Ends : public ::testing::TestWithParam<size_t>
{
};

TEST_P(Ends, WhenAnotherThreadFreesIt)
{
    void *object = sampled(GetParam());
    size_t size = subject::usable_size(object);
    std::thread([=] { subject::release(object); }).join();
    EXPECT_EQ(live_count(), 0u);
    free_others(size);
    EXPECT_TRUE(is_had_again(object, size));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Ends, ::testing::Values(24, 48, 400, 3000, 20000, 200000));

// ---- bad days -----------------------------------------------------------------------------------------------------------

// A recursion has a chain of its own at each depth and of each path: more than the table holds.
void *allocate_by_path(unsigned path, unsigned depth)
{
    void *volatile object = nullptr;
    // A number in the code behind each call, so that they are eight to the compiler.
#define CALL(n)                                                                                                        \
    case n:                                                                                                            \
        object = allocate_by_path(path >> 3, depth - 1);                                                               \
        __asm__ volatile("" ::"r"(n));                                                                                 \
        break
    if (depth == 0) return subject::allocate(40);
    switch (path & 7) {
        CALL(0);
        CALL(1);
        CALL(2);
        CALL(3);
        CALL(4);
        CALL(5);
        CALL(6);
        CALL(7);
    }
#undef CALL
    return object;
}

#ifdef __GLIBC__
TEST(Sample, WhenThereAreTooManyCallSitesTheInnermostCallersAreKnown)
{
    enum { PATHS = 1 << 15, DEPTH = 5 };
    std::vector<void *> objects;
    set_mean(ALL);
    for (unsigned path = 0; path < PATHS; path++) objects.push_back(allocate_by_path(path, DEPTH));
    set_mean(NONE);
    std::map<uint32_t, size_t> depths;
    for (const auto &each : live()) {
        ASSERT_NE(each.site, uint32_t{CALL_SITE_NONE});
        depths[call_site_trace(each.site)->count]++;
    }
    EXPECT_GT(depths[1], PATHS / 20u);
    EXPECT_LT(depths[1], PATHS / 5u);
    for (void *object : objects) subject::release(object);
}
#endif

#if !HEAPFIT_TEST_SANITIZED
TEST(Sample, AForkedChildKeepsWhatItHasInherited)
{
    void *object = sampled(100);
    isolated::expect_passes([=] {
        EXPECT_EQ(live_count(), 1u);
        void *own = sampled(100);
        EXPECT_EQ(live_count(), 2u);
        subject::release(object);
        EXPECT_EQ(live_count(), 1u);
        subject::release(own);
        EXPECT_EQ(live_count(), 0u);
    });
    EXPECT_EQ(live_count(), 1u);
    subject::release(object);
}
#endif

TEST(Sample, ThreadsThatAllocateAndFreeForEachOtherLoseNoSample)
{
    enum { THREADS = 4, ROUNDS = 20000, PLACES = 512 };
    static std::atomic<void *> places[PLACES];
    set_mean(256);
    std::atomic<bool> goes_on{true};
    std::thread looker([&] {
        while (goes_on) live_count();
    });
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < THREADS; number++)
        threads.emplace_back([number] {
            uint64_t random = number + 1;
            for (int i = 0; i < ROUNDS; i++) {
                size_t size = 16 + chance_draw(&random) % (i % 64 == 0 ? 100000 : 600);
                auto *object = static_cast<char *>(subject::allocate(size));
                memset(object, 0x55, size);
                subject::release(places[chance_draw(&random) % PLACES].exchange(object));
            }
        });
    for (auto &thread : threads) thread.join();
    goes_on = false;
    looker.join();
    set_mean(NONE);
    size_t bytes = 0;
    for (const auto &each : live()) {
        EXPECT_EQ(each.mean, 256u);
        bytes += each.bytes;
    }
    EXPECT_GT(bytes, 0u);
    for (auto &place : places) subject::release(place.exchange(nullptr));
    EXPECT_EQ(live_count(), 0u);
    EXPECT_EQ(sample_figures().missed, 0u);
}

// ---- what samples are worth ---------------------------------------------------------------------------------------------

double weight(const struct sampled &each)
{
    return 1 / -std::expm1(-static_cast<double>(each.bytes) / static_cast<double>(each.mean));
}

// Of objects that live together, in bins that are filled and emptied, beside guarded ones: weighted samples are as many.
TEST(SampleEstimate, WeightedSamplesAreAsManyAsThereAreObjects)
{
    enum { SEEDS = 200, COUNT = 300, MEAN = 8192 };
    const size_t sizes[] = {16, 112, 1008, 6144}; // of blocks, and of granules
    subject::release(subject::allocate(1));
    guard_mean = 1 << 20; // both at the same time
    std::map<size_t, double> sums, squares;
    std::vector<void *> objects;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        thread_heap->sample = {};
        thread_heap->sample.random = seed;
        thread_heap->sample.forks = heap_forks();
        set_mean(MEAN);
        for (int i = 0; i < COUNT; i++)
            for (size_t size : sizes) {
                objects.push_back(subject::allocate(size));
                if (i % 3 == 0) subject::release(subject::allocate(size));
            }
        std::map<size_t, double> counts;
        for (const auto &each : live()) counts[*(std::upper_bound(sizes, sizes + 4, each.bytes) - 1)] += weight(each);
        for (const auto &[bytes, count] : counts) sums[bytes] += count, squares[bytes] += count * count;
        for (void *object : objects) subject::release(object);
        objects.clear();
    }
    guard_mean = 0;
    set_mean(NONE);
    for (const auto &[bytes, sum] : sums) {
        double p = -std::expm1(-static_cast<double>(bytes) / MEAN);
        double error = std::sqrt(COUNT * (1 - p) / p / SEEDS); // of the mean
        EXPECT_NEAR(sum / SEEDS, COUNT, 4 * error) << bytes;
        double spread = std::sqrt(squares[bytes] / SEEDS - sum / SEEDS * sum / SEEDS);
        EXPECT_NEAR(spread, error * std::sqrt(double{SEEDS}), 0.25 * spread) << bytes;
    }
}

} // namespace
