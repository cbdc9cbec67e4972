/* Free runs: found by length (segregated lists), merged with free neighbours of the same pool through boundary tags: the first
 * and the last descriptor of a free run hold its length (Knuth, TAOCP vol. 1, 2.5, algorithm C). Clean and dirty runs do not
 * merge: a request prefers memory that is resident already. Nor do dirty runs of different nodes.
 *
 * Whatever the heap looks like, a run is found, put back and taken out in a bounded number of steps: all of it happens under the one
 * lock of the space.
 */
#include "state.h"

/* ---- lists ------------------------------------------------------------------------------------------ */

void pools_start(void)
{
    for (struct pool *pool = space_state.pools; pool < space_state.pools + pools_zeroed_end(); pool++) {
        pool->youngest = pool->oldest = SPAN_NONE;
        for (int i = 0; i < LENGTH_LISTS; i++) pool->lists[i] = SPAN_NONE;
    }
}

static struct pool *pool_of(const struct span *run)
{
    return &space_state.pools[run->pool];
}

static unsigned list_of_length(uint32_t spans)
{
    if (spans <= EXACT_LENGTHS) return spans - 1;
    unsigned power = 31 - (unsigned)__builtin_clz(spans);
    unsigned part = (spans >> (power - LISTS_LOG2)) & (LISTS_PER_POWER - 1);
    return EXACT_LENGTHS + (power - EXACT_LOG2) * LISTS_PER_POWER + part;
}

