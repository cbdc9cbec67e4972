/* What a fork's child inherits: the memory in heaps of threads that it does not have.
 *
 * Such a thread may have been in the middle of changing its heap. So of each list as much is taken as can be followed from one free
 * block to the next, and a block that is reached twice ends it. Blocks that no list reaches count as live: the worst that an
 * unfinished change does is to lose some. The spans then become orphans, as after a thread's end. What others had handed over to the
 * thread is whole, and goes on its way when the heap is retired; what it had collected for others may not be, and is lost: 64 KiB at
 * most.
 *
 * This reads every free block, and copies some pages: a child that calls exec soon is spared it. It is done once, when the child's
 * heaps have got some spans from elsewhere.
 */
#include "heap.h"

/* So many spans come first. */
enum { SPANS_FIRST = 16 };

/* Spans that are restored while the orphans' lock is held. */
enum { SPANS_STEP = 16 };

_Atomic(uint32_t) heap_inherit_after;

void heap_inherit_expect(void)
{
    bool any = false;
    for (const struct heap *heap = heap_youngest(); heap != NULL && !any; heap = heap->made_before)
        any = heap->left_behind;
    /* Relaxed: there is no other thread yet. */
    atomic_store_explicit(&heap_inherit_after, any ? SPANS_FIRST : 0, memory_order_relaxed);
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

/* Whether it is a block of the span's, and says that it is free. */
static bool says_free(const struct span *span, uintptr_t block)
{
    uint32_t offset = (uint32_t)(block - span_start(span));
    if (block - span_start(span) >= SPAN_SIZE || offset % span->block_size != 0) return false;
    bool exists = offset + span->block_size <= SPAN_SIZE && (span->uncarved >> (offset >> CARVE_UNIT_LOG2) & 1) == 0;
    return exists && block_looks_free(block);
}

struct followed {
    uintptr_t last; /* 0: there is none */
    uint32_t blocks;
    bool to_end;
};

/* As far as a list can be followed. */
static struct followed follow(const struct span *span, uintptr_t block)
{
    struct free_blocks seen = {.count = 0};
    uintptr_t last = 0;
    while (!list_is_empty(block) && says_free(span, block)) {
        uint32_t number = (uint32_t)(block - span_start(span)) / span->block_size;
        if (free_blocks_have(&seen, number)) break;
        free_blocks_add(&seen, number);
        last = block;
        block = list_next(block);
    }
    return (struct followed){.last = last, .blocks = seen.count, .to_end = list_is_empty(block)};
}

/* ---- heaps -------------------------------------------------------------------------------------------------------- */

static bool is_whole(const struct span *span)
{
    return span->bin < HEAP_BINS && !bin_is_mixed(span->bin) && span->block_size == bin_block_size(span->bin) &&
           span->reciprocal == UINT32_MAX / span->block_size + 1;
}

/* A span of blocks whose owner was left behind; or NULL. Relaxed: no other thread changes the owner. */
static struct span *span_left_behind(uint32_t index)
{
    struct span *span = span_at(index);
    if (span_kind_read(span) != SPAN_BLOCKS) return NULL;
    const struct heap *owner = atomic_load_explicit(&span->owner, memory_order_relaxed);
    return owner != NULL && owner->left_behind ? span : NULL;
}

/* Put a list before what its span has. */
static void join(uintptr_t first)
{
    size_t offset = first - space.base;
    struct span *span = space_offset_is_foreign(offset) ? NULL : span_left_behind((uint32_t)(offset >> SPAN_SHIFT));
    if (span == NULL || !is_whole(span)) return;
    struct followed list = follow(span, first);
    if (list.blocks == 0) return;
    list_link(list.last, span->free);
    span->free = first;
}

static void join_lists(struct heap *heap)
{
    for (unsigned bin = 0; bin < HEAP_BINS; bin++) {
        uintptr_t first = heap->free[bin];
        heap->free[bin] = bin_nothing(heap);
        if (!list_is_empty(first)) join(first);
    }
    for (unsigned bin = 0; bin < HAND_BINS; bin++)
        for (unsigned i = 0; i < heap->hands[bin].count && i < HAND_BLOCKS; i++) join(heap->hands[bin].blocks[i]);
    memset(heap->hands, 0, sizeof heap->hands);
}

/* Whether it is a run that the heap has kept. */
static bool is_kept(const struct heap *heap, uint32_t index)
{
    return index < space_spans() && span_kind_read(span_at(index)) == SPAN_METADATA &&
           run_use(span_at(index)) == heap->number + 1;
}

static void add_kept(uint32_t index, uint32_t *chain)
{
    struct span *run = span_at(index);
    run_use_set(run, RUN_ON_ITS_WAY);
    run->next = *chain;
    *chain = index;
}

/* Runs that the heap has kept, before a chain. */
static uint32_t kept_runs(struct heap *heap, uint32_t chain)
{
    for (unsigned place = 0; place < CACHE_FRONT * CACHE_DEPTH; place++) {
        _Atomic(uint32_t) *front = &heap->cache.front[place / CACHE_DEPTH][place % CACHE_DEPTH];
        uint32_t index = atomic_load_explicit(front, memory_order_relaxed);
        if (index != 0 && is_kept(heap, index - 1)) add_kept(index - 1, &chain);
    }
    for (unsigned list = 0; list < CACHE_LISTS; list++) {
        uint32_t index = heap->cache.lists[list];
        while (is_kept(heap, index)) {
            uint32_t next = span_at(index)->next;
            add_kept(index, &chain);
            index = next;
        }
    }
    cache_start(&heap->cache);
    return chain;
}

/* For space_visit. */
static void gather(const struct span *run, void *chain)
{
    struct span *span = span_left_behind(span_index(run));
    if (span == NULL) return;
    span->next = *(uint32_t *)chain;
    *(uint32_t *)chain = span_index(span);
}

/* ---- spans: under the orphans' lock -------------------------------------------------------------------------------- */

/* Blocks that exist. */
static uint32_t carved_blocks(const struct span *span)
{
    uint32_t blocks = 0;
    for (uint32_t unit = 0; unit < CARVE_UNITS; unit++) {
        uint32_t first, end = span_unit_blocks(span, unit, &first);
        if ((span->uncarved >> unit & 1) == 0 && end > first) blocks += end - first;
    }
    return blocks;
}

static void restore(struct span *span)
{
    if (!is_whole(span)) {
        heap_lose_span(span);
        return;
    }
    struct followed list = follow(span, span->free);
    if (list.blocks == 0) span->free = span_list_end(span);
    else if (!list.to_end) list_link(list.last, span_list_end(span));
    span->carved = (uint16_t)carved_blocks(span);
    span->zeros = false;
    heap_take_restored(&heap_orphans, span, span->carved - list.blocks);
}

/* False: a fork has the orphans. */
static bool restore_some(uint32_t *chain)
{
    if (!platform_lock_enter(&heap_orphans.lock)) return false;
    for (int i = 0; i < SPANS_STEP && *chain != SPAN_NONE; i++) {
        struct span *span = span_at(*chain);
        *chain = span->next;
        restore(span);
    }
    platform_lock_release(&heap_orphans.lock);
    return true;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* The calling thread is the only one that is here. */
static void inherit(void)
{
    uint32_t spans = SPAN_NONE, kept = SPAN_NONE;
    for (struct heap *heap = heap_youngest(); heap != NULL; heap = heap->made_before) {
        if (!heap->left_behind) continue;
        join_lists(heap);
        kept = kept_runs(heap, kept);
    }
    cache_release(kept);
    space_visit(gather, &spans);
    while (spans != SPAN_NONE)
        if (!restore_some(&spans)) {
            /* Release: whoever goes on with it sees what has been done. */
            atomic_store_explicit(&heap_inherit_after, 1, memory_order_release);
            return;
        }
    for (struct heap *heap = heap_youngest(); heap != NULL; heap = heap->made_before)
        if (heap->left_behind) heap_retire_left_behind(heap);
}

COLD void heap_inherit_look(void)
{
    uint32_t after = atomic_load_explicit(&heap_inherit_after, memory_order_relaxed);
    do {
        if (after == 0) return;
        /* Acquire: pairs with the release above. */
    } while (!atomic_compare_exchange_weak_explicit(&heap_inherit_after, &after, after - 1, memory_order_acquire,
                                                    memory_order_relaxed));
    if (after != 1) return;
    heap_hands++;
    inherit();
    heap_hands--;
}
