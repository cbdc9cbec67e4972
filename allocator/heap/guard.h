/* Guarded objects: a few, chosen by chance, each alone at the edge of an inaccessible page.
 *
 * Which: those that are picked (pick.h), with guard_mean bytes between two points on average; such an object stands in a slot instead
 * of the block that it would have had. Objects that come round in a context (context/) are not seen again before a new segment is
 * begun.
 *
 * Where: in slots, pages of one run that is set apart for ever, with an inaccessible page between each two:
 *
 *     ░░░░░░│ slot 0 │░░░░░░│ slot 1 │░░░░░░ …        ░ is never accessible; a slot is while an object lives in it
 *
 * The object stands at the page's end or at its start, by chance. What an access beyond the other edge, or within what alignment
 * leaves, has changed is found when the object is freed: the rest of the page is filled with a pattern. A freed object's slot is
 * inaccessible until it is the one that has been free for longest, and wanted.
 *
 * No lock: a slot's `state` says whose it is to change. So all of this works in signal handlers, and in the child of a fork; a
 * slot that another thread had in hand meanwhile is lost to the child.
 */
#ifndef HEAPFIT_GUARD_H
#define HEAPFIT_GUARD_H

#include "../platform/trace.h"
#include "../space/space.h"
#include "pick.h"

/* ---- slots (guard.c) ---------------------------------------------------------------------------------------------------- */

enum guard_state {
    GUARD_UNUSED = 0,
    GUARD_BUSY, /* some thread is changing it */
    GUARD_LIVE,
    GUARD_FREED,
};

struct guard_slot {
    _Atomic(uint32_t) state; /* enum guard_state; what follows belongs to who has made it GUARD_BUSY */
    uint8_t pattern; /* that the rest of the page is filled with */
    int32_t allocated_by, freed_by; /* threads; 0: it was not */
    uintptr_t object;
    size_t size; /* that was asked for */
    _Atomic(void *) owner; /* a context, which frees it with the rest; NULL: none */
    _Atomic(uint64_t) freed_at; /* how many had been freed before, and one more; 0: never */
    struct trace allocated, freed;
};

/* Of the one run. Written once, before `started` is. */
struct guard {
    uintptr_t start; /* the first page, which is inaccessible; slots and such pages take turns from there */
    size_t page;
    uint32_t slots;
    struct guard_slot *records; /* one for each */
};
extern struct guard guard;

/* An object of this size alone in a slot; NULL: there is none free, it is too large for one, or the kernel refuses. It reads as
 * zeros. `chance` are random bits. */
void *guard_allocate(size_t size, size_t alignment, void *owner, uint64_t chance);

/* The slots' address space: any address in a span of the kind SPAN_GUARD may be asked about. Each ends the program when it is not
 * a live object's, naming `function`. */
void guard_free(const char *function, const void *pointer);
size_t guard_usable_size(const char *function, const void *pointer);
/* The owner of a live object, or NULL. */
void *guard_owner(const void *pointer);
/* The slot whose page that is; NULL: it is no slot's. */
struct guard_slot *guard_slot_of(uintptr_t address);

/* Free all objects of an owner, and what they have in all. */
void guard_free_all(const void *owner);
size_t guard_owned_bytes(const void *owner);

struct guard_figures {
    size_t slots, live, live_bytes;
    size_t samples, missed; /* since the start: guarded; chosen, but there was no slot free */
    size_t own_bytes; /* resident besides the objects themselves */
};
void guard_figures(struct guard_figures *figures);

/* Where the records of the slots are, outside of the space, and how many bytes; 0: there are none. */
size_t guard_records(uintptr_t *start);

/* ---- samples (guard_sample.c) --------------------------------------------------------------------------------------------- */

extern _Atomic(size_t) guard_mean; /* bytes between two points, on average; 0: nothing is guarded; live */

ALWAYS_INLINE bool guard_is_on(void)
{
    return UNLIKELY(atomic_load_explicit(&guard_mean, memory_order_relaxed) != 0); /* relaxed: a setting */
}

/* The bin has no block left, of so many bytes: is the one that is wanted chosen? */
bool guard_falls(struct picker *picker, unsigned bin, size_t bytes);
/* The same, and the object if it is. */
void *guard_sample(struct picker *picker, unsigned bin, size_t bytes, size_t size, size_t alignment);
/* The bin is about to be given `count` blocks: how many it may be given, at least 1. */
size_t guard_cut(struct picker *picker, unsigned bin, size_t bytes, size_t count);

/* ---- reports (guard_report.c) -------------------------------------------------------------------------------------------------- */

/* Of an access that was refused, if its address is one of ours. In a signal's handler. */
void guard_report_fault(const struct platform_fault *fault);

/* Of faults that a program survives, only the first are reported. Counts this one. */
bool guard_report_is_due(void);

enum guard_mistake {
    GUARD_POINTER, /* `pointer` is no live object's: freed before, or inside one */
    GUARD_OVERFLOWN, /* the byte at `pointer`, behind the object, was changed */
    GUARD_UNDERFLOWN, /* that before it */
};
_Noreturn COLD void guard_report_mistake(enum guard_mistake mistake, const char *function, const void *pointer);
/* Of a live object, after the line that says what it is about. */
void guard_report_object(const void *pointer);

#endif
