/* Which objects are guarded: see guard.h, and pick.h for how they are picked. */
#include "heap.h"

_Atomic(size_t) guard_mean;

/* Bytes between two points for blocks of this size; 0: there are none, since larger ones fit no slot. */
static size_t mean_for(size_t bytes)
{
    return bytes > platform_page_size() ? 0 : atomic_load_explicit(&guard_mean, memory_order_relaxed);
}

bool guard_falls(struct picker *picker, unsigned bin, size_t bytes)
{
    size_t mean = mean_for(bytes);
    return mean != 0 && pick_falls(picker, mean, bin, bytes);
}

void *guard_sample(struct picker *picker, unsigned bin, size_t bytes, size_t size, size_t alignment)
{
    if (LIKELY(!guard_falls(picker, bin, bytes))) return NULL;
    return guard_allocate(size, alignment, NULL, chance_draw(&picker->random));
}

size_t guard_cut(struct picker *picker, unsigned bin, size_t bytes, size_t count)
{
    size_t mean = mean_for(bytes);
    return mean == 0 ? count : pick_cut(picker, mean, bin, bytes, count);
}
