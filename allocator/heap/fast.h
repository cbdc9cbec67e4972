/* The paths that most calls take: a pop and a push, inlined into malloc, free and operator new.
 *
 * The shape is owed to the machine code: one thread-local base, one descriptor line, no call and no spill. Whatever is
 * rare leaves by a tail call. Check with `objdump -d` before and after any change here.
 */
#ifndef HEAPFIT_FAST_H
#define HEAPFIT_FAST_H

#include "heap.h"

/* Take the first block of a list that is not empty. The link is cleared, so that a block the program never wrote to
 * does not look free when it is freed. */
ALWAYS_INLINE void *bin_pop(struct heap *heap, unsigned bin, uintptr_t block)
{
    uintptr_t link = *block_words(block) ^ heap->link_key;
    /* Without `block` as an argument, it can stay in the register of the result. */
    if (UNLIKELY(link > LINK_MAX)) check_bin_failed(heap, bin);
    uintptr_t next = link ^ block;
    heap->free[bin] = next;
    /* The next call reads its link, and the program will write to it; another processor may have written it last. */
    __builtin_prefetch((const void *)next, 1);
    *block_words(block) = 0;
    return (void *)block;
}

/* Allocate; whatever is rare is left to `slow`: a caller that must treat failure has it done there, off the fast path. */
ALWAYS_INLINE void *heap_malloc_or(size_t size, void *(*slow)(size_t size, struct heap *heap))
{
    struct heap *heap = thread_heap_now();
    if (UNLIKELY(size > FAST_MAX)) return slow(size, heap);
    unsigned bin = heap->classes[(size + MALLOC_ALIGNMENT - 1) / MALLOC_ALIGNMENT];
    uintptr_t block = heap->free[bin];
    if (UNLIKELY(list_is_empty(block))) return slow(size, heap);
    return bin_pop(heap, bin, block);
}

ALWAYS_INLINE void *heap_malloc(size_t size)
{
    return heap_malloc_or(size, heap_malloc_slow);
}

/* Whether `block` starts at a multiple of the span's block size: n is divisible by d exactly when
 * n * ceil(2^32 / d) mod 2^32 < ceil(2^32 / d), for n and d below 2^16 (Lemire, Kaser, Kurz: Faster remainder by
 * direct computation, 2019, section 3.2). */
ALWAYS_INLINE bool block_is_at_start(const struct span *span, uintptr_t block)
{
    return (uint32_t)(block & (SPAN_SIZE - 1)) * span->reciprocal < span->reciprocal;
}

/* Push `block` if all that is cheap to know speaks for it: it is of this thread's heap, starts where a block starts, is at
 * least `size` bytes long and does not look free. All of it lies in the two lines that the push writes to anyway. */
ALWAYS_INLINE bool block_push(struct heap *heap, uintptr_t block, size_t size)
{
    size_t offset = block - heap->base;
    if (UNLIKELY(offset >= heap->size)) return false;
    struct span *span = heap->table - (offset >> SPAN_SHIFT);
    /* Relaxed: only this thread makes itself the owner of a span, or ceases to be. */
    if (UNLIKELY(atomic_load_explicit(&span->owner, memory_order_relaxed) != heap || !block_is_at_start(span, block) ||
                 (*block_words(block) ^ heap->link_key) <= LINK_MAX))
        return false;
    if (UNLIKELY(size > span->block_size)) return false;
    *block_words(block) = span->free ^ block ^ heap->link_key;
    span->free = block;
    atomic_signal_fence(memory_order_release); /* the count is last: see idle.c */
    if (UNLIKELY(--span->countdown == 0)) span_countdown_ended(span, heap);
    return true;
}

ALWAYS_INLINE void heap_free(void *pointer)
{
    struct heap *heap = thread_heap_now();
    if (UNLIKELY(!block_push(heap, (uintptr_t)pointer, 0))) heap_free_slow(pointer, heap);
}

/* The same for an object whose size the program states. */
ALWAYS_INLINE void heap_free_sized(void *pointer, size_t size)
{
    struct heap *heap = thread_heap_now();
    if (UNLIKELY(!block_push(heap, (uintptr_t)pointer, size))) heap_free_sized_slow(pointer, size, heap);
}

#endif
