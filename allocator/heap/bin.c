/* Bins and their spans: refilling, carving, waking, emptying.
 *
 * A span is *listed* in its bin when it has blocks to give: enough freed ones, or some not carved yet. Blocks that the bin
 * holds count as live. The countdown of a span is the number of frees after which the owner wants to look at it, which
 * depends on how many live blocks it has:
 *
 *     live   many ──────────────────────────────────────────────────────────────► 0
 *            not listed │ enough freed: listed │ few live: sparse, see chores.c │ empty: given back
 *
 * held_back is the number of live blocks that will then be left: live = countdown + held_back, and freed = carved - live.
 */
#include "fast.h"

/* ---- constants ------------------------------------------------------------------------------------------------------- */

/* A span wakes when two pages' worth of its blocks have been freed, but after no more than this many: so an eighth of a span
 * is the most that sleeps in it, and a refill serves several requests. */
enum { WAKE_BLOCKS_MAX = 32, WAKE_MASK = 0x7F };

/* A bin with many spans carves more than one unit at a time, at most a quarter of a span per span that it has. */
enum { CARVE_SHARE = 4 };

/* A span is sparse with so few live blocks, or half of them: with 24 blocks at random places, a fifth of sixteen pages hold
 * none. Unless less than half of it has ever been used: then there is little to gain, and a small program always has such
 * spans. */
enum { SPARSE_BLOCKS = 24, SPARSE_UNITS_USED = 0x00FF };

/* Blocks that a refill moves to the bin: few at first, since a thread that ends soon would have to return them one by one,
 * then twice as many each time. While a heap has chores and refills are rare, one alone: then even a nearly idle thread
 * comes by the clock with each allocation. Otherwise a list is never cut: to find the place, its blocks would have to be
 * fetched one after the other. */
enum { GIVEN_FIRST = 8, GIVEN_AT_REST = 1, BLOCKS_MAX = (1 << 14) - 1 /* more than a span can have */ };

static uint8_t wake_threshold(uint32_t block_size)
{
    uint32_t blocks = 2u * CARVE_UNIT / block_size;
    if (blocks < 1) return 1;
    return (uint8_t)(blocks > WAKE_BLOCKS_MAX ? WAKE_BLOCKS_MAX : blocks);
}

/* ---- lists of spans ----------------------------------------------------------------------------------------------------- */

/* Relaxed: heap_orphans' is also read without its lock, as a hint (heap_adopt_span). */
static void bin_set_listed(struct bin *bin, uint32_t index)
{
    __atomic_store_n(&bin->listed, index, __ATOMIC_RELAXED);
}

static void span_list(struct heap *heap, struct span *span)
{
    struct bin *bin = &heap->bins[span->bin];
    span->listed = true;
    bin->spans_listed++;
    span->prev = SPAN_NONE;
    span->next = bin->listed;
    if (bin->listed != SPAN_NONE) span_at(bin->listed)->prev = span_index(span);
    bin_set_listed(bin, span_index(span));
}

static void span_unlist(struct heap *heap, struct span *span)
{
    struct bin *bin = &heap->bins[span->bin];
    span->listed = false;
    bin->spans_listed--;
    if (span->next != SPAN_NONE) span_at(span->next)->prev = span->prev;
    if (span->prev != SPAN_NONE) span_at(span->prev)->next = span->next;
    else bin_set_listed(bin, span->next);
}

/* All spans of a heap stand in one of two chains. */
static struct span_chain *chain_of(struct heap *heap, const struct span *span)
{
    return span->since != 0 ? &heap->sparse : &heap->owned;
}

static void chain_add(struct heap *heap, struct span *span)
{
    struct span_chain *chain = chain_of(heap, span);
    uint32_t index = span_index(span);
    span->owned_next = SPAN_NONE;
    span->owned_prev = chain->last;
    if (chain->last != SPAN_NONE) span_at(chain->last)->owned_next = index;
    else chain->first = index;
    chain->last = index;
    chain->spans++;
    if (span->since != 0) heap->sparse_bytes += (size_t)span->carved * span->block_size;
}

