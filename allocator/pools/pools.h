/* pools/: objects placed by where the program allocates them, in libheapfit-pools.so alone.
 *
 * Objects that are walked together should stand together. What they are is told by the *chain*: the return addresses
 * from malloc's caller outwards, as many as it takes to leave the functions that only pass a new object on (wrappers). The
 * objects of one chain, and of chains that build the same data structure, are a *group*. A group that stands to gain gets a
 * *pool*: memory of its own in each thread's heap. All others stay in the ordinary bins.
 *
 *     malloc ─► site table ─► ordinary ─────────────────────────────► heap_malloc
 *               by return     pool ─────────────────────────────────► that bin of the thread's heap
 *               address       mixed ────────────────────────────────► mixed_malloc, with that bin
 *                             deeper ─► the caller's return address joins the key, and so on
 *                             slow ─► chain ─► group ─► its place, as one of the first three
 *                                                    ─► watched: heap_malloc, and written down
 *
 * A pool is one more bin of a heap: its spans, frees by other threads, orphans and chores are those of any bin (heap.h). That
 * of a pool of objects of one size is cut into blocks, too; in one of mixed sizes objects stand one behind the other
 * (heap/mixed.c). Addresses are all that pools change: whatever cannot be understood goes to the ordinary heap, and is counted.
 * So do the objects of threads that have no heap of their own, or whose allocations a context serves.
 *
 * Which file does what: pools.h the path that most calls take; platform/frame.c how a frame is left, out of .eh_frame;
 * chain.c the compound table of chains; follow.c what a function does with a new object, out of its machine code, of
 * which follow_state.c knows what each instruction does; group.c groups and their verdicts; log.c what is seen of their
 * first objects; shape.c the storage shape graph, and what belongs together in it; judge.c whether a group gets a pool;
 * place.c pools, and the way to them. api/explain.c writes what was decided, and why.
 *
 * After Wang, Wu, Yew: On Improving Heap Memory Layout by Dynamic Pool Allocation (CGO 2010). Section numbers are theirs.
 */
#ifndef HEAPFIT_POOLS_H
#define HEAPFIT_POOLS_H

#include "../heap/fast.h"
#include "../platform/frame.h"

#include <string.h>

/* ---- settings: set by api/ before the first allocation -------------------------------------------------------- */

enum pool_chain { /* how long chains are (3.1) */
                  POOL_CHAIN_ADAPTIVE,
                  POOL_CHAIN_1,
                  POOL_CHAIN_2,
                  POOL_CHAIN_3,
                  POOL_CHAIN_4,
                  POOL_CHAIN_FULL,
};

enum pool_placing {
    POOL_PLACING_JUDGED, /* groups that stand to gain */
    POOL_PLACING_ALL, /* every group past the thresholds, as in the paper */
    POOL_PLACING_NONE, /* all is done but the placing: objects go to the ordinary heap (5.5) */
    POOL_PLACING_OFF, /* nothing is done: the plain library */
};

struct pool_settings {
    enum pool_chain chain;
    enum pool_placing placing;
    bool merge; /* 3.2 */
    bool headers; /* objects keep room for a header that pools do not need, to tell what that brings (5.5) */
    uint32_t segment_size; /* bytes that a pool takes at a time, a power of two, 4096 to 65536 (3.3) */
    uint32_t min_objects; /* of a group, before it can have a pool (3.3.1) */
    uint32_t max_size; /* of an object, in bytes (3.3.2) */
    char explain[256]; /* file to write what was decided to, at exit; empty: none */
};

extern struct pool_settings pool_settings;

/* ---- functions (follow.c) ------------------------------------------------------------------------------------------- */

enum follow {
    FOLLOW_USED, /* the function reads, writes, links or hands down the object: the chain ends here */
    FOLLOW_PASSED_ON, /* it only tests the pointer, and returns it or stores it through a parameter: a wrapper */
    FOLLOW_UNKNOWN, /* not to be told within the bound, or no machine code that can be read */
};

/* How a function's caller gets the new object: returned, or where the nth of its arguments (0 to 5) points. */
enum { PASSED_BY_RETURN = -1 };

