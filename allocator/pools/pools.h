/* pools/: objects placed by where the program allocates them, in libheapfit-pools.so alone.
 *
 * Objects that are walked together should stand together. What they are is told by the *chain*: the return addresses
 * from malloc's caller outwards, as many as it takes to leave the functions that only pass a new object on (wrappers). The
 * objects of one chain, and of chains that build the same data structure, are a *group*. A group that stands to gain gets a
 * *pool*: memory of its own in each thread's heap. All others stay in the ordinary bins.
 *
 *     malloc ─► site table ─► ordinary ─────────────────────────────► heap_malloc
 *               by return     pool ─────────────────────────────────► that bin of the thread's heap
 *               address       anything else ─► chain ─► group ─► watched: heap_malloc, and written down
 *                                                               ─► pooled: its bin, or mixed_malloc
 *
 * A pool of objects of one size is one more bin of a heap: its spans, blocks, frees by other threads, orphans and chores are
 * those of any bin (heap.h). A pool of mixed sizes cuts spans up by itself (mixed.c). Addresses are all that pools
 * change: whatever cannot be understood goes to the ordinary heap, and is counted.
 *
 * Which file does what: pools.h the path that most calls take; frame.c how a frame is left, out of .eh_frame; chain.c the
 * compound table of chains; follow.c what a function does with a new object, out of its machine code; group.c groups and what
 * is seen of their first objects; shape.c the storage shape graph and merging; judge.c whether a group gets a pool;
 * place.c pools; mixed.c those of mixed sizes; explain.c what was decided, and why.
 *
 * After Wang, Wu, Yew: On Improving Heap Memory Layout by Dynamic Pool Allocation (CGO 2010). Section numbers are theirs.
 */
#ifndef HEAPFIT_POOLS_H
#define HEAPFIT_POOLS_H

#include "../heap/fast.h"

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

/* ---- frames (frame.c) ------------------------------------------------------------------------------------------- */

/* Where a thread is about to return to: the state in which the caller goes on. */
struct frame {
    uintptr_t return_address;
    uintptr_t stack; /* the stack pointer then */
    uintptr_t base; /* the frame pointer register then */
};

/* How to get from a frame to its caller's, wherever the function that it is of was called from. */
struct frame_rule {
    int32_t cfa_offset; /* the caller's stack pointer, from the register below */
    int32_t return_offset; /* where the return address lies, from the caller's stack pointer */
    int32_t base_offset; /* where the caller's frame pointer lies, from there; 0: it is in its register */
    uint8_t from_base; /* the register is the frame pointer, not the stack pointer */
    uint8_t known; /* enum frame_known */
};

enum frame_known {
    FRAME_UNKNOWN, /* no unwind information, or some that is not as simple as this */
    FRAME_KNOWN,
    FRAME_OUTERMOST, /* nobody called */
};

/* The rule for a return address. Takes no locks, does not allocate, may be called in a signal handler. `*start`, if not NULL,
 * becomes the function's first address, `*end` its end, as far as known, else 0. */
struct frame_rule frame_rule_find(uintptr_t return_address, uintptr_t *start, uintptr_t *end);

/* Go on to the caller's frame; false: there is none to be trusted, `frame` is as it was. Reads the stack between the two frames only. */
bool frame_step(const struct frame_rule *rule, struct frame *frame);

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

/* The group of an allocation whose caller goes on at `frame`; GROUP_NONE: not to be told, counted by reason. `size` is for statistics. */
uint32_t chain_group(const struct frame *frame, size_t size);

/* What a look-up by the first return address alone tells; one word, replaced whole. */
enum verdict_kind {
    VERDICT_SLOW = 0, /* ask chain_group */
    VERDICT_ORDINARY,
    VERDICT_POOL,
};

struct verdict {
    uint8_t kind; /* enum verdict_kind */
    uint8_t class; /* VERDICT_POOL: the size class that the bin is for; others ask chain_group */
    uint8_t bin;
    uint8_t unused[5];
};

struct site {
    _Atomic(uintptr_t) return_address; /* 0: free */
    _Atomic(uint64_t) verdict;
};

/* A group has been given its place: the sites that lead to it and nowhere else get this verdict. */
void chain_set_verdict(uint32_t group, struct verdict verdict);

/* Code has been unmapped: forget what is known of return addresses. */
void chain_forget(void);

/* ---- groups (group.c) ------------------------------------------------------------------------------------------------- */

#define GROUP_NONE UINT32_MAX
enum { GROUPS_MAX = 8192, CHAIN_KEPT = 8 };

enum group_state {
    GROUP_WATCHED, /* its objects are in the ordinary heap and written down, until enough is known */
    GROUP_ORDINARY,
    GROUP_POOLED,
    GROUP_MERGED, /* into `merged_into` */
};

/* A group for a new chain, `length` return addresses of which the first CHAIN_KEPT are given; GROUP_NONE: there are too many. */
uint32_t group_new(const uintptr_t *chain, unsigned length, bool complete);

/* An object of a watched group has been made; may end in a decision about this group and others. */
void group_watch(uint32_t group, void *object, size_t size);

#endif
