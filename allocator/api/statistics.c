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
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define READ(member) __atomic_load_n(&(member), __ATOMIC_RELAXED)

/* ---- collecting ---------------------------------------------------------------------------------------------------- */

static void add_large(hf_stats *total, const struct span *span)
{
    total->large_objects++;
    total->large_bytes += large_usable_size(span); /* run_spans changes under the lock that the visitor holds */
}

static void add_blocks(hf_class_stats *classes, const struct span *span)
{
    uint8_t bin = READ(span->bin);
    if (bin >= BIN_COUNT) return;
    hf_class_stats *class = &classes[bin];
    size_t capacity = SPAN_SIZE / size_class_bytes(bin);
    size_t carved = READ(span->carved);
    size_t live = (size_t)READ(span->countdown) + READ(span->held_back);
    if (carved > capacity) carved = capacity;
    if (live > carved) live = carved;
    class->spans++;
    class->live_objects += live;
    class->free_objects += carved - live;
}

static void add_span(const struct span *span, void *argument)
{
    struct statistics *statistics = argument;
    uint8_t kind = READ(span->kind);
    if (kind == SPAN_LARGE) add_large(&statistics->total, span);
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
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        size_t length = list_length(heap->free[bin]);
        if (length > classes[bin].live_objects) length = classes[bin].live_objects;
        classes[bin].live_objects -= length;
        classes[bin].free_objects += length;
    }
}

static void sum_up(struct statistics *statistics)
{
    hf_stats *total = &statistics->total;
    total->live_objects = total->large_objects;
    total->live_bytes = total->large_bytes;
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        const hf_class_stats *class = &statistics->classes[bin];
        total->live_objects += class->live_objects;
        total->live_bytes += class->live_objects * class->block_size;
        total->free_bytes += class->free_objects * class->block_size;
    }
    total->footprint =
        total->live_bytes + total->free_bytes + total->dirty_bytes + total->own_bytes + total->context_bytes;
}

static void add_figures(hf_stats *total)
{
    struct space_figures spaces;
    struct heap_figures heaps;
    space_figures(&spaces);
    heap_figures(&heaps);
    size_t spans_ever = (spaces.handed_out + spaces.dirty + spaces.clean) / SPAN_SIZE;
    total->dirty_bytes = spaces.dirty;
    total->own_bytes = spaces.metadata + spans_ever * sizeof(struct span);
    total->committed = spaces.committed;
    total->reserved = spaces.reserved;
    total->purged = spaces.purged;
    total->purges = spaces.purge_calls;
    total->heaps = heaps.made;
    total->heaps_idle = heaps.idle;
    total->orphan_spans = heaps.orphans;
    total->contexts = context_count();
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
    add_figures(&statistics->total);
    sum_up(statistics);
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

/* ---- for people ------------------------------------------------------------------------------------------------------------ */

#define MIB(bytes) ((double)(bytes) / (1 << 20))

static void print_totals(int file, const hf_stats *total)
{
    dprintf(file,
            "heapfit %s, process %ld\n"
            "  live       %12.3f MiB in %zu objects, %.3f MiB of it in %zu large ones\n"
            "  free       %12.3f MiB in blocks, %.3f MiB in spans\n"
            "  own        %12.3f MiB\n"
            "  footprint  %12.3f MiB at most resident; %.3f MiB accessible, %.0f MiB reserved\n"
            "  given back %12.3f MiB in %zu calls\n"
            "  heaps      %12zu made, %zu idle; %zu spans of threads that are gone\n"
            "  contexts   %12.3f MiB of address space in %zu\n",
            hf_version(), (long)getpid(), MIB(total->live_bytes), total->live_objects, MIB(total->large_bytes),
            total->large_objects, MIB(total->free_bytes), MIB(total->dirty_bytes), MIB(total->own_bytes),
            MIB(total->footprint), MIB(total->committed), MIB(total->reserved), MIB(total->purged), total->purges,
            total->heaps, total->heaps_idle, total->orphan_spans, MIB(total->context_bytes), total->contexts);
}

static void print_classes(int file, const hf_class_stats *classes)
{
    dprintf(file, "  %10s %10s %14s %14s %14s\n", "block size", "spans", "live", "free", "live MiB");
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        const hf_class_stats *class = &classes[bin];
        if (class->spans == 0) continue;
        dprintf(file, "  %10zu %10zu %14zu %14zu %14.3f\n", class->block_size, class->spans, class->live_objects,
                class->free_objects, MIB(class->live_objects * class->block_size));
    }
}

EXPORT void hf_stats_print(int file)
{
    int saved = errno;
    struct statistics statistics;
    statistics_collect(&statistics); /* before writing, which may allocate */
    print_totals(file, &statistics.total);
    print_classes(file, statistics.classes);
    errno = saved;
}
