/* Processors whose machine code follow.c does not read: every function is taken for one that uses its objects or not, by whoever
 * asks. */
#include "pools.h"

enum follow follow_pointer(uintptr_t return_address, uintptr_t start, uintptr_t end, int *passing, unsigned *decoded)
{
    (void)return_address, (void)start, (void)end, (void)passing;
    *decoded = 0;
    return FOLLOW_UNKNOWN;
}
