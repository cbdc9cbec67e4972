// The version that the library reports is the one that the project declares.

#include "heapfit/heapfit.h"
#include "system.h"

TEST(Version, IsTheProjectsOwn)
{
    EXPECT_STREQ(hf_version(), HEAPFIT_EXPECTED_VERSION);
}
