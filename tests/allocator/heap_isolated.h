// Runs a piece of a test in a child process of its own: the allocator's state is global, and a case that starts from
// nothing, lowers limits or breaks things must not meet what another left behind.
#ifndef HEAPFIT_TESTS_HEAP_ISOLATED_H
#define HEAPFIT_TESTS_HEAP_ISOLATED_H

#include "stress_seed.h"
#include "system.h"

namespace isolated
{

enum : int { PASSED = 0, FAILED = 1, SKIPPED = 2 };
// A child that hangs is ended by SIGALRM; before CTest ends the test, whose limit is HEAPFIT_TEST_TIMEOUT.
constexpr unsigned TIMEOUT_SECONDS = 500;

template <typename Body> int run_child(Body body)
{
    std::fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
        alarm(TIMEOUT_SECONDS);
        body();
        std::fflush(nullptr);
        if (::testing::Test::HasFailure()) _exit(FAILED);
        _exit(::testing::Test::IsSkipped() ? SKIPPED : PASSED);
    }
    int status = -1;
    if (child > 0) waitpid(child, &status, 0);
    return status;
}

// What is expected inside `body` counts as this test's.
template <typename Body> void expect_passes(Body body)
{
    int status = run_child(body);
    EXPECT_TRUE(WIFEXITED(status)) << "the child was ended by signal " << WTERMSIG(status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) GTEST_SKIP() << "the child says why, above";
    if (WIFEXITED(status)) {
        EXPECT_EQ(PASSED, WEXITSTATUS(status)) << "the child's expectations failed, see above";
    }
}

} // namespace isolated

#endif