static void chain_remove(struct heap *heap, struct span *span)
{
    struct span_chain *chain = chain_of(heap, span);
    if (span->owned_next != SPAN_NONE) span_at(span->owned_next)->owned_prev = span->owned_prev;
    else chain->last = span->owned_prev;
    if (span->owned_prev != SPAN_NONE) span_at(span->owned_prev)->owned_next = span->owned_next;
    else chain->first = span->owned_next;
    chain->spans--;
    /* Nothing is carved or uncarved in a span while it is sparse, so this is what was added. */
    if (span->since != 0) heap->sparse_bytes -= (size_t)span->carved * span->block_size;
}

void span_set_sparse(struct heap *heap, struct span *span, uint64_t since)
{
    if (since == 0 && span->since == 0) return; /* most often */
    chain_remove(heap, span);
    span_since_set(span, since);
    chain_add(heap, span);
}

/* In use again, however few of its blocks are. */
ALWAYS_INLINE void span_set_in_use(struct heap *heap, struct span *span)
{
    if (UNLIKELY(span->since != 0)) span_set_sparse(heap, span, 0);
}

static void span_own(struct heap *heap, struct span *span)
{
    /* Relaxed: a thread that compares `owner` with its own heap wrote that value itself; one that sends blocks to the
     * owner it reads may read the previous one, and that heap forwards them (remote.c). */
    atomic_store_explicit(&span->owner, heap, memory_order_relaxed);
    chain_add(heap, span);
    heap->bins[span->bin].spans++;
}

/* The heap has it no more; `owner` says so when somebody else has. */
static void span_disown(struct heap *heap, struct span *span)
{
    chain_remove(heap, span);
    heap->bins[span->bin].spans--;
}

/* ---- carving --------------------------------------------------------------------------------------------------------------- */

uint32_t span_unit_blocks(const struct span *span, uint32_t unit, uint32_t *first)
{
    uint32_t block_size = span->block_size;
    uint32_t capacity = (uint32_t)SPAN_SIZE / block_size;
    uint32_t end = (((unit + 1) << CARVE_UNIT_LOG2) + block_size - 1) / block_size;
    *first = ((unit << CARVE_UNIT_LOG2) + block_size - 1) / block_size;
    return end < capacity ? end : capacity;
}

uint16_t span_units_with_blocks(const struct span *span)
{
    uint16_t units = 0;
    uint32_t block_size = span->block_size;
    if (block_size >= CARVE_UNIT) { /* no two in one unit */
        for (uint32_t end = block_size; end <= SPAN_SIZE; end += block_size)
            units |= (uint16_t)(1u << ((end - block_size) >> CARVE_UNIT_LOG2));
        return units;
    }
    for (uint32_t unit = 0; unit < CARVE_UNITS; unit++) {
        uint32_t first;
        if (span_unit_blocks(span, unit, &first) > first) units |= (uint16_t)(1u << unit);
    }
    return units;
}

/* Make the blocks of one unit, in front of `list`, so that they are handed out in the order of their addresses. */
static uintptr_t span_carve_unit(struct span *span, uint32_t unit, uintptr_t list)
{
    uint32_t first;
    uint32_t end = span_unit_blocks(span, unit, &first);
    uintptr_t start = span_start(span);
    uintptr_t key = space.link_key;
    for (uint32_t i = end; i-- > first;) {
        uintptr_t block = start + (uintptr_t)i * span->block_size;
        *block_words(block) = list ^ block ^ key;
        list = block;
    }
    span->carved = (uint16_t)(span->carved + (end - first));
    return list;
}

/* The lowest `count` set bits. */
static uint32_t lowest_bits(uint32_t bits, uint32_t count)
{
    uint32_t rest = bits;
    for (; count > 0 && rest != 0; count--) rest &= rest - 1;
    return bits & ~rest;
}

void span_uncarve(struct span *span, uint32_t units, uint32_t blocks)
{
    if (UNLIKELY(span->sampled)) sample_forget_units(span, units);
    if (span->uncarved == 0) space_dense_spans_add(-1);
    span->uncarved |= (uint16_t)units;
    span->zeros = false; /* their pages may stay, for the sake of a neighbour or because the kernel refuses */
    span->carved = (uint16_t)(span->carved - blocks);
}

