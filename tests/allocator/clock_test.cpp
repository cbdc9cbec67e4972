// The clock of the allocator goes on where the kernel's is set back: in a time namespace, or after a checkpoint.
#include "system.h"

#include <ctime>

extern "C" {
uint64_t platform_clock_ms(void);
bool __wrap_platform_clock_get(clockid_t, struct timespec *time);
}

static timespec shown;

bool __wrap_platform_clock_get(clockid_t, struct timespec *time)
{
    *time = shown;
    return true;
}

namespace
{

uint64_t at(time_t seconds, long milliseconds = 0)
{
    shown = {seconds, milliseconds * 1000000};
    return platform_clock_ms();
}

TEST(Clock, GoesOnWhereTheKernelsIsSetBack)
{
    at(1000);
    EXPECT_EQ(1000400u, at(1000, 400));
    uint64_t before = at(5000), after = at(7);
    EXPECT_EQ(5000000u, before);
    EXPECT_GE(after, before);
    EXPECT_EQ(after + 1500, at(8, 500));
    uint64_t again = at(1);
    EXPECT_GE(again, after + 1500) << "a second time";
    EXPECT_EQ(again + 3000, at(4));
}

TEST(Clock, DoesNotMindAThreadThatHasLookedALittleEarlier)
{
    uint64_t now = at(9000);
    EXPECT_EQ(now - 10, at(8999, 990));
    EXPECT_EQ(now + 1000, at(9001));
}

} // namespace
