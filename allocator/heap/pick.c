/* Points on the bytes that are handed out: see pick.h. */
#include "heap.h"

_Atomic(bool) pick_wanted;

_Static_assert((int)HEAP_BINS <= (int)PICK_BINS_MAX, "a bit for each bin");

/* In the child of a fork pickers are copies, and choose by themselves from then on. */
static bool has_a_sequence_of_its_own(const struct picker *picker)
{
    return picker->random != 0 && picker->forks == heap_forks();
}

static void draw_next(struct picker *picker)
{
    picker->until = chance_distance(&picker->random, picker->mean);
}

/* From now on points are drawn anew; nothing is lost by that, since the process has no memory. */
static COLD void begin(struct picker *picker, size_t mean)
{
    /* No two that begin at the same time, in processes forked from one perhaps, choose the same objects. */
    if (!has_a_sequence_of_its_own(picker)) picker->random = (platform_random() ^ (uintptr_t)picker) | 1;
    picker->forks = heap_forks();
    pick_forget_all(picker);
    picker->mean = mean;
    draw_next(picker);
}

ALWAYS_INLINE void begin_if_new(struct picker *picker, size_t mean)
{
    if (UNLIKELY(!has_a_sequence_of_its_own(picker) || picker->mean != mean)) begin(picker, mean);
}

bool pick_falls(struct picker *picker, size_t mean, unsigned bin, size_t bytes)
{
    begin_if_new(picker, mean);
    bool was_due = (picker->due[bin / 64] >> bin % 64 & 1) != 0;
    pick_forget(picker, bin);
    if (was_due) return true;
    if (LIKELY(picker->until >= bytes)) return false;
    draw_next(picker);
    return true;
}

void pick_pass(struct picker *picker, size_t bytes)
{
    if (__builtin_add_overflow(picker->until, bytes, &picker->until)) picker->until = SIZE_MAX;
}

bool pick_takes(struct picker *picker, size_t mean, size_t bytes)
{
    begin_if_new(picker, mean);
    if (LIKELY(picker->until >= bytes)) {
        picker->until -= bytes;
        return false;
    }
    draw_next(picker);
    return true;
}

size_t pick_cut(struct picker *picker, size_t mean, unsigned bin, size_t bytes, size_t count)
{
    begin_if_new(picker, mean);
    size_t before = picker->until / bytes;
    if (LIKELY(before >= count)) {
        picker->until -= count * bytes;
        return count;
    }
    picker->due[bin / 64] |= UINT64_C(1) << bin % 64;
    draw_next(picker);
    return before != 0 ? before : 1; /* who asks needs one */
}
