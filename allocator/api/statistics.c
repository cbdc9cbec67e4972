/* Figures, derived when somebody asks: from the descriptors of all spans, and from counters of slow paths.
 *
 * Descriptors belong to the threads that own the spans, and those go on while we look. So the counters of a span are read
 * one by one, relaxed, and may be some blocks apart; a figure may be off by what was in motion, and is clamped to what is
 * possible. Nothing is decided by them. The owners write with plain stores: they are aligned and no wider than a word, so
 * that none is seen half.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "api.h"

#include <errno.h>
#include <string.h>

#define READ(member) __atomic_load_n(&(member), __ATOMIC_RELAXED)

/* ---- collecting ---------------------------------------------------------------------------------------------------- */

/* run_spans changes under the lock that the visitor holds. How much of the run is the object's is written down later: until then it
 * is what the descriptor had, and stays so in a fork's child that has not the thread. */
READS_RACILY static size_t bytes_of_large(const struct span *span)
{
    size_t told = large_told_size(span), most = (size_t)span->run_spans * SPAN_SIZE;
    return told < most ? told : most;
}

static void add_large(hf_stats *total, const struct span *span)
{
    total->large_objects++;
    total->large_bytes += bytes_of_large(span);
}

/* The blocks of one span. */
struct blocks {
    unsigned bin; /* that of its size class, of pools too; BIN_COUNT: the span is none of blocks of one size */
    size_t live, free;
};

READS_RACILY static struct blocks blocks_of(const struct span *span)
{
    unsigned bin = READ(span->bin);
    if (READ(span->kind) != SPAN_BLOCKS || bin >= HEAP_BINS || bin_is_mixed(bin))
        return (struct blocks){.bin = BIN_COUNT};
    struct blocks blocks = {.bin = bin_class(bin)};
    size_t capacity = SPAN_SIZE / size_class_bytes(blocks.bin);
    size_t carved = READ(span->carved);
    blocks.live = (size_t)READ(span->countdown) + READ(span->held_back);
    if (carved > capacity) carved = capacity;
    if (blocks.live > carved) blocks.live = carved;
    blocks.free = carved - blocks.live;
    return blocks;
}

static void add_blocks(hf_class_stats *classes, const struct span *span)
{
    struct blocks blocks = blocks_of(span);
    if (blocks.bin == BIN_COUNT) return;
    hf_class_stats *class = &classes[blocks.bin];
    class->spans++;
    class->live_objects += blocks.live;
    class->free_objects += blocks.free;
}

/* What is in a span of objects of many sizes, which are of no class; false: it is none. */
static bool mixed_in(const struct span *span, struct mixed_figures *figures)
{
    if (!POOLS_EXIST || READ(span->kind) != SPAN_BLOCKS) return false;
    unsigned bin = READ(span->bin);
    if (bin >= HEAP_BINS || !bin_is_mixed(bin)) return false;
    if (POOLS_EXIST) *figures = mixed_figures(span);
    return true;
}

static void add_mixed(hf_stats *total, const struct mixed_figures *figures)
{
    total->live_objects += figures->objects;
    total->live_bytes += figures->bytes;
    total->free_bytes += figures->bytes_free;
}

static void add_span(const struct span *span, void *argument)
{
    struct statistics *statistics = argument;
    struct mixed_figures mixed;
    uint8_t kind = READ(span->kind);
    if (mixed_in(span, &mixed)) add_mixed(&statistics->total, &mixed);
    else if (kind == SPAN_LARGE) add_large(&statistics->total, span);
    else if (kind == SPAN_BLOCKS) add_blocks(statistics->classes, span);
    else if (kind == SPAN_GUEST) statistics->total.context_bytes += (size_t)span->run_spans * SPAN_SIZE;
}

static size_t list_length(uintptr_t block)
{
    size_t length = 0;
    for (; !list_is_empty(block); length++) {
        uintptr_t link = *block_words(block) ^ space.link_key;
        if (link > LINK_MAX) check_link_failed((const void *)block);
        block ^= link;
    }
    return length;
}

/* The blocks in the bins of the calling thread count as live in their spans: here, and only here, they can be told. */
static void count_own_bins_as_free(hf_class_stats *classes)
{
    const struct heap *heap = thread_heap_own();
    for (unsigned bin = 0; bin < HEAP_BINS; bin++) {
        size_t length = list_length(heap->free[bin]);
        if (bin_has_hand(bin)) length += heap->hands[bin - HAND_BIN_MIN].count;
        if (length == 0) continue; /* of mixed sizes always */
        hf_class_stats *class = &classes[bin_class(bin)];
        if (length > class->live_objects) length = class->live_objects;
        class->live_objects -= length;
        class->free_objects += length;
    }
}

