/* space/: address space, in spans of 64 KiB.
 *
 * One range of addresses is reserved when the process first allocates. It is cut into spans; the spans in use
 * grow from its start, the *frontier* being the first span never handed out:
 *
 *        table (64 bytes a span, grows downwards)      base            frontier       committed
 *   ┌──────────────────────────────────┬───┬───┬───┬───┬───────┬───────┬──────────────┬─────────────┐
 *   │            reserved              │ 3 │ 2 │ 1 │ 0 │ span 0│ span 1│ span 2 …     │  reserved   │
 *   └──────────────────────────────────┴───┴───┴───┴───┴───────┴───────┴──────────────┴─────────────┘
 *
 * The table stands away from the objects, so that no descriptor shares their cache sets and an overflow cannot
 * reach one. Descriptor and span are found from each other by one subtraction and one shift, and a pointer is
 * foreign exactly when `p - base >= size`. The part of the table that is not in use yet reads as zeros, so that any
 * pointer that is not foreign has a descriptor to look at.
 *
 * Spans are handed out in *runs* of one or more. A free run is clean (reads as zeros: never touched, or purged)
 * or dirty (may hold memory, of the node on which the thread ran that got it). Everything here but the inline functions takes one lock; the layer above caches
 * spans per thread so that the lock is rarely taken. This layer knows nothing of the sizes of objects: the
 * descriptor's fields for blocks are the layer above's, kept here because a descriptor is one cache line.
 */
#ifndef HEAPFIT_SPACE_H
#define HEAPFIT_SPACE_H

#include "../platform/platform.h"

#define SPAN_SHIFT 16
#define SPAN_SIZE ((size_t)1 << SPAN_SHIFT)

struct heap; /* the layer above's */

enum span_kind {
    SPAN_FREE = 0, /* in a free run, never handed out, or inside a large run */
    SPAN_BLOCKS,   /* cut into blocks of one size; owned by a thread heap */
    SPAN_LARGE,    /* first span of a run that is one object */
    SPAN_TAIL,     /* last span of a run of several */
    SPAN_METADATA, /* nobody's object, see run_use: the allocator's own, kept by a heap, or on its way */
    SPAN_GUEST,    /* any span of a run that a layer above the heaps cuts up by itself: see space_lend */
    SPAN_GUARD,    /* any span of the run of guarded slots: see space_set_apart */
};

/* A span's descriptor: one cache line. Who may touch what: the fields for blocks belong to the thread that owns
 * `owner`, `owner` itself may be read by any thread at any time, all others are protected by the space lock
 * while the span is free and belong to whoever acquired the run otherwise. */
struct span {
    /* The heap that a local free must come from; NULL unless kind is SPAN_BLOCKS. Atomic: read by threads that
     * free each other's blocks while the span changes hands (see heap/remote.c). */
    _Atomic(struct heap *) owner;
    uintptr_t free; /* blocks: LIFO of blocks freed since the list was last taken; odd when empty. guest: whose */
    uint32_t countdown; /* blocks: local frees until the owner must look at the span. metadata: see run_use */
    uint32_t reciprocal; /* blocks: 2^32 / block_size rounded up, to recognise the start of a block */
    uint32_t block_size; /* blocks: bytes */
    uint16_t held_back; /* blocks: live blocks beyond the countdown */
    uint16_t carved; /* blocks: blocks that exist (live, in a list, or handed to the bin). large: see large_told_size */
    uint16_t uncarved; /* blocks: a bit per carve unit whose blocks do not exist yet */
    uint8_t bin; /* blocks: size class */
    bool listed : 1; /* blocks: in the bin's list of spans with blocks to give */
    bool zeros : 1; /* blocks: what is not carved yet reads as zeros */
    unsigned since_high : 6; /* see span_since */
    uint8_t kind; /* enum span_kind; see span_kind_read */
    uint8_t pool; /* free: the pool that the run lies in. in use: the one that it goes back to. See state.h */
    unsigned wake : 7; /* blocks: freed ones that make the span worth listing */
    bool sampled : 1; /* blocks and large: some of it is sampled (heap/sample.h); the owner's */
    uint8_t huge; /* first span of a unit of a huge page's size: enum unit_state. By space/, whoever has the span */
    uint32_t next, prev; /* blocks: the bin's list. free: the list of runs of this length */
    uint32_t owned_next, owned_prev; /* blocks: all spans of the heap. free and dirty: the pool by age */
    uint32_t run_spans; /* large: spans of the run. free: the same, at the first and last span */
    uint32_t since; /* see span_since. blocks: 0 when it is not sparse */
};

_Static_assert(sizeof(struct span) == CACHE_LINE, "a descriptor is one cache line");