/* How many units to carve at a time. */
static uint32_t units_to_carve(const struct heap *heap, const struct span *span)
{
    uint32_t count = heap->bins[span->bin].spans / CARVE_SHARE;
    uint32_t least = bin_is_pool(span->bin) ? heap_settings.pool_carve_units : 1;
    return count < least ? least : count;
}

/* Carve the next units of a listed span. */
static uintptr_t span_carve(struct heap *heap, struct span *span, uint32_t count)
{
    uint32_t units = HARDENED ? hardened_choose_units(heap, span->uncarved, count) : lowest_bits(span->uncarved, count);
    if (HARDENED) {
        hardened_clear_units(span, units);
        atomic_signal_fence(memory_order_release);
    }
    span->uncarved &= (uint16_t)~units;
    if (span->uncarved == 0) space_dense_spans_add(1);
    if (HARDENED) return hardened_carve(heap, span, units);
    uintptr_t list = span_list_end(span);
    while (units != 0) {
        uint32_t highest = 31 - (uint32_t)__builtin_clz(units);
        units &= ~(1u << highest);
        list = span_carve_unit(span, highest, list);
    }
    return list;
}

/* ---- spans come and go --------------------------------------------------------------------------------------------------------- */

/* An empty span leaves its heap. */
static void span_leave(struct heap *heap, struct span *span)
{
    if (UNLIKELY(span->sampled)) sample_forget_all_of(span);
    span_disown(heap, span);
    atomic_store_explicit(&span->owner, NULL, memory_order_relaxed);
    run_use_set(span, RUN_ON_ITS_WAY); /* first: its countdown would say that a heap keeps it */
    span_kind_write(span, SPAN_METADATA);
}

void span_give_back(struct heap *heap, struct span *span)
{
    span_leave(heap, span);
    cache_put(heap, span);
    heap_chores_more(heap);
}

void span_give_away(struct heap *heap, struct span *span, uint32_t *chain)
{
    if (span->listed) span_unlist(heap, span);
    span_set_sparse(heap, span, 0);
    span_leave(heap, span);
    span->next = *chain;
    *chain = span_index(span);
}

/* Cut a span into blocks of this bin; `zeros`: it reads as zeros. */
static void span_cut_for(struct span *span, unsigned bin, bool zeros)
{
    uint32_t block_size = bin_block_size(bin);
    span->bin = (uint8_t)bin;
    span->block_size = block_size;
    span->reciprocal = UINT32_MAX / block_size + 1;
    span->wake = wake_threshold(block_size) & WAKE_MASK;
    span->free = span_list_end(span);
    span->carved = 0;
    span->uncarved = span_units_with_blocks(span);
    span->zeros = zeros;
    if (POOLS_EXIST && bin_is_mixed(bin)) mixed_start(span);
    if (HARDENED) hardened_cut(span, zeros);
}

/* A span for this bin; NULL: out of memory. */
static struct span *new_span_of(struct heap *heap, unsigned bin)
{
    bool zeros = false;
    struct span *span = cache_take_span(heap, bin);
    if (span != NULL && span->bin == bin) return span;
    if (span == NULL) span = space_acquire(1, 1, SPAN_METADATA, &zeros);
    else if (span->uncarved == 0) space_dense_spans_add(-1);
    if (span != NULL) span_cut_for(span, bin, zeros);
    return span;
}

/* Make a span that nobody has one of the bin. */
static void bin_add(struct heap *heap, struct span *span)
{
    span->countdown = 0;
    span->held_back = 0;
    span->since = 0;
    span_kind_write(span, SPAN_BLOCKS);
    span_own(heap, span);
    span_list(heap, span);
}

/* So many units of the span are about to be in memory, if they are not yet. Not each counts by itself: all threads count. */
static void count_carved(struct heap *heap, unsigned units)
{
    enum { COUNTED_AT_ONCE = 1 << 18 };
    heap->carved_bytes += units * CARVE_UNIT;
    if (LIKELY(heap->carved_bytes < COUNTED_AT_ONCE)) return;
    uint32_t bytes = heap->carved_bytes;
    heap->carved_bytes = 0;
    heap_pressure_grown(bytes, 0);
}

