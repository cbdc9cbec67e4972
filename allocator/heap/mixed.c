/* Bins of objects of many sizes, one behind the other in the order in which they were asked for: what is allocated together
 * stands together, whatever it is. In the library with pools alone.
 *
 * Such a span is to everybody else one of blocks of 16 bytes, some of which are objects of several: so an object is freed as
 * a block is, by its owner onto the span's list, by others through their outboxes, and orphans and forks need know nothing.
 * How long an object is, is told by bits apart from it, for each *granule* of 16 bytes, which stand at the span's start:
 *
 *     granules    │ bits … │ A A A │ B │ · · · · · · │ C C │ · · · …
 *     ends        │        │ 0 0 1 │ 1 │ 0 0 0 0 0 0 │ 0 1 │ 0 0 0        the last of each object
 *     holes       │ 0 … 0  │ 0 0 0 │ 0 │ 1 1 1 1 1 1 │ 0 0 │ 1 1 1        that no object has
 *
 * Neighbours that have both been freed make one hole by having their bits side by side. The bin takes from one hole of one
 * span, its *current* one, from front to back; what is left of it stands in neither map. Then it looks for the next hole
 * behind it, then for another listed span. Freed objects become holes when their span is taken: until then they wait in its
 * list. `uncarved` says which units lie in holes as wholes, but is 0 while the span is current.
 */
#include "heap.h"

enum { GRANULES = SPAN_SIZE / MALLOC_ALIGNMENT, GRANULE_WORDS = GRANULES / 64 };

struct mixed {
    /* Written by the owner alone. Others read the bits of an object that they know to live, which have not changed since it was
     * made: so relaxed accesses do. */
    _Atomic(uint64_t) ends[GRANULE_WORDS];
    uint64_t holes[GRANULE_WORDS]; /* the owner's */
    uint32_t next, end; /* the owner's: what is left of the current hole, in granules */
};

enum { GRANULE_FIRST = (sizeof(struct mixed) + MALLOC_ALIGNMENT - 1) / MALLOC_ALIGNMENT };

/* The current span counts as having so many objects more: so it is neither given back nor ever sparse. */
enum { HELD = 64 };

static struct mixed *mixed_of(const struct span *span)
{
    return (struct mixed *)span_start(span);
}

/* ---- bits --------------------------------------------------------------------------------------------------------- */

/* The first granule from `from` on whose bit in `holes` is `value`, or GRANULES. */
static uint32_t holes_find(const struct mixed *mixed, uint32_t from, bool value)
{
    uint64_t flip = value ? 0 : UINT64_MAX;
    for (uint32_t word = from / 64; word < GRANULE_WORDS; word++) {
        uint64_t bits = mixed->holes[word] ^ flip;
        if (word == from / 64) bits &= UINT64_MAX << (from % 64);
        if (bits != 0) return word * 64 + (uint32_t)__builtin_ctzl(bits);
    }
    return GRANULES;
}

/* The last granule of the object that has this one, or GRANULES. Any thread. */
static uint32_t end_of(const struct mixed *mixed, uint32_t granule)
{
    for (uint32_t word = granule / 64; word < GRANULE_WORDS; word++) {
        uint64_t bits = atomic_load_explicit(&mixed->ends[word], memory_order_relaxed);
        if (word == granule / 64) bits &= UINT64_MAX << (granule % 64);
        if (bits != 0) return word * 64 + (uint32_t)__builtin_ctzl(bits);
    }
    return GRANULES;
}

static bool is_end(const struct mixed *mixed, uint32_t granule)
{
    return (atomic_load_explicit(&mixed->ends[granule / 64], memory_order_relaxed) >> (granule % 64) & 1) != 0;
}

static bool is_hole(const struct mixed *mixed, uint32_t granule)
{
    return (mixed->holes[granule / 64] >> (granule % 64) & 1) != 0;
}

static void end_flip(struct mixed *mixed, uint32_t granule)
{
    _Atomic(uint64_t) *word = &mixed->ends[granule / 64];
    uint64_t bits = atomic_load_explicit(word, memory_order_relaxed);
    atomic_store_explicit(word, bits ^ UINT64_C(1) << (granule % 64), memory_order_relaxed);
}

/* Flip the bits of [from, to), all of which are alike. */
static void holes_flip(struct mixed *mixed, uint32_t from, uint32_t to)
{
    while (from < to) {
        uint32_t stop = (from / 64 + 1) * 64 < to ? (from / 64 + 1) * 64 : to;
        uint64_t bits = UINT64_MAX >> (64 - (stop - from)) << (from % 64);
        mixed->holes[from / 64] ^= bits; /* NOLINT(clang-analyzer-security.ArrayBound): `to` is within the span */
        from = stop;
    }
}

