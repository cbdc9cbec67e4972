/* heap/: thread heaps, their bins, and objects of every size.
 *
 * Every thread has a heap of its own and works on it without locks or atomics. A heap has a *bin* per size class.
 * A bin hands out blocks from its `free` list; when that is empty it takes over the list of blocks that have been
 * freed in one of its spans, or carves new blocks from a span, a page at a time:
 *
 *      malloc ◄── bin.free ◄── (refill) ◄── span.free ◄── free by the owner
 *                                 ▲              ▲
 *                       blocks carved anew    heap.inbox ◄── outbox of another thread's heap ◄── its free
 *
 * So malloc touches only its bin and the block, free only the descriptor and the block, and neither counts what it
 * does, except for one countdown per span that tells free when the owner must look at the span: because enough
 * blocks have come together to be worth handing out again, or because the span is empty and can be given back.
 *
 * Which file does what: fast.h the paths that most calls take; bin.c refilling, carving, emptying; cache.c free spans that
 * a heap keeps; chores.c giving memory back in time; background.c the same while the program sleeps; idle.c what a
 * resting thread's heap holds; lent.c the whole heap of one that sleeps; pressure.c what is done when memory runs
 * short; remote.c blocks that another thread freed; registry.c heaps and threads: birth, death, adoption, fork;
 * inherit.c what other threads' heaps leave to a fork's child; shared.c heaps of several threads; large.c objects
 * with spans of their own; mixed.c, in the library with pools alone, bins of objects of many sizes; survey.c what lies
 * in a span, for figures (survey.h); pick.c which objects are picked by chance (pick.h); guard.c, guard_sample.c and guard_report.c such as stand at the edge of inaccessible pages
 * (guard.h); sample.c, call_site.c and sample_look.c such as it is known of who asked for them (sample.h; numbered.h); the folder hardened/, in the library that is hardened alone, what stands against attacks (hardened.h); object.c what
 * the malloc family asks for, of any size; check.c errors of the program.
 */
#ifndef HEAPFIT_HEAP_H
#define HEAPFIT_HEAP_H

#include "../platform/platform.h"
#include "../space/space.h"
#include "guard.h"
#include "hardened.h"
#include "sample.h"
#include "size_class.h"

#include <string.h>

/* ---- settings: set by api/, some while threads run -------------------------------------------------------- */

/* Auto: where the program has threads already, so that one more changes nothing of what it may do. */
enum background { BACKGROUND_OFF, BACKGROUND_ON, BACKGROUND_AUTO };

struct heap_settings {
    _Atomic(uint32_t) remote_free_batch; /* blocks collected for another heap before they are handed over */
    _Atomic(size_t) remote_free_bytes; /* the same in bytes */
    _Atomic(uint32_t) remote_hand_over; /* enum remote_hand_over */
    _Atomic(uint32_t) thread_spans_cached; /* free spans that a heap keeps for itself */
    _Atomic(size_t) free_page_threshold; /* bytes of free memory in sparse spans that a heap keeps for the decay time */
    _Atomic(uint32_t) lockless_threads; /* threads that get a heap of their own */
    _Atomic(uint32_t) share_first; /* allocations of a thread of many before it does */
    _Atomic(size_t) memory_limit; /* bytes that the process shall stay below; or one of the following */
    _Atomic(uint32_t) background; /* enum background: when there may be a thread that gives memory back */
    bool
        malloc_is_another; /* the program has another malloc, since this library was loaded late; set before threads can be started */
    bool cache_line_align; /* blocks fill whole cache lines; set before the first heap is made */
    uint32_t pool_carve_units; /* units that a pool's bin carves at a time, at least; set before, too */
};

extern struct heap_settings heap_settings;

#define MEMORY_LIMIT_AUTO ((size_t)0) /* that of its control groups */
#define MEMORY_LIMIT_NONE SIZE_MAX

enum remote_hand_over {
    REMOTE_HAND_OVER_FULL, /* when a batch is full, and when the thread exits */
    REMOTE_HAND_OVER_REFILL, /* also whenever the thread refills a bin of its own */
};

/* ---- numbers of bins ----------------------------------------------------------------------------------------- */

/* A heap has a bin for each size class; in the library with pools also one for each pool (pools/), with the numbers behind. */
#ifdef HEAPFIT_POOLS
enum { POOL_BINS = 168 };
#else
enum { POOL_BINS = 0 };
#endif
#define POOLS_EXIST (POOL_BINS != 0) /* a constant: what is behind it the plain library has not */
enum { HEAP_BINS = BIN_COUNT + POOL_BINS, BIN_NONE = HEAP_BINS };
_Static_assert(BIN_NONE <= UINT8_MAX, "a span says in a byte which bin it is of");

/* What the blocks of a pool's bin are: of this size class, or objects of any size, one behind the other (mixed.c). Written before
 * anybody hears of the bin. */
enum { CLASS_MIXED = BIN_COUNT };
extern _Atomic(uint8_t) heap_pool_classes[];

ALWAYS_INLINE bool bin_is_pool(unsigned bin)
{
    return POOLS_EXIST && bin >= BIN_COUNT;
}

ALWAYS_INLINE unsigned bin_class(unsigned bin)
{
    if (!POOLS_EXIST || bin < BIN_COUNT) return bin;
    /* Relaxed: whoever has the number of the bin got it with or after what was written. */
    return atomic_load_explicit(&heap_pool_classes[bin - BIN_COUNT], memory_order_relaxed);
}

ALWAYS_INLINE bool bin_is_mixed(unsigned bin)
{
    return bin_is_pool(bin) && bin_class(bin) == CLASS_MIXED;
}

/* Above 4 KiB few blocks fit a span. Of those classes a heap keeps so many freed blocks beside each bin's list (bin.c). */
enum { HAND_BIN_MIN = BIN_COUNT - 3 * CLASSES_PER_DOUBLING, HAND_BINS = BIN_COUNT - HAND_BIN_MIN, HAND_BLOCKS = 3 };

ALWAYS_INLINE bool bin_has_hand(unsigned bin)
{
    return !HARDENED && bin - HAND_BIN_MIN < HAND_BINS;
}

/* Bytes of a block of the bin: the least that an object has, if they are mixed. */
ALWAYS_INLINE uint32_t bin_block_size(unsigned bin)
{
    return bin_is_mixed(bin) ? (uint32_t)MALLOC_ALIGNMENT : size_class_bytes(bin_class(bin));
}

/* ---- lists of blocks ---------------------------------------------------------------------------------------- */

