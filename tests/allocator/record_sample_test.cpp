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
