/* Bins and their spans: refilling, carving, waking, emptying.
 *
 * A span is *listed* in its bin when it has blocks to give: enough freed ones, or some not carved yet. Its countdown is
 * then the number of its live blocks, and reaches zero when it is empty. A span that is not listed has given all it
 * had; its countdown is the number of frees after which it is worth listing again, and the rest of its live blocks is
 * held back. In both cases: live = countdown + held_back, and freed = carved - live. Blocks that the bin holds count as
 * live.
 */
#include "fast.h"

/* ---- constants ------------------------------------------------------------------------------------------------------- */

/* Blocks are carved, and become resident, by this unit: the smallest page that Linux has. */
enum { CARVE_UNIT_LOG2 = 12, CARVE_UNITS = 1 << (SPAN_SHIFT - CARVE_UNIT_LOG2) };

/* A span wakes when a page's worth of its blocks has been freed, but after no more than this many: so a sixteenth of a
 * span is the most that sleeps in it, and a refill serves several requests. */
enum { WAKE_BLOCKS_MAX = 32 };

/* A bin with many spans carves more than one unit at a time, at most a quarter of a span per span that it has. */
enum { CARVE_SHARE = 4 };

static uint8_t wake_threshold(uint32_t block_size)
{
    uint32_t blocks = (1u << CARVE_UNIT_LOG2) / block_size;
    if (blocks < 1) return 1;
    return (uint8_t)(blocks > WAKE_BLOCKS_MAX ? WAKE_BLOCKS_MAX : blocks);
}

/* ---- lists of spans ----------------------------------------------------------------------------------------------------- */

static void span_list(struct heap *heap, struct span *span)
{
    struct bin *bin = &heap->bins[span->bin];
    span->listed = 1;
    span->prev = SPAN_NONE;
    span->next = bin->listed;
    if (bin->listed != SPAN_NONE) span_at(bin->listed)->prev = span_index(span);
    bin->listed = span_index(span);
}

static void span_unlist(struct heap *heap, struct span *span)
{
    struct bin *bin = &heap->bins[span->bin];
    span->listed = 0;
    if (span->next != SPAN_NONE) span_at(span->next)->prev = span->prev;
    if (span->prev != SPAN_NONE) span_at(span->prev)->next = span->next;
    else bin->listed = span->next;
}

static void span_own(struct heap *heap, struct span *span)
{
    /* Relaxed: a thread that compares `owner` with its own heap wrote that value itself; one that sends blocks to the
     * owner it reads may read the previous one, and that heap forwards them (remote.c). */
    atomic_store_explicit(&span->owner, heap, memory_order_relaxed);
    span->owned_prev = SPAN_NONE;
    span->owned_next = heap->owned;
    if (heap->owned != SPAN_NONE) span_at(heap->owned)->owned_prev = span_index(span);
    heap->owned = span_index(span);
    heap->spans_owned++;
    heap->bins[span->bin].spans++;
}

static void span_disown(struct heap *heap, struct span *span)
{
    atomic_store_explicit(&span->owner, NULL, memory_order_relaxed);
    if (span->owned_next != SPAN_NONE) span_at(span->owned_next)->owned_prev = span->owned_prev;
    if (span->owned_prev != SPAN_NONE) span_at(span->owned_prev)->owned_next = span->owned_next;
    else heap->owned = span->owned_next;
    heap->spans_owned--;
    heap->bins[span->bin].spans--;
}

/* ---- carving --------------------------------------------------------------------------------------------------------------- */

static uintptr_t list_end(const struct span *span)
{
    return span_start(span) | LIST_END;
}

/* Blocks that start in carve unit `unit`: [*first, returned end). */
static uint32_t unit_blocks(uint32_t block_size, uint32_t unit, uint32_t *first)
{
    uint32_t capacity = (uint32_t)SPAN_SIZE / block_size;
    uint32_t end = (((unit + 1) << CARVE_UNIT_LOG2) + block_size - 1) / block_size;
    *first = ((unit << CARVE_UNIT_LOG2) + block_size - 1) / block_size;
    return end < capacity ? end : capacity;
}

/* A bit for each unit in which a block starts. */
static uint16_t units_with_blocks(uint32_t block_size)
{
    uint16_t units = 0;
    for (uint32_t unit = 0; unit < CARVE_UNITS; unit++) {
        uint32_t first;
        if (unit_blocks(block_size, unit, &first) > first) units |= (uint16_t)(1u << unit);
    }
    return units;
}

/* Make the blocks of one unit, in front of `list`, so that they are handed out in the order of their addresses. */
static uintptr_t span_carve_unit(struct span *span, uint32_t unit, uintptr_t list)
{
    uint32_t first;
    uint32_t end = unit_blocks(span->block_size, unit, &first);
    uintptr_t start = span_start(span);
    uintptr_t key = space.link_key;
    for (uint32_t i = end; i-- > first;) {
        uintptr_t block = start + i * span->block_size;
        *block_words(block) = list ^ block ^ key;
        list = block;
    }
    span->carved = (uint16_t)(span->carved + (end - first));
    span->countdown += end - first;
    return list;
}

/* The lowest `count` set bits. */
static uint32_t lowest_bits(uint32_t bits, uint32_t count)
{
    uint32_t rest = bits;
    for (; count > 0 && rest != 0; count--) rest &= rest - 1;
    return bits & ~rest;
}

/* Carve the next units of a listed span; at least one. */
static uintptr_t span_carve(const struct heap *heap, struct span *span)
{
    uint32_t count = heap->bins[span->bin].spans / CARVE_SHARE;
    uint32_t units = lowest_bits(span->uncarved, count < 1 ? 1 : count);
    span->uncarved &= (uint16_t)~units;
    uintptr_t list = list_end(span);
    while (units != 0) {
        uint32_t highest = 31 - (uint32_t)__builtin_clz(units);
        units &= ~(1u << highest);
        list = span_carve_unit(span, highest, list);
    }
    return list;
}