/* Get the bin one more span. */
static bool bin_grow(struct heap *heap, unsigned bin)
{
    struct span *span = new_span_of(heap, bin);
    if (span == NULL) return false;
    if (POOLS_EXIST && bin_is_mixed(bin)) count_carved(heap, CARVE_UNITS); /* which is not carved */
    bin_add(heap, span);
    return true;
}

/* ---- refilling -------------------------------------------------------------------------------------------------------------------- */

/* A span with so many live blocks, or fewer, is sparse; 0: it is not worth a look. */
static uint32_t span_sparse_limit(const struct span *span)
{
    bool hardly_used = HARDENED
                           ? __builtin_popcount(span->uncarved) > (int)CARVE_UNITS / 2 /* they are no lowest ones */
                           : (span->uncarved & SPARSE_UNITS_USED) != 0;
    if (hardly_used) return 0;
    uint32_t limit = (uint32_t)SPAN_SIZE / span->block_size / 2;
    return limit < SPARSE_BLOCKS ? limit : SPARSE_BLOCKS;
}

/* The number of live blocks at which a listed span with `live` of them wants another look: when it will have become sparse,
 * or, when that is behind it, empty. */
static uint32_t span_next_look(const struct span *span, uint32_t live)
{
    uint32_t limit = span_sparse_limit(span);
    return live > limit ? limit : 0;
}

ALWAYS_INLINE void arrange(struct heap *heap, struct span *span, uint32_t live)
{
    uint32_t freed = span->carved - live;
    bool gives = span->uncarved != 0 || freed >= span->wake;
    if (gives != (bool)span->listed) (gives ? span_list : span_unlist)(heap, span);
    uint32_t until_stop = gives ? live - span_next_look(span, live) : span->wake - freed;
    span->countdown = until_stop < live ? until_stop : live;
    span->held_back = (uint16_t)(live - span->countdown);
}

void span_arrange(struct heap *heap, struct span *span, uint32_t live)
{
    arrange(heap, span, live);
}

/* ---- at hand ------------------------------------------------------------------------------------------------------ */

/* Of blocks above 4 KiB nearly each that is freed would have its span listed, and nearly each refill would unlist one. So one that is
 * the only free block of its span stands *at hand*, if there is room, and the next refill takes it. Like the blocks in the bin's
 * list it counts as live, and it goes back when they do. Slow paths alone come here (idle.c). */

/* Not the heap that is everybody's, and none where nothing is to be kept. */
ALWAYS_INLINE bool heap_keeps(const struct heap *heap)
{
    /* Relaxed: a setting. */
    return heap != &heap_orphans && atomic_load_explicit(&heap_settings.thread_spans_cached, memory_order_relaxed) != 0;
}

/* A fork's child may find its owner between any two instructions: what was put at hand is there when it counts, and what is taken does
 * not count when it has gone on. So the compiler moves no access across this. */
ALWAYS_INLINE void hand_count_write(struct hand *hand, uint32_t count)
{
    atomic_signal_fence(memory_order_seq_cst);
    hand->count = count;
    atomic_signal_fence(memory_order_seq_cst);
}

/* The span's countdown has ended. Objects that are picked have to be counted, which a refill from a list does. */
ALWAYS_INLINE bool hand_put(struct heap *heap, struct span *span)
{
    if (!bin_has_hand(span->bin)) return false;
    struct hand *hand = &heap->hands[span->bin - HAND_BIN_MIN];
    if (hand->count == HAND_BLOCKS || span->carved - span->held_back != 1) return false;
    if (pick_is_on() || span->since != 0 || !heap_keeps(heap)) return false;
    uintptr_t block = span->free;
    span->free = list_end_of(block);
    if (LIKELY(!span->listed)) span->countdown = 1; /* as it was */
    else arrange(heap, span, span->carved);
    hand->blocks[hand->count] = block;
    hand_count_write(hand, hand->count + 1);
    return true;
}

