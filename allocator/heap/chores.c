/* Chores: giving back memory that a heap does not need any more, while the program runs.
 *
 * A span that becomes empty goes back as a whole. One in which a few blocks live on is *sparse*: pages of it that hold no live
 * block become uncarved again, as if they had never been used, and their memory goes back. Both happen only to memory that
 * has stayed unused for the decay time, so that a program in a steady state makes no system calls; and both are done by the
 * thread that owns the heap, when it refills a bin, since nobody else may touch its spans. There is no clock in the fast paths:
 * while chores are expected, refills look at the clock, and hand out fewer blocks when they are rare.
 */
#include "fast.h"

static uint32_t decay_ms(void)
{
    return atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed);
}

/* Relaxed: heap_orphans' is read without its lock, as a hint. */
static void heap_set_chores(struct heap *heap, bool expected)
{
    __atomic_store_n(&heap->chores, expected, __ATOMIC_RELAXED);
}

/* A heap that refills at least so often, in ms, will come by the clock whatever its bins hold. */
enum { BUSY_MS = 50 };

/* What the bins hold, or would be given next as those of a busy heap, could serve a nearly idle thread for minutes, without a
 * refill. So they hold nothing now, and whether it is busy counts from here. */
static void heap_rest(struct heap *heap)
{
    heap->busy = false;
    heap->rests = true;
    heap->chores_looked = platform_clock_ms() - BUSY_MS - 1;
    if (heap != &heap_orphans) heap_return_blocks(heap);
}

void heap_chores_expect(struct heap *heap)
{
    uint32_t decay = decay_ms();
    if (decay == DECAY_NEVER) return; /* there will be none */
    heap_set_chores(heap, true);
    heap->chores_due = platform_clock_ms() + decay;
    heap_rest(heap);
    heap_background_expect();
}

/* A thread that refills often has full bins, whatever chores there are. When it frees so much it may be about to rest. */
enum { RESTS_AFTER_SPANS = 64 };

void heap_chores_more(struct heap *heap)
{
    if (UNLIKELY(!heap->chores)) heap_chores_expect(heap);
    if (LIKELY(++heap->spans_given_back < RESTS_AFTER_SPANS)) return;
    heap->spans_given_back = 0; /* first: what follows may give back more */
    heap_background_expect();
    if (heap->chores) heap_rest(heap);
}

void heap_chores_expect_own(void)
{
    struct heap *heap = thread_heap_own();
    if (heap == &heap_none) return;
    bool shares = heap == &heap_sharing;
    if (shares) heap = heap_thread_enter();
    if (heap == NULL)
        return; /* a fork has the one that it shares, and there is no memory for another: somebody else comes by */
    uint32_t entered = heap_enter(heap);
    if (!heap->chores) heap_chores_expect(heap);
    heap_leave(heap, entered);
    if (shares) heap_thread_leave(heap);
}

/* ---- sparse spans ------------------------------------------------------------------------------------------------------------ */

/* Another thread may write to the block at the same moment: the program, or its outbox. What it looks like is only a guess,
 * so ThreadSanitizer need not worry. */
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize_thread, noinline))
#endif
static bool seems_free(uintptr_t block)
{
    return block_looks_free(block);
}

static bool unit_is_carved(const struct span *span, uint32_t unit)
{
    return ((span->uncarved >> unit) & 1) == 0;
}

/* The blocks whose first words look like links: one pass over the span, which the processor can prefetch. */
static void find_by_looks(const struct span *span, struct free_blocks *free)
{
    for (uint32_t unit = 0; unit < CARVE_UNITS; unit++) {
        if (!unit_is_carved(span, unit)) continue;
        uint32_t block;
        uint32_t end = span_unit_blocks(span, unit, &block);
        for (; block < end; block++)
            if (seems_free(span_start(span) + (uintptr_t)block * span->block_size)) free_blocks_add(free, block);
    }
}

/* The blocks in the span's list: a cache miss each, one after the other. */
static void find_by_list(const struct span *span, struct free_blocks *free)
{
    for (uintptr_t block = span->free; !list_is_empty(block); block = list_next(block))
        free_blocks_add(free, (uint32_t)(block & (SPAN_SIZE - 1)) / span->block_size);
}

