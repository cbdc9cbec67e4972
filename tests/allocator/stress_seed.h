// What makes a random test repeatable and bounded: one seed, printed at the start and taken from HEAPFIT_TEST_SEED, and a
// duration, taken from HEAPFIT_TEST_SECONDS.
#ifndef HEAPFIT_TESTS_STRESS_SEED_H
#define HEAPFIT_TESTS_STRESS_SEED_H

#include "system.h"

#if defined(__SANITIZE_THREAD__)
#define HEAPFIT_TEST_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEAPFIT_TEST_THREAD_SANITIZER 1
#endif
#endif
#ifndef HEAPFIT_TEST_THREAD_SANITIZER
#define HEAPFIT_TEST_THREAD_SANITIZER 0
#endif
#if HEAPFIT_TEST_THREAD_SANITIZER || defined(__SANITIZE_ADDRESS__)
#define HEAPFIT_TEST_SANITIZED 1
#else
#define HEAPFIT_TEST_SANITIZED 0
#endif

namespace stress
{

// xoshiro256** would be more than is needed: splitmix64 (Steele, Lea, Flood, 2014) passes the usual tests, has 64 bits
// of state, and any value seeds it.
class Random
{
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next()
    {
        uint64_t z = (state_ += UINT64_C(0x9E3779B97F4A7C15));
        z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
        return z ^ (z >> 31);
    }

    // In [0, end); end > 0. The bias of the modulo does not matter here.
    uint64_t below(uint64_t end)
    {
        return next() % end;
    }

    uint64_t between(uint64_t low, uint64_t high)
    {
        return low + below(high - low + 1);
    }

    bool chance(unsigned percent)
    {
        return below(100) < percent;
    }

  private:
    uint64_t state_;
};

inline uint64_t environment_number(const char *name, uint64_t otherwise)
{
    const char *text = std::getenv(name);
    return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 0);
}

// One per process, so that one number repeats a failing run (as far as the scheduler lets it).
inline uint64_t seed()
{
    static const uint64_t chosen = environment_number(
        "HEAPFIT_TEST_SEED", static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()));
    return chosen;
}

// Whether an expectation of this test has failed so far. Unlike testing::Test::HasFailure, any thread may ask.
inline std::atomic<bool> &failure_flag()
{
    static std::atomic<bool> flag{false};
    return flag;
}

inline bool failed()
{
    return failure_flag().load(std::memory_order_relaxed);
}

class FailureListener : public testing::EmptyTestEventListener
{
    void OnTestPartResult(const testing::TestPartResult &result) override
    {
        if (result.failed()) failure_flag() = true;
    }
};

// For a SCOPED_TRACE at the start of every random test; from here on failed() tells.
inline std::string how_to_repeat()
{
    static const bool listening = [] {
        testing::UnitTest::GetInstance()->listeners().Append(new FailureListener);
        return true;
    }();
    (void)listening;
    failure_flag() = false;
    std::string words = "repeat with HEAPFIT_TEST_SEED=" + std::to_string(seed());
    std::puts(words.c_str()); // now: a test that crashes or hangs can say nothing later
    std::fflush(stdout);
    return words;
}

// In seconds, of which a fraction will do.
inline double environment_seconds(const char *name, double otherwise)
{
    const char *text = std::getenv(name);
    if (text == nullptr || *text == '\0') return otherwise;
    char *end;
    double seconds = std::strtod(text, &end);
    if (*end == '\0' && seconds >= 0) return seconds;
    std::fprintf(stderr, "%s=%s is no number of seconds\n", name, text);
    std::exit(EXIT_FAILURE);
}

class Deadline
{
  public:
    explicit Deadline(unsigned default_seconds)
        : end_(std::chrono::steady_clock::now() +
               std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                   std::chrono::duration<double>(environment_seconds("HEAPFIT_TEST_SECONDS", default_seconds))))
    {
    }

    // Not when it is asked for the first time: a loop has one round at least, however slow what came before it was.
    bool passed() const
    {
        return asked_.exchange(true, std::memory_order_relaxed) && std::chrono::steady_clock::now() >= end_;
    }

  private:
    std::chrono::steady_clock::time_point end_;
    mutable std::atomic<bool> asked_{false};
};

} // namespace stress

#endif