static void sum_up(struct statistics *statistics)
{
    hf_stats *total = &statistics->total;
    total->live_objects += total->large_objects;
    total->live_bytes += total->large_bytes;
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        const hf_class_stats *class = &statistics->classes[bin];
        total->live_objects += class->live_objects;
        total->live_bytes += class->live_objects * class->block_size;
        total->free_bytes += class->free_objects * class->block_size;
    }
    total->footprint += total->own_bytes;
}

static void add_space_figures(hf_stats *total)
{
    struct space_figures spaces;
    space_figures(&spaces);
    size_t spans_ever = (spaces.handed_out + spaces.dirty + spaces.clean + spaces.zeroed) / SPAN_SIZE;
    /* Whole spans: what has not been carved of one that is used again may be resident, too. */
    total->footprint = spaces.handed_out - spaces.metadata + spaces.dirty + spaces.zeroed;
    total->dirty_bytes = spaces.dirty;
    total->own_bytes = spaces.metadata + spans_ever * sizeof(struct span);
    total->committed = spaces.committed;
    total->reserved = spaces.reserved;
    total->purged = spaces.purged;
    total->purges = spaces.purge_calls;
    total->zeroed_bytes = spaces.zeroed;
    total->huge_bytes = spaces.huge;
    total->commits = spaces.commit_calls;
    total->advices = spaces.advice_calls;
    total->nodes = spaces.nodes > 1 ? spaces.nodes : 1;
}

static void add_heap_figures(hf_stats *total)
{
    struct heap_figures heaps;
    heap_figures(&heaps);
    total->heaps = heaps.made;
    total->heaps_idle = heaps.idle;
    total->orphan_spans = heaps.orphans;
    total->cached_bytes = heaps.cached;
    total->zeroed_hits = heaps.zeroed_hits;
    total->zeroed_misses = heaps.zeroed_misses;
    total->refills = heaps.refills;
    total->remote_batches = heaps.remote_batches;
    total->remote_blocks = heaps.remote_blocks;
    total->threads_sharing = heaps.sharing;
}

static void add_guard_figures(hf_stats *total)
{
    struct guard_figures figures;
    guard_figures(&figures);
    total->live_objects += figures.live;
    total->live_bytes += figures.live_bytes;
    total->footprint += figures.live_bytes;
    total->own_bytes += figures.own_bytes;
    total->guard_slots = figures.slots;
    total->guard_objects = figures.live;
    total->guard_samples = figures.samples;
    total->guard_missed = figures.missed;
}

void statistics_collect(struct statistics *statistics)
{
    memset(statistics, 0, sizeof *statistics);
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) statistics->classes[bin].block_size = size_class_bytes(bin);
    if (!heap_is_started()) return;
    struct heap *heap = thread_heap_own();
    if (heap != &heap_none) remote_inbox_take(heap);
    space_visit(add_span, statistics);
    count_own_bins_as_free(statistics->classes);
    add_space_figures(&statistics->total);
    add_heap_figures(&statistics->total);
    add_guard_figures(&statistics->total);
    statistics->total.contexts = context_count();
    sum_up(statistics);
}

size_t statistics_resident(void)
{
    struct space_figures spaces;
    if (space.base == 0) return 0;
    space_figures(&spaces);
    return platform_resident((const void *)space.base, spaces.committed);
}

/* ---- heaps --------------------------------------------------------------------------------------------------------- */

/* Where figures of a heap are collected; NULL: not now. */
static struct heap_row *row_of(const struct heap_rows *rows, size_t number)
{
    return number >= rows->first && number - rows->first < rows->capacity ? &rows->rows[number - rows->first] : NULL;
}

static long thread_of(const struct heap *heap)
{
    bool shared = atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_SHARED;
    if (shared && heap != &heap_orphans) return -1;
    return atomic_load_explicit(&heap->thread, memory_order_relaxed);
}

READS_RACILY static void add_heap(const struct heap *heap, void *argument)
{
    struct heap_rows *rows = argument;
    if (heap->number >= rows->heaps) rows->heaps = (size_t)heap->number + 1;
    struct heap_row *row = row_of(rows, heap->number);
    if (row == NULL) return;
    row->stats = (hf_heap_stats){
        .number = heap->number,
        .thread = thread_of(heap),
        .cached_bytes = cache_bytes(heap),
        .refills = READ(heap->refills),
    };
}