/* Written once, by space_start, but for `size`. Thread heaps hold copies, for a free that touches one line less. */
struct space {
    uintptr_t base; /* address of span 0; 0 before space_start */
    size_t
        size; /* bytes reserved from base on; 0 before space_start: every pointer is foreign. Grows: see space_size */
    size_t window; /* bytes that may be reserved, in time; written once, too */
    uintptr_t link_key; /* what the layer above encodes its free lists with */
};

extern struct space space;

/* ---- settings: set by api/ before space_start, some also later ------------------------------------------ */

enum huge_pages {
    HUGE_PAGES_NEVER,
    HUGE_PAGES_AUTO, /* beyond the first HUGE_PAGES_AFTER bytes, while the heap is dense (huge.c) */
    HUGE_PAGES_ALWAYS, /* from the start */
    HUGE_PAGES_HUGETLB, /* all but the first, out of the kernel's pool; while that is empty as HUGE_PAGES_ALWAYS */
};

struct space_settings {
    enum huge_pages huge_pages;
    uint32_t huge_page_price; /* the most that one may cost, in percent of what as many small pages cost */
    size_t reservation; /* bytes of address space to reserve at most; 0: chosen from the machine's memory */
    bool numa; /* keep free memory apart by node, where there are several */
    _Atomic(uint32_t) decay_ms; /* age after which a dirty run is purged; DECAY_NEVER: none; live */
    _Atomic(size_t) shared_dirty_max; /* bytes of dirty runs kept, per node; beyond, the oldest are purged; live */
    _Atomic(bool) huge_pages_stopped; /* no more are asked for, whatever huge_pages says; live */
    _Atomic(size_t) zeroed_reserve; /* bytes of cleared runs that the housekeeper keeps; 0: no housekeeper; live */
};

extern struct space_settings space_settings;

#define DECAY_NEVER ((uint32_t)INT32_MAX) /* longer than anybody waits for: 24 days */

/* ---- span and address ------------------------------------------------------------------------------------ */

#define SPAN_NONE UINT32_MAX /* no span, as an index */

ALWAYS_INLINE struct span *span_at(uint32_t index)
{
    return (struct span *)space.base - 1 - index;
}

ALWAYS_INLINE uint32_t span_index(const struct span *span)
{
    return (uint32_t)((struct span *)space.base - 1 - span);
}

ALWAYS_INLINE uintptr_t span_start(const struct span *span)
{
    return space.base + ((uintptr_t)span_index(span) << SPAN_SHIFT);
}

/* While a heap owns a span it writes the kind without the space lock, and a neighbour's release looks, under the lock,
 * whether it is SPAN_FREE: never, whichever of the owner's values it sees. So relaxed accesses do. */
ALWAYS_INLINE enum span_kind span_kind_read(const struct span *span)
{
    return (enum span_kind)__atomic_load_n(&span->kind, __ATOMIC_RELAXED);
}

ALWAYS_INLINE void span_kind_write(struct span *span, enum span_kind kind)
{
    __atomic_store_n(&span->kind, (uint8_t)kind, __ATOMIC_RELAXED);
}

/* What a run of the kind SPAN_METADATA is for, which stands in the `countdown` of its first span: the allocator's own tables, for
 * ever; or it is on its way from one owner to the next, such as to be purged; or else the number of the heap that keeps it, plus 1.
 * For figures alone, so relaxed. */
#define RUN_ON_ITS_WAY UINT32_C(0)
#define RUN_OF_TABLES UINT32_MAX

ALWAYS_INLINE uint32_t run_use(const struct span *first)
{
    return __atomic_load_n(&first->countdown, __ATOMIC_RELAXED);
}

ALWAYS_INLINE void run_use_set(struct span *first, uint32_t use)
{
    __atomic_store_n(&first->countdown, use, __ATOMIC_RELAXED);
}

/* Relaxed: who has a pointer into what was reserved last, has it from one who saw that. */
ALWAYS_INLINE size_t space_size(void)
{
    return __atomic_load_n(&space.size, __ATOMIC_RELAXED);
}

/* The bytes from base to `pointer`; at least space_size() when the pointer is foreign (NULL too: it wraps). */
ALWAYS_INLINE size_t space_offset(const void *pointer)
{
    return (uintptr_t)pointer - space.base;
}

ALWAYS_INLINE bool space_offset_is_foreign(size_t offset)
{
    return offset >= space_size();
}

/* The span of an offset that is not foreign. */
ALWAYS_INLINE struct span *span_of_offset(size_t offset)
{
    return (struct span *)space.base - 1 - (offset >> SPAN_SHIFT);
}

/* Since when a span is what it is, clock in ms. Free and dirty: when it was freed. Blocks: when it became sparse. Kept by a heap:
 * when it was put there. 38 bits of it, so that no process lives long enough for a run that has been left alone to look young. */