/* The first list from `list` on that is not empty; LENGTH_LISTS: none. */
static unsigned list_filled_from(const struct pool *pool, unsigned list)
{
    if (list >= LENGTH_LISTS) return LENGTH_LISTS;
    unsigned word = list / 64;
    uint64_t filled = pool->lists_filled[word] >> list % 64 << list % 64;
    while (filled == 0) {
        if (++word == LIST_WORDS) return LENGTH_LISTS;
        filled = pool->lists_filled[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(filled);
}

static void length_list_add(struct span *run)
{
    unsigned list = list_of_length(run->run_spans);
    uint32_t *head = &pool_of(run)->lists[list];
    run->prev = SPAN_NONE;
    run->next = *head;
    if (*head != SPAN_NONE) span_at(*head)->prev = span_index(run);
    *head = span_index(run);
    pool_of(run)->lists_filled[list / 64] |= UINT64_C(1) << list % 64;
}

static void length_list_remove(struct span *run)
{
    unsigned list = list_of_length(run->run_spans);
    uint32_t *head = &pool_of(run)->lists[list];
    if (run->next != SPAN_NONE) span_at(run->next)->prev = run->prev;
    if (run->prev != SPAN_NONE) span_at(run->prev)->next = run->next;
    else *head = run->next;
    if (*head == SPAN_NONE) pool_of(run)->lists_filled[list / 64] &= ~(UINT64_C(1) << list % 64);
}

static bool is_younger(uint32_t run, const struct span *than)
{
    return age_at(span_since(span_at(run)), span_since(than)) > 0;
}

/* The dirty runs of a pool stand in one list ordered by age. The place of a run is looked for from `near`, a run of that list of
 * about its age; SPAN_NONE: it is about the youngest. Whoever puts back a part of an old run, or one that has merged with it, has its
 * neighbours in the list at hand: from the end the way would be as long as there are runs. */
static void age_list_add(struct span *run, uint32_t near)
{
    struct pool *pool = pool_of(run);
    uint32_t place = near == SPAN_NONE ? pool->youngest : near; /* becomes the next older run */
    while (place != SPAN_NONE && is_younger(place, run)) place = span_at(place)->owned_next;
    uint32_t after = place == SPAN_NONE ? pool->oldest : span_at(place)->owned_prev; /* and this the next younger one */
    while (after != SPAN_NONE && !is_younger(after, run)) {
        place = after;
        after = span_at(after)->owned_prev;
    }
    run->owned_prev = after;
    run->owned_next = place;
    if (after != SPAN_NONE) span_at(after)->owned_next = span_index(run);
    else pool->youngest = span_index(run);
    if (place != SPAN_NONE) span_at(place)->owned_prev = span_index(run);
    else pool->oldest = span_index(run);
}

/* A run beside this one in the list of ages, to look for a place from when this one has been taken out. */
static uint32_t age_list_near(const struct span *run)
{
    if (!pool_is_dirty(run->pool)) return SPAN_NONE;
    return run->owned_prev != SPAN_NONE ? run->owned_prev : run->owned_next;
}

static void age_list_remove(struct span *run)
{
    struct pool *pool = pool_of(run);
    if (run->owned_prev != SPAN_NONE) span_at(run->owned_prev)->owned_next = run->owned_next;
    else pool->youngest = run->owned_next;
    if (run->owned_next != SPAN_NONE) span_at(run->owned_next)->owned_prev = run->owned_prev;
    else pool->oldest = run->owned_prev;
}

/* ---- free runs -------------------------------------------------------------------------------------- */

/* Only the ends of a free run are ever looked at. */
static void run_tag(struct span *first, uint32_t spans, unsigned pool, uint64_t freed_at)
{
    struct span *last = first - (spans - 1); /* the table grows downwards */
    last->run_spans = first->run_spans = spans;
    last->pool = first->pool = (uint8_t)pool;
    span_since_set(first, freed_at);
}

static void run_insert(struct span *first, uint32_t near)
{
    length_list_add(first);
    if (pool_is_dirty(first->pool)) age_list_add(first, near);
    pool_of(first)->spans += first->run_spans;
}

void run_remove(struct span *first)
{
    length_list_remove(first);
    if (pool_is_dirty(first->pool)) age_list_remove(first);
    pool_of(first)->spans -= first->run_spans;
}

static bool is_free_end(uint32_t index, unsigned pool)
{
    if (index >= space_state.frontier) return false; /* also when index is -1: before span 0 */
    const struct span *span = span_at(index);
    return span_kind_read(span) == SPAN_FREE && span->pool == pool;
}

/* `near`: see age_list_add. */
static struct span *run_put(uint32_t index, uint32_t spans, unsigned pool, uint64_t freed_at, uint32_t near)
{
    /* Its ends may come to lie inside the merged run: a second free of the object must not find it there. */
    span_at(index)->kind = SPAN_FREE;
    span_at(index + spans - 1)->kind = SPAN_FREE;
    uint32_t largest = spans; /* the merged run is as old as its largest part: a span that comes and goes at */
    /* the edge of a large one must not keep it young for ever */
    if (is_free_end(index + spans, pool)) {
        struct span *after = span_at(index + spans);
        if (near == index + spans) near = age_list_near(after);
        run_remove(after);
        if (after->run_spans > largest) {
            largest = after->run_spans;
            freed_at = span_since(after);
            near = age_list_near(after);
        }
        spans += after->run_spans;
    }
    if (is_free_end(index - 1, pool)) {
        uint32_t length = span_at(index - 1)->run_spans;
        struct span *before = span_at(index - length);
        if (near == index - length) near = age_list_near(before);
        run_remove(before);
        if (length > largest) {
            freed_at = span_since(before);
            near = age_list_near(before);
        }
        index -= length;
        spans += length;
    }
    struct span *first = span_at(index);
    run_tag(first, spans, pool, freed_at);
    run_insert(first, near);
    return first;
}

struct span *run_free(uint32_t index, uint32_t spans, unsigned pool, uint64_t freed_at)
{
    return run_put(index, spans, pool, freed_at, SPAN_NONE);
}

void run_renew(struct span *first, uint64_t now)
{
    age_list_remove(first);
    span_since_set(first, now);
    age_list_add(first, SPAN_NONE);
}

/* Runs that may be too short, or lie wrong: as many are looked at. A longer run is taken in place of one that may stand further
 * back. */
enum { LOOKED_AT_MAX = 32 };

/* A run that is long enough wherever it begins. */
static struct span *find_unaligned(const struct pool *from, uint32_t spans)
{
    unsigned list = list_of_length(spans);
    if (spans > EXACT_LENGTHS) {
        struct span *best = NULL;
        uint32_t i = from->lists[list];
        for (unsigned looked_at = 0; i != SPAN_NONE && looked_at < LOOKED_AT_MAX; i = span_at(i)->next, looked_at++) {
            struct span *run = span_at(i);
            if (run->run_spans >= spans && (best == NULL || run->run_spans < best->run_spans)) best = run;
        }
        if (best != NULL) return best;
        list++;
    }
    list = list_filled_from(from, list);
    return list == LENGTH_LISTS ? NULL : span_at(from->lists[list]);
}

uint32_t run_longest(unsigned pool)
{
    const struct pool *from = &space_state.pools[pool];
    for (unsigned word = LIST_WORDS; word-- > 0;) {
        uint64_t filled = from->lists_filled[word];
        if (filled != 0) return span_at(from->lists[word * 64 + 63 - (unsigned)__builtin_clzll(filled)])->run_spans;
    }
    return 0;
}

static bool holds_aligned(const struct span *run, uint32_t spans, uint32_t alignment)
{
    uint32_t start = span_index(run);
    return index_aligned(start, alignment) - start + spans <= run->run_spans;
}

/* What was aligned before is of just the right length, and free runs that happen to lie well are not rare: of each length some are
 * looked at, of few lengths. */
enum { LENGTHS_LOOKED_AT_MAX = 16 };

static struct span *find_aligned(const struct pool *from, uint32_t spans, uint32_t alignment)
{
    unsigned list = list_filled_from(from, list_of_length(spans));
    for (unsigned lengths = 0; list != LENGTH_LISTS && lengths < LENGTHS_LOOKED_AT_MAX; lengths++) {
        uint32_t i = from->lists[list];
        for (unsigned looked_at = 0; i != SPAN_NONE && looked_at < LOOKED_AT_MAX; i = span_at(i)->next, looked_at++)
            if (holds_aligned(span_at(i), spans, alignment)) return span_at(i);
        list = list_filled_from(from, list + 1);
    }
    return NULL;
}

struct span *run_find(uint32_t spans, uint32_t alignment, unsigned pool)
{
    const struct pool *from = &space_state.pools[pool];
    struct span *run = alignment == 1 ? NULL : find_aligned(from, spans, alignment);
    return run != NULL ? run : find_unaligned(from, spans + alignment - 1);
}

/* ---- cutting ---------------------------------------------------------------------------------------- */

void run_cut(struct span *run, uint32_t index, uint32_t wanted)
{
    uint32_t start = span_index(run);
    uint32_t spans = run->run_spans;
    unsigned pool = run->pool;
    uint64_t freed_at = span_since(run);
    uint32_t near = age_list_near(run);
    run_remove(run);
    /* Take the middle out of the free world first, so that the parts do not merge with it again. */
    span_at(index)->kind = SPAN_METADATA;
    span_at(index + wanted - 1)->kind = SPAN_METADATA;
    if (index > start) run_put(start, index - start, pool, freed_at, near);
    if (start + spans > index + wanted) run_put(index + wanted, start + spans - index - wanted, pool, freed_at, near);
}
