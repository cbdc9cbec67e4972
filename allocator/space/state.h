/* What the files of space/ share: the state behind the lock, and the functions that need it held.
 *
 * Private to this layer, which still has one header for the others, space.h: nothing here means anything without the
 * lock, which no other layer can take, and half of it leaves the table between two consistent states.
 *
 *   reservation.c the address space that spans come from
 *   space.c  the frontier, handing out and taking back
 *   run.c    free runs: lists by length and by age, boundary tags, cutting
 *   huge.c   which units of 2 MiB have huge pages
 *   purge.c  giving memory back to the kernel
 *   zeroed.c memory that is cleared before calloc asks for it
 */
#ifndef HEAPFIT_SPACE_STATE_H
#define HEAPFIT_SPACE_STATE_H

#include "space.h"

/* Free runs lie in pools. The clean ones, which read as zeros and have no pages, lie in one. The dirty ones lie in
 * one for each node (processors with memory of their own, of which a machine may have several), because a page stays
 * where it was first touched: pool DIRTY + n holds those of node n. */
enum { CLEAN = 0, DIRTY = 1 };

/* Machines with more than two or four are rare; nodes beyond the sixteenth share. */
enum { NODES_MAX = 16, POOLS_MAX = DIRTY + 2 * NODES_MAX };

/* Lists of free runs: one per length up to EXACT_LENGTHS, then LISTS_PER_POWER for each power of two, which are equally wide. */
enum { EXACT_LENGTHS = 32, EXACT_LOG2 = 5, LISTS_PER_POWER = 4, LISTS_LOG2 = 2 };
enum { LENGTH_LISTS = EXACT_LENGTHS + (32 - EXACT_LOG2) * LISTS_PER_POWER, LIST_WORDS = (LENGTH_LISTS + 63) / 64 };

/* What stands behind a unit of a huge page's size, as `huge` of its first span. Written with the lock. */
enum unit_state {
    UNIT_PLAIN = 0, /* nothing was said to the kernel */
    UNIT_ADVISED, /* it was asked for a huge page */
    UNIT_BROKEN, /* no more: a part has been purged */
    UNIT_TAKEN, /* a page of the kernel's pool, for good: before any of its spans is handed out */
    UNIT_STATES
};

struct pool {
    uint32_t lists[LENGTH_LISTS]; /* heads, SPAN_NONE when empty */
    uint64_t lists_filled[LIST_WORDS]; /* a bit for each list that is not empty */
    uint32_t spans;
    uint32_t released; /* dirty: spans that have come since a release last looked for old runs */
    uint32_t youngest, oldest; /* dirty: the runs by the time they were freed */
    size_t crossings; /* dirty: runs that went to another node */
};

/* Runs of up to so many spans have a list for each length. Those too long for all are in the last one. */
enum { DEFERRED_EXACT = 16, DEFERRED_LISTS = DEFERRED_EXACT + 16 };

/* Units [from, to) that have become accessible and may be advised to be huge pages, which are to be tried as far as they are
 * needed. */
struct huge_trial {
    uint32_t from, to; /* to is 0: none */
    uint32_t needed;
};

/* See patience.c. */
struct patience {
    uint64_t rests_since; /* when the first of `purged` were freed; clock in ms, as all here */
    uint32_t purged, taken; /* spans, because of their age, and again since */
    uint32_t times; /* that it was in vain, one after the other */
    uint64_t age_ms; /* to which runs are kept then; 0: it is not known */
    uint32_t peak, peak_before; /* the most spans in use at once, since peak_since and as long before */
    uint64_t peak_since;
};

/* Large runs that go back at once: see patience.c, too. */
struct spent {
    uint32_t purged, taken; /* spans of them, and clean ones handed out since */
    uint64_t purged_at;
    uint64_t refused_at; /* when the kernel last took only a part of a run, because of a locked page */
    uint32_t times; /* that it was in vain, one after the other, */
    uint32_t longest; /* of runs of so many spans at most; */
    uint32_t kept; /* up to this length they are kept */
};

