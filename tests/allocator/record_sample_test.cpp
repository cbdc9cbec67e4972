// Samples: which allocations are noted is as the Poisson process says, estimates from them are right within their error, and the
// free of each noted object is found, in whatever thread.
#include "heap_isolated.h"
#include "record_subject.h"
#include "stress_seed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

namespace
{

constexpr size_t MEAN = 4096;

double probability(size_t size)
{
    return 1 - std::exp(-static_cast<double>(size) / MEAN);
}

class RecordSample : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        subject_start(MEAN, 0);
    }
};

// Five standard errors: a test that fails for no reason once in a million.
constexpr double ERRORS = 5;

TEST_F(RecordSample, TakesAsManyOfEachSizeAsTheProcessSays)
{
    for (size_t size : {size_t{1}, size_t{100}, size_t{4096}, size_t{20000}}) {
        constexpr unsigned TRIALS = 400000;
        unsigned taken = 0;
        for (unsigned i = 0; i < TRIALS; i++) taken += subject_takes(size);
        double expected = TRIALS * probability(size);
        EXPECT_NEAR(expected, taken, ERRORS * std::sqrt(expected * (1 - probability(size)) + 1)) << size;
    }
}

TEST_F(RecordSample, EstimatesOfBytesAndObjectsAreUnbiased)
{
    std::mt19937_64 random(stress::seed());
    std::exponential_distribution<double> sizes(1.0 / 700);
    double bytes = 0, estimated = 0, variance = 0;
    for (unsigned i = 0; i < 1000000; i++) {
        auto size = static_cast<size_t>(sizes(random)) + 1;
        double weight = static_cast<double>(size) / probability(size);
        bytes += static_cast<double>(size);
        if (!subject_takes(size)) continue;
        estimated += weight;
        variance += weight * weight * (1 - probability(size));
    }
    EXPECT_NEAR(bytes, estimated, ERRORS * std::sqrt(variance));
}

TEST_F(RecordSample, DistancesAreExponential)
{
    // Of single bytes the distances between those taken are geometric: count how many pass certain points.
    constexpr unsigned DISTANCES = 4000;
    unsigned beyond_half = 0, beyond_twice = 0;
    for (unsigned i = 0; i < DISTANCES; i++) {
        size_t distance = 1;
        while (!subject_takes(1)) distance++;
        beyond_half += distance > MEAN / 2;
        beyond_twice += distance > MEAN * 2;
    }
    auto error = [](double share) { return ERRORS * std::sqrt(DISTANCES * share * (1 - share)); };
    EXPECT_NEAR(DISTANCES * std::exp(-0.5), beyond_half, error(std::exp(-0.5)));
    EXPECT_NEAR(DISTANCES * std::exp(-2), beyond_twice, error(std::exp(-2)));
}

TEST_F(RecordSample, NothingIsTakenOfNoBytes)
{
    for (int i = 0; i < 100000; i++) ASSERT_FALSE(subject_takes(0));
}

TEST_F(RecordSample, ThreadsDrawDifferently)
{
    auto first = [] {
        unsigned at = 0;
        std::thread([&at] {
            while (!subject_takes(1)) at++;
        }).join();
        return at;
    };
    unsigned a = first(), b = first(), c = first();
    EXPECT_FALSE(a == b && b == c);
}

TEST_F(RecordSample, ChildrenOfOneProcessDrawDifferently)
{
    while (!subject_takes(1)) continue; // what is drawn next would be the same in all of them
    auto first = [] {
        int at = 0;
        subject_fork_child();
        while (!subject_takes(1)) at++;
        return at;
    };
    EXPECT_GT(isolated::numbers_of_children(8, first).size(), 2u);
}

TEST_F(RecordSample, WhatIsRememberedIsFoundOnceAndNothingElse)
{
    std::vector<uint64_t> addresses;
    std::mt19937_64 random(stress::seed());
    for (uint64_t i = 0; i < 20000; i++) addresses.push_back((random() >> 17 & ~UINT64_C(15)) | UINT64_C(16));
    for (uint64_t address : addresses) ASSERT_TRUE(subject_remember(address));
    for (uint64_t address : addresses) ASSERT_FALSE(subject_forget(address + 1));
    for (uint64_t address : addresses) ASSERT_TRUE(subject_forget(address)); // a random one twice is in there twice
    for (uint64_t address : addresses) ASSERT_FALSE(subject_forget(address));
}

TEST_F(RecordSample, ManyInOnePageAreFound)
{
    constexpr uint64_t PAGE = UINT64_C(0x7f0012345000);
    for (uint64_t i = 0; i < 4096; i++) ASSERT_TRUE(subject_remember(PAGE + i)); // more than a counter counts
    for (uint64_t i = 0; i < 4096; i++) ASSERT_TRUE(subject_forget(PAGE + i));
    for (uint64_t i = 0; i < 4096; i++) ASSERT_FALSE(subject_forget(PAGE + i));
}

// CTest runs each test in a process of its own: here the table is made for few.
TEST(RecordSampleTable, SaysWhenThereIsNoRoomAndGoesOn)
{
    subject_start(size_t{1} << 40, 0);
    std::vector<uint64_t> remembered;
    for (uint64_t address = 16; remembered.size() < (size_t{1} << 25) && subject_remember(address); address += 16)
        remembered.push_back(address);
    EXPECT_GE(remembered.size(), 1000U);
    for (uint64_t address : remembered) ASSERT_TRUE(subject_forget(address));
    EXPECT_TRUE(subject_remember(16));
}

TEST_F(RecordSample, ANewRecordingHasForgottenAll)
{
    ASSERT_TRUE(subject_remember(0x1000));
    subject_start(MEAN, 0);
    EXPECT_FALSE(subject_forget(0x1000));
}

TEST_F(RecordSample, ThreadsRememberAndForgetAtOnce)
{
    constexpr unsigned THREADS = 8;
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < THREADS; t++)
        threads.emplace_back([t] {
            for (uint64_t round = 0; round < 300; round++) {
                for (uint64_t i = 1; i <= 100; i++) ASSERT_TRUE(subject_remember((i * THREADS + t) * 16));
                for (uint64_t i = 1; i <= 100; i++) ASSERT_TRUE(subject_forget((i * THREADS + t) * 16));
            }
        });
    for (auto &thread : threads) thread.join();
    for (uint64_t i = 0; i < 2000; i++) EXPECT_FALSE(subject_forget(i * 16));
}

} // namespace