/* All free blocks look free, so the looks are right if they give no more than there are. More are on their way from other
 * threads, or live and look so by chance. */
static void find_free(const struct span *span, struct free_blocks *free)
{
    *free = (struct free_blocks){.count = 0};
    find_by_looks(span, free);
    if (LIKELY(free->count == span->carved - span_live(span))) return;
    *free = (struct free_blocks){.count = 0};
    find_by_list(span, free);
}

/* What the free blocks mean for the units. */
struct findings {
    uint32_t units_free; /* mask of carved units in which all blocks are free */
    uint32_t units_used; /* mask of units that a live block touches */
    uint32_t blocks_in_units_free;
};

/* Units touched by the bytes [start, end) of the span. */
static uint32_t units_touched(uint32_t start, uint32_t end)
{
    uint32_t first = start >> CARVE_UNIT_LOG2;
    uint32_t last = (end - 1) >> CARVE_UNIT_LOG2;
    return ((2u << last) - 1) & ~((1u << first) - 1);
}

static void examine_unit(const struct span *span, uint32_t unit, const struct free_blocks *free, struct findings *found)
{
    uint32_t first;
    uint32_t end = span_unit_blocks(span, unit, &first);
    uint32_t count = 0;
    for (uint32_t block = first; block < end; block++) {
        uint32_t start = block * span->block_size;
        if (free_blocks_have(free, block)) count++;
        else found->units_used |= units_touched(start, start + span->block_size);
    }
    if (count == end - first && count != 0) {
        found->units_free |= 1u << unit;
        found->blocks_in_units_free += count;
    }
}

static struct findings examine(const struct span *span, const struct free_blocks *free)
{
    struct findings found = {0};
    for (uint32_t unit = 0; unit < CARVE_UNITS; unit++)
        if (unit_is_carved(span, unit)) examine_unit(span, unit, free, &found);
    return found;
}