struct space_state {
    platform_lock lock; /* all that follows, but for the last lines */
    uint32_t nodes; /* that are kept apart; written once, before any other thread is here */
    uint32_t purge_refusals; /* runs of which the kernel took nothing, one after the other: they are locked in memory */
    bool purge_from_end; /* of a run that is purged in pieces, the last comes first */
    uint64_t refused_at;
    uint64_t aged_at; /* when a release last looked for old runs */
    uint32_t capacity; /* spans that may be reserved, in time */
    uint32_t reserved; /* spans that are */
    size_t table_reserved; /* bytes */
    uint32_t growing; /* spans that are about to be reserved; 0: none */
    uint32_t frontier; /* spans ever handed out */
    uint32_t committed; /* spans accessible */
    uint32_t descriptors_committed;
    bool uncommits; /* clean runs may have to be committed again before they are used */
    struct pool pools[POOLS_MAX];
    uint32_t spans_metadata;
    uint32_t units[UNIT_STATES]; /* but for UNIT_PLAIN: how many there are */
    uint32_t huge_pages_from; /* heaps of fewer spans ask for no huge pages */
    struct huge_trial trial; /* of what was committed last, until it is handed out */
    bool hugetlb_dry; /* the kernel's pool of huge pages gave none when it was last asked */
    uint64_t hugetlb_asked_at;
    size_t advice_calls;
    uint32_t spans_zeroing; /* in runs between the pools, to be cleared: they count as handed out */
    char *metadata_next, *metadata_end;
    size_t commit_calls;
    _Atomic(uint8_t) message; /* see huge_pages_say */
    struct patience patience;
    struct spent spent;
    bool inherited; /* this is a fork's child, which has not seen yet to what other threads were doing */
    /* Without the lock. */
    platform_lock beside; /* see fork.c */
    uint32_t beside_new; /* spans taken from the frontier since the last fork began: under `beside` */
    uint32_t clean_aside; /* spans of clean runs in `deferred`: with either lock */
    uint32_t stock; /* spans that a fork puts aside; 0: nobody has ever lacked any. With the space's lock */
    _Atomic(uint32_t) deferred[DEFERRED_LISTS]; /* runs to be taken back, by their length (fork.c): the first's index */
    /* plus 1, linked by `next`; 0: none */
    _Atomic(bool) any_deferred; /* there may be some */
    /* Counted outside the lock, for statistics only: relaxed. */
    _Atomic(size_t) purged_bytes, purge_calls;
};

extern struct space_state space_state;

ALWAYS_INLINE uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The functions below are called with the lock held. */

/* The pools of dirty runs are those from DIRTY on, before this one. */
ALWAYS_INLINE unsigned pools_end(void)
{
    return DIRTY + space_state.nodes;
}

/* The pools of cleared runs are those from pools_end() on, before this one; and so end those in use. */
ALWAYS_INLINE unsigned pools_zeroed_end(void)
{
    return DIRTY + 2 * space_state.nodes;
}

/* From a pool of dirty runs to the same node's of cleared ones, and back. */
ALWAYS_INLINE unsigned pool_zeroed(unsigned pool)
{
    return pool + space_state.nodes;
}

ALWAYS_INLINE unsigned pool_dirty(unsigned pool)
{
    return pool >= pools_end() ? pool - space_state.nodes : pool;
}

ALWAYS_INLINE bool pool_is_dirty(unsigned pool)
{
    return pool >= DIRTY && pool < pools_end();
}

ALWAYS_INLINE uint32_t spans_zeroed(void)
{
    uint32_t spans = 0;
    const struct pool *end = space_state.pools + pools_zeroed_end();
    for (const struct pool *pool = space_state.pools + pools_end(); pool < end; pool++) spans += pool->spans;
    return spans;
}

ALWAYS_INLINE uint32_t spans_dirty(void)
{
    uint32_t spans = 0;
    for (unsigned pool = DIRTY; pool < pools_end(); pool++) spans += space_state.pools[pool].spans;
    return spans;
}

/* Spans in runs of the layer above. */
ALWAYS_INLINE uint32_t spans_handed_out(void)
{
    return space_state.frontier - space_state.pools[CLEAN].spans - space_state.clean_aside - spans_dirty() -
           spans_zeroed();
}

/* ---- how long what is dirty is kept (patience.c) ---------------------------------------------------------------- */