/* A mask of the units that lie in holes as wholes. */
static uint32_t units_in_holes(const struct mixed *mixed)
{
    enum { UNIT_WORDS = GRANULE_WORDS / CARVE_UNITS };
    uint32_t units = 0;
    for (uint32_t unit = 0; unit < CARVE_UNITS; unit++) {
        uint64_t all = UINT64_MAX;
        for (uint32_t i = 0; i < UNIT_WORDS; i++) all &= mixed->holes[unit * UNIT_WORDS + i];
        if (all == UINT64_MAX) units |= 1u << unit;
    }
    return units;
}

/* ---- spans -------------------------------------------------------------------------------------------------------- */

void mixed_start(struct span *span)
{
    struct mixed *mixed = mixed_of(span);
    for (uint32_t word = 0; word < GRANULE_WORDS; word++) {
        atomic_store_explicit(&mixed->ends[word], 0, memory_order_relaxed);
        mixed->holes[word] = 0;
    }
    holes_flip(mixed, GRANULE_FIRST, GRANULES);
    mixed->next = mixed->end = GRANULES;
    span->uncarved = (uint16_t)units_in_holes(mixed);
}

/* Which units are whole in holes; a span without any counts as dense. */
static void set_uncarved(struct span *span, uint32_t units)
{
    if ((span->uncarved == 0) != (units == 0)) space_dense_spans_add(units == 0 ? 1 : -1);
    span->uncarved = (uint16_t)units;
}

/* Whether an object starts there, as far as can be told: in front of it is another, or a hole, or nothing. */
static bool starts_object(const struct mixed *mixed, uint32_t granule)
{
    if (granule < GRANULE_FIRST || is_hole(mixed, granule)) return false;
    return granule == GRANULE_FIRST || is_hole(mixed, granule - 1) || is_end(mixed, granule - 1);
}

/* Make holes of the objects in the span's list. */
static void take_in(struct span *span)
{
    struct mixed *mixed = mixed_of(span);
    uintptr_t block = span->free;
    if (UNLIKELY(span->sampled)) sample_forget_free(span);
    span->free = span_list_end(span);
    while (!list_is_empty(block)) {
        uint32_t granule = (uint32_t)(block & (SPAN_SIZE - 1)) / MALLOC_ALIGNMENT;
        uint32_t end = end_of(mixed, granule);
        if (UNLIKELY(end == GRANULES || !starts_object(mixed, granule))) check_pointer_failed("free", (void *)block);
        end_flip(mixed, end);
        holes_flip(mixed, granule, end + 1);
        span->carved--;
        block = list_next(block);
    }
}

/* The head of the bin's list, which is always empty, names the current span; NULL: there is none. */
static struct mixed *current_of(const struct heap *heap, unsigned bin)
{
    uintptr_t head = heap->free[bin];
    return head == bin_nothing(heap) ? NULL : (struct mixed *)(head & ~(uintptr_t)LIST_END);
}

uint32_t mixed_units_free(struct heap *heap, struct span *span)
{
    if (current_of(heap, span->bin) == mixed_of(span)) return 0; /* soon to be used */
    take_in(span);
    set_uncarved(span, units_in_holes(mixed_of(span)));
    span_arrange(heap, span, span_live(span));
    return span->uncarved;
}

/* ---- the current span --------------------------------------------------------------------------------------------- */

void mixed_let_go(struct heap *heap, unsigned bin)
{
    struct mixed *mixed = current_of(heap, bin);
    if (mixed == NULL) return;
    uint32_t entered = heap_enter(heap);
    heap->free[bin] = bin_nothing(heap);
    holes_flip(mixed, mixed->next, mixed->end);
    mixed->next = mixed->end = GRANULES;
    struct span *span = span_of_offset((uintptr_t)mixed - space.base);
    set_uncarved(span, units_in_holes(mixed));
    uint32_t live = span_live(span) - HELD;
    span->carved = (uint16_t)(span->carved - HELD);
    if (live == 0) span_look(heap, span, 0);
    else span_arrange(heap, span, live);
    heap_leave(heap, entered);
}

static struct mixed *make_current(struct heap *heap, struct span *span)
{
    struct mixed *mixed = mixed_of(span);
    span_set_sparse(heap, span, 0);
    take_in(span);
    set_uncarved(span, 0);
    mixed->next = mixed->end = GRANULE_FIRST;
    uint32_t live = span_live(span) + HELD;
    span->carved = (uint16_t)(span->carved + HELD);
    span_arrange(heap, span, live);
    heap->free[span->bin] = (uintptr_t)mixed | LIST_END;
    return mixed;
}

/* Go on to the next hole of so many granules behind the one that is current; false: there is none. */
static bool next_hole(struct mixed *mixed, uint32_t granules)
{
    uint32_t end = mixed->end;
    holes_flip(mixed, mixed->next, end);
    for (;;) {
        uint32_t start = holes_find(mixed, end, true);
        end = start == GRANULES ? start : holes_find(mixed, start, false);
        mixed->next = start;
        mixed->end = start; /* of holes that are too small nothing is taken */
        if (start == GRANULES) return false;
        if (end - start < granules) continue;
        holes_flip(mixed, start, end);
        mixed->end = end;
        return true;
    }
}

