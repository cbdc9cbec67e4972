/* Sampled objects: a few, picked by chance (pick.h), of which it is known who asked for them and when, while they live. For the live
 * heap profile, and for what each call site's objects pin (sample_look.c).
 *
 * An object of n bytes of memory is sampled with the probability 1 - exp(-n / mean), so each one stands for 1 / (1 - exp(-n / mean))
 * objects (record/sample.c has the theory). It stays where it would have been without that: so what lies around sampled objects
 * is an unbiased sample of what lies around all, which objects in spans of their own would say nothing about.
 *
 * Nothing runs when an object is freed; and nothing need run then. A freed block waits in its span's list, and that list leaves
 * the span at a refill alone. There the span's samples whose blocks look free end, of which those that are given are some. The same
 * where blocks cease to exist: when their units are uncarved, and when the span is given back. So a block
 * can be had anew only after its sample has ended, whoever freed it and by whichever way; and until then a sample whose block is free
 * is told by the block, too. A live block looks free by chance in one case of 2^47, or where the program has copied a link: then
 * it is sampled no more. Large objects come to free's slow path anyway.
 *
 * Listeners outside hear of each object that is sampled, and of each sample that ends (platform/probe.h).
 *
 * So with it off no instruction is added to malloc and free, nor to the refill, which asks pick_is_on for guarded objects, too.
 *
 * The samples of a span form a list, which belongs to who owns the span, as the blocks' own lists do; where it begins stands in a
 * table beside the descriptors, and a bit in the descriptor says whether there is any. What is shared is taken without locks. So
 * a fork's child has the samples of its parent, but for one that another thread had in hand. Where there is no room or no memory,
 * an object is not sampled, which is counted.
 */
#ifndef HEAPFIT_SAMPLE_H
#define HEAPFIT_SAMPLE_H

#include "../space/space.h"
#include "call_site.h"
#include "pick.h"

struct heap;

extern _Atomic(size_t) sample_mean; /* bytes between two points, on average; 0: nothing is sampled; live */

ALWAYS_INLINE size_t sample_mean_now(void)
{
    return atomic_load_explicit(&sample_mean, memory_order_relaxed); /* relaxed: a setting */
}

ALWAYS_INLINE bool sample_is_on(void)
{
    return sample_mean_now() != 0;
}

/* ---- picking: by who allocates ------------------------------------------------------------------------------------------------- */

/* The bin has no block left: is the one that is wanted, of so many bytes, to be sampled? Then it is to be had by a refill. */
bool sample_is_due(struct heap *heap, unsigned bin, size_t bytes);
/* It was. To be called by the heap's owner, without having entered. */
void sample_note(struct heap *heap, void *object, size_t bytes);
/* A large object has been allocated, or resized, in which case it has ceased to be sampled: perhaps it is. */
void sample_large(struct heap *heap, void *object);
/* The bin is about to be given blocks of so many bytes: how many it may be given, at least 1. */
size_t sample_cut(struct heap *heap, unsigned bin, size_t bytes, size_t count);

/* ---- what ceases to be sampled: by the span's owner, where span->sampled is set -------------------------------------------------- */

COLD void sample_forget_all_of(struct span *span); /* all of it */
COLD void sample_forget_units(struct span *span, uint32_t units); /* blocks that start in units of the mask */
void sample_forget_free(struct span *span); /* blocks that look free, as all do that are in lists */

/* ---- looking, while all goes on (sample_look.c) ---------------------------------------------------------------------------------- */

struct sampled {
    size_t bytes; /* of memory that the object has: its block, or its pages */
    size_t mean; /* by which it was picked */
    uint64_t age_ms;
    uint32_t site; /* or CALL_SITE_NONE */
    size_t pinned; /* bytes that are free on resident pages of it, divided among the objects that are on each */
};

/* Calls `visit` for each sampled object that lives. False: there is no memory to look with. One thread at a time. */
bool sample_visit(void (*visit)(const struct sampled *sampled, void *argument), void *argument);
/* How many were sampled since the start, and how many were picked, but there was no room or no memory for it. */
struct sample_figures {
    size_t taken, missed;
};
struct sample_figures sample_figures(void);

/* For sample_look.c: one sample as it is at a moment. `turn` is even, and another one as soon as any of it changes. */
struct sample_now {
    uint32_t turn, site;
    bool large;
    uintptr_t object; /* 0: none */
    size_t bytes, mean;
    uint64_t since_ms;
};
/* The highest number there is; what has it, if it is not changing. */
uint32_t sample_last(void);
bool sample_read(uint32_t number, struct sample_now *now);
bool sample_is_unchanged(uint32_t number, const struct sample_now *now);

#endif