/* ---- spans come and go --------------------------------------------------------------------------------------------------------- */

static struct span *span_acquire(struct heap *heap)
{
    if (heap->cached > 0) return span_at(heap->cache[--heap->cached]);
    return space_acquire(1, 1, SPAN_METADATA, NULL);
}

static void span_give_back(struct heap *heap, struct span *span)
{
    span_disown(heap, span);
    span_kind_write(span, SPAN_METADATA); /* cached: nobody's object */
    if (heap->cached < atomic_load_explicit(&heap_settings.thread_spans_cached, memory_order_relaxed))
        heap->cache[heap->cached++] = span_index(span);
    else
        space_release(span);
}

/* Get the bin one more span. */
static bool bin_grow(struct heap *heap, unsigned bin)
{
    struct span *span = span_acquire(heap);
    if (span == NULL) return false;
    uint32_t block_size = size_class_bytes(bin);
    span->bin = (uint8_t)bin;
    span->block_size = block_size;
    span->reciprocal = UINT32_MAX / block_size + 1;
    span->wake = wake_threshold(block_size);
    span->free = list_end(span);
    span->carved = 0;
    span->countdown = 0;
    span->held_back = 0;
    span->uncarved = units_with_blocks(block_size);
    span_kind_write(span, SPAN_BLOCKS);
    span_own(heap, span);
    span_list(heap, span);
    return true;
}

/* ---- refilling -------------------------------------------------------------------------------------------------------------------- */

/* A listed span has given blocks: it stays listed only while it has some left to carve. */
static void span_after_giving(struct heap *heap, struct span *span)
{
    if (span->uncarved != 0) return;
    span_unlist(heap, span);
    uint32_t live = span->countdown;
    uint32_t freed = span->carved - live; /* below the threshold, else they would have been given */
    uint32_t until_awake = span->wake - freed;
    span->countdown = live < until_awake ? live : until_awake;
    span->held_back = (uint16_t)(live - span->countdown);
}

/* Move blocks of a listed span to its bin. */
static void span_give(struct heap *heap, struct span *span)
{
    uint32_t freed = span->carved - span->countdown;
    if (span->uncarved != 0 && freed < span->wake) {
        heap->free[span->bin] = span_carve(heap, span);
    } else {
        heap->free[span->bin] = span->free;
        span->free = list_end(span);
        span->countdown = span->carved;
    }
    span_after_giving(heap, span);
}

bool bin_refill(struct heap *heap, unsigned bin)
{
    if (UNLIKELY(remote_inbox_is_filled(heap))) remote_inbox_take(heap);
    while (heap->bins[bin].listed == SPAN_NONE) {
        if (heap_adopt(heap)) continue;
        if (!bin_grow(heap, bin)) return false;
    }
    span_give(heap, span_at(heap->bins[bin].listed));
    return true;
}

/* ---- freeing ----------------------------------------------------------------------------------------------------------------------- */

/* Keep one empty span in a bin that has nothing else to give: else a program at the edge of a span would get and give
 * one back all the time. */
static bool span_is_last_resort(const struct heap *heap, const struct span *span)
{
    const struct bin *bin = &heap->bins[span->bin];
    return bin->listed == SPAN_NONE || (bin->listed == span_index(span) && span->next == SPAN_NONE);
}

void span_countdown_ended(struct span *span, struct heap *heap)
{
    if (span->held_back != 0) { /* awake: worth taking from again, the fullest of its bin */
        span->countdown = span->held_back;
        span->held_back = 0;
        span_list(heap, span);
    } else if (span_is_last_resort(heap, span)) {
        if (!span->listed) span_list(heap, span);
    } else {
        if (span->listed) span_unlist(heap, span);
        span_give_back(heap, span);
    }
}

void block_free_local(struct heap *heap, struct span *span, uintptr_t block)
{
    *block_words(block) = span->free ^ block ^ space.link_key;
    span->free = block;
    if (--span->countdown == 0) span_countdown_ended(span, heap);
}

/* ---- flushing and adopting ------------------------------------------------------------------------------------------------------------- */

static void bin_flush(struct heap *heap, unsigned bin)
{
    uintptr_t block = heap->free[bin];
    heap->free[bin] = LIST_END;
    while (!list_is_empty(block)) {
        uintptr_t link = *block_words(block) ^ space.link_key;
        if (link > LINK_MAX) check_link_failed((void *)block);
        block_free_local(heap, span_of_offset(block - space.base), block);
        block ^= link;
    }
    /* The last resort is not needed any more. */
    uint32_t index = heap->bins[bin].listed;
    while (index != SPAN_NONE) {
        struct span *span = span_at(index);
        index = span->next;
        if (span->countdown != 0) continue;
        span_unlist(heap, span);
        span_give_back(heap, span);
    }
}

void heap_flush(struct heap *heap)
{
    for (unsigned bin = 0; bin < BIN_COUNT; bin++)
        if (heap->bins[bin].spans != 0) bin_flush(heap, bin);
    while (heap->cached > 0) space_release(span_at(heap->cache[--heap->cached]));
}

void heap_take_spans(struct heap *heap, struct heap *from)
{
    for (uint32_t index = from->owned; index != SPAN_NONE;) {
        struct span *span = span_at(index);
        index = span->owned_next;
        bool listed = span->listed;
        if (listed) span_unlist(from, span);
        from->bins[span->bin].spans--;
        span_own(heap, span);
        if (listed) span_list(heap, span);
    }
    from->owned = SPAN_NONE;
    from->spans_owned = 0;
}