/* The youngest; 0: none. */
ALWAYS_INLINE uintptr_t hand_take(struct heap *heap, unsigned bin)
{
    if (!bin_has_hand(bin)) return 0;
    struct hand *hand = &heap->hands[bin - HAND_BIN_MIN];
    if (hand->count == 0) return 0;
    uintptr_t block = hand->blocks[hand->count - 1];
    hand_count_write(hand, hand->count - 1);
    return block;
}

/* The block that is `steps` links behind `block`. */
static uintptr_t list_walk(uintptr_t block, uint32_t steps)
{
    for (; steps > 0; steps--) block = list_next(block);
    return block;
}

/* How many blocks a refill may move to the bin. Not only refills look for chores: so the first one after a rest begins to tell
 * whether they are rare. */
ALWAYS_INLINE uint32_t bin_gives(struct heap *heap, struct bin *bin)
{
    uint32_t most = heap->chores && (heap->rests || !heap->busy) ? GIVEN_AT_REST : BLOCKS_MAX;
    heap->rests = false;
    uint32_t given = bin->given < GIVEN_FIRST ? GIVEN_FIRST : bin->given * 2;
    if (given > most) given = most;
    bin->given = (uint16_t)given;
    return given;
}

/* Put what is behind the first `most` blocks of the list in front of those freed. */
static NOINLINE void span_keep_rest(struct span *span, uintptr_t list, uint32_t count, uint32_t most)
{
    uintptr_t last = list_walk(list, most - 1);
    uintptr_t rest = list_walk(last, 1);
    list_link(last, span_list_end(span));
    if (!list_is_empty(span->free)) list_link(list_walk(rest, count - most - 1), span->free);
    span->free = rest;
}

NOINLINE void *bin_pick(struct heap *heap, unsigned bin, size_t bytes, size_t size, size_t alignment, bool *sampled)
{
    *sampled = sample_is_due(heap, bin, bytes);
    return *sampled || !guard_is_on() ? NULL : guard_sample(&heap->guard, bin, bytes, size, alignment);
}

uint32_t bin_cut_at_point(struct heap *heap, unsigned bin, size_t bytes, size_t count)
{
    size_t guarded = guard_is_on() ? guard_cut(&heap->guard, bin, bytes, count) : count;
    size_t sampled = sample_cut(heap, bin, bytes, count);
    /* It ends before the point that the other has found. */
    if (guarded < sampled) pick_forget(&heap->sample, bin);
    if (sampled < guarded) pick_forget(&heap->guard, bin);
    return (uint32_t)(guarded < sampled ? guarded : sampled);
}

/* How many of the first `count` blocks of a list the bin may be given, since others are picked; and these can be had anew. */
static NOINLINE uint32_t list_cut(struct heap *heap, struct span *span, unsigned bin, uint32_t count)
{
    if (span->sampled) sample_forget_free(span);
    return bin_cut(heap, bin, span->block_size, count);
}

/* Move `list` of `count` blocks, at least one, to the bin; what is too much goes in front of those freed. */
ALWAYS_INLINE uint32_t span_give_list(struct heap *heap, struct span *span, unsigned bin, uintptr_t list,
                                      uint32_t count)
{
    uint32_t most = bin_gives(heap, &heap->bins[bin]);
    if (pick_is_on()) most = list_cut(heap, span, bin, count < most ? count : most);
    count_refill(heap);
    heap->free[bin] = list;
    if (LIKELY(count <= most)) return count;
    span_keep_rest(span, list, count, most);
    return most;
}

/* Move blocks that are made for it, in so many units, to the bin of a listed span which has some to make. */
static NOINLINE void span_give_carved(struct heap *heap, struct span *span, unsigned bin, uint32_t units)
{
    uint32_t before = span->carved;
    span_set_in_use(heap, span);
    int uncarved = __builtin_popcount(span->uncarved);
    uintptr_t list = span_carve(heap, span, units);
    count_carved(heap, (unsigned)(uncarved - __builtin_popcount(span->uncarved)));
    heap->bins[bin].zeros = span->zeros;
    arrange(heap, span, span_live(span) + span_give_list(heap, span, bin, list, span->carved - before));
}