/* Spans between two owners are nobody's. */
static void add_span_of_heap(const struct span *span, void *argument)
{
    const struct heap *owner = atomic_load_explicit(&span->owner, memory_order_relaxed);
    struct blocks blocks = blocks_of(span);
    struct mixed_figures mixed = {0};
    bool is_mixed = mixed_in(span, &mixed);
    if ((blocks.bin == BIN_COUNT && !is_mixed) || owner == NULL) return;
    struct heap_row *row = row_of(argument, owner->number);
    if (row == NULL) return;
    row->stats.spans++;
    row->stats.live_bytes += mixed.bytes;
    row->stats.free_bytes += mixed.bytes_free;
    if (is_mixed) return;
    row->stats.live_bytes += blocks.live * size_class_bytes(blocks.bin);
    row->stats.free_bytes += blocks.free * size_class_bytes(blocks.bin);
    row->free_objects[blocks.bin] += (uint32_t)blocks.free;
}

/* Fill the rows from `first` on. */
static void collect_rows(struct heap_rows *rows, size_t first)
{
    rows->first = first;
    rows->next = 0;
    memset(rows->rows, 0, rows->capacity * sizeof *rows->rows);
    heap_visit_all(add_heap, rows);
    space_visit(add_span_of_heap, rows);
    size_t left = rows->heaps > first ? rows->heaps - first : 0;
    rows->count = left < rows->capacity ? left : rows->capacity;
}

const struct heap_row *heap_rows_begin(struct heap_rows *rows)
{
    *rows = (struct heap_rows){.rows = rows->few, .capacity = HEAP_ROWS_FEW};
    if (space.base == 0) return NULL;
    struct heap_figures figures;
    heap_figures(&figures);
    if (figures.made > HEAP_ROWS_FEW) {
        size_t capacity = figures.made + HEAP_ROWS_FEW; /* those that are made meanwhile, too */
        void *borrowed = platform_borrow(capacity * sizeof(struct heap_row));
        if (borrowed != NULL) {
            rows->rows = borrowed;
            rows->capacity = capacity;
        }
    }
    collect_rows(rows, 0);
    return heap_rows_next(rows);
}

const struct heap_row *heap_rows_next(struct heap_rows *rows)
{
    if (rows->next == rows->count && rows->count == rows->capacity) collect_rows(rows, rows->first + rows->count);
    if (rows->next < rows->count) return &rows->rows[rows->next++];
    if (rows->rows != rows->few) platform_give_back(rows->rows, rows->capacity * sizeof *rows->rows);
    return NULL;
}

/* ---- nodes ----------------------------------------------------------------------------------------------------------- */

enum { NODES_MAX = 64 }; /* more than the layer below tells apart */

bool statistics_node(size_t place, hf_node_stats *node)
{
    struct space_node_figures figures[NODES_MAX] = {{0}};
    size_t nodes = heap_is_started() ? space_node_figures(figures, NODES_MAX) : 1;
    if (place >= nodes || place >= NODES_MAX) return false;
    *node = (hf_node_stats){
        .node = place,
        .dirty_bytes = figures[place].dirty,
        .zeroed_bytes = figures[place].zeroed,
        .crossings = figures[place].crossings,
    };
    return true;
}

/* ---- for programs -------------------------------------------------------------------------------------------------------- */

EXPORT int hf_stats_get(hf_stats *stats, size_t size)
{
    if (stats == NULL) {
        errno = EINVAL;
        return -1;
    }
    struct statistics statistics;
    statistics_collect(&statistics);
    if (size > offsetof(hf_stats, resident)) statistics.total.resident = statistics_resident();
    size_t known = size < sizeof statistics.total ? size : sizeof statistics.total;
    memset(stats, 0, size);
    memcpy(stats, &statistics.total, known);
    return 0;
}

EXPORT size_t hf_stats_classes(hf_class_stats *classes, size_t count)
{
    struct statistics statistics;
    statistics_collect(&statistics);
    if (count > BIN_COUNT) count = BIN_COUNT;
    if (count != 0) memcpy(classes, statistics.classes, count * sizeof *classes);
    return BIN_COUNT;
}

EXPORT size_t hf_stats_heaps(hf_heap_stats *heaps, size_t count)
{
    struct heap_rows rows;
    size_t place = 0;
    for (const struct heap_row *row = heap_rows_begin(&rows); row != NULL; row = heap_rows_next(&rows), place++)
        if (place < count) heaps[place] = row->stats;
    return rows.heaps;
}

EXPORT size_t hf_stats_nodes(hf_node_stats *nodes, size_t count)
{
    hf_node_stats node;
    size_t place = 0;
    for (; statistics_node(place, &node); place++)
        if (place < count) nodes[place] = node;
    return place;
}
