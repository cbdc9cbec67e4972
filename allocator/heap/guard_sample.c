/* Which objects are guarded: see guard.h. */
#include "heap.h"

#include <string.h>

_Static_assert((int)HEAP_BINS <= (int)GUARD_BINS_MAX, "a bit for each bin");

_Atomic(size_t) guard_mean;

/* In the child of a fork samplers are copies, and choose by themselves from then on. */
static bool has_a_sequence_of_its_own(const struct guard_sampler *sampler)
{
    return sampler->random != 0 && sampler->forks == heap_forks();
}

/* From now on points are drawn anew; nothing is lost by that, since the process has no memory. */
static void begin(struct guard_sampler *sampler, size_t mean)
{
    /* No two that begin at the same time, in processes forked from one perhaps, choose the same objects. */
    if (!has_a_sequence_of_its_own(sampler)) sampler->random = (platform_random() ^ (uintptr_t)sampler) | 1;
    sampler->forks = heap_forks();
    memset(sampler->due, 0, sizeof sampler->due);
    sampler->mean = mean;
    sampler->until = chance_distance(&sampler->random, mean);
}

/* Whether there are points, and blocks of this size have any: larger ones fit no slot. */
static bool is_sampled(struct guard_sampler *sampler, size_t bytes)
{
    size_t mean = atomic_load_explicit(&guard_mean, memory_order_relaxed);
    if (UNLIKELY(mean == 0 || bytes > platform_page_size())) return false;
    if (UNLIKELY(!has_a_sequence_of_its_own(sampler) || sampler->mean != mean)) begin(sampler, mean);
    return true;
}

static void draw_next(struct guard_sampler *sampler)
{
    sampler->until = chance_distance(&sampler->random, sampler->mean);
}

bool guard_falls(struct guard_sampler *sampler, unsigned bin, size_t bytes)
{
    if (!is_sampled(sampler, bytes)) return false;
    uint64_t *due = &sampler->due[bin / 64], bit = UINT64_C(1) << bin % 64;
    bool was_due = (*due & bit) != 0;
    *due &= ~bit;
    if (was_due) return true;
    if (LIKELY(sampler->until >= bytes)) return false; /* not in this one; it is counted with those it comes with */
    draw_next(sampler);
    return true;
}

void *guard_sample(struct guard_sampler *sampler, unsigned bin, size_t bytes, size_t size, size_t alignment)
{
    if (LIKELY(!guard_falls(sampler, bin, bytes))) return NULL;
    return guard_allocate(size, alignment, NULL, chance_draw(&sampler->random));
}

size_t guard_cut(struct guard_sampler *sampler, unsigned bin, size_t bytes, size_t count)
{
    if (!is_sampled(sampler, bytes)) return count;
    size_t before = sampler->until / bytes;
    if (LIKELY(before >= count)) {
        sampler->until -= count * bytes;
        return count;
    }
    sampler->due[bin / 64] |= UINT64_C(1) << bin % 64;
    draw_next(sampler);
    return before != 0 ? before : 1; /* who asks needs one: it was chosen, and there was no slot */
}
