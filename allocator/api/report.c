/* Figures as text for a person and as JSON for a program, written piece by piece without allocating. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../platform/json.h"
#include "api.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

/* A member of a structure of statistics, all of which are a size_t but for hf_heap_stats.thread. */
struct member {
    const char *name;
    size_t offset;
};

#define MEMBER(structure, name) {#name, offsetof(structure, name)}
#define COUNT(members) (sizeof(members) / sizeof *(members))

#define TOTAL(name) MEMBER(hf_stats, name)
static const struct member total_members[] = {
    TOTAL(live_objects), TOTAL(live_bytes),     TOTAL(large_objects), TOTAL(large_bytes),     TOTAL(free_bytes),
    TOTAL(dirty_bytes),  TOTAL(own_bytes),      TOTAL(footprint),     TOTAL(committed),       TOTAL(reserved),
    TOTAL(purged),       TOTAL(purges),         TOTAL(heaps),         TOTAL(heaps_idle),      TOTAL(orphan_spans),
    TOTAL(contexts),     TOTAL(context_bytes),  TOTAL(resident),      TOTAL(cached_bytes),    TOTAL(zeroed_bytes),
    TOTAL(zeroed_hits),  TOTAL(zeroed_misses),  TOTAL(huge_bytes),    TOTAL(commits),         TOTAL(advices),
    TOTAL(refills),      TOTAL(remote_batches), TOTAL(remote_blocks), TOTAL(threads_sharing), TOTAL(nodes),
    TOTAL(guard_slots),  TOTAL(guard_objects),  TOTAL(guard_samples), TOTAL(guard_missed),
};
_Static_assert(COUNT(total_members) == sizeof(hf_stats) / sizeof(size_t), "every member is named");

static const struct member class_members[] = {
    MEMBER(hf_class_stats, block_size),
    MEMBER(hf_class_stats, spans),
    MEMBER(hf_class_stats, live_objects),
    MEMBER(hf_class_stats, free_objects),
};
_Static_assert(COUNT(class_members) == sizeof(hf_class_stats) / sizeof(size_t), "every member is named");

static const struct member heap_members[] = {
    MEMBER(hf_heap_stats, number),     MEMBER(hf_heap_stats, spans),        MEMBER(hf_heap_stats, live_bytes),
    MEMBER(hf_heap_stats, free_bytes), MEMBER(hf_heap_stats, cached_bytes), MEMBER(hf_heap_stats, refills),
};
_Static_assert(COUNT(heap_members) + 1 == sizeof(hf_heap_stats) / sizeof(size_t), "every member but thread is named");

static const struct member node_members[] = {
    MEMBER(hf_node_stats, node),
    MEMBER(hf_node_stats, dirty_bytes),
    MEMBER(hf_node_stats, zeroed_bytes),
    MEMBER(hf_node_stats, crossings),
};
_Static_assert(COUNT(node_members) == sizeof(hf_node_stats) / sizeof(size_t), "every member is named");

static void write_members(struct json *json, const void *structure, const struct member *members, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_name(json, members[i].name);
        json_number(json, *(const size_t *)((const char *)structure + members[i].offset));
    }
}

static void write_total(struct json *json, const hf_stats *total)
{
    json_name(json, "total");
    json_open(json, '{');
    write_members(json, total, total_members, COUNT(total_members));
    json_close(json, '}');
}