/* A list of free blocks of one span. Its head is the address of a block, or an odd number when the list is empty
 * (span_list_end, bin_nothing). A free block's first word is its *link*: the next head, exclusive-or the block's own address,
 * exclusive-or space.link_key. Next and block lie in one span, so that a decoded link is NEXT_MAX at most, or LINK_MAX if no
 * block follows, unless the program has overwritten it; and a live block's first word decodes to such a small number only
 * by a chance of 2^-47, or because the program has copied a link (block_looks_free). That is how overwritten links and
 * double frees are noticed.
 *
 * All links have the 16 highest bits of the key, its *mark*, in their highest 16 bits. The key repeats it in its lowest, which
 * hide how far apart two blocks are and are never checked. So free compares a register with memory to see that a block does
 * not look free, and has its shifts spared. */
enum { LIST_END = 1, NEXT_MAX = 0xFFFF, LINK_MAX = 0x1FFFF, LINK_MARK_AT = 3 /* in a word of four times 16 bits */ };
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the highest bits of a word are its last bytes");

/* A key with as much chance in the bits that are checked as the number has; 0: that would not do. For an ordinary first word, a
 * pointer or a small number, must not have the mark. */
ALWAYS_INLINE uintptr_t link_key_of(uintptr_t random)
{
    uintptr_t mark = random >> 48;
    return mark == 0 || mark == UINT16_MAX ? 0 : (random & ~(uintptr_t)UINT16_MAX) | mark;
}

ALWAYS_INLINE bool list_is_empty(uintptr_t head)
{
    return (head & LIST_END) != 0;
}

ALWAYS_INLINE uintptr_t *block_words(uintptr_t block)
{
    return (uintptr_t *)block;
}

/* The same to be read, also where a bin's list is empty: then there is no word (bin_nothing). */
ALWAYS_INLINE uintptr_t first_word(uintptr_t head)
{
    uintptr_t word;
    memcpy(&word, (const void *)head, sizeof word);
    return word;
}

/* ---- heaps ------------------------------------------------------------------------------------------------------ */

/* Lists of kept runs: one per length up to CACHE_EXACT, then one for all that are longer. In front of them stand CACHE_DEPTH runs
 * of each length up to CACHE_FRONT. */
enum { CACHE_EXACT = 16, CACHE_LISTS = CACHE_EXACT + 1, CACHE_FRONT = 4, CACHE_DEPTH = 4 };

/* Free runs of spans that a heap keeps (cache.c); all under the lock but for `spans`, which anybody may read, and `front`. */
struct span_cache {
    platform_lock lock;
    _Atomic(uint32_t) spans; /* in all of its runs that are in the lists */
    _Atomic(uint32_t) front[CACHE_FRONT][CACHE_DEPTH]; /* runs of 1, 2, ... spans: their index plus 1; 0: none */
    uint32_t front_most; /* no more spans are in front; the owner's, who does not learn of it when others take some */
    _Atomic(uint32_t) room; /* spans that it may hold, when last computed; 0 after it was emptied */
    uint32_t youngest, oldest; /* runs by the time they were put in; SPAN_NONE: none */
    uint32_t lists[CACHE_LISTS]; /* the youngest of each */
    uint32_t grown; /* spans that it may hold beyond what every heap may */
    uint32_t vain_times; /* that runs have been asked for in vain, since then, clock in ms */
    uint64_t vain_since;
    _Atomic(bool) missing; /* runs had to leave, and none has been asked for in vain since; the owner's */
};

/* Spans of a heap, in the order in which they were added; linked by owned_next and owned_prev. */
struct span_chain {
    uint32_t first, last; /* SPAN_NONE: none */
    uint32_t spans; /* their number */
};

/* Freed blocks of a bin, each of a span of which no other is free (bin.c). */
struct hand {
    uint32_t count;
    uintptr_t blocks[HAND_BLOCKS]; /* the youngest last */
};

struct bin {
    uint32_t listed; /* first of the spans that have blocks to give, fullest first in tendency; SPAN_NONE: none */
    uint32_t spans; /* how many spans the bin has */
    uint32_t spans_listed; /* how many of them are listed */
    uint16_t given; /* blocks that the last refill gave at most; the next gives twice as many */
    uint16_t borrowed : 15; /* bytes wasted so far by serving its requests from larger bins; of pools: see place.c */
    uint16_t zeros : 1; /* the blocks that malloc takes next read as zeros, but for their links */
};

enum { BORROWED_MAX = (1 << 15) - 1 };

enum heap_state {
    HEAP_OWNED = 0, /* by a living thread, or by one that is settling it (registry.c) */
    HEAP_IDLE, /* no thread, no spans; waits for the next thread */
    HEAP_SHARED, /* by all threads, each of which works on it under its lock: heap_orphans, and those of shared.c */
};

enum { THREADS_MANY = -1 };

/* A thread heap. Owned by one thread at a time; other threads touch only `inbox`, `suspects` and `state`, and `cache` under its
 * lock. Never freed, only reused, so that a pointer to one stays good for ever. */
struct heap {
    uintptr_t free[HEAP_BINS]; /* per bin the blocks that malloc takes next, all of one span */

    /* From struct space, all zero in heap_none: to that one every pointer is foreign. */
    uintptr_t
        last; /* byte that is reserved: addresses are counted from there, since the table is as backward as that */
    size_t size; /* all three may be behind, until a free finds out */
    struct span *lowest; /* descriptor: that of the last span */
    uintptr_t link_key;
    size_t
        fast_sizes; /* that malloc finds in heap_classes, from OBJECT_MIN on; 0 in heap_none, whose bins it never looks at */
    uintptr_t nothing[2]; /* zeros: see bin_nothing */
    bool quiet; /* pools/: who allocates is asked only when a bin is empty */

    struct bin bins[HEAP_BINS];
    struct hand hands[HAND_BINS];
    struct span_chain owned; /* spans of this heap, without those that are sparse */
    struct span_chain sparse; /* those: the first has been so for longest, but for what dead threads left */
    size_t sparse_bytes; /* in blocks that exist in those: at most half of it is in use */
    struct span_cache cache; /* free spans kept for the next need */
    uint32_t carved_bytes; /* pressure: in units carved, since they were last counted */
    uint32_t trims_done; /* chores: heap_trims_asked when all was last given back */
    uint64_t chores_due; /* chores: when to look next, clock in ms */
    uint64_t chores_looked; /* chores: when last looked */
    uint32_t spans_given_back; /* chores: since the bins last returned their blocks for that reason */
    bool chores; /* memory has become free that may have to be given back; heap_orphans': see heap_orphans_pass */
    bool busy; /* chores: the last two looks were close together */
    bool rests; /* chores: no bin has been refilled since it may have begun to rest */
    bool tidying; /* chores: more sparse spans were due than are looked through at a time */
    /* idle.c: HEAP_INSIDE: slow paths of the owner under way; above: how often there were. Its alone. */
    _Atomic(uint32_t) inside;
    _Atomic(uint32_t) claimed; /* idle.c: enum claim; not CLAIM_NONE: slow paths have to wait, or to fetch the heap */
    _Atomic(bool) claim_holds; /* idle.c: and who claimed it is at work in it */
    _Atomic(bool) is_lent; /* lent.c: whoever claims it has all of it. Set under a claim, ended by the owner inside */
    struct heap **place; /* lent.c: the owner's thread_heap, by who becomes the owner; NULL: not to be changed */
    uint32_t rest_entries; /* idle.c: `inside` when last looked at, under the registry's lock */
    uint64_t rest_begun; /* since when it has been so */
    bool rest_done; /* idle.c: what was left when it began has been seen to; under a claim */
    bool rest_runs; /* idle.c: but the thread did not sleep then */
    uintptr_t inbox_seen; /* idle.c: the first message in the inbox when nothing of it could be had */
    uint64_t inbox_due; /* when to look again */
    size_t zeroed_hits, zeroed_misses; /* see heap_figures; read by other threads */
    struct outbox *outbox; /* remote.c: blocks of other heaps that this thread has freed; NULL until there is one */
    size_t remote_batches, remote_blocks; /* remote.c: handed over to other heaps; relaxed, for statistics */