/* Move those that were freed. */
ALWAYS_INLINE void span_give_freed(struct heap *heap, struct span *span, unsigned bin)
{
    uint32_t live = span_live(span), freed = span->carved - live;
    span_set_in_use(heap, span);
    uintptr_t list = span->free;
    span->free = list_end_of(list);
    heap->bins[bin].zeros = false;
    arrange(heap, span, live + span_give_list(heap, span, bin, list, freed));
}

/* Move blocks of a listed span to its bin. */
ALWAYS_INLINE void span_give(struct heap *heap, struct span *span, unsigned bin)
{
    bool few = span->carved - span_live(span) < span->wake;
    if (span->uncarved != 0 && few) span_give_carved(heap, span, bin, units_to_carve(heap, span));
    else span_give_freed(heap, span, bin);
}

ALWAYS_INLINE void pause_inside(struct heap *heap)
{
    heap_chores_pass(heap);
    remote_outbox_flush_at_refill(heap);
    if (UNLIKELY(remote_inbox_is_filled(heap))) remote_inbox_take(heap);
}

void heap_pause(struct heap *heap)
{
    uint32_t entered = heap_enter(heap);
    pause_inside(heap);
    heap_leave(heap, entered);
}

static NOINLINE struct span *bin_get_span(struct heap *heap, unsigned bin)
{
    if (!heap_adopt_span(heap, bin) && !bin_grow(heap, bin)) return NULL;
    return span_at(heap->bins[bin].listed);
}

ALWAYS_INLINE struct span *find_span(struct heap *heap, unsigned bin)
{
    uint32_t listed = heap->bins[bin].listed;
    return LIKELY(listed != SPAN_NONE) ? span_at(listed) : bin_get_span(heap, bin);
}

struct span *bin_find_span(struct heap *heap, unsigned bin)
{
    pause_inside(heap);
    return find_span(heap, bin);
}

/* Give the bin, which is empty, the block that was at hand. */
ALWAYS_INLINE bool hand_give(struct heap *heap, unsigned bin)
{
    if (pick_is_on()) return false; /* as above */
    uintptr_t block = hand_take(heap, bin);
    if (block == 0) return false;
    heap->rests = false; /* see bin_gives */
    count_refill(heap);
    heap->free[bin] = block;
    heap->bins[bin].zeros = false;
    return true;
}

ALWAYS_INLINE bool refill_from_span(struct heap *heap, unsigned bin)
{
    struct span *span = find_span(heap, bin);
    if (UNLIKELY(span == NULL)) return false;
    span_give(heap, span, bin);
    return true;
}

bool bin_refill(struct heap *heap, unsigned bin)
{
    uint32_t entered = heap_enter(heap);
    pause_inside(heap);
    bool given = hand_give(heap, bin) || refill_from_span(heap, bin);
    heap_leave(heap, entered);
    return given;
}

/* ---- refilling for calloc ------------------------------------------------------------------------- */

/* Smaller blocks are cleared in less time than it takes to fetch others into the cache. */
enum { ZEROED_BLOCK_MIN = 4096 };

/* A span cleared ahead is taken although others of the bin have freed blocks to give, or a bin whose blocks come and go
 * in bursts would always be given the same dirty ones. But only while no more than an eighth of its spans, or one, are
 * listed: so this costs an eighth of the bin's memory or a span at most. */
enum { ZEROED_LISTED_SHARE = 8 };

/* A listed span that has blocks to make which read as zeros. */
static struct span *listed_zeros(const struct bin *bin)
{
    for (uint32_t index = bin->listed; index != SPAN_NONE; index = span_at(index)->next)
        if (span_at(index)->zeros && span_at(index)->uncarved != 0) return span_at(index);
    return NULL;
}

static bool refill_zeroed(struct heap *heap, unsigned bin)
{
    pause_inside(heap);
    struct bin *its = &heap->bins[bin];
    if (its->spans_listed > 1 + its->spans / ZEROED_LISTED_SHARE) return false;
    struct span *span = listed_zeros(its);
    if (span == NULL) {
        span = space_acquire_zeroed(1, SPAN_METADATA);
        if (span == NULL) return false;
        span_cut_for(span, bin, true);
        bin_add(heap, span);
    }
    span_give_carved(heap, span, bin, CARVE_UNITS); /* it is resident: there is no page to be spared */
    return true;
}