/* So many spans are in use, or were a moment ago. */
ALWAYS_INLINE void patience_used(uint32_t used)
{
    if (used > space_state.patience.peak) space_state.patience.peak = used;
}
/* So many have been purged because of their age, the first of them free since then; so many clean ones are taken; and the age to purge at. */
void patience_purged(uint32_t spans, uint64_t since, uint64_t now);
void patience_taken(uint32_t spans);
uint32_t patience_age(uint32_t decay_ms, uint64_t now);

/* So many that had been purged are handed out; and whether a run that comes back need not be kept. */
void patience_taken_again(uint32_t spans);
bool patience_is_spent(uint32_t spans, uint64_t now);

/* ---- the lock, and what may be done while a fork has it (fork.c) ------------------------------------------------- */

enum space_access {
    SPACE_DENIED, /* the calling thread was interrupted while it had the lock */
    SPACE_WHOLE, /* it has the lock */
    SPACE_BESIDE, /* a fork has it: nothing may be changed but by acquire_beside, but all may be read */
};

enum space_access space_enter(void);
void space_leave(enum space_access access);
/* For who had the lock and has let it go: take it, and take in what was released beside forks meanwhile. False: a fork has it. */
bool space_enter_again(void);
/* How long a fork has had the space, in ms. */
uint64_t space_fork_age_ms(void);

/* Whether who has entered so still has the lock: purging may lose it to a fork. */
ALWAYS_INLINE bool space_is_whole(enum space_access access)
{
    return access == SPACE_WHOLE && platform_lock_is_own(&space_state.lock);
}

/* A run; NULL: out of memory. If `zeroed` it must read as zeros, and in any case it says whether it does. */
struct span *acquire_beside(uint32_t spans, uint32_t alignment, enum span_kind kind, bool *zeroed);

/* Any thread, with or without the lock: the run that it has is to be taken back. */
void run_defer(const struct span *first);

/* ---- the table, handing out (space.c) ---------------------------------------------------------------------------- */

/* Make the descriptors of the spans below `up_to` writable. */
bool space_commit_descriptors(uint32_t up_to);

/* Reserve the beginning of a window, and say where it is in `space`. False: not even the smallest can be had. (reservation.c) */
bool reservation_start(void);

/* Reserve so many spans at least. False: the kernel refuses, or the window ends before. With the lock. */
bool reservation_reach(uint32_t end);

/* In a fork's child. */
void reservation_fork_child(void);

/* Make the spans below `end` accessible, and their descriptors. */
bool frontier_prepare(uint32_t end);

/* The first index at or after `index` whose address is aligned to `alignment` spans. */
uint32_t index_aligned(uint32_t index, uint32_t alignment);

/* Something else stands in the reservation at this span, beyond the frontier: the space ends there. */
void space_end_at(uint32_t index);

/* The node of the calling thread, whose pages what it gets will be. */
unsigned node_here(void);

/* Take so many clean spans out of their pool, or from beyond the frontier; the index of the first, SPAN_NONE: out of
 * memory. */
uint32_t run_take_clean(uint32_t spans);
/* Out of a pool, without an alignment; SPAN_NONE: it has none that long. */
uint32_t run_take(uint32_t spans, unsigned pool);

/* Make a stretch that is in no pool a run of the layer above, which will come back to `pool`. */
struct span *run_hand_out(uint32_t index, uint32_t spans, enum span_kind kind, unsigned pool);

/* ---- free runs (run.c) ------------------------------------------------------------------------------ */

void pools_start(void);

/* Put a run into a pool, merged with its free neighbours of the same pool, and return the whole. */
struct span *run_free(uint32_t index, uint32_t spans, unsigned pool, uint64_t freed_at);

/* A dirty run counts as freed at this moment. */
void run_renew(struct span *first, uint64_t now);

/* Take a free run out of its pool. Its ends still look free. */
void run_remove(struct span *first);

/* Spans of a run that is among the longest of the pool; 0: it has none. */
uint32_t run_longest(unsigned pool);

/* Cut [index, index+wanted) out of a free run that contains it; what is left goes back. */
void run_cut(struct span *run, uint32_t index, uint32_t wanted);

/* A short run of the pool with room for so many spans, the first of which is aligned to `alignment` spans, or NULL. */
struct span *run_find(uint32_t spans, uint32_t alignment, unsigned pool);

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

/* Ask for huge pages for the whole units in [from, to) spans. */
void huge_pages_advise(uint32_t from, uint32_t to);