/* What the function that `return_address` lies in does with the object that a call has just passed to it there, in the way that
 * `*passing` says: PASSED_BY_RETURN for malloc itself. After FOLLOW_PASSED_ON, `*passing` says how that function passes it to its
 * own caller; else it is as it was. `start` and `end` bound the function. `*decoded` becomes the number of instructions
 * decoded. Takes no locks, does not allocate; one thread at a time, since it works in memory of its own: stacks may be small. */
enum follow follow_pointer(uintptr_t return_address, uintptr_t start, uintptr_t end, int *passing, unsigned *decoded);

/* ---- chains (chain.c) --------------------------------------------------------------------------------------------- */

/* Two to the 64, divided by the golden ratio: products of neighbouring numbers are far apart (Knuth, 6.4). */
#define CHAIN_SCATTER UINT64_C(0x9E3779B97F4A7C15)

/* The key of a chain, out of that of all but its last return address; 0 of none. */
ALWAYS_INLINE uint64_t chain_key(uint64_t before, uintptr_t return_address)
{
    return ((before << 32 | before >> 32) ^ return_address) * CHAIN_SCATTER;
}

/* That by which the site table has it: chains of one return address are known there by that. */
ALWAYS_INLINE uintptr_t chain_place(uint64_t key, unsigned length, uintptr_t return_address)
{
    return length == 1 ? return_address : (uintptr_t)key;
}

/* The group of an allocation whose caller goes on at `frame`; GROUP_NONE: not to be told, counted by reason. */
uint32_t chain_group(const struct frame *frame);

/* Where objects go: of a group, and of a site. */
enum verdict_kind {
    VERDICT_SLOW = 0, /* of a site: ask chain_group. of a group: it is watched */
    VERDICT_ORDINARY,
    VERDICT_POOL, /* into `bin`, if they are of the size class `class`; others into ordinary bins */
    VERDICT_MIXED, /* into `bin`, of any size */
    VERDICT_DEEPER, /* of a site alone: a wrapper's. Its word has the rule to go on by, packed, above the kind */
};
enum { VERDICT_KIND_BITS = 8 };

struct verdict {
    uint8_t kind; /* enum verdict_kind */
    uint8_t class;
    uint8_t bin;
    uint8_t tired; /* of a wrapper's site: it is not to be asked for a while, see place.c */
    uint32_t pool; /* the bin is of */
};

/* As one word, which is replaced whole. The processors that we know have the first member in the lowest byte. */
ALWAYS_INLINE uint64_t verdict_word(struct verdict verdict)
{
    uint64_t word;
    memcpy(&word, &verdict, sizeof word);
    return word;
}

ALWAYS_INLINE struct verdict verdict_of_word(uint64_t word)
{
    struct verdict verdict;
    memcpy(&verdict, &word, sizeof verdict);
    return verdict;
}

/* What is known of a site, by its return address alone. Takes no lock. */
struct verdict site_verdict(uintptr_t return_address);

/* What the site table has this group's chain by, or 0. Takes no lock. */
uintptr_t chain_site(uint32_t group);

/* A group has been given its place, or another: the site table shall be without it. Takes no lock. */
void chain_ask_again(uint32_t group);

/* Code may have been unmapped: forget what is known of return addresses that are in no loaded object. */
void chain_forget(void);

/* In a fork's child. */
void chain_fork_child(void);

/* Why chains were not told, or not to their end. All but the last two happen once a chain. */
enum chain_fallback {
    FALLBACK_NO_UNWIND, /* no rule for leaving a frame */
    FALLBACK_NO_CODE, /* a function could not be followed: the chain ends at it */
    FALLBACK_TOO_DEEP, /* the chain was cut at its greatest length */
    FALLBACK_TOO_MANY_CHAINS,
    FALLBACK_TOO_MANY_GROUPS,
    FALLBACK_STACK, /* a frame was not as its rule says */
    FALLBACK_BUSY, /* another thread was learning a chain, as this one wanted to */
    FALLBACKS,
};
extern const char *const chain_fallback_names[FALLBACKS];