/* The current hole ends before the next object that is picked, but holds the one that is wanted. */
static void cut_hole(struct heap *heap, unsigned bin, struct mixed *mixed, uint32_t granules)
{
    uint32_t before = bin_cut(heap, bin, MALLOC_ALIGNMENT, mixed->end - mixed->next);
    uint32_t end = mixed->next + (before < granules ? granules : before);
    holes_flip(mixed, end, mixed->end);
    mixed->end = end;
}

/* A current hole that is large enough; NULL: memory has run out. */
static NOINLINE struct mixed *refill(struct heap *heap, unsigned bin, uint32_t granules)
{
    struct mixed *mixed = current_of(heap, bin);
    while (mixed == NULL || !next_hole(mixed, granules)) {
        mixed_let_go(heap, bin);
        uint32_t entered = heap_enter(heap);
        struct span *span = bin_find_span(heap, bin);
        /* What has been freed in it may not make a hole that is large enough. Then it is listed no more, and each round ends
         * with one span less, at last with a new one. */
        mixed = span == NULL ? NULL : make_current(heap, span);
        heap_leave(heap, entered);
        if (mixed == NULL) return NULL;
    }
    if (pick_is_on()) cut_hole(heap, bin, mixed, granules);
    count_refill(heap);
    return mixed;
}

void *mixed_malloc(struct heap *heap, unsigned bin, size_t size)
{
    uint32_t granules = size == 0 ? 1 : (uint32_t)((size + MALLOC_ALIGNMENT - 1) / MALLOC_ALIGNMENT);
    struct mixed *mixed = current_of(heap, bin);
    bool sampled = false;
    if (UNLIKELY(mixed == NULL || mixed->end - mixed->next < granules)) {
        size_t bytes = (size_t)granules * MALLOC_ALIGNMENT;
        void *guarded = NULL;
        if (pick_is_on() && bin_may_pick(heap, bin, bytes))
            guarded = bin_pick(heap, bin, bytes, size, MALLOC_ALIGNMENT, &sampled);
        if (UNLIKELY(guarded != NULL)) return guarded;
        mixed = refill(heap, bin, granules);
        if (UNLIKELY(mixed == NULL)) return NULL;
    }
    uintptr_t object = (uintptr_t)mixed + (uintptr_t)mixed->next * MALLOC_ALIGNMENT;
    mixed->next += granules;
    end_flip(mixed, mixed->next - 1);
    struct span *span = span_of_offset((uintptr_t)mixed - space.base);
    span->carved++;
    /* A span that is not listed is to be looked at after so many frees; one that is, when so few objects are left. */
    if (span->listed) span->countdown++;
    else span->held_back++;
    *block_words(object) = 0; /* as bin_pop */
    if (UNLIKELY(sampled)) sample_note(heap, (void *)object, (size_t)granules * MALLOC_ALIGNMENT);
    return (void *)object;
}

/* ---- looking up ---------------------------------------------------------------------------------------------------- */

size_t mixed_usable_size(const char *function, const struct span *span, const void *pointer)
{
    uint32_t granule = (uint32_t)((uintptr_t)pointer & (SPAN_SIZE - 1)) / MALLOC_ALIGNMENT;
    uint32_t end = end_of(mixed_of(span), granule);
    if (UNLIKELY(granule < GRANULE_FIRST || end == GRANULES)) check_pointer_failed(function, pointer);
    return (size_t)(end + 1 - granule) * MALLOC_ALIGNMENT;
}

bool mixed_starts_object(const struct span *span, uintptr_t object)
{
    const struct mixed *mixed = mixed_of(span);
    uint32_t granule = (uint32_t)(object & (SPAN_SIZE - 1)) / MALLOC_ALIGNMENT;
    bool in_current_hole = granule >= mixed->next && granule < mixed->end;
    return !in_current_hole && starts_object(mixed, granule) && end_of(mixed, granule) != GRANULES;
}

READS_RACILY struct mixed_figures mixed_figures(const struct span *span)
{
    const struct mixed *mixed = mixed_of(span);
    struct mixed_figures figures = {0};
    uint32_t holes = mixed->end > mixed->next ? mixed->end - mixed->next : 0;
    for (uint32_t word = 0; word < GRANULE_WORDS; word++) {
        figures.objects +=
            (uint32_t)__builtin_popcountl(atomic_load_explicit(&mixed->ends[word], memory_order_relaxed));
        holes += (uint32_t)__builtin_popcountl(__atomic_load_n(&mixed->holes[word], __ATOMIC_RELAXED));
    }
    if (holes > GRANULES - GRANULE_FIRST) holes = GRANULES - GRANULE_FIRST;
    figures.bytes_free = holes * MALLOC_ALIGNMENT;
    figures.bytes = (GRANULES - GRANULE_FIRST - holes) * MALLOC_ALIGNMENT;
    return figures;
}