/* The free blocks of the carved units that are not in the mask, as a list in the order of their addresses. */
static uintptr_t list_without(const struct span *span, const struct free_blocks *free, uint32_t units)
{
    uintptr_t list = span_list_end(span);
    for (uint32_t unit = CARVE_UNITS; unit-- > 0;) {
        if (!unit_is_carved(span, unit) || ((units >> unit) & 1) != 0) continue;
        uint32_t first;
        for (uint32_t i = span_unit_blocks(span, unit, &first); i-- > first;) {
            if (!free_blocks_have(free, i)) continue;
            uintptr_t block = span_start(span) + (uintptr_t)i * span->block_size;
            *block_words(block) = list ^ block ^ space.link_key;
            list = block;
        }
    }
    return HARDENED ? hardened_shuffle(span, list) : list;
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

/* Its list has none of the blocks in the units that are free any more. */
static void span_purge_findings(struct span *span, const struct findings *found)
{
    span_uncarve(span, found->units_free, found->blocks_in_units_free);
    /* Also the units in which no block starts. Those carved before and purged before are purged again: they lie between. */
    uint32_t kept = span_units_with_blocks(span) & ~(uint32_t)span->uncarved;
    span_purge_units(span, ((1u << CARVE_UNITS) - 1) & ~(kept | found->units_used));
}

static void span_purge_sparse(struct heap *heap, struct span *span)
{
    span_set_sparse(heap, span, 0); /* whatever else is free in it is not worth another look */
    if (POOLS_EXIST && bin_is_mixed(span->bin)) {
        span_purge_units(span, mixed_units_free(heap, span));
        return;
    }
    struct free_blocks free;
    find_free(span, &free);
    struct findings found = examine(span, &free);
    if (found.units_free == 0) return;
    span->free = list_without(span, &free, found.units_free);
    span_purge_findings(span, &found);
}

/* The blocks that stand behind `head` in its list. False when something there does not look like a link. */
READS_RACILY static bool find_behind(const struct span *span, uintptr_t head, struct free_blocks *free)
{
    uintptr_t block = head;
    for (;;) {
        uintptr_t link = *block_words(block) ^ space.link_key;
        if (link > LINK_MAX) return false;
        block ^= link;
        if (list_is_empty(block)) return true;
        uint32_t number = (uint32_t)(block & (SPAN_SIZE - 1)) / span->block_size;
        if (block == head || !block_is_at_start(span, block) || free_blocks_have(free, number)) return false;
        free_blocks_add(free, number);
    }
}

void span_purge_resting(struct heap *heap, struct span *span, uintptr_t head)
{
    span_set_sparse(heap, span, 0);
    struct free_blocks free = {.count = 0};
    if (list_is_empty(head) || !find_behind(span, head, &free)) return;
    struct findings found = examine(span, &free);
    if (found.units_free == 0) return;
    uintptr_t list = list_without(span, &free, found.units_free);
    *block_words(head) = list ^ head ^ space.link_key;
    span_purge_findings(span, &found);
}

/* ---- a round --------------------------------------------------------------------------------------------------------------------- */

/* So many sparse spans are worth system calls, a MiB at most: a program in a steady state always has a few. And so many are
 * looked through at a time, which takes some hundred microseconds: the calls of a program do what is due step by step. */
enum { SPARSE_SPANS_WORTH = 16, SPARSE_SPANS_STEP = 32 };

/* Whether so many spans have been sparse for the decay time. */
static bool are_due(const struct heap *heap, uint32_t spans, uint64_t now, uint32_t decay)
{
    for (uint32_t index = heap->sparse.first; index != SPAN_NONE && spans != 0; index = span_at(index)->owned_next) {
        if (span_age(span_at(index), now) < decay) break;
        spans--;
    }
    return spans == 0;
}

/* Give back pages of spans that have been sparse for the decay time. */
static enum chores_left spans_tidy(struct heap *heap, uint64_t now, uint32_t decay)
{
    /* What is left of more than a step is little compared to what is behind it. */
    uint32_t step = heap->tidying ? 1 : SPARSE_SPANS_WORTH;
    heap->tidying = false;
    if (!are_due(heap, step, now, decay)) return heap->sparse.spans >= SPARSE_SPANS_WORTH ? CHORES_LATER : CHORES_NONE;
    for (uint32_t i = 0; i < SPARSE_SPANS_STEP && are_due(heap, 1, now, decay); i++)
        span_purge_sparse(heap, span_at(heap->sparse.first));
    heap->tidying = are_due(heap, 1, now, decay);
    if (heap->tidying) return CHORES_NOW;
    return heap->sparse.spans >= SPARSE_SPANS_WORTH ? CHORES_LATER : CHORES_NONE;
}

/* Then some is due before the decay time. */
static bool is_mostly_free(void)
{
    struct space_load load = space_load();
    return space_is_mostly_free(load.kept, load.dirty);
}

static enum chores_left step(struct heap *heap, uint64_t now, uint32_t decay)
{
    enum chores_left left = spans_tidy(heap, now, decay);
    left = chores_more_urgent(left, cache_release_old(heap, now, decay));
    return chores_more_urgent(left, (enum chores_left)space_purge_old());
}

/* A thread that hardly ever comes by would take minutes for what is due, a step at a time. So it takes an eighth of the time
 * since it last came, and 10 ms at most and one step. Not for a heap that others wait for, nor before it is known how long it
 * rests. */
enum { SHARE_OF_REST = 8, LONGEST_NS = 10000000 };

static COLD enum chores_left step_on(struct heap *heap, uint64_t now, uint64_t rested_ms, uint32_t decay)
{
    if (heap != thread_heap_own()) return CHORES_NOW;
    uint64_t most = rested_ms * (1000000 / SHARE_OF_REST);
    uint64_t end = platform_clock_ns() + (most < LONGEST_NS ? most : LONGEST_NS);
    enum chores_left left;
    do left = step(heap, now, decay);
    while (left == CHORES_NOW && platform_clock_ns() < end);
    return left;
}

void heap_chores_look(struct heap *heap)
{
    uint64_t now = platform_clock_ms(), before = heap->chores_looked;
    if (LIKELY(now == before && now < heap->chores_due && heap->busy)) return; /* nothing is new in this tick */
    heap_pressure_pass(now);
    uint64_t rested = now - heap->chores_looked;
    heap->busy = rested <= BUSY_MS;
    heap->chores_looked = now;
    uint32_t decay = decay_ms();
    if (decay == DECAY_NEVER) heap_set_chores(heap, false); /* it was set to that meanwhile */
    if (decay == DECAY_NEVER) return;
    if (now < heap->chores_due) {
        if (now != before && is_mostly_free()) space_purge_old();
        return;
    }
    heap_return_blocks(heap);
    enum chores_left left = step(heap, now, decay);
    if (left == CHORES_NOW && !heap->busy && !heap->rests) left = step_on(heap, now, rested, decay);
    heap_set_chores(heap, left != CHORES_NONE);
    heap->chores_due = left == CHORES_NOW ? now + 1 : now + decay / 2;
}

void heap_orphans_look(void)
{
    if (!platform_lock_try(&heap_orphans.lock)) return;
    if (heap_orphans.chores) heap_chores_look(&heap_orphans);
    platform_lock_release(&heap_orphans.lock);
}

enum chores_left heap_locked_step(struct heap *heap)
{
    enum chores_left left = CHORES_NONE;
    if (!platform_lock_enter(&heap->lock)) return CHORES_LATER; /* a fork has it */
    if (heap->chores) {
        heap_chores_look(heap);
        if (heap->chores) left = heap->tidying ? CHORES_NOW : CHORES_LATER;
    }
    platform_lock_release(&heap->lock);
    return left;
}

_Atomic(uint32_t) heap_trims_asked;

/* ---- at once --------------------------------------------------------------------------------------------------------------------- */

void heap_chores_sparse(struct heap *heap)
{
    size_t most = atomic_load_explicit(&heap_settings.free_page_threshold, memory_order_relaxed);
    if (heap->sparse.spans % RESTS_AFTER_SPANS == 0) heap_background_expect();
    /* One has come; more are too many when the threshold has been lowered. */
    for (uint32_t i = 0; i < SPARSE_SPANS_STEP && UNLIKELY(heap->sparse_bytes > most); i++)
        span_purge_sparse(heap, span_at(heap->sparse.first));
}

void heap_purge_pages(struct heap *heap, uint32_t spans)
{
    for (; spans > 0 && heap_spans(heap) != 0; spans--) {
        bool sparse = heap->sparse.spans != 0;
        struct span *span = span_at(sparse ? heap->sparse.first : heap->owned.first);
        if (!sparse) span_set_sparse(heap, span, 1); /* until it is purged */
        if (span->carved > span_live(span)) span_purge_sparse(heap, span);
        else span_set_sparse(heap, span, 0);
    }
}

void heap_locked_give_back(struct heap *heap)
{
    if (!platform_lock_enter(&heap->lock)) return;
    heap->trims_done = atomic_load_explicit(&heap_trims_asked, memory_order_relaxed);
    if (HARDENED && heap != &heap_orphans) hardened_release(heap);
    heap_flush(heap);
    uint32_t left = heap_spans(heap);
    for (;;) {
        uint32_t step = left < SPARSE_SPANS_STEP ? left : SPARSE_SPANS_STEP;
        heap_purge_pages(heap, step);
        left -= step;
        if (left == 0) break;
        platform_lock_release(&heap->lock);
        if (!platform_lock_enter(&heap->lock)) return;
    }
    platform_lock_release(&heap->lock);
}

void heap_give_back(struct heap *heap)
{
    uint32_t entered = heap_enter(heap);
    heap->trims_done = atomic_load_explicit(&heap_trims_asked, memory_order_relaxed);
    if (HARDENED) hardened_release(heap);
    remote_inbox_take(heap);
    remote_outbox_flush(heap);
    heap_flush(heap);
    heap_purge_pages(heap, heap_spans(heap));
    heap_leave(heap, entered);
}