struct chain_figures {
    uint64_t allocations_slow; /* calls of chain_group, but for some hundreds of each thread's last */
    uint64_t chains; /* that have a group */
    uint64_t chain_addresses; /* in all of them */
    uint64_t instructions_decoded;
    uint64_t analysis_ns_median; /* of a new chain, from a sample */
    uint64_t fallbacks[FALLBACKS];
};

void chain_figures(struct chain_figures *figures);

/* ---- groups (group.c) ------------------------------------------------------------------------------------------------- */

#define GROUP_NONE UINT32_MAX
enum { GROUPS_MAX = 8192, CHAIN_KEPT = 8 };

enum group_state {
    GROUP_WATCHED, /* its objects are in the ordinary heap and written down, until enough is known */
    GROUP_ORDINARY,
    GROUP_POOLED,
    GROUP_MIXED,
    GROUP_MERGED, /* into another, whose pool it shares */
};

/* A group for a new chain, `length` return addresses of which the first CHAIN_KEPT are given; GROUP_NONE: there are too many.
 * One call at a time: under the lock of chains. */
uint32_t group_new(const uintptr_t *chain, unsigned length, bool complete);

/* Where a group's objects go. VERDICT_SLOW: they are watched, so to the ordinary heap and then to group_watch. Takes no lock. */
struct verdict group_verdict(uint32_t group);

/* An object of a watched group has been made; may end in a decision about this group and others, and so in calls of
 * chain_ask_again. Called without locks, and never waits for one: while another thread is in here nothing is seen. */
void group_watch(uint32_t group, void *object, size_t size);

/* In a fork's child. What a group's look was in the middle of is done in part; it decides about places only. */
void group_fork_child(void);

/* ---- pools (place.c) -------------------------------------------------------------------------------------------------- */

#define POOL_NONE UINT32_MAX

/* A new pool: for objects that have blocks of this size in ordinary bins, at most FAST_MAX; or of mixed sizes. False: there are
 * as many as there can be. */
bool place_pool(uint32_t *pool, uint32_t block_size);
bool place_mixed(uint32_t *pool);

/* What sends objects there; to the ordinary heap, if that is what the settings say of all. */
struct verdict place_verdict(uint32_t pool);

/* The pool that a span in use belongs to, or POOL_NONE. May be asked about any span at any time. */
uint32_t place_of(const struct span *span);

/* What is in a pool, in all heaps, as far as threads that go on meanwhile can be looked at. */
struct place_figures {
    bool mixed;
    uint32_t block_size; /* 0: mixed */
    size_t objects; /* live */
    size_t bytes; /* of these */
    size_t footprint; /* of address space that the pool has */
};

/* All pools, numbered from 0; `figures` has room for POOL_BINS. Returns how many there are. Looks at all spans. */
uint32_t place_figures(struct place_figures *figures);

/* In a fork's child: all of this layer. */
void pools_fork_child(void);

/* ---- the site table (place.c) -------------------------------------------------------------------------------------------- */

/* Verdicts on sites: malloc's return addresses, and behind those of wrappers whole chains. The fast path looks at one place
 * alone: of two sites that share it, one goes the slow path. Two calls of malloc are hardly ever within 16 bytes of code, the
 * size of an entry: so some bits of the address are the entry's offset. What is read may be another site's for a moment: then an
 * object is placed with that one's. */
struct site {
    _Atomic(uintptr_t) key; /* chain_place; 0: none */
    _Atomic(uint64_t) verdict; /* verdict_word, or a rule; never VERDICT_SLOW */
};

enum { SITES_LOG2 = 13, SITES = 1 << SITES_LOG2 };
extern struct site pool_sites[SITES];

ALWAYS_INLINE struct site *site_at(uintptr_t key)
{
    return &pool_sites[key / sizeof(struct site) % SITES];
}

