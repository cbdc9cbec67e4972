/* For processors whose machine code follow.c does not read. */
#include "pools.h"

// NOLINTNEXTLINE(readability-non-const-parameter): follow.c writes there
enum follow follow_pointer(uintptr_t return_address, uintptr_t start, uintptr_t end, int *passing, unsigned *decoded)
{
    (void)return_address, (void)start, (void)end, (void)passing;
    *decoded = 0;
    return FOLLOW_UNKNOWN;
}
