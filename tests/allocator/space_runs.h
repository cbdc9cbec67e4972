// What the tests of space/ share: a process with a small reservation of its own, and runs in it.
#ifndef HEAPFIT_TESTS_SPACE_RUNS_H
#define HEAPFIT_TESTS_SPACE_RUNS_H

#include "figures.h"
#include "heap_isolated.h"
#include "space_walker.h"

namespace space_runs
{

constexpr size_t MIB = size_t{1} << 20;
constexpr size_t SMALL_RESERVATION = 64 * MIB; // 1024 spans: soon exhausted

// `body` runs in a process of its own, because there is one reservation in each.
template <typename Body> void in_new_space(Body body, size_t reservation = SMALL_RESERVATION)
{
    isolated::expect_passes([&] {
        space_settings.reservation = reservation;
        space_settings.decay_ms = DECAY_NEVER;
        ASSERT_TRUE(space_start());
        body();
        space_walker::check();
    });
}

inline char *bytes_of(struct span *run)
{
    return reinterpret_cast<char *>(span_start(run));
}

inline bool reads_as_zeros(struct span *run)
{
    const char *bytes = bytes_of(run);
    for (size_t i = 0; i < run->run_spans * SPAN_SIZE; i += 512)
        if (bytes[i] != 0) return false;
    return true;
}

inline struct span *acquire(uint32_t spans)
{
    return space_acquire(spans, 1, SPAN_LARGE, nullptr);
}

} // namespace space_runs

#endif