/* The word on a site, 0 if there is none. */
ALWAYS_INLINE uint64_t site_word(uintptr_t key)
{
    const struct site *site = site_at(key);
    /* Acquire, both: pairs with the releases in site_put, whose caller knows that the bin has been made. */
    if (UNLIKELY(atomic_load_explicit(&site->key, memory_order_acquire) != key)) return VERDICT_SLOW;
    return atomic_load_explicit(&site->verdict, memory_order_acquire);
}

/* Have this word found, whoever had the place. Never waits: while another thread does so, nothing is done. */
void site_put(uintptr_t key, uint64_t word);
/* The same, but of sites that share a place, the one that is asked about most should have it. */
void site_learn(uintptr_t key, uint64_t word);
/* The verdict on a site has changed, or code has been unmapped: the fast path shall ask again about it, or about all. */
void site_drop(uintptr_t key);
void sites_drop(void);

/* ---- allocating: what the malloc family does, in place of heap_malloc ------------------------------------------------------ */

/* An object whose verdict is not at hand, or whose bin is empty, for a caller in this frame; NULL with errno ENOMEM. */
void *pools_malloc_from(size_t size, struct heap *heap, uintptr_t return_address, uintptr_t stack, uintptr_t base);

ALWAYS_INLINE void *pools_malloc_at(size_t size, struct heap *heap, const struct frame *caller)
{
    return pools_malloc_from(size, heap, caller->return_address, caller->stack, caller->base); /* in registers */
}

/* malloc has not found a block. It ends by calling this, so that its caller's frame is the one above this. */
void *pools_malloc_slow(size_t size, struct heap *heap);

/* The same for a function that it has ended by calling. */
ALWAYS_INLINE void *pools_malloc_slow_here(size_t size, struct heap *heap)
{
    struct frame caller = frame_of_caller();
    return pools_malloc_at(size, heap, &caller);
}

/* A block, if that is quickly done. */
ALWAYS_INLINE void *pools_pop(size_t size, struct heap *heap, uintptr_t return_address)
{
    if (UNLIKELY(size >= heap->fast_sizes)) return NULL;
    uintptr_t bin = heap_classes[size];
    if (!heap->quiet) {
        uint64_t word = site_word(return_address);
        if ((uint8_t)word != VERDICT_ORDINARY) {
            if (UNLIKELY((uint16_t)word != (bin << 8 | VERDICT_POOL))) return NULL;
            bin = verdict_of_word(word).bin;
        }
    }
    uintptr_t block = heap->free[bin];
    uintptr_t link = first_word(block) ^ heap->link_key;
    if (UNLIKELY(link > NEXT_MAX)) return NULL; /* as in heap_malloc_or */
    void *object = block_hand_out(heap, (unsigned)bin, block, link ^ block);
    if (object == NULL) __builtin_unreachable(); /* so that the caller's test for NULL costs nothing here */
    return object;
}

ALWAYS_INLINE void *pools_malloc_or(size_t size, void *(*slow)(size_t size, struct heap *heap))
{
    struct heap *heap = thread_heap;
    void *object = pools_pop(size, heap, (uintptr_t)__builtin_return_address(0));
    return LIKELY(object != NULL) ? object : slow(size, heap);
}

ALWAYS_INLINE void *pools_malloc(size_t size)
{
    return pools_malloc_or(size, pools_malloc_slow);
}

/* Written into functions that have more to do with the object, whose own frame is the one below their caller's. */
ALWAYS_INLINE void *pools_malloc_here(size_t size)
{
    struct heap *heap = thread_heap;
    void *object = pools_pop(size, heap, (uintptr_t)__builtin_return_address(0));
    if (LIKELY(object != NULL)) return object;
    struct frame caller = frame_of_caller();
    return pools_malloc_at(size, heap, &caller);
}

ALWAYS_INLINE void *pools_calloc(size_t size)
{
    if (size > FAST_MAX) return heap_calloc(size);
    void *object = pools_malloc_here(size);
    return object == NULL ? NULL : memset(object, 0, size);
}

ALWAYS_INLINE void *pools_malloc_aligned(size_t size, size_t alignment)
{
    return alignment <= MALLOC_ALIGNMENT ? pools_malloc_here(size) : heap_malloc_aligned(size, alignment);
}

#endif
