// Waiting for what another thread, or the clock, is to bring about.
#ifndef HEAPFIT_TESTS_PATIENCE_H
#define HEAPFIT_TESTS_PATIENCE_H

#include "system.h"

namespace patience
{

// Half a minute on an idle machine. Counted, not timed: where others have the processors, both sides wait for longer.
constexpr int LOOKS = 30'000;

// Looks again and again until the condition holds; false: it never did.
template <typename Condition> bool comes_true(Condition condition)
{
    for (int look = 0; look < LOOKS; look++) {
        if (condition()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

} // namespace patience

#endif
