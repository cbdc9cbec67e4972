// The version that the library reports is the one that the project declares.

#include <gtest/gtest.h>

#include "heapfit/heapfit.h"

TEST(Version, IsTheProjectsOwn)
{
    EXPECT_STREQ(hf_version(), HEAPFIT_EXPECTED_VERSION);
}
