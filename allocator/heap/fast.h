/* The paths that most calls take: a pop and a push, inlined into malloc, free and operator new.
 *
 * The shape is owed to the machine code: one thread-local base, one descriptor line, no call and no spill. Whatever is
 * rare leaves by a tail call. Check with `objdump -d` before and after any change here.
 */
#ifndef HEAPFIT_FAST_H
#define HEAPFIT_FAST_H

#include "heap.h"

/* Hand out the first block of a bin, behind which stands `next`. The link is cleared, so that a block the program never wrote
 * to does not look free when it is freed. */
ALWAYS_INLINE void *block_hand_out(struct heap *heap, unsigned bin, uintptr_t block, uintptr_t next)
{
    heap->free[bin] = next;
    /* The next call reads its link, and the program will write to it; another processor may have written it last. */
    __builtin_prefetch((const void *)next, 1);
    *block_words(block) = 0;
    if (HARDENED) hardened_hand_out(block, size_class_bytes(bin), heap->bins[bin].zeros);
    return (void *)block;
}

/* Take the first block of a list that is not empty, on a slow path: it may be the last. */
ALWAYS_INLINE void *bin_pop(struct heap *heap, unsigned bin, uintptr_t block)
{
    uintptr_t link = *block_words(block) ^ heap->link_key;
    if (UNLIKELY(link > LINK_MAX)) check_bin_failed(heap, bin);
    if (link <= NEXT_MAX) return block_hand_out(heap, bin, block, link ^ block);
    return block_hand_out(heap, bin, block, bin_nothing(heap));
}

/* Allocate; whatever is rare is left to `slow`: a caller that must treat failure has it done there, off the fast path. */
ALWAYS_INLINE void *heap_malloc_or(size_t size, void *(*slow)(size_t size, struct heap *heap))
{
    struct heap *heap = thread_heap_now();
    if (UNLIKELY(size - OBJECT_MIN >= heap->fast_sizes)) return slow(size, heap);
    /* NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): no heap's fast_sizes go further */
    unsigned bin = heap_classes[size + OBJECT_TAIL];
    uintptr_t block = heap->free[bin];
    __asm__("" : "+r"(block)); /* or gcc keeps the link where the result goes, and moves the block there at the end */
    uintptr_t link = first_word(block) ^ heap->link_key;
    /* One test for three things that are rare: the bin is empty, this is its last block, or somebody has written over the link. */
    if (UNLIKELY(link > NEXT_MAX)) return slow(size, heap);
    return block_hand_out(heap, bin, block, link ^ block);
}

ALWAYS_INLINE void *heap_malloc(size_t size)
{
    return heap_malloc_or(size, heap_malloc_slow);
}

/* Whether `block` starts at a multiple of the span's block size: n is divisible by d exactly when
 * n * ceil(2^32 / d) mod 2^32 < ceil(2^32 / d), for n and d below 2^16 (Lemire, Kaser, Kurz: Faster remainder by
 * direct computation, 2019, section 3.2). And then it is n / d * (d * ceil(2^32 / d) - 2^32), which is below n, while
 * ceil(2^32 / d) is at least 2^17 for blocks of 2^15 bytes and fewer: so a constant tells the two apart. */
ALWAYS_INLINE bool block_is_at_start(const struct span *span, uintptr_t block)
{
    return (uint32_t)(block & (SPAN_SIZE - 1)) * span->reciprocal < (uint32_t)SPAN_SIZE;
}

/* Whether the block is of a span of this heap. Relaxed: only the heap's thread makes itself the owner of a span, or ceases
 * to be. */
ALWAYS_INLINE bool span_is_of(const struct span *span, const struct heap *heap)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    /* A relaxed load all the same, which compilers will not make part of the comparison. */
    bool is;
    __asm__("cmpq %2, %1" : "=@cce"(is) : "m"(*(struct heap *const *)&span->owner), "r"(heap));
    return is;
#else
    return atomic_load_explicit(&span->owner, memory_order_relaxed) == heap;
#endif
}

/* Whether the block may look free: of its first word only the key's mark is looked at. One live block in 2^16 has it by chance,
 * and the slow path looks at the rest. */
ALWAYS_INLINE bool block_is_marked(const struct heap *heap, uintptr_t block)
{
    typedef uint16_t __attribute__((may_alias)) mark; /* of what is otherwise read and written as words */
    return ((const mark *)block)[LINK_MARK_AT] == (uint16_t)heap->link_key;
}

/* Push `block` if all that is cheap to know speaks for it: it is of this thread's heap, starts where a block starts, is at
 * least `size` bytes long and does not look free. All of it lies in the two lines that the push writes to anyway. */
ALWAYS_INLINE bool block_push(struct heap *heap, uintptr_t block, size_t size)
{
    struct span *span;
    if (UNLIKELY(!heap_find_span(heap, block, &span) || !span_is_of(span, heap) || !block_is_at_start(span, block) ||
                 block_is_marked(heap, block)))
        return false;
    if (UNLIKELY(size > span->block_size)) return false;
    *block_words(block) = span->free ^ block ^ heap->link_key;
    span->free = block;
    atomic_signal_fence(memory_order_release); /* the count is last: see idle.c */
    if (UNLIKELY(--span->countdown == 0)) span_countdown_ended(span, heap);
    return true;
}

ALWAYS_INLINE void heap_free_plainly(void *pointer)
{
    struct heap *heap = thread_heap_now();
    if (UNLIKELY(!block_push(heap, (uintptr_t)pointer, 0))) heap_free_slow(pointer, heap);
}

/* For C++'s operators: they note who made an object, and look who frees it. */
ALWAYS_INLINE void *object_of_family(void *pointer, enum family family)
{
    return HARDENED && hardened_families_are_told() ? hardened_note_family(pointer, family) : pointer;
}

ALWAYS_INLINE void check_family(const void *pointer, enum family family)
{
    if (HARDENED && hardened_families_are_told()) hardened_check_family(pointer, family);
}

/* An object that a C++ operator made, and that it may free. */
ALWAYS_INLINE void heap_free_of_family(void *pointer, enum family family)
{
    check_family(pointer, family);
    if (HARDENED) hardened_free(pointer, FAMILY_ANY);
    else heap_free_plainly(pointer);
}

ALWAYS_INLINE void heap_free(void *pointer)
{
    if (HARDENED) {
        hardened_free(pointer, FAMILY_MALLOC);
        return;
    }
    heap_free_plainly(pointer);
}

/* The same for an object whose size the program states. */
ALWAYS_INLINE void heap_free_sized(void *pointer, size_t size)
{
    struct heap *heap = thread_heap_now();
    if (HARDENED || UNLIKELY(!block_push(heap, (uintptr_t)pointer, size))) heap_free_sized_slow(pointer, size, heap);
}

#endif
