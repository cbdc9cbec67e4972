/* Chores: giving back memory that a heap does not need any more, while the program runs.
 *
 * A span that becomes empty goes back as a whole. One in which a few blocks live on is *sparse*: pages of it that hold no live
 * block become uncarved again, as if they had never been used, and their memory goes back. Both happen only to memory that
 * has stayed unused for the decay time, so that a program in a steady state makes no system calls; and both are done by the
 * thread that owns the heap, when it refills a bin, since nobody else may touch its spans. There is no clock in the fast paths:
 * while chores are expected, refills hand out fewer blocks and look at the clock.
 */
#include "fast.h"

void heap_chores_expect(struct heap *heap)
{
    heap->chores = true;
    heap->chores_due =
        (uint32_t)platform_clock_ms() + atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed);
    /* What the bins hold could serve a nearly idle thread for minutes, without a refill. */
    if (heap != &heap_orphans) heap_return_blocks(heap);
}

/* ---- sparse spans ------------------------------------------------------------------------------------------------------------ */

/* What a look at every block of a span finds. */
struct findings {
    uint32_t units_free; /* mask of carved units in which all blocks are free */
    uint32_t units_used; /* mask of units that a live block touches */
    uint32_t blocks_free; /* in all */
    uint32_t blocks_in_units_free;
};

/* A live block's first word may be written by another thread at the same moment, by the program or by remote_free, and does
 * not look free before or after: so ThreadSanitizer need not worry. A block on its way here is live until it arrives. */
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize_thread, noinline))
#endif
static bool block_looks_free(uintptr_t block)
{
    uintptr_t word = *block_words(block) ^ space.link_key;
    return word <= LINK_MAX && word != LINK_REMOTE && word != LINK_REMOTE_SUSPECT;
}

/* Units touched by the bytes [start, end) of the span. */
static uint32_t units_touched(uint32_t start, uint32_t end)
{
    uint32_t first = start >> CARVE_UNIT_LOG2;
    uint32_t last = (end - 1) >> CARVE_UNIT_LOG2;
    return ((2u << last) - 1) & ~((1u << first) - 1);
}

static void span_examine_unit(const struct span *span, uint32_t unit, struct findings *found)
{
    uint32_t first;
    uint32_t end = span_unit_blocks(span, unit, &first);
    uint32_t free = 0;
    for (uint32_t i = first; i < end; i++) {
        uint32_t start = i * span->block_size;
        if (block_looks_free(span_start(span) + start)) free++;
        else found->units_used |= units_touched(start, start + span->block_size);
    }
    found->blocks_free += free;
    if (free == end - first && free != 0) {
        found->units_free |= 1u << unit;
        found->blocks_in_units_free += free;
    }
}

static struct findings span_examine(const struct span *span)
{
    struct findings found = {0};
    for (uint32_t unit = 0; unit < CARVE_UNITS; unit++)
        if (((span->uncarved >> unit) & 1) == 0) span_examine_unit(span, unit, &found);
    return found;
}

/* The free blocks of the carved units that are not in the mask, as a list in the order of their addresses. */
static uintptr_t span_list_without(const struct span *span, uint32_t units)
{
    uintptr_t list = span_list_end(span);
    for (uint32_t unit = CARVE_UNITS; unit-- > 0;) {
        if ((((span->uncarved | units) >> unit) & 1) != 0) continue;
        uint32_t first;
        for (uint32_t i = span_unit_blocks(span, unit, &first); i-- > first;) {
            uintptr_t block = span_start(span) + i * span->block_size;
            if (!block_looks_free(block)) continue;
            *block_words(block) = list ^ block ^ space.link_key;
            list = block;
        }
    }
    return list;
}

/* Purge the units of the mask, as far as they make whole pages of the kernel's. */
static void span_purge_units(const struct span *span, uint32_t units)
{
    uint32_t per_page = (uint32_t)(platform_page_size() >> CARVE_UNIT_LOG2);
    if (per_page > CARVE_UNITS) return;
    uint32_t page = (uint32_t)((UINT64_C(1) << per_page) - 1);
    for (uint32_t unit = 0; unit < CARVE_UNITS;) {
        uint32_t start = unit;
        while (unit < CARVE_UNITS && ((units >> unit) & page) == page) unit += per_page;
        if (unit > start)
            space_purge_pages((void *)(span_start(span) + ((uintptr_t)start << CARVE_UNIT_LOG2)),
                              (size_t)(unit - start) << CARVE_UNIT_LOG2);
        else unit += per_page;
    }
}

/* Free blocks are recognised by their links, in one pass over the span that the processor can prefetch, instead of by
 * following the list. Live data could look like a link by chance: then there are more that look free than are free, and the
 * span is left alone. */
static void span_purge_sparse(struct span *span)
{
    struct findings found = span_examine(span);
    if (found.units_free == 0 || found.blocks_free != span->carved - span_live(span)) return;
    uintptr_t list = span_list_without(span, found.units_free);
    span_uncarve(span, found.units_free, found.blocks_in_units_free, list);
    /* Also the units in which no block starts. Those carved before and purged before are purged again: they lie between. */
    uint32_t kept = 0;
    for (uint32_t unit = 0; unit < CARVE_UNITS; unit++) {
        uint32_t first;
        bool has_blocks = span_unit_blocks(span, unit, &first) > first;
        if (has_blocks && ((span->uncarved >> unit) & 1) == 0) kept |= 1u << unit;
    }
    span_purge_units(span, ((1u << CARVE_UNITS) - 1) & ~(kept | found.units_used));
}

/* ---- a round --------------------------------------------------------------------------------------------------------------------- */

/* So many sparse spans are worth system calls, a MiB at most: a program in a steady state always has a few. */
enum { SPARSE_SPANS_WORTH = 16 };

static bool is_due(const struct span *span, uint32_t now, uint32_t decay)
{
    return span->since != 0 && (int32_t)(now - span->since) >= (int32_t)decay;
}

/* Give back the pages of spans that have been sparse for the decay time; returns whether there are younger ones to wait
 * for. */
static bool spans_tidy(struct heap *heap, uint32_t now, uint32_t decay)
{
    uint32_t due = 0;
    uint32_t sparse = 0;
    for (uint32_t index = heap->owned; index != SPAN_NONE; index = span_at(index)->owned_next) {
        if (span_at(index)->since != 0) sparse++;
        if (is_due(span_at(index), now, decay)) due++;
    }
    if (due >= SPARSE_SPANS_WORTH) {
        for (uint32_t index = heap->owned; index != SPAN_NONE; index = span_at(index)->owned_next) {
            struct span *span = span_at(index);
            if (!is_due(span, now, decay)) continue;
            span->since = 0;
            sparse--;
            span_purge_sparse(span);
        }
    }
    return sparse >= SPARSE_SPANS_WORTH;
}

void heap_chores_look(struct heap *heap)
{
    uint32_t now = (uint32_t)platform_clock_ms();
    if ((int32_t)(now - heap->chores_due) < 0) return;
    uint32_t decay = atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed);
    heap_return_blocks(heap);
    bool waiting = spans_tidy(heap, now, decay);
    if (space_purge_old()) waiting = true;
    heap->chores = waiting;
    heap->chores_due = now + decay / 2;
}

void heap_chores_all(struct heap *heap)
{
    for (uint32_t index = heap->owned; index != SPAN_NONE; index = span_at(index)->owned_next) {
        struct span *span = span_at(index);
        if (span->carved > span_live(span)) span_purge_sparse(span);
    }
}