static void write_classes(struct json *json, const hf_class_stats *classes)
{
    json_name(json, "classes");
    json_open(json, '[');
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        json_open(json, '{');
        write_members(json, &classes[bin], class_members, COUNT(class_members));
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_heaps(struct json *json)
{
    struct heap_rows rows;
    json_name(json, "heaps");
    json_open(json, '[');
    for (const struct heap_row *row = heap_rows_begin(&rows); row != NULL; row = heap_rows_next(&rows)) {
        json_open(json, '{');
        write_members(json, &row->stats, heap_members, COUNT(heap_members));
        json_name(json, "thread");
        json_signed(json, row->stats.thread);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_nodes(struct json *json)
{
    hf_node_stats node;
    json_name(json, "nodes");
    json_open(json, '[');
    for (size_t place = 0; statistics_node(place, &node); place++) {
        json_open(json, '{');
        write_members(json, &node, node_members, COUNT(node_members));
        json_close(json, '}');
    }
    json_close(json, ']');
}

void report_json(struct json *json)
{
    struct statistics statistics;
    statistics_collect(&statistics);
    statistics.total.resident = statistics_resident();
    json_open(json, '{');
    json_name(json, "format");
    json_string(json, "heapfit-stats/1");
    json_name(json, "version");
    json_string(json, hf_version());
    json_name(json, "pid");
    json_signed(json, getpid());
    json_name(json, "time_ms");
    json_number(json, platform_clock_ms());
    json_name(json, "shrunk");
    json_bool(json, options_shrunk());
    write_total(json, &statistics.total);
    write_classes(json, statistics.classes);
    write_heaps(json);
    write_nodes(json);
    explain_statistics(json);
    json_close(json, '}');
}

EXPORT void hf_stats_json(int file)
{
    int saved = errno;
    struct json_file target = {.json = {.write = json_to_file}, .file = file};
    report_json(&target.json);
    json_end(&target.json);
    errno = saved;
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

#define MIB(bytes) ((double)(bytes) / (1 << 20))

static void print_memory(int file, const hf_stats *total)
{
    dprintf(file,
            "heapfit %s, process %ld\n"
            "  live       %12.3f MiB in %zu objects, %.3f MiB of it in %zu large ones\n"
            "  free       %12.3f MiB in blocks, %.3f MiB in spans, %.3f MiB in spans that threads keep\n"
            "  cleared    %12.3f MiB in spans; callocs served %zu, not served %zu\n"
            "  own        %12.3f MiB\n"
            "  footprint  %12.3f MiB at most resident; %.3f MiB accessible, %.0f MiB reserved\n"
            "  resident   %12.3f MiB; huge pages wanted for %.3f MiB\n",
            hf_version(), (long)getpid(), MIB(total->live_bytes), total->live_objects, MIB(total->large_bytes),
            total->large_objects, MIB(total->free_bytes), MIB(total->dirty_bytes), MIB(total->cached_bytes),
            MIB(total->zeroed_bytes), total->zeroed_hits, total->zeroed_misses, MIB(total->own_bytes),
            MIB(total->footprint), MIB(total->committed), MIB(total->reserved), MIB(total->resident),
            MIB(total->huge_bytes));
}

static void print_work(int file, const hf_stats *total)
{
    dprintf(file,
            "  returned   %12.3f MiB in %zu calls; %zu calls for access, %zu about huge pages\n"
            "  heaps      %12zu made, %zu idle; %zu spans of threads that are gone, %zu threads share\n"
            "  refills    %12zu; %zu blocks from other threads in %zu lists\n"
            "  contexts   %12.3f MiB of address space in %zu\n",
            MIB(total->purged), total->purges, total->commits, total->advices, total->heaps, total->heaps_idle,
            total->orphan_spans, total->threads_sharing, total->refills, total->remote_blocks, total->remote_batches,
            MIB(total->context_bytes), total->contexts);
}

static void print_guarded(int file, const hf_stats *total)
{
    dprintf(file, "  guarded    %12zu objects in %zu slots; %zu since the start, %zu found no slot\n",
            total->guard_objects, total->guard_slots, total->guard_samples, total->guard_missed);
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

/* Without those that nobody has and that hold nothing. */
static void print_heaps(int file)
{
    struct heap_rows rows;
    dprintf(file, "  %10s %10s %10s %14s %14s %14s\n", "heap", "thread", "spans", "live MiB", "free MiB", "kept MiB");
    for (const struct heap_row *row = heap_rows_begin(&rows); row != NULL; row = heap_rows_next(&rows)) {
        const hf_heap_stats *heap = &row->stats;
        if (heap->thread == 0 && heap->spans == 0) continue;
        dprintf(file, "  %10zu %10ld %10zu %14.3f %14.3f %14.3f\n", heap->number, heap->thread, heap->spans,
                MIB(heap->live_bytes), MIB(heap->free_bytes), MIB(heap->cached_bytes));
    }
}

static void print_nodes(int file)
{
    hf_node_stats node;
    dprintf(file, "  %10s %14s %14s %14s\n", "node", "free MiB", "cleared MiB", "crossings");
    for (size_t place = 0; statistics_node(place, &node); place++)
        dprintf(file, "  %10zu %14.3f %14.3f %14zu\n", node.node, MIB(node.dirty_bytes), MIB(node.zeroed_bytes),
                node.crossings);
}

EXPORT void hf_stats_print(int file)
{
    int saved = errno;
    struct statistics statistics;
    statistics_collect(&statistics); /* before writing, which may allocate */
    statistics.total.resident = statistics_resident();
    print_memory(file, &statistics.total);
    print_work(file, &statistics.total);
    if (statistics.total.guard_slots != 0) print_guarded(file, &statistics.total);
    explain_print(file);
    print_classes(file, statistics.classes);
    print_heaps(file);
    if (statistics.total.nodes > 1) print_nodes(file);
    errno = saved;
}