/* [from, to) spans have become accessible. */
void huge_pages_committed(uint32_t from, uint32_t to);

/* How much of a run will be touched. */
enum run_fill {
    FILL_AS_OTHERS, /* as of the spans handed out before */
    FILL_AS_BLOCKS, /* as of the blocks that were looked at: see space_block_end */
    FILL_APART, /* the same, but what follows begins a huge page of its own */
    FILL_SPARSE,
    FILL_WHOLE,
};

/* With the lock: a run [from, to) has been handed out, or one has grown by that. Asks for its huge pages, and says which are to be
 * tried. */
struct huge_trial huge_pages_of_run_slow(uint32_t from, uint32_t to, enum run_fill fill);

ALWAYS_INLINE struct huge_trial huge_pages_of_run(uint32_t from, uint32_t to, enum run_fill fill)
{
    if (LIKELY(space_state.trial.to == 0 && fill == FILL_AS_OTHERS)) return space_state.trial;
    return huge_pages_of_run_slow(from, to, fill);
}

/* Without the lock, since a huge page takes long to come: touch the first of its units, which nobody else knows yet, and do without
 * huge pages for a while when they cost too much. */
void huge_pages_try(const struct huge_trial *trial);

/* These spans are about to be purged, or pages of them. Whether that takes the first part of some unit: then
 * platform_split_huge_pages is to come before, without the lock. */
bool huge_pages_purged(uint32_t index, uint32_t spans);

/* The clean run [from, to) has become longer by [new_from, new_to): broken units that it now contains are whole
 * again. */
void huge_pages_mend(uint32_t from, uint32_t to, uint32_t new_from, uint32_t new_to);

/* These four without the lock. */

/* A stretch without taken units has been mapped anew: say again what the kernel was told about it. */
void huge_pages_say_again(uint32_t index, uint32_t spans);

/* Whether the spans' units are taken, and of how many that holds from `index` on, at most `spans`. */
uint32_t huge_pages_alike(uint32_t index, uint32_t spans, bool *taken);

/* What there is to say to the user, if anything: once, and not with the lock held. A thread of the program that
 * reads its stderr may wait for it. */
void huge_pages_say(void);

/* ---- purging (purge.c) ------------------------------------------------------------------------------ */

/* Give these pages back, without the lock. False when the kernel refuses. */
bool purge_counted(void *start, size_t size);

/* Purge all dirty runs. The lock is let go during each system call, here and below, and lost if a fork has it then: see
 * space_is_whole. */
void purge_all(void);
/* Any thread: whether another may be about to put back what it purges. */
bool space_is_being_purged(void);
void purge_fork_child(void);

/* Any thread, without the lock, as a hint: the process has locked its memory, and the kernel would refuse again. */
bool purge_is_hopeless(void);

/* So many spans have come into this pool: purge what is now beyond shared_dirty_max, and some of what is too old. */
void purge_after_release(unsigned pool, uint32_t spans, uint64_t now);
/* Give the pages of a free run to the kernel now, if so many spans of it, which have just come back, need not be kept. */
bool purge_spent(struct span *run, uint32_t spans, uint64_t now);

/* Purge spans that have been handed out, without the lock, after huge_pages_purged, which says whether it `breaks` a unit. False
 * when the kernel refuses. */
bool purge_spans(uint32_t index, uint32_t spans, bool breaks);

/* ---- the stock of cleared runs (zeroed.c) ----------------------------------------------------------- */

/* Dirty runs have come or cleared ones gone: see to it that the stock gets what it should have. */
void zeroed_tend_slow(void);

ALWAYS_INLINE void zeroed_tend(void)
{
    /* Relaxed: a setting stands for itself. */
    bool on = atomic_load_explicit(&space_settings.zeroed_reserve, memory_order_relaxed) != 0;
    if (UNLIKELY(on || space_state.spans_zeroing != 0)) zeroed_tend_slow();
}

/* Take back, dirty, a run of at least so many spans that is not being cleared yet; false: there is none. */
bool zeroed_return_job(uint32_t spans);

/* Give all of it back, dirty, but for what is being cleared; false when that is nothing. */
bool zeroed_release(void);

/* In a fork's child: take back what was to be cleared. */
void zeroed_inherit(void);

#endif