enum { SINCE_LOW_BITS = 32, SINCE_BITS = SINCE_LOW_BITS + 6 };
#define SINCE_MASK ((UINT64_C(1) << SINCE_BITS) - 1)

ALWAYS_INLINE uint64_t span_since(const struct span *span)
{
    return (uint64_t)span->since_high << SINCE_LOW_BITS | span->since;
}

ALWAYS_INLINE void span_since_set(struct span *span, uint64_t clock_ms)
{
    span->since = (uint32_t)clock_ms;
    span->since_high = (unsigned)(clock_ms >> SINCE_LOW_BITS) & ((1u << (SINCE_BITS - SINCE_LOW_BITS)) - 1);
}

/* How long before `now` that was, up to four years; 0 when it was after it: another thread has looked at the clock later. */
ALWAYS_INLINE uint64_t age_at(uint64_t now, uint64_t since)
{
    uint64_t age = (now - since) & SINCE_MASK;
    return age <= SINCE_MASK / 2 ? age : 0;
}

ALWAYS_INLINE uint64_t span_age(const struct span *span, uint64_t now)
{
    return age_at(now, span_since(span));
}

/* The layer above says how many of its spans are in use to the last page: huge pages are only worth having while nearly all are. */
void space_dense_spans_add(int32_t spans);

/* It leaves out objects of so many spans and more, *blocks*, which get huge pages for themselves, and says how many spans they
 * have. */
#define SPACE_BLOCK_SPANS 8
void space_block_spans_add(int32_t spans);

/* Whether the owner of a run has filled it, if it is a block. Reads some of its pages; false where nobody would ask for huge pages. */
bool space_block_is_filled(const struct span *first);

/* A run is about to be released or moved: if it is a block, the next ones are expected to be filled as it is. */
void space_block_end_slow(const struct span *first);

ALWAYS_INLINE void space_block_end(const struct span *first)
{
    if (UNLIKELY(first->run_spans >= SPACE_BLOCK_SPANS)) space_block_end_slow(first);
}

/* ---- runs (space.c) --------------------------------------------------------------------------------------- */

/* Reserve the address space. Idempotent; not thread-safe (the layer above calls it under its own lock). False
 * when not even the smallest reservation can be had. */
bool space_start(void);

/* Hand out a run of `spans` consecutive spans whose first one is aligned to `alignment` spans (a power of two)
 * *in address*. The kind of the first becomes `kind`, of the last of several SPAN_TAIL, and run_spans is set.
 * When `zeroed` is not NULL it says whether the run is known to read as zeros. NULL when out of memory. */
struct span *space_acquire(uint32_t spans, uint32_t alignment, enum span_kind kind, bool *zeroed);

/* The same out of the stock of cleared memory; NULL: there is none of that length. */
struct span *space_acquire_zeroed(uint32_t spans, enum span_kind kind);

/* Whether such a run, which has just been refused, might be had if all that is free, here and in the layer above, were given
 * back. */
bool space_room_can_be_made(uint32_t spans, uint32_t alignment);

/* Hand out a run to a layer above the heaps, which knows what is in it: every span of it gets the kind SPAN_GUEST, so that
 * any address in it can be told, and `guest` as its `free`. With `huge_pages`, the whole huge pages in it are asked for.
 * space_take_back ends it, space_resize must not be used on it. */
struct span *space_lend(uint32_t spans, uint32_t alignment, void *guest, bool huge_pages);
void space_take_back(struct span *first);

/* Hand out, for ever, a run whose addresses nobody has ever had: so it may be made inaccessible, though looks at what was free
 * may come late elsewhere. Every span of it gets the kind SPAN_GUARD. NULL: there is no address space left. */
struct span *space_set_apart(uint32_t spans, uint32_t alignment);

/* Whether any address at all lies in a guest's span. */
ALWAYS_INLINE bool span_is_guest(const struct span *span)
{
    /* Acquire: pairs with the release in space_lend. */
    return __atomic_load_n(&span->kind, __ATOMIC_ACQUIRE) == SPAN_GUEST;
}

ALWAYS_INLINE void *span_guest(const struct span *span)
{
    return (void *)span->free;
}

/* Take a run back, dirty, and purge what is then too much or too old. Its descriptors may no longer be touched. */
void space_release(struct span *first);

/* Make a run of the layer above longer or shorter in place. Growing fails (false) when what follows is in use
 * or memory has run out; shrinking always succeeds. `filled`: what comes to it is expected to be touched as a whole. */
bool space_resize(struct span *first, uint32_t spans, bool filled);

/* How many spans were ever handed out, from the first on: for a process of one thread, else a hint. */
uint32_t space_spans(void);

/* Memory for the allocator itself: zeroed, aligned to a cache line, never given back. NULL when out of memory. */
void *space_metadata(size_t size);

