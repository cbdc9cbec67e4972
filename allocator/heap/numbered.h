/* Things of one size that have numbers from 1 on and are never unmade, in chunks that come when they are needed. Without locks: so a
 * fork, a signal handler and a thread that ends need no care. All read as zeros at first.
 */
#ifndef HEAPFIT_NUMBERED_H
#define HEAPFIT_NUMBERED_H

#include "../space/space.h"

enum { NUMBERED_CHUNKS = 128 };

/* All zero: there are none yet. */
struct numbered {
    uint32_t each; /* things in a chunk; there are NUMBERED_CHUNKS times as many at most. Constant, as is: */
    size_t size; /* of a thing */
    _Atomic(uint32_t) made; /* things that there are, with those that are being written */
    _Atomic(uintptr_t) chunks[NUMBERED_CHUNKS]; /* 0: none; release: they read as zeros */
};

/* 0: there is no such chunk yet. Acquire: pairs with the release in numbered_make_chunk. */
ALWAYS_INLINE uintptr_t numbered_chunk(const struct numbered *all, uint32_t number)
{
    return atomic_load_explicit(&all->chunks[(number - 1) / all->each], memory_order_acquire);
}

/* A thing that there is. */
ALWAYS_INLINE void *numbered_at(const struct numbered *all, uint32_t number)
{
    return (void *)(numbered_chunk(all, number) + (number - 1) % all->each * all->size);
}

/* What two threads make at the same time serves both: the later one becomes the next chunk. */
static inline bool numbered_make_chunk(struct numbered *all, uint32_t chunk)
{
    if (atomic_load_explicit(&all->chunks[chunk], memory_order_relaxed) != 0) return true;
    void *things = space_metadata(all->each * all->size);
    if (things == NULL) return false;
    for (; chunk < NUMBERED_CHUNKS; chunk++) {
        uintptr_t none = 0;
        if (atomic_compare_exchange_strong_explicit(&all->chunks[chunk], &none, (uintptr_t)things, memory_order_release,
                                                    memory_order_relaxed))
            break;
    }
    return true;
}

/* The number of a new thing, which is the caller's alone; 0: there are `most` already, or there is no memory. Relaxed: numbers alone. */
static inline uint32_t numbered_make(struct numbered *all, uint32_t most)
{
    uint32_t before = atomic_load_explicit(&all->made, memory_order_relaxed);
    do
        if (before >= most || !numbered_make_chunk(all, before / all->each)) return 0;
    while (!atomic_compare_exchange_weak_explicit(&all->made, &before, before + 1, memory_order_relaxed,
                                                  memory_order_relaxed));
    return before + 1;
}

#endif
