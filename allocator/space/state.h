/* What the files of space/ share: the state behind the lock, and the functions that need it held.
 *
 * Private to this layer, which still has one header for the others, space.h: nothing here means anything without the
 * lock, which no other layer can take, and half of it leaves the table between two consistent states.
 *
 *   space.c  the reservation, the frontier, handing out and taking back
 *   run.c    free runs: lists by length and by age, boundary tags, cutting
 *   huge.c   which units of 2 MiB have huge pages
 *   purge.c  giving memory back to the kernel
 */
#ifndef HEAPFIT_SPACE_STATE_H
#define HEAPFIT_SPACE_STATE_H

#include "space.h"

/* A clean run reads as zeros: never touched, or purged. */
enum { CLEAN = 0, DIRTY = 1, STATES = 2 };

/* Lists of free runs: one per length up to EXACT_LENGTHS, then one per power of two. */
enum { EXACT_LENGTHS = 32, LENGTH_LISTS = EXACT_LENGTHS + 32 };

_Static_assert(LENGTH_LISTS <= 64, "lists_filled has a bit for each list");

struct space_state {
    platform_lock lock; /* all that follows, but for the last line */
    bool purge_refused; /* the kernel would not take pages back: they are locked in memory */
    uint32_t refused_at;
    uint32_t capacity; /* spans in the reservation; written once, before any other thread is here */
    uint32_t frontier; /* spans ever handed out */
    uint32_t committed; /* spans accessible */
    uint32_t descriptors_committed;
    uint32_t lists[STATES][LENGTH_LISTS]; /* heads, SPAN_NONE when empty */
    uint64_t lists_filled[STATES]; /* bit per list that is not empty */
    uint32_t youngest, oldest; /* dirty runs by the time they were freed */
    uint32_t spans_free[STATES];
    uint32_t spans_metadata;
    uint32_t huge_pages_from; /* span from which on huge pages are asked for */
    uint32_t units_broken; /* see huge_pages_break */
    char *metadata_next, *metadata_end;
    /* Counted outside the lock, for statistics only: relaxed. */
    _Atomic(size_t) purged_bytes, purge_calls;
};

extern struct space_state space_state;

/* The functions below are called with the lock held. */

/* Spans in runs of the layer above. */
ALWAYS_INLINE uint32_t spans_handed_out(void)
{
    return space_state.frontier - space_state.spans_free[CLEAN] - space_state.spans_free[DIRTY];
}

/* ---- the table (space.c) ---------------------------------------------------------------------------- */

/* Make the descriptors of the spans below `up_to` writable. */
bool space_commit_descriptors(uint32_t up_to);

/* ---- free runs (run.c) ------------------------------------------------------------------------------ */

void run_lists_start(void);

/* Put a run into the free lists, merged with its free neighbours of the same state, and return the whole. */
struct span *run_free(uint32_t index, uint32_t spans, bool dirty, uint32_t freed_at);

/* Take a free run out of the lists. Its ends still look free. */
void run_remove(struct span *first);

/* Cut [index, index+wanted) out of a free run that contains it; what is left goes back. */
void run_cut(struct span *run, uint32_t index, uint32_t wanted);

/* The smallest free run of this state with at least `spans`, or NULL. */
struct span *run_find(uint32_t spans, bool dirty);

/* ---- huge pages (huge.c) ---------------------------------------------------------------------------- */

/* Units: stretches of a huge page's size, which spans are numbered to fit. */
enum { HUGE_PAGE_SPANS = PLATFORM_HUGE_PAGE / SPAN_SIZE };

ALWAYS_INLINE uint32_t unit_round_down(uint32_t index)
{
    return index & ~(uint32_t)(HUGE_PAGE_SPANS - 1);
}

ALWAYS_INLINE uint32_t unit_round_up(uint32_t index)
{
    return unit_round_down(index + HUGE_PAGE_SPANS - 1);
}

void huge_pages_start(void);

/* Ask for huge pages for the whole units [from, to). */
void huge_pages_advise(uint32_t from, uint32_t to);

/* Advise on what has become accessible in [from, to) spans. */
void huge_pages_advise_committed(uint32_t from, uint32_t to);

/* A part of the unit of this span is about to be purged. */
void huge_pages_break(uint32_t index);

/* The clean run [from, to) has become longer by [new_from, new_to): broken units that it now contains are whole
 * again. */
void huge_pages_mend(uint32_t from, uint32_t to, uint32_t new_from, uint32_t new_to);

/* ---- purging (purge.c) ------------------------------------------------------------------------------ */

/* Whether there is enough dirty memory to be worth system calls. */
bool is_worth_purging(void);

/* Purge the dirty runs of at least this age. The lock is let go during each system call. */
void purge_older_than(uint32_t age_ms);

#endif
