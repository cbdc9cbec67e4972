/* glibc's extensions that report and tune, in glibc's shape: mallinfo(3), malloc_trim(3), malloc_stats(3), malloc_info(3),
 * mallopt(3). What glibc calls mmapped are our large objects, what it calls free chunks our free blocks. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "api.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

/* ---- figures ------------------------------------------------------------------------------------------------------- */

static size_t free_objects(const struct statistics *statistics)
{
    size_t objects = 0;
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) objects += statistics->classes[bin].free_objects;
    return objects;
}

/* As in glibc: arena is uordblks and fordblks together, and large objects stand apart in hblks and hblkhd. */
static struct mallinfo2 info(void)
{
    struct statistics statistics;
    statistics_collect(&statistics);
    const hf_stats *total = &statistics.total;
    struct mallinfo2 info = {
        .ordblks = free_objects(&statistics),
        .hblks = total->large_objects,
        .hblkhd = total->large_bytes,
        .uordblks = total->live_bytes - total->large_bytes,
        .fordblks = total->free_bytes + total->dirty_bytes,
        .keepcost = total->dirty_bytes, /* what malloc_trim gives back at least */
    };
    info.arena = info.uordblks + info.fordblks;
    return info;
}

EXPORT struct mallinfo2 mallinfo2(void)
{
    return info();
}

static int clamp(size_t value)
{
    return value > INT_MAX ? INT_MAX : (int)value;
}

/* The older form, whose members are too small: they say "at least" instead of wrapping around. */
EXPORT struct mallinfo mallinfo(void)
{
    struct mallinfo2 wide = info();
    return (struct mallinfo){
        .arena = clamp(wide.arena),
        .ordblks = clamp(wide.ordblks),
        .hblks = clamp(wide.hblks),
        .hblkhd = clamp(wide.hblkhd),
        .uordblks = clamp(wide.uordblks),
        .fordblks = clamp(wide.fordblks),
        .keepcost = clamp(wide.keepcost),
    };
}

EXPORT void malloc_stats(void)
{
    hf_stats_print(STDERR_FILENO);
}

/* ---- malloc_info ----------------------------------------------------------------------------------------------------- */

static void write_sizes(FILE *stream, const struct statistics *statistics)
{
    size_t from = 1;
    fputs("<sizes>\n", stream);
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        const hf_class_stats *class = &statistics->classes[bin];
        if (class->free_objects != 0)
            fprintf(stream, "  <size from=\"%zu\" to=\"%zu\" total=\"%zu\" count=\"%zu\"/>\n", from, class->block_size,
                    class->free_objects * class->block_size, class->free_objects);
        from = class->block_size + 1;
    }
    fputs("</sizes>\n", stream);
}

/* The elements that glibc writes for each of its arenas and again for their sum. */
static void write_totals(FILE *stream, const struct statistics *statistics)
{
    const hf_stats *total = &statistics->total;
    fprintf(stream, "<total type=\"fast\" count=\"0\" size=\"0\"/>\n");
    fprintf(stream, "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n", free_objects(statistics),
            total->free_bytes + total->dirty_bytes);
}

static void write_system(FILE *stream, const hf_stats *total)
{
    fprintf(stream, "<system type=\"current\" size=\"%zu\"/>\n", total->footprint);
    fprintf(stream, "<system type=\"max\" size=\"%zu\"/>\n", total->committed);
    fprintf(stream, "<aspace type=\"total\" size=\"%zu\"/>\n", total->reserved);
    fprintf(stream, "<aspace type=\"mprotect\" size=\"%zu\"/>\n", total->committed);
}

EXPORT int malloc_info(int options, FILE *stream)
{
    if (options != 0) return EINVAL; /* returned, not set, as in glibc */
    struct statistics statistics;
    statistics_collect(&statistics); /* before writing, which may allocate */
    const hf_stats *total = &statistics.total;
    fputs("<malloc version=\"1\">\n<heap nr=\"0\">\n", stream);
    write_sizes(stream, &statistics);
    write_totals(stream, &statistics);
    write_system(stream, total);
    fputs("</heap>\n", stream);
    write_totals(stream, &statistics);
    fprintf(stream, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", total->large_objects, total->large_bytes);
    write_system(stream, total);
    fputs("</malloc>\n", stream);
    return 0;
}

/* ---- tuning ------------------------------------------------------------------------------------------------------------ */

/* `pad` is how much of glibc's heap top should stay; we have no top. 1 when memory was given back. */
EXPORT int malloc_trim(size_t pad)
{
    (void)pad;
    return hf_trim() != 0;
}

/* 1: accepted. These tune structures that heapfit does not have, so that ignoring them keeps their promise, which is to
 * be faster or smaller. 0 for M_PERTURB, which promises contents that a program can see, and for what is unknown. */
EXPORT int mallopt(int parameter, int value)
{
    (void)value;
    switch (parameter) {
    case M_MXFAST:
    case M_TRIM_THRESHOLD:
    case M_TOP_PAD:
    case M_MMAP_THRESHOLD:
    case M_MMAP_MAX:
    case M_CHECK_ACTION:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
        return 1;
    default:
        return 0;
    }
}