bool bin_refill_zeroed(struct heap *heap, unsigned bin)
{
    if (!space_zeroed_is_on() || size_class_bytes(bin) < ZEROED_BLOCK_MIN) return false;
    uint32_t entered = heap_enter(heap);
    bool filled = refill_zeroed(heap, bin);
    heap_leave(heap, entered);
    return filled;
}

/* ---- borrowing ---------------------------------------------------------------------------------------------------------------------- */

/* A page is the least that a bin's first span costs. A bin that is hardly used is served from larger ones, until the room
 * that this wastes comes near to what a page would have cost: so a thread that allocates little, of many sizes, needs a few
 * pages and not one per size. */
enum { BORROW_WASTE_MAX = 2048, BORROW_SIZE_MAX = 1024 };

/* Racily: another thread may be taking spans of a heap that seems to rest (idle.c). What is chosen here need not be there. */
READS_RACILY unsigned bin_to_borrow_from(struct heap *heap, unsigned bin)
{
    uint32_t wanted = size_class_bytes(bin);
    unsigned lender = BIN_COUNT;
    for (unsigned other = bin + 1; other < BIN_COUNT; other++) {
        uint32_t size = size_class_bytes(other);
        if (size > BORROW_SIZE_MAX || heap->bins[bin].borrowed + size - wanted > BORROW_WASTE_MAX) break;
        if (!list_is_empty(heap->free[other])) {
            lender = other;
            break;
        }
        /* Another page of a larger size serves more requests than the first of this one. */
        if (lender == BIN_COUNT && heap->bins[other].listed != SPAN_NONE) lender = other;
    }
    if (lender != BIN_COUNT) heap->bins[bin].borrowed += size_class_bytes(lender) - wanted;
    return lender;
}

/* ---- freeing ----------------------------------------------------------------------------------------------------------------------- */

/* Keep one empty span in a bin that has nothing else to give: else a program at the edge of a span would get and give
 * one back all the time. But none where nothing is to be kept. */
ALWAYS_INLINE bool span_is_last_resort(const struct heap *heap, const struct span *span)
{
    const struct bin *bin = &heap->bins[span->bin];
    if (!heap_keeps(heap)) return false;
    return bin->listed == SPAN_NONE || (bin->listed == span_index(span) && span->next == SPAN_NONE);
}

static NOINLINE void span_look_at_live(struct heap *heap, struct span *span, uint32_t live)
{
    /* It has just become so. A listed one is looked at for no other reason; one that was not may have lost many blocks
     * at once. */
    bool sparse = span->listed || (span->since == 0 && live < span_sparse_limit(span));
    if (sparse) span_set_sparse(heap, span, platform_clock_ms() | 1); /* not 0, nor its low bits */
    arrange(heap, span, live);
    /* Last: these may uncarve this very span, and return blocks of it. */
    if (UNLIKELY(sparse)) heap_chores_sparse(heap);
    if (UNLIKELY(sparse && !heap->chores)) heap_chores_expect(heap);
}

ALWAYS_INLINE void look(struct heap *heap, struct span *span, uint32_t live)
{
    if (live != 0) {
        span_look_at_live(heap, span, live);
    } else if (span_is_last_resort(heap, span)) {
        span->countdown = 0;
        span->held_back = 0;
        if (!span->listed) span_list(heap, span);
    } else {
        if (span->listed) span_unlist(heap, span);
        span_give_back(heap, span);
    }
}

void span_look(struct heap *heap, struct span *span, uint32_t live)
{
    look(heap, span, live);
}

ALWAYS_INLINE void countdown_ended(struct span *span, struct heap *heap)
{
    uint32_t entered = heap_enter(heap);
    /* Relaxed: it was ours, and is no more if it was found empty and given away before we came in. */
    if (LIKELY(atomic_load_explicit(&span->owner, memory_order_relaxed) == heap) && !hand_put(heap, span))
        look(heap, span, span->held_back);
    heap_leave(heap, entered);
}

void span_countdown_ended(struct span *span, struct heap *heap)
{
    countdown_ended(span, heap);
    heap_background_pass(__builtin_return_address(0)); /* the fast path has left by a jump */
}