/* Dirty runs that are still to be purged, by age. */
enum space_left {
    SPACE_LEFT_NONE = 0, /* or too little to be worth it, or nothing that the kernel would take */
    SPACE_LEFT_YOUNG, /* that will be old in time */
    SPACE_LEFT_OLD, /* more than one call does */
};

/* How much there is, as a hint: in runs that may be resident, and of that in dirty ones; and whether the process has locked its
 * memory, so that none of it can be given back. */
struct space_load {
    size_t kept, dirty;
    bool is_locked;
};
struct space_load space_load(void);
size_t space_kept(void); /* the first alone */

/* Whether most of what is kept is dirty, and that is much: then it goes back sooner, see patience.c. */
#define SPACE_MUCH ((size_t)32 << 20)
ALWAYS_INLINE bool space_is_mostly_free(size_t kept, size_t dirty)
{
    return dirty >= SPACE_MUCH && dirty > kept - dirty;
}

/* Purge dirty runs beyond shared_dirty_max, and those older than the decay time when there is enough dirty memory to be
 * worth it; of either PURGE_STEP at most. */
#define PURGE_STEP ((size_t)4 << 20)
enum space_left space_purge_old(void);
/* Purge all. */
void space_purge_all(void);
/* Purge whole pages within a span of the layer above, which then read as zeros if the kernel agrees. */
void space_purge_pages(void *start, size_t size);

/* What is at `from` to `to`, both within runs of the layer above and at pages' starts; of `from` nothing is left where its pages
 * were moved. False: `to` has become unusable for ever, and `from` is as it was. */
bool space_move(void *to, void *from, size_t bytes);

/* ---- the stock of cleared memory (zeroed.c) ---------------------------------------------------------------- */

/* Whether there is to be one. */
bool space_zeroed_is_on(void);
/* From now on this process may start threads. */
void space_zeroed_allow(void);
/* Start the housekeeper if it has work and is not there. May start a thread, which allocates: call it without locks, and
 * with the calling thread's heap in order. */
void space_zeroed_start(void);
/* Follow a change of space_settings.zeroed_reserve. */
void space_zeroed_adjust(void);
/* Give the whole stock back, as dirty runs. */
void space_zeroed_release(void);

/* ---- forks, statistics ------------------------------------------------------------------------------------- */

/* For pthread_atfork handlers; the last in the child, and there alone if the fork could not hold the space. Between begin
 * and end, threads work beside the space (fork.c). */
void space_fork_begin(void);
void space_fork_end(void);
void space_fork_child(void);

/* Figures for statistics, in bytes; a consistent snapshot. */
struct space_figures {
    size_t reserved;
    size_t committed; /* accessible; what the kernel counts against its limits */
    size_t handed_out; /* in runs of the layer above */
    size_t dirty; /* in free runs that may hold memory */
    size_t clean; /* in free runs that hold none */
    size_t metadata; /* of handed_out: the allocator's own */
    size_t purged; /* since the start */
    size_t purge_calls; /* madvise calls since the start */
    size_t commit_calls; /* mprotect calls since the start */
    size_t advice_calls; /* madvise calls about huge pages */
    size_t huge; /* of committed: huge pages were asked for, or taken from the pool */
    size_t zeroed; /* in runs that the housekeeper has cleared, not in dirty or clean */
    size_t nodes; /* 1: nothing is kept apart */
};

void space_figures(struct space_figures *figures);

/* The same of one node. */
struct space_node_figures {
    size_t dirty;
    size_t zeroed;
    size_t crossings; /* runs that went to a thread of another node, after their pages were given back */
};

/* Fills in the first `count` of the nodes; returns how many there are, at least 1. */
size_t space_node_figures(struct space_node_figures *figures, size_t count);

/* Calls `visit` for the first span of every run that is handed out, in address order, with a lock held. */
void space_visit(void (*visit)(const struct span *span, void *argument), void *argument);

/* A run, handed out or free. */
enum run_state { RUN_HANDED_OUT, RUN_CLEAN, RUN_DIRTY, RUN_ZEROED };
struct space_run {
    const struct span *first;
    uint32_t index, spans;
    enum run_state state;
};

/* Calls `visit` for every run that has spans in [from, to), in address order, with a lock held, for which all runs before are
 * stepped over too. Returns how many spans were ever handed out. */
uint32_t space_visit_runs(uint32_t from, uint32_t to, void (*visit)(const struct space_run *run, void *argument),
                          void *argument);

/* Where the layer's addresses lie now: the table of descriptors from `table` to `base`, then the spans, of which those before
 * `committed` are accessible, up to `end`. */
struct space_bounds {
    uintptr_t table, base, committed, end;
};
struct space_bounds space_bounds(void);

#endif
