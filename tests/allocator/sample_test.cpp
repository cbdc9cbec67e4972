// Sampled objects: who is sampled, that a sample ends with its object whatever way that goes, and what samples are worth. Once with
// objects of the ordinary heap, once with some of them in pools.
#include "heap_isolated.h"
#include "heap_subject.h"
#include "system.h"

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

TEST(Sample, ALargeObjectIsOfThePagesThatTheProgramMayUse)
{
    void *object = sampled(40'000);
    ASSERT_EQ(live_count(), 1u);
    EXPECT_EQ(live()[0].bytes, subject::usable_size(object));
    subject::release(object);
}

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

double weight(const struct sampled &each)
{
    return 1 / -std::expm1(-static_cast<double>(each.bytes) / static_cast<double>(each.mean));
}

// Of objects that live together, in bins that are filled and emptied, beside guarded ones: weighted samples are as many.
TEST(SampleEstimate, WeightedSamplesAreAsManyAsThereAreObjects)
{
    enum { ROUNDS = 200, COUNT = 300, MEAN = 8192 };
    const size_t sizes[] = {16, 112, 1008, 6144}; // of blocks, and of granules
    subject::release(subject::allocate(1));
    guard_mean = 1 << 20; // both at the same time
    std::map<size_t, double> sums, squares;
    std::vector<void *> objects;
    thread_heap->sample = {};
    thread_heap->sample.random = 3;
    thread_heap->guard.random = 5;
    thread_heap->sample.forks = thread_heap->guard.forks = heap_forks();
    set_mean(MEAN);
    for (int round = 0; round < ROUNDS; round++) { // a new state would forget which of a bin's blocks are picked
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
        double error = std::sqrt(COUNT * (1 - p) / p / ROUNDS); // of the mean
        EXPECT_NEAR(sum / ROUNDS, COUNT, 4 * error) << bytes;
        double spread = std::sqrt(squares[bytes] / ROUNDS - sum / ROUNDS * sum / ROUNDS);
        EXPECT_NEAR(spread, error * std::sqrt(double{ROUNDS}), 0.25 * spread) << bytes;
    }
}

#ifndef HEAPFIT_TEST_POOLS
// Two call sites.
__attribute__((noinline)) void *sparse(size_t size)
{
    void *object = subject::allocate(size);
    return memset(object, 1, size); // it must not look free
}

__attribute__((noinline)) void *dense(size_t size)
{
    void *object = subject::allocate(size);
    return memset(object, 2, size);
}

TEST(SamplePinned, AFewObjectsHoldThePagesOfThoseThatWereFreedAroundThem)
{
    enum : size_t { MEAN = 512, SPARSE = 112, DENSE = 400, PAGES = 500, EACH = 4096 / SPARSE + 1 };
    subject::release(subject::allocate(1));
    thread_heap->sample = {};
    thread_heap->sample.random = 7;
    thread_heap->sample.forks = heap_forks();
    set_mean(MEAN);
    std::vector<void *> kept, freed;
    for (size_t i = 0; i < PAGES * EACH; i++) (i % EACH == 0 ? kept : freed).push_back(sparse(SPARSE));
    for (size_t i = 0; i < PAGES * EACH; i++) kept.push_back(dense(DENSE));
    set_mean(NONE);
    for (void *object : freed) subject::release(object);
    std::map<bool, double> pinned, bytes; // of the sparse ones, and of the others
    std::map<bool, std::set<uint32_t>> sites;
    for (const auto &each : live()) {
        bool is_sparse = each.bytes < DENSE;
        pinned[is_sparse] += weight(each) * static_cast<double>(each.pinned);
        bytes[is_sparse] += weight(each) * static_cast<double>(each.bytes);
        sites[is_sparse].insert(each.site);
    }
    // About a hundred samples: four standard errors are less than half.
    double free_bytes = PAGES * (4096.0 - SPARSE);
    EXPECT_NEAR(pinned[true], free_bytes, free_bytes / 2);
    EXPECT_LT(pinned[false], free_bytes / 4);
    EXPECT_LT(bytes[true], bytes[false] / 20);
    for (uint32_t site : sites[true]) EXPECT_EQ(sites[false].count(site), 0u);
    for (void *object : kept) subject::release(object);
}
#endif

} // namespace
