/* Picking objects by chance, for whoever looks after a few of them: those that are guarded (guard.h),
 * and those that are sampled (sample.h).
 *
 * Points fall on the bytes of the blocks that a heap's bins are given, one after the other, as a Poisson process with so many bytes
 * between two on average. An object is picked when a point falls into the block that it would have. Nothing is counted for that
 * while blocks are handed out: a bin that is refilled is given the blocks before the next point, and no more, and a bit notes that
 * the next block of this bin is picked; so who wants that one comes to the slow path. A block of n bytes is picked with the
 * probability 1 - exp(-n / mean), whatever is allocated beside it, and by nothing that a program does can its objects keep in step
 * with the points.
 *
 * The process has no memory. So the distance to the next point may be drawn anew at any time, and blocks that a bin returns unused
 * are counted once more when they come again. But then what is known of the block behind them must be forgotten too (pick_forget):
 * that it has a point would else be kept, and that it has none, as most do, would not.
 */
#ifndef HEAPFIT_PICK_H
#define HEAPFIT_PICK_H

#include "../platform/platform.h"

/* Of whoever hands out blocks by the list: a heap or a context. All zero: it has not begun. */
enum { PICK_BINS_MAX = 256 };
struct picker {
    uint64_t random;
    uint32_t forks; /* heap_forks where the sequence was begun */
    size_t mean; /* by which `until` was drawn */
    size_t until; /* bytes until the next point */
    uint64_t due[PICK_BINS_MAX / 64]; /* a bit for each bin: the next block of it has a point */
};

/* Whether anybody may have picked something: from then on, for the rest of the process's life, refills ask. */
extern _Atomic(bool) pick_wanted;

ALWAYS_INLINE bool pick_is_on(void)
{
    return UNLIKELY(atomic_load_explicit(&pick_wanted, memory_order_relaxed)); /* relaxed: a setting */
}

/* The two questions below about a bin's next blocks, of so many bytes together, where no point falls on them, as is most frequent. False:
 * ask them. In a fork's child the first point may be that of its parent's, which makes it no less likely to fall on any block. */
ALWAYS_INLINE bool pick_falls_not(const struct picker *picker, size_t mean, unsigned bin, size_t bytes)
{
    bool is_due = (picker->due[bin / 64] >> bin % 64 & 1) != 0;
    return LIKELY(picker->mean == mean && !is_due && picker->until >= bytes);
}
ALWAYS_INLINE bool pick_cuts_not(struct picker *picker, size_t mean, unsigned bin, size_t bytes)
{
    if (!pick_falls_not(picker, mean, bin, bytes)) return false;
    picker->until -= bytes;
    return true;
}

/* `mean` is not 0, here and below. The bin has no block left, of so many bytes: is the one that is wanted picked? If not, it is
 * counted with those it comes with. */
bool pick_falls(struct picker *picker, size_t mean, unsigned bin, size_t bytes);
/* The block that was picked is handed out with others all the same: so the next point is counted from its end. */
void pick_pass(struct picker *picker, size_t bytes);
/* Is this object, of no bin, picked? If not, it is counted. */
bool pick_takes(struct picker *picker, size_t mean, size_t bytes);
/* The bin is about to be given `count` blocks: how many it may be given, at least 1. */
size_t pick_cut(struct picker *picker, size_t mean, unsigned bin, size_t bytes, size_t count);
/* The bin returns the blocks that it was given, whether or not there are any left: what was found of the one behind them holds no
 * more. */
ALWAYS_INLINE void pick_forget(struct picker *picker, unsigned bin)
{
    picker->due[bin / 64] &= ~(UINT64_C(1) << bin % 64);
}
/* The same of all bins. */
ALWAYS_INLINE void pick_forget_all(struct picker *picker)
{
    for (size_t i = 0; i < sizeof picker->due / sizeof *picker->due; i++) picker->due[i] = 0;
}

#endif
