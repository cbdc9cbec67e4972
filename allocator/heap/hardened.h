/* What libheapfit-hardened has beyond the plain library: errors of the program that an attacker could use end it, or come to
 * nothing. What against what, and what is not stopped: docs/security.md.
 *
 * A block's last word is its *canary* while it lives: a secret function of its address, at which an overflow, a second free and
 * an address that was never handed out are noticed. A free block is clear, but for its link, and must still be so when it is handed
 * out:
 *
 *     live   │ the program's bytes                         │ canary │
 *     free   │ link or 0 │ a message's word (remote.c) or 0 │ 0 … 0  │
 *
 * What is freed stays in a *quarantine* of the freeing thread's heap before it goes the way that it goes in the plain library. It
 * counts as live there, so that nothing else need know of it.
 *
 * In the other libraries HARDENED is 0, and the compiler drops what is behind it; the files in hardened/ are not in them.
 */
#ifndef HEAPFIT_HARDENED_H
#define HEAPFIT_HARDENED_H

#include "../space/space.h"
#include "size_class.h"

#ifdef HEAPFIT_HARDENED
enum {
    HARDENED = 1,
    OBJECT_MIN = 1, /* bytes: an object of none is no block */
    OBJECT_TAIL = sizeof(uint64_t), /* of a block, behind the object */
    CLASS_MIN = 1, /* the smallest class with room for a link, a message's word and a canary */
};
#else
enum { HARDENED = 0, OBJECT_MIN = 0, OBJECT_TAIL = 0, CLASS_MIN = 0 };
#endif

/* The largest object that is a block. */
enum { BLOCK_MAX = SMALL_MAX - OBJECT_TAIL };

struct heap;

/* Which functions an object is from, and may be freed by. */
enum family { FAMILY_MALLOC = 0, FAMILY_NEW, FAMILY_NEW_ARRAY, FAMILIES, FAMILY_ANY };

/* What each heap has of it. Its owner's, as the rest of the heap. */
struct hardened_heap {
    uint64_t random; /* see chance_draw */
    struct quarantine *quarantine; /* NULL: none yet, or none at all, since several threads share the heap */
};

/* Draw the secrets, before the first heap is made; and set up what a heap has. */
void hardened_start(void);
void hardened_heap_start(struct heap *heap);
/* In a fork's child: what it draws from now on cannot be foreseen from what its parent does. */
void hardened_fork_child(struct heap *heap);
/* 64 random bits, for any thread. */
uint64_t hardened_draw(void);

/* ---- blocks (hardened/blocks.c) ------------------------------------------------------------------------------------------------------ */

/* At most so many of the units of the mask, at random. Their blocks become clear: before the span says that they exist, since a
 * neighbour that is freed meanwhile, in a signal's handler, looks at them. And their blocks in random order, as a list. */
uint32_t hardened_choose_units(struct heap *heap, uint32_t units, uint32_t count);
void hardened_clear_units(const struct span *span, uint32_t units);
uintptr_t hardened_carve(struct heap *heap, struct span *span, uint32_t units);
/* The span is about to have blocks: what is left over at its end, where no block fits, ends with a clear word. */
void hardened_cut(const struct span *span, bool zeros);
/* The same blocks of the span, in random order. */
uintptr_t hardened_shuffle(const struct span *span, uintptr_t list);

/* A block leaves its bin, for the program: was it left alone since it was freed? `is_new`: it was never freed since the kernel gave
 * it, and is not to become resident by being looked through. */
void hardened_hand_out(uintptr_t block, uint32_t block_size, bool is_new);

/* End the program if the address is that of a block and its canary is not whole, or of another family's object. */
void hardened_check(const char *function, const void *pointer, enum family family);

/* What heap_free is, for an object that this family of functions may free. */
void hardened_free(void *pointer, enum family family);

/* Where the option says so, the family is noted in the canary, or in the descriptor. So who frees by the wrong function is told. */
extern _Atomic(bool) hardened_families;
ALWAYS_INLINE bool hardened_families_are_told(void)
{
    /* Relaxed: a setting, from before the first object on. */
    return UNLIKELY(atomic_load_explicit(&hardened_families, memory_order_relaxed));
}
/* A new object, or NULL; returned. */
void *hardened_note_family(void *pointer, enum family family);
/* End the program if the object is another family's; what is none is left to who frees it. */
void hardened_check_family(const void *pointer, enum family family);

/* What the quarantine holds, and that of threads that have ended, becomes free; the latter not where the heap is shared. To be called
 * inside, or with heap_none. */
void hardened_release(struct heap *heap);
/* The thread ends: what its quarantine holds goes to the latter. To be called inside. */
void hardened_hand_down(struct heap *heap);

/* ---- large objects (hardened/large.c, which stands in for large.c) --------------------------------------------------------------- */

/* The family of one, in a field that only blocks have another use for. */
ALWAYS_INLINE enum family hardened_large_family(const struct span *span)
{
    return (enum family)span->carved;
}

/* Between two inaccessible pages, as long as the kernel has room to note them:
 *
 *     span_start │ inaccessible: span.block_size bytes │ the object: span.free bytes, whole pages │ inaccessible │ end of the run
 */
ALWAYS_INLINE uintptr_t hardened_large_start(const struct span *span)
{
    return span_start(span) + span->block_size;
}

/* Freed ones are inaccessible for a while: no longer. */
void hardened_large_release(void);
/* Whether a run is one of those, by its first span. */
bool hardened_large_is_kept(const struct span *span);
/* When the process starts: later a sandbox may end it for opening the file that is read. */
void hardened_large_prepare(void);
/* In a fork's child: what is inaccessible takes mappings that never become fewer. */
void hardened_large_fork_child(void);

/* ---- objects of no bytes (hardened/empty.c) ---------------------------------------------------------------------------------------- */

/* An address that cannot be accessed, another for each, aligned; NULL: there is none left. */
void *empty_malloc(size_t alignment);
/* Whether it is the address of such an object, which may have been freed. */
bool empty_is_one(const void *pointer);
/* Both end the program when it has been. */
void empty_free(const char *function, const void *pointer);
size_t empty_usable_size(const char *function, const void *pointer);

/* ---- reports (hardened/fault.c) ------------------------------------------------------------------------------------------------------ */

/* From now on, accesses to what we have made inaccessible are reported in a line before the signal ends the program, or whatever it
 * does; those of guard.h too. */
void hardened_watch_faults(void);

#endif