    /* registry: under its lock */
    struct heap *next, *prev; /* in the list of idle heaps; `next` also in that of those that are leaving */
    struct heap *made_before; /* in the list of all heaps */
    uint32_t number; /* 1 for the first that was made; 0: heap_orphans */
    uint32_t forks; /* whose thread lives in the process that came of so many forks */
    bool left_behind; /* inherit.c: a fork did without its thread. Set in the child before it has a second one */

    /* For statistics: written by the owner alone, read by any thread, so relaxed. */
    _Atomic(int32_t) thread; /* the kernel's number of the one that has it; 0: none; THREADS_MANY: several share it */
    size_t refills; /* how often a bin was filled */
    size_t woken_at; /* pools/: the refills there were when it last had reason to ask; the owner's */
    struct picker guard; /* guard_sample.c: the owner's, on its slow paths */
    struct picker sample; /* sample.c: the same */
#ifdef HEAPFIT_HARDENED
    struct hardened_heap hardened; /* the owner's */
#endif

    /* Written by other threads: a line of their own. */
    _Atomic(uintptr_t) inbox __attribute__((aligned(CACHE_LINE))); /* blocks freed elsewhere; 0 when empty */
    _Atomic(uintptr_t) suspects; /* blocks that looked free when they were freed; 0: none */
    _Atomic(uint32_t) state; /* enum heap_state */
    platform_lock lock; /* HEAP_SHARED: whoever holds it is the owner */
};

/* The calling thread's heap; heap_none until it first allocates and after it has exited. heap_none owns nothing and
 * its bins are empty, so that the fast paths need not ask. */
extern __thread struct heap *thread_heap;
extern struct heap heap_none;

/* While the layer above serves a thread's allocations, heap_diverted takes the place of its heap, which is kept. It is
 * as empty as heap_none, so that the fast paths need not know. */
extern struct heap heap_diverted;
extern __thread struct heap *thread_heap_kept;

/* While another thread may have a sleeping thread's heap (lent.c), heap_lent takes its place in thread_heap: as empty as
 * heap_none. thread_heap_lent is the heap that it then stands for. */
extern struct heap heap_lent;
extern __thread struct heap *thread_heap_lent;
COLD struct heap *heap_fetch(void);

/* The head of a bin's list that is empty. What is read there as a link is the decoded 0, which is none: so malloc, which has to
 * check each link, need not ask first whether there is a block. */
ALWAYS_INLINE uintptr_t bin_nothing(const struct heap *heap)
{
    return (uintptr_t)heap->nothing | LIST_END;
}

/* The descriptor for an address. False: it is foreign, or of a span that was reserved since the heap has last looked. */
ALWAYS_INLINE bool heap_find_span(const struct heap *heap, uintptr_t address, struct span **span)
{
    size_t from_end = heap->last - address;
    if (UNLIKELY(from_end >= heap->size)) return false;
    *span = heap->lowest + (from_end >> SPAN_SHIFT);
    return true;
}

ALWAYS_INLINE void heap_see_space(struct heap *heap)
{
    heap->size = space_size();
    heap->last = space.base + heap->size - 1;
    heap->lowest = span_at((uint32_t)(heap->size >> SPAN_SHIFT) - 1);
}

/* Another thread may put heap_lent there at any moment. So each call reads it once, and goes on with what it has read. */
ALWAYS_INLINE struct heap *thread_heap_now(void)
{
    return __atomic_load_n(&thread_heap, __ATOMIC_RELAXED);
}

/* The calling thread's own heap, diverted, lent or not; may be heap_none. */
ALWAYS_INLINE struct heap *thread_heap_own(void)
{
    struct heap *heap = thread_heap_now();
    if (UNLIKELY(heap == &heap_lent)) return heap_fetch();
    return LIKELY(heap != &heap_diverted) ? heap : thread_heap_kept;
}

/* What a thread has in place of a heap of its own when it shares one: as empty as heap_none. */
extern struct heap heap_sharing;

/* Begin or end to divert what the calling thread allocates. What it frees finds its way by its address. */
void heap_divert(bool diverted);

/* The owner of the spans of threads that are gone. Nobody's thread heap: shared by all. */
extern struct heap heap_orphans;

/* Of all heaps ever made, linked by made_before: for debuggers. */
extern struct heap *const *const heap_list_at;

/* What is left to do after a look, the later the more urgent. space_purge_old says it with the same numbers. */
enum chores_left { CHORES_NONE = 0, CHORES_LATER, CHORES_NOW };
_Static_assert((int)SPACE_LEFT_YOUNG == (int)CHORES_LATER && (int)SPACE_LEFT_OLD == (int)CHORES_NOW,
               "the same numbers");

ALWAYS_INLINE enum chores_left chores_more_urgent(enum chores_left a, enum chores_left b)
{
    if (a > b) return a;
    return b;
}

/* ---- slow paths, and who keeps them out (idle.c) ----------------------------------------------------------------------- */

enum { HEAP_INSIDE = 0xFF, HEAP_INSIDE_NEXT = HEAP_INSIDE + 1 };

enum claim {
    CLAIM_NONE = 0,
    CLAIMED,
    CLAIMED_OWNER_WAITS,
    CLAIM_LENT, /* nobody is at work, but the owner's thread_heap is heap_lent (lent.c) */
};

void heap_wait_for_claim(struct heap *heap);

/* What only slow paths touch is changed between these two, by the owner: the bins, the chains, what is carved in spans, the
 * insides of lists. They may be nested. */
