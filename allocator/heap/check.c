/* Errors of the program: one line that names the error and the address, then abort. */
#include "heap.h"

void check_link_failed(const void *block)
{
    platform_message("corrupted free list: the free block at %p was written to after it was freed", block);
    platform_abort();
}

void check_bin_failed(const struct heap *heap, unsigned bin)
{
    check_link_failed((const void *)heap->free[bin]);
}

void check_double_free(const void *pointer)
{
    platform_message("double free of %p", pointer);
    platform_abort();
}

void check_size_failed(const void *pointer, size_t given, size_t usable)
{
    platform_message("free of %p with size %zu, but only %zu bytes were allocated", pointer, given, usable);
    if (guard_slot_of((uintptr_t)pointer) != NULL) guard_report_object(pointer);
    platform_abort();
}

void check_alignment_failed(const void *pointer, size_t alignment)
{
    platform_message("free of %p with alignment %zu, which it does not have", pointer, alignment);
    if (guard_slot_of((uintptr_t)pointer) != NULL) guard_report_object(pointer);
    platform_abort();
}

/* The start of the large object that contains `offset`, or NULL. Walks back over the inner spans of a run. */
static const struct span *large_around(size_t offset)
{
    for (size_t index = offset >> SPAN_SHIFT;; index--) {
        const struct span *span = span_at((uint32_t)index);
        if (span->kind == SPAN_LARGE) return span->run_spans > (offset >> SPAN_SHIFT) - index ? span : NULL;
        if (index == 0 || span->kind == SPAN_BLOCKS || span->kind == SPAN_METADATA) return NULL;
    }
}

void check_pointer_failed(const char *function, const void *pointer)
{
    size_t offset = space_offset(pointer);
    if (space_offset_is_foreign(offset)) {
        if (heap_settings.malloc_is_another)
            platform_message(
                "%s of a foreign pointer: %p is of the malloc that the program had before it loaded heapfit", function,
                pointer);
        else platform_message("%s of a foreign pointer: %p was not allocated by heapfit", function, pointer);
        platform_abort();
    }
    const struct span *span = span_of_offset(offset);
    if (span->kind == SPAN_BLOCKS && span->block_size != 0 && !bin_is_mixed(span->bin)) {
        uintptr_t within = ((uintptr_t)pointer & (SPAN_SIZE - 1)) % span->block_size;
        platform_message("%s of an interior pointer: %p points %zu bytes into the block at %p of %zu bytes", function,
                         pointer, (size_t)within, (const void *)((uintptr_t)pointer - within),
                         (size_t)span->block_size);
        platform_abort();
    }
    const struct span *large = large_around(offset);
    if (large != NULL) {
        platform_message("%s of an interior pointer: %p points %zu bytes into the object at %p of %zu bytes", function,
                         pointer, (size_t)((uintptr_t)pointer - large_start(large)), (const void *)large_start(large),
                         large_usable_size(large));
        platform_abort();
    }
    platform_message("%s of %p, which is not allocated (freed before?)", function, pointer);
    platform_abort();
}

/* More than a span has blocks: a list that goes in circles has been spoilt. */
enum { LIST_BLOCKS_MAX = SPAN_SIZE / MALLOC_ALIGNMENT };

bool check_list_contains(uintptr_t list, uintptr_t block)
{
    for (uint32_t blocks = 0; !list_is_empty(list); list = list_next(list)) {
        if (list == block) return true;
        if (UNLIKELY(++blocks > LIST_BLOCKS_MAX)) check_link_failed((const void *)list);
    }
    return false;
}

/* Whether the block has been made at all: its page may have gone back since it was freed. */
static bool block_exists(const struct span *span, uintptr_t block)
{
    if (POOLS_EXIST && bin_is_mixed(span->bin)) return mixed_starts_object(span, block);
    uint32_t unit = (uint32_t)(block & (SPAN_SIZE - 1)) >> CARVE_UNIT_LOG2;
    return (span->uncarved >> unit & 1) == 0;
}

static bool is_at_hand(const struct heap *heap, unsigned bin, uintptr_t block)
{
    if (!bin_has_hand(bin)) return false;
    const struct hand *hand = &heap->hands[bin - HAND_BIN_MIN];
    for (unsigned i = 0; i < hand->count; i++)
        if (hand->blocks[i] == block) return true;
    return false;
}

void check_suspicious_free(const struct heap *heap, const struct span *span, uintptr_t block)
{
    if (!block_exists(span, block) || check_list_contains(span->free, block) ||
        check_list_contains(heap->free[span->bin], block) || is_at_hand(heap, span->bin, block))
        check_double_free((const void *)block);
}