void block_free_local(struct heap *heap, struct span *span, uintptr_t block)
{
    *block_words(block) = span->free ^ block ^ space.link_key;
    span->free = block;
    atomic_signal_fence(memory_order_release); /* the count is last: see idle.c */
    if (--span->countdown == 0) countdown_ended(span, heap);
}

void span_free_list(struct heap *heap, struct span *span, uintptr_t first, uintptr_t last, uint32_t blocks)
{
    list_link(last, span->free);
    span->free = first;
    if (blocks < span->countdown) span->countdown -= blocks;
    else span_look(heap, span, span_live(span) - blocks);
}

/* ---- flushing and adopting ------------------------------------------------------------------------------------------------------------- */

uintptr_t bin_take_from_hands(struct heap *heap)
{
    uintptr_t block = 0;
    for (unsigned bin = HAND_BIN_MIN; block == 0 && bin < BIN_COUNT; bin++) block = hand_take(heap, bin);
    return block;
}

/* One by one: chores may come by. */
static void return_hand(struct heap *heap, unsigned bin)
{
    uintptr_t block;
    while ((block = hand_take(heap, bin)) != 0)
        span_free_list(heap, span_of_offset(block - space.base), block, block, 1);
}

static void return_bin(struct heap *heap, unsigned bin)
{
    return_hand(heap, bin);
    if (POOLS_EXIST && bin_is_mixed(bin)) {
        mixed_let_go(heap, bin);
        return;
    }
    uintptr_t first = heap->free[bin];
    if (list_is_empty(first)) return;
    heap->free[bin] = bin_nothing(heap); /* before chores come by */
    uint32_t blocks = 1;
    uintptr_t last = first;
    for (uintptr_t next = list_next(last); !list_is_empty(next); next = list_next(last)) {
        last = next;
        blocks++;
    }
    span_free_list(heap, span_of_offset(first - space.base), first, last, blocks);
}

void heap_return_bin(struct heap *heap, unsigned bin)
{
    pick_forget(&heap->guard, bin);
    pick_forget(&heap->sample, bin);
    return_bin(heap, bin);
}

void heap_return_blocks(struct heap *heap)
{
    pick_forget_all(&heap->guard);
    pick_forget_all(&heap->sample);
    for (unsigned bin = 0; bin < HEAP_BINS; bin++) return_bin(heap, bin);
}

/* Give back the spans that were kept although they are empty. */
static void bin_give_back_empty(struct heap *heap, unsigned bin)
{
    uint32_t index = heap->bins[bin].listed;
    while (index != SPAN_NONE) {
        struct span *span = span_at(index);
        index = span->next;
        if (span_live(span) != 0) continue;
        span_unlist(heap, span);
        span_give_back(heap, span);
    }
}

void heap_give_back_empty(struct heap *heap)
{
    for (unsigned bin = 0; bin < HEAP_BINS; bin++) {
        bin_give_back_empty(heap, bin);
        heap->bins[bin].given = 0;
    }
}

void heap_flush(struct heap *heap)
{
    uint32_t entered = heap_enter(heap);
    __atomic_store_n(&heap->chores, true, __ATOMIC_RELAXED); /* no need to be told; the orphans' others look at */
    heap_return_blocks(heap);
    heap_give_back_empty(heap);
    heap_leave(heap, entered);
    cache_release(cache_detach(heap, SPAN_NONE));
}

void heap_take_span(struct heap *heap, struct heap *from, struct span *span)
{
    bool listed = span->listed;
    if (listed) span_unlist(from, span);
    span_disown(from, span);
    span_own(heap, span);
    if (listed) span_list(heap, span);
}

void heap_take_restored(struct heap *heap, struct span *span, uint32_t live)
{
    span->listed = false;
    span->since = 0;
    span_own(heap, span);
    look(heap, span, live);
}

void heap_take_spans(struct heap *heap, struct heap *from)
{
    while (from->owned.spans != 0) heap_take_span(heap, from, span_at(from->owned.first));
    while (from->sparse.spans != 0) heap_take_span(heap, from, span_at(from->sparse.first));
}