ALWAYS_INLINE uint32_t heap_enter(struct heap *heap)
{
    uint32_t inside = atomic_load_explicit(&heap->inside, memory_order_relaxed);
    atomic_store_explicit(&heap->inside, inside + 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* for the processor, the claimer's system call is one: see idle.c */
    /* Acquire: pairs with the release at the end of a claim. */
    if (UNLIKELY(atomic_load_explicit(&heap->claimed, memory_order_acquire) != CLAIM_NONE) &&
        (inside & HEAP_INSIDE) == 0)
        heap_wait_for_claim(heap);
    return inside;
}

/* `entered` is what heap_enter has returned. */
ALWAYS_INLINE void heap_leave(struct heap *heap, uint32_t entered)
{
    /* Release: who claims the heap and finds nobody inside sees what was done. */
    atomic_store_explicit(&heap->inside, entered + HEAP_INSIDE_NEXT, memory_order_release);
}

/* Take what a heap holds whose thread has rested for so long: a part of it, for less than a millisecond. The registry's lock is
 * held. Spans come before the chain, as cache_detach. Where `lent` is not NULL and the thread sleeps, `*lent` becomes the heap:
 * then all is done by idle_tend_lent, without any lock. */
enum chores_left idle_tend(struct heap *heap, uint64_t now, uint32_t age_ms, uint32_t *chain, struct heap **lent);
enum chores_left idle_tend_lent(struct heap *heap, uint64_t now);

/* ---- heaps of threads that sleep (lent.c): under a claim ---------------------------------------------------------------- */

/* Whether its thread sleeps in the kernel, as far as can be told. The registry's lock is held, here and below. */
enum platform_sleep heap_sleep(const struct heap *heap);
/* Have the heap to oneself if it still does: then it returns THREAD_SLEEPS. */
enum platform_sleep heap_lend(struct heap *heap);
ALWAYS_INLINE bool heap_is_lent(const struct heap *heap)
{
    /* Relaxed: a claim, or that there is none, orders it with who wrote it; without either it is a hint. */
    return atomic_load_explicit(&heap->is_lent, memory_order_relaxed);
}
/* The calling thread is inside, and nobody has claimed it: have it back, if it is its own. */
void heap_take_back(struct heap *heap);
/* Give back all that such a heap holds without need; false: its owner waits, so that it was not all. Without locks. */
bool heap_lent_give_back(struct heap *heap, bool (*is_awaited)(const struct heap *heap));

/* ---- objects (object.c) -------------------------------------------------------------------------------------------- */

/* Requests above this are refused, as the C standard's ptrdiff_t demands. */
#define OBJECT_MAX ((size_t)PTRDIFF_MAX)

/* Whether an object of `usable` bytes stays where it is when `size` are wanted: shrinking below half of it is worth a copy. */
ALWAYS_INLINE bool object_fits(size_t size, size_t usable)
{
    return size <= usable && size >= usable / 2;
}

/* An object of a bin of the calling thread's heap, of at most so many bytes; NULL: memory has run out. */
void *heap_malloc_bin(struct heap *heap, unsigned bin, size_t size);

/* What the fast paths fall back to. They return NULL and set errno to ENOMEM when memory has run out or the request
 * is above OBJECT_MAX. */
void *heap_malloc_slow(size_t size, struct heap *heap);
void heap_free_slow(void *pointer, struct heap *heap);
void heap_free_sized_slow(void *pointer, size_t size, struct heap *heap); /* aborts when fewer bytes were allocated */

/* Any size; `alignment` a power of two. */
void *heap_malloc_aligned(size_t size, size_t alignment);
void *heap_calloc(size_t size);
/* `pointer` not NULL. On failure it stays as it was. */
void *heap_realloc(void *pointer, size_t size);
/* As malloc with the thread's own heap, diverted or not: for the layers above themselves. */
void *heap_malloc_own(size_t size);
/* Bytes that may be used at a live object's address. */
size_t heap_usable_size(const void *pointer);
/* What heap_usable_size of an object of this size would be. */
size_t heap_good_size(size_t size);
/* Give back what the calling thread's heap holds without need, and what can be had of the others' while their threads go on. */
void heap_trim(void);
/* The same for all heaps: for those of other threads, what can be had while these go on at once (idle.c), and all when they next
 * fill a bin. */
void heap_trim_everywhere(void);

/* Defined by the layer above. Allocations of a diverted thread; as malloc, NULL with errno ENOMEM when out of memory. */
void *heap_guest_malloc(size_t size, size_t alignment);
/* Objects, if `pointer` is one, in spans of the kind SPAN_GUEST; each ends the program when it is not, naming `function`. */
void heap_guest_free(struct span *span, void *pointer);
void *heap_guest_realloc(struct span *span, void *pointer,
                         size_t size); /* NULL: out of memory. Guarded ones with an owner too */
size_t heap_guest_usable_size(const char *function, const struct span *span, const void *pointer);

/* The bin for each size, with the tail: size_class, or the next of whole cache lines. Written once, before the first heap is made.
 * By bytes, so that malloc has nothing to compute. */
extern uint8_t heap_classes[FAST_MAX + 1];

/* The class of a small size in a heap. */
ALWAYS_INLINE unsigned heap_size_class(size_t size)
{
    size += OBJECT_TAIL;
    /* Above, all blocks fill whole cache lines anyway. */
    return size <= FAST_MAX ? heap_classes[size] : size_class_computed(size);
}

/* ---- bins (bin.c) ------------------------------------------------------------------------------------------------------ */

/* The bin has no block left, of so many bytes: whether the one that is wanted may have to be guarded or sampled. Where pick_is_on. */
ALWAYS_INLINE bool bin_may_pick(const struct heap *heap, unsigned bin, size_t bytes)
{
    return guard_is_on() || !pick_falls_not(&heap->sample, sample_mean_now(), bin, bytes);
}
/* If so: an object that is guarded, if that is to be; or else NULL, and whether the one that a refill gives is to be sampled. */
void *bin_pick(struct heap *heap, unsigned bin, size_t bytes, size_t size, size_t alignment, bool *sampled);
/* How many of `count` blocks a bin may be given, at least 1, since what stands behind them is picked: where pick_is_on. */
uint32_t bin_cut_at_point(struct heap *heap, unsigned bin, size_t bytes, size_t count);
ALWAYS_INLINE uint32_t bin_cut(struct heap *heap, unsigned bin, size_t bytes, size_t count)
{
    if (!guard_is_on() && pick_cuts_not(&heap->sample, sample_mean_now(), bin, count * bytes)) return (uint32_t)count;
    return bin_cut_at_point(heap, bin, bytes, count);
}
/* Fill an empty bin; false when memory has run out. */
bool bin_refill(struct heap *heap, unsigned bin);
/* What a heap does now and then on its slow paths: it has no other time of its own. */
void heap_pause(struct heap *heap);
/* Relaxed: a figure, which only the owner writes. */
ALWAYS_INLINE void count_refill(struct heap *heap)
{
    __atomic_store_n(&heap->refills, heap->refills + 1, __ATOMIC_RELAXED);
}

/* A span of the bin that has blocks to give; NULL: out of memory. To be called inside. */
struct span *bin_find_span(struct heap *heap, unsigned bin);
/* The same with blocks that read as zeros, as far as memory can be had for it without waste; false: it cannot. */
bool bin_refill_zeroed(struct heap *heap, unsigned bin);
/* A bin that has no span yet: another, larger one that can serve a request without getting more memory, or BIN_COUNT. */
unsigned bin_to_borrow_from(struct heap *heap, unsigned bin);
/* A block of `span` has come back, and its countdown has reached zero. */
void span_countdown_ended(struct span *span, struct heap *heap);
/* Free a block of the heap's own; what the fast path does, without its checks. */
void block_free_local(struct heap *heap, struct span *span, uintptr_t block);
/* Free a whole list of such blocks; `last` is its last one. */
void span_free_list(struct heap *heap, struct span *span, uintptr_t first, uintptr_t last, uint32_t blocks);
/* Put the blocks that the bins hold back into their spans, and give back empty spans. */
void heap_flush(struct heap *heap);
/* Give back the empty spans alone, once the bins hold nothing. To be called inside, or under a claim of the whole heap. */
void heap_give_back_empty(struct heap *heap);
/* From now on the span has been sparse since then (clock in ms); 0: it is not sparse. */
void span_set_sparse(struct heap *heap, struct span *span, uint64_t since);
/* Have the countdown and the place in the lists of a span follow from its live blocks. */
void span_arrange(struct heap *heap, struct span *span, uint32_t live);
/* The same when some have been freed, perhaps all: then the span may be given back. */
void span_look(struct heap *heap, struct span *span, uint32_t live);
/* Make `heap` the owner of a span that no list has, and of whose blocks so many live. */
void heap_take_restored(struct heap *heap, struct span *span, uint32_t live);
/* How many spans a heap has. */
ALWAYS_INLINE uint32_t heap_spans(const struct heap *heap)
{
    return heap->owned.spans + heap->sparse.spans;
}
/* Make `heap` the owner of a span of `from`; of all its spans, when its bins and caches are flushed. */
void heap_take_span(struct heap *heap, struct heap *from, struct span *span);
void heap_take_spans(struct heap *heap, struct heap *from);

/* Return the blocks that the bins hold to their spans; or those of one bin. To be called inside. */
void heap_return_blocks(struct heap *heap);
void heap_return_bin(struct heap *heap, unsigned bin);

/* A block that was at hand, for an owner or under a claim (idle.c); 0: none is. */
uintptr_t bin_take_from_hands(struct heap *heap);
/* Unlink an empty span and put it before a chain, as cache_detach does. */
void span_give_away(struct heap *heap, struct span *span, uint32_t *chain);
/* Give an empty span back. */
void span_give_back(struct heap *heap, struct span *span);
/* Make blocks that have just been found free, and lie in the units of the mask, uncarved again: no list has them any more. */
void span_uncarve(struct span *span, uint32_t units, uint32_t blocks);
/* Mask of the units in which a block starts. */
uint16_t span_units_with_blocks(const struct span *span);
/* The blocks that start in a carve unit: [*first, returned end). */
uint32_t span_unit_blocks(const struct span *span, uint32_t unit, uint32_t *first);

/* Free blocks of a span, a bit each, by their numbers. */
struct free_blocks {
    uint64_t bits[SPAN_SIZE / MALLOC_ALIGNMENT / 64];
    uint32_t count;
};

ALWAYS_INLINE void free_blocks_add(struct free_blocks *free, uint32_t block)
{
    free->bits[block / 64] |= UINT64_C(1) << (block % 64);
    free->count++;
}

ALWAYS_INLINE bool free_blocks_have(const struct free_blocks *free, uint32_t block)
{
    return ((free->bits[block / 64] >> (block % 64)) & 1) != 0;
}

ALWAYS_INLINE uint32_t span_live(const struct span *span)
{
    return span->countdown + span->held_back;
}

/* The head of an empty list of the span in which this address lies: outside of it, so that how far it is from any block of it
 * is above NEXT_MAX. */
ALWAYS_INLINE uintptr_t list_end_of(uintptr_t address)
{
    return ((address & ~(uintptr_t)(SPAN_SIZE - 1)) ^ SPAN_SIZE) | LIST_END;
}

ALWAYS_INLINE uintptr_t span_list_end(const struct span *span)
{
    return list_end_of(span_start(span));
}

/* Blocks are carved, and become resident, by this unit: the smallest page that Linux has. */
enum { CARVE_UNIT_LOG2 = 12, CARVE_UNIT = 1 << CARVE_UNIT_LOG2, CARVE_UNITS = 1 << (SPAN_SHIFT - CARVE_UNIT_LOG2) };

/* ---- bins of objects of many sizes (mixed.c): in the library with pools alone -------------------------------------------- */

/* An object of at most FAST_MAX bytes out of such a bin; NULL: memory has run out. */
void *mixed_malloc(struct heap *heap, unsigned bin, size_t size);
/* Bytes of a live object, for any thread; another address ends the program, naming `function`. */
size_t mixed_usable_size(const char *function, const struct span *span, const void *pointer);
/* A span has been cut for such a bin: it holds nothing. */
void mixed_start(struct span *span);
/* What mixed_malloc holds for objects to come goes back to its span. */
void mixed_let_go(struct heap *heap, unsigned bin);
/* Take in what has been freed; returns a mask of the units in which no object lies, to be purged. */
uint32_t mixed_units_free(struct heap *heap, struct span *span);
/* Whether an object starts at this address of a span of the asking thread's own. */
bool mixed_starts_object(const struct span *span, uintptr_t object);
/* What is in a span, for statistics: exact if its owner asks. */
struct mixed_figures {
    uint32_t objects, bytes; /* live, or freed but not taken in yet */
    uint32_t bytes_free;
};
struct mixed_figures mixed_figures(const struct span *span);

/* ---- free spans that a heap keeps (cache.c) -------------------------------------------------------------------------------- */

void cache_start(struct span_cache *cache);
/* Keep a run that nobody uses any more, or give it to the space. Its kind is SPAN_METADATA; its first span's `bin` is the one
 * that it is cut for, or BIN_NONE; and if `uncarved` is 0 the run counts among the dense spans. */
bool cache_put(struct heap *heap, struct span *run);
/* The same in less time, where the front has room for its length; false: not done. */
bool cache_put_in_front(struct heap *heap, struct span *run);
/* A kept run of so many spans or a few more, for a large object; NULL: none. */
struct span *cache_take_run(struct heap *heap, uint32_t spans);
/* A kept span, for a bin: if its `bin` says so it is cut into blocks already, as `carved`, `uncarved` and `free` tell. */
struct span *cache_take_span(struct heap *heap, unsigned bin);
/* Give back some of what has been kept for so long, and what is above the threshold. */
enum chores_left cache_release_old(struct heap *heap, uint64_t now, uint32_t age_ms);
/* Any thread: put it before a chain instead, as cache_detach. */
enum chores_left cache_detach_old(struct heap *heap, uint64_t now, uint32_t age_ms, uint32_t *chain);
/* Any thread: take all out, put it before a chain of such runs (SPAN_NONE: none yet), and return that; to be released
 * without locks. */
uint32_t cache_detach(struct heap *heap, uint32_t chain);
void cache_release(uint32_t chain);
/* Any thread: memory has run out, or is about to: none may hold more than now for a while. */
void cache_growth_rests(void);
/* Any thread: what is kept. */
size_t cache_bytes(const struct heap *heap);

/* Any thread: the same for all heaps, some of them at a time; and what else those hold whose threads rest. AT_ONCE: who
 * asks needs it now, whatever the age, and whoever has to wait meanwhile. */
enum { AT_ONCE = 0 };
enum resting {
    RESTING_LEFT, /* as they are */
    RESTING_CLAIMED, /* to take what can be had while the threads may go on */
    RESTING_LENT, /* the whole heaps of those that sleep; asks the kernel what a sandbox may forbid by death */
};
enum chores_left heap_all_release_old(uint64_t now, uint32_t age_ms, enum resting resting);
/* The same at once, of all heaps whose threads are on no slow path at this moment. */
void heap_all_give_back(void);

/* ---- chores (chores.c) --------------------------------------------------------------------------------------------------- */

/* Memory has become free that should go back to the system if it is not used again soon. */
void heap_chores_expect(struct heap *heap);
/* The same; a span of blocks has been given back. */
void heap_chores_more(struct heap *heap);
/* The same for the calling thread's own heap, if it has one, which then sees to it. */
void heap_chores_expect_own(void);
/* Look at the clock, and do what is due. */
void heap_chores_look(struct heap *heap);
/* A span has become sparse: see to free_page_threshold. */
void heap_chores_sparse(struct heap *heap);
/* Give back pages of a sparse span while its owner may be freeing blocks of it: but not of what stands before `head` in its
 * list, and not that one. See idle.c. */
void span_purge_resting(struct heap *heap, struct span *span, uintptr_t head);
/* Give back all that the heap holds without need, now. */
void heap_give_back(struct heap *heap);
/* Give back pages that hold no live block, of at most so many spans: of the sparse ones first, then of the others, each of which
 * comes last then in their chain. */
void heap_purge_pages(struct heap *heap, uint32_t spans);
/* The same for a heap of a lock, which the caller does not have: in steps, for others wait for it. While a fork has it, the heap
 * keeps what it has. */
void heap_locked_give_back(struct heap *heap);
/* What is due for the orphans, if nobody else is about to do it. */
void heap_orphans_look(void);
/* What is due for a heap of a lock, by the background thread. */
enum chores_left heap_locked_step(struct heap *heap);

/* How often all heaps have been asked to do so. */
extern _Atomic(uint32_t) heap_trims_asked;

ALWAYS_INLINE bool heap_is_asked_to_trim(const struct heap *heap)
{
    /* Relaxed: asked is asked, and what is done then is the heap's own. */
    return heap->trims_done != atomic_load_explicit(&heap_trims_asked, memory_order_relaxed);
}

/* The owner's slow paths come by here. */
ALWAYS_INLINE void heap_chores_pass(struct heap *heap)
{
    if (UNLIKELY(heap_is_asked_to_trim(heap))) heap_give_back(heap);
    if (UNLIKELY(heap->chores)) heap_chores_look(heap);
}

/* Who asks the orphans for a span comes by here. */
ALWAYS_INLINE void heap_orphans_pass(void)
{
    /* Racy on purpose: a hint. */
    if (UNLIKELY(__atomic_load_n(&heap_orphans.chores, __ATOMIC_RELAXED))) heap_orphans_look();
}

/* ---- a thread that gives memory back (background.c) ------------------------------------------------------------------------- */

extern _Atomic(uint32_t) heap_background_status;

/* From now on this process may start threads. */
void heap_background_allow(void);
/* Whether there is a thread where one is wanted, as far as can be told; a hint. */
bool heap_background_is_possible(void);
bool heap_background_is_put_off(void);
/* Memory may be waiting to go back: see whether that is worth a thread. */
void heap_background_consider(void);
/* Start it for a function of malloc's family that `caller` has called. Allocates: with no lock held, and the heap in order. */
void heap_background_start(const void *caller);
void heap_background_fork_child(void);
/* Whether heaps of other threads may be looked into while those rest, which takes a system call (membarrier) that a sandbox may end the
 * process for. */
bool heap_background_may_interrupt_others(void);
/* Have the thread end, and wait for it, where it is the only one besides the caller, as far as is known. */
void heap_background_leave(void);
/* The calling thread ends, and has given up its heap. It may be the last: the C library runs exit handlers in the last thread of a
 * process, whichever it is, and that must be one of the program's. */
void heap_background_thread_leaves(void);

ALWAYS_INLINE void heap_background_expect(void)
{
    enum { ABSENT = 1 }; /* see background.c */
    /* Relaxed: a hint. */
    if (UNLIKELY(atomic_load_explicit(&heap_background_status, memory_order_relaxed) == ABSENT))
        heap_background_consider();
}

ALWAYS_INLINE void heap_background_pass(const void *caller)
{
    enum { WANTED = 2 };
    /* Relaxed: as above. */
    if (UNLIKELY(atomic_load_explicit(&heap_background_status, memory_order_relaxed) == WANTED))
        heap_background_start(caller);
}

/* ---- when memory runs short (pressure.c) ------------------------------------------------------------------------------------- */

enum pressure { PRESSURE_NONE, PRESSURE_NEAR, PRESSURE_AT };

/* Bytes that heaps have got, all in all, in memory that may not have been resident; and at how many to look what is left. */
extern _Atomic(size_t) heap_pressure_got, heap_pressure_look_at;
void heap_pressure_look(size_t wanted);

/* So many more; `wanted`: how many of them are not in memory yet. The calling thread may have a heap's lock, and no other. */
ALWAYS_INLINE void heap_pressure_grown(size_t bytes, size_t wanted)
{
    /* Relaxed, both: a number and a hint. */
    size_t got = atomic_fetch_add_explicit(&heap_pressure_got, bytes, memory_order_relaxed) + bytes;
    if (UNLIKELY(got >= atomic_load_explicit(&heap_pressure_look_at, memory_order_relaxed))) heap_pressure_look(wanted);
}

/* When to look whatever heaps have got, clock in ms. */
extern _Atomic(uint64_t) heap_pressure_look_after_ms;
void heap_pressure_look_in_time(uint64_t clock);

/* Where heap_pressure_grown may be called. */
ALWAYS_INLINE void heap_pressure_pass(uint64_t clock)
{
    /* Relaxed: a hint. */
    if (UNLIKELY(clock >= atomic_load_explicit(&heap_pressure_look_after_ms, memory_order_relaxed)))
        heap_pressure_look_in_time(clock);
}

/* Set heap_settings.memory_limit. */
void heap_pressure_limit(size_t limit);

/* In a fork's child. */
void heap_pressure_fork_child(void);

/* Defined by the layer above: bound what the options keep free, as it is right for this pressure; `kept`: bytes that runs shared by all
 * threads may hold at PRESSURE_AT. False: not now. */
bool heap_settings_bound(enum pressure pressure, size_t kept);

/* ---- remote frees (remote.c) ---------------------------------------------------------------------------------------------- */

/* Free a block of another heap. */
void remote_free(struct heap *heap, struct span *span, uintptr_t block);
/* Take in what others have freed; of a shared heap nothing, since whoever filled its inbox is about to. */
void remote_inbox_take(struct heap *heap);
/* Take it in for a shared heap, whose lock the caller holds: returns what has found another owner meanwhile, to be sent on
 * without the lock. */
struct remote_elsewhere {
    uintptr_t messages, suspects; /* 0: none */
};
struct remote_elsewhere remote_inbox_take_shared(struct heap *heap);
void remote_send_on(struct remote_elsewhere elsewhere);

/* For an owner that sleeps, under a claim and the registry's lock (idle.c), one after the other: take in hand what lies in its
 * inbox, and count the spans that are empty but for it; false: somebody waits, so that it was not all looked at. Put these spans
 * before a chain, as cache_detach does: true if there may be more of them. Put back the rest, and return its first message. */
bool remote_inbox_hold(struct heap *heap, bool (*is_awaited)(const struct heap *heap),
                       uint32_t *spans); /* NULL: nobody does */
bool remote_inbox_give_away(struct heap *heap, uint32_t *chain);
uintptr_t remote_inbox_put_back(struct heap *heap);

/* Under a claim as well: put what is at hand into the owner's inbox. */
void remote_send_hands(struct heap *heap);

/* For a heap that is lent (lent.c): hand over what it has collected; and take in what others have freed, false: somebody waits,
 * so that some of it is still there. */
void remote_lent_flush(struct heap *heap);
bool remote_lent_take_in(struct heap *heap, bool (*is_awaited)(const struct heap *heap));

/* Free a block of the heap's own that looks free: end the program if it is, and free it if it only looks so. */
COLD void remote_free_own_suspect(struct heap *heap, uintptr_t block);
/* The same for a block of a heap that is not the calling thread's own, without its lock. */
COLD void remote_accuse(struct heap *owner, uintptr_t block);

ALWAYS_INLINE bool remote_inbox_is_filled(const struct heap *heap)
{
    /* Relaxed: hints; taking synchronises. */
    return (atomic_load_explicit(&heap->inbox, memory_order_relaxed) |
            atomic_load_explicit(&heap->suspects, memory_order_relaxed)) != 0;
}

/* Hand over all that this heap has collected for others. */
void remote_outbox_flush(struct heap *heap);
/* The same when a bin is refilled, if that is wanted. */
ALWAYS_INLINE void remote_outbox_flush_at_refill(struct heap *heap)
{
    if (UNLIKELY(atomic_load_explicit(&heap_settings.remote_hand_over, memory_order_relaxed) ==
                 REMOTE_HAND_OVER_REFILL))
        remote_outbox_flush(heap);
}

/* Forget it, since whoever collected it may have been in the middle of that: its blocks live on for ever. */
void remote_outbox_forget(struct heap *heap);

/* Blocks that were handed over one by one, by threads without a heap to collect them in. */
size_t remote_sent_alone(void);

/* ---- heaps and threads (registry.c) ------------------------------------------------------------------------------------------ */

/* The calling thread has no heap of its own at hand, but heap_none or heap_sharing: get it one, for one operation that ends
 * with heap_thread_leave. Starts the whole allocator when need be. NULL when out of memory. */
struct heap *heap_thread_enter(void);
void heap_thread_leave(struct heap *heap);
/* Whether the calling thread would not be told of its end any more: then it borrows a heap for each call. */
bool heap_thread_is_late(void);
/* The first thread, before its thread-local variables have been written, which undoes this: until then it borrows a heap for each call. */
void heap_thread_early(void);
/* Until it is taken up again, the calling thread does not touch its heap, which it may have been interrupted in. It allocates
 * all the same, if it has none of our locks. */
struct heap *heap_set_aside(void);
void heap_take_up(struct heap *heap);
/* Blocks were put into the inbox of a heap that is no one thread's: do its work. */
void heap_settle(struct heap *heap);
/* A new heap; the registry's lock is held. NULL when out of memory. */
struct heap *heap_make(enum heap_state state);
/* All spans of a heap, whose bins and caches are flushed, become orphans; false, with nothing done: a fork has the orphans. */
bool heap_orphan_spans(struct heap *heap);
/* Take over a span of a dead thread that has blocks of this bin to give. False when there is none. */
bool heap_adopt_span(struct heap *heap, unsigned bin);
/* Whether a thread waits for the registry's lock, which the calling one has. */
bool heap_registry_is_awaited(void);
/* Whether more than one thread has had a heap; a hint. */
bool heap_threads_are_many(void);
/* Threads that have a heap now, alone or with others. */
size_t heap_threads_now(void);
/* Whether anybody has allocated yet; what the start wrote is then seen by the caller too. */
bool heap_is_started(void);
/* Empty the caches of all heaps, of sleeping threads too. */
void heap_caches_empty(void);
/* The heap that was made last, the first of a chain by made_before; heap_orphans is not among them. Without a lock: for looks at
 * what does not hang on the registry. */
struct heap *heap_youngest(void);
/* For pthread_atfork handlers: between these two no other thread is in the middle of changing what any thread may use, in so far
 * as the fork could wait for that. */
void heap_fork_begin(void);
void heap_fork_end(void);
void heap_fork_end_in_child(void);
/* From the first process to this one. It changes in a child alone, before it has a second thread. */
uint32_t heap_forks(void);
/* From now on a copy of this process that is made without these is put in order too, as soon as it needs it. */
void heap_watch_copies(void);

/* Calls `visit` for every heap ever made and for heap_orphans, with the registry's lock held. What a heap holds belongs to its
 * thread, which goes on meanwhile. */
void heap_visit_all(void (*visit)(const struct heap *heap, void *argument), void *argument);

struct heap_figures {
    size_t made; /* heaps ever made */
    size_t idle; /* of these, without a thread */
    size_t orphans; /* spans of threads that are gone */
    size_t sharing; /* threads that share heaps under a lock */
    size_t cached; /* bytes of free spans that heaps keep */
    size_t refills; /* since the start */
    size_t remote_batches, remote_blocks; /* handed over since the start */
    size_t zeroed_hits, zeroed_misses; /* callocs above FAST_MAX since the start */
};
void heap_figures(struct heap_figures *figures);

/* Defined by the layer above: called once, before anything else happens, to read the options. Must not allocate. */
void heap_configure(void);

/* ---- heaps of threads that a fork's child does not have (inherit.c) ------------------------------------------------------------- */

/* Spans that heaps of a fork's child get from elsewhere until it takes over what those heaps have, plus 1; 0: there is nothing. */
extern _Atomic(uint32_t) heap_inherit_after;
void heap_inherit_expect(void);
/* More than 0 while the calling thread may have heaps in hand that are not its own: it has borrowed one, or is retiring it. Volatile:
 * for a signal's handler that interrupts it, and forks. */
extern __thread volatile unsigned heap_hands;
void heap_inherit_look(void);

/* Whoever is about to get a span, or a run for a large object, comes by here; without locks, but for that of a shared heap. */
ALWAYS_INLINE void heap_inherit_pass(void)
{
    /* Relaxed: a hint. */
    if (UNLIKELY(atomic_load_explicit(&heap_inherit_after, memory_order_relaxed) != 0)) heap_inherit_look();
}

/* For inherit.c, by registry.c. The blocks of a span of such a heap are never used again; and the heap, which has no span any more,
 * becomes idle. */
void heap_lose_span(struct span *span);
void heap_retire_left_behind(struct heap *heap);

/* ---- heaps that threads share (shared.c) ------------------------------------------------------------------------------------- */

/* Whether a heap works under its lock, for every thread. Relaxed: it was born so or never becomes so. */
ALWAYS_INLINE bool heap_is_shared(const struct heap *heap)
{
    return atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_SHARED;
}

/* A heap for one more thread to share; the registry's lock is held. NULL when out of memory. */
struct heap *shared_choose(void);
/* Free a block of a heap that was shared a moment ago; false, with nothing done, when the block has found another owner. */
bool shared_free(struct heap *heap, struct span *span, uintptr_t block);
/* A block looks free: end the program when it is, and of this heap. */
void shared_check(struct heap *heap, const struct span *span, uintptr_t block);
/* Take in what others have freed. */
void shared_settle(struct heap *heap);
/* Give back what they hold without need. */
void shared_trim(void);
/* What is due for them, by the background thread: one that has not been used for so long gives back all that it can. */
enum chores_left shared_step(uint64_t now, uint32_t age_ms);
/* No thread shares any more: leave nothing that only another one could use. */
void shared_hand_down(void);
/* For heap_fork_begin and its kin; the last takes in what others have freed meanwhile. */
void shared_fork_begin(void);
void shared_fork_end(void);
void shared_fork_end_in_child(void);
void shared_fork_settle(void);

/* ---- large objects (large.c) -------------------------------------------------------------------------------------------------- */

/* `heap` is the calling thread's own; heap_none when it has none. */
void *large_malloc(struct heap *heap, size_t size, size_t alignment, bool *zeroed);
/* The same out of the stock of cleared memory; NULL: there is none that fits. */
void *large_malloc_zeroed(size_t size);
/* Whether such an object, which has just been refused, might be had if all that is free were given back. */
bool large_room_can_be_made(size_t size, size_t alignment);
void large_free(struct heap *heap, struct span *span);
void *large_realloc(struct heap *heap, struct span *span, size_t size);

ALWAYS_INLINE uintptr_t large_start(const struct span *span)
{
    return HARDENED ? hardened_large_start(span) : span_start(span);
}

/* A run that lies with its last pages untouched, as far as is known, has something in `uncarved`. */
ALWAYS_INLINE int32_t run_dense_spans(const struct span *run)
{
    return run->run_spans >= SPACE_BLOCK_SPANS ? 0 : (int32_t)run->run_spans - (run->uncarved != 0);
}

/* A large run comes into use (1) or goes (-1): what the space layer wants to know of it. */
ALWAYS_INLINE void large_count(const struct span *run, int32_t sign)
{
    int32_t dense = run_dense_spans(run);
    if (run->run_spans >= SPACE_BLOCK_SPANS) space_block_spans_add(sign * (int32_t)run->run_spans);
    else if (dense != 0) space_dense_spans_add(sign * dense);
}

/* space_resize, counted. */
ALWAYS_INLINE bool large_set_spans(struct span *run, uint32_t spans, bool filled)
{
    large_count(run, -1);
    bool done = space_resize(run, spans, filled);
    large_count(run, 1);
    return done;
}

/* What its run has room for. */
ALWAYS_INLINE size_t large_usable_size(const struct span *span)
{
    return HARDENED ? span->free : (size_t)span->run_spans * SPAN_SIZE;
}

/* Pages behind those that the program asked for are not told, in units of the smallest page: see large.c. */
#define LARGE_SPARE ((size_t)4096)
ALWAYS_INLINE size_t large_told_size(const struct span *span)
{
    return large_usable_size(span) - (HARDENED ? 0 : span->carved * LARGE_SPARE);
}

/* ---- errors of the program (check.c): each prints one line and aborts ----------------------------------------------------------- */

_Noreturn COLD void check_link_failed(const void *block);

/* Whether a block looks free. A live one does by a chance of 2^-47, and where the program has copied a link: a link says how far
 * apart two blocks are and is one at any address. So who finds that a block looks free must look whether it is. */
ALWAYS_INLINE bool block_looks_free(uintptr_t block)
{
    return (*block_words(block) ^ space.link_key) <= LINK_MAX;
}

/* What stands behind a free block in its list: a block, or the list's end. Ends the program when the link was overwritten. */
ALWAYS_INLINE uintptr_t list_next(uintptr_t block)
{
    uintptr_t link = *block_words(block) ^ space.link_key;
    if (UNLIKELY(link > LINK_MAX)) check_link_failed((const void *)block);
    return link ^ block;
}

ALWAYS_INLINE void list_link(uintptr_t block, uintptr_t next)
{
    *block_words(block) = next ^ block ^ space.link_key;
}

_Noreturn COLD void check_bin_failed(const struct heap *heap, unsigned bin); /* the first block of the bin */
_Noreturn COLD void check_pointer_failed(const char *function, const void *pointer);
_Noreturn COLD void check_double_free(const void *pointer);
_Noreturn COLD void check_size_failed(const void *pointer, size_t given, size_t usable);
_Noreturn COLD void check_alignment_failed(const void *pointer, size_t alignment);
/* A free that states the alignment that was asked for. NULL has any. */
ALWAYS_INLINE void check_alignment(const void *pointer, size_t alignment)
{
    if (UNLIKELY(((uintptr_t)pointer & (alignment - 1)) != 0)) check_alignment_failed(pointer, alignment);
}
/* The first word of `block`, of the heap's own, looks like a free block's link: end the program if it is one, as far as the
 * heap's own lists tell. */
COLD void check_suspicious_free(const struct heap *heap, const struct span *span, uintptr_t block);
/* Whether `block` stands in the list. */
COLD bool check_list_contains(uintptr_t list, uintptr_t block);

#endif
