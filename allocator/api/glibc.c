/* glibc's extensions that report and tune, in glibc's shape: mallinfo(3), malloc_trim(3), malloc_stats(3), malloc_info(3),
 * mallopt(3). What glibc calls mmapped are our large objects, what it calls free chunks our free blocks. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "api.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- figures ------------------------------------------------------------------------------------------------------- */

static size_t free_objects(const struct statistics *statistics)
{
    size_t objects = 0;
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) objects += statistics->classes[bin].free_objects;
    return objects;
}

static size_t free_bytes(const hf_stats *total)
{
    return total->free_bytes + total->dirty_bytes + total->cached_bytes + total->zeroed_bytes;
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
        .fordblks = free_bytes(total),
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

/* To the stream, which the program may have led elsewhere, and which may hold what was to come before. */
static void copy_to_stream(int file, FILE *stream)
{
    char piece[4096];
    for (off_t at = 0;; at += (off_t)sizeof piece) {
        ssize_t bytes = pread(file, piece, sizeof piece, at);
        if (bytes <= 0) return;
        fwrite(piece, 1, (size_t)bytes, stream);
    }
}

/* As in glibc no point where a thread is cancelled: half a text is of no use. */
EXPORT void malloc_stats(void)
{
    int cancellation, saved = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
    int file = memfd_create("malloc_stats", MFD_CLOEXEC);
    if (file >= 0) {
        hf_stats_print(file);
        copy_to_stream(file, stderr);
        close(file);
    } else { /* an older kernel, or no descriptor left */
        hf_stats_print(STDERR_FILENO);
    }
    errno = saved;
    pthread_setcancelstate(cancellation, NULL);
}

/* ---- malloc_info ----------------------------------------------------------------------------------------------------- */

/* Free blocks of one size, those of the sizes before it being smaller. */
static void write_size(FILE *stream, unsigned bin, size_t count)
{
    size_t from = bin == 0 ? 1 : (size_t)size_class_bytes(bin - 1) + 1, to = size_class_bytes(bin);
    if (count != 0)
        fprintf(stream, "  <size from=\"%zu\" to=\"%zu\" total=\"%zu\" count=\"%zu\"/>\n", from, to, count * to, count);
}

/* The elements that glibc writes for each of its arenas and again for their sum. */
static void write_totals(FILE *stream, size_t count, size_t size)
{
    fprintf(stream, "<total type=\"fast\" count=\"0\" size=\"0\"/>\n");
    fprintf(stream, "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n", count, size);
}

static void write_system(FILE *stream, size_t current, size_t most, size_t space)
{
    fprintf(stream, "<system type=\"current\" size=\"%zu\"/>\n", current);
    fprintf(stream, "<system type=\"max\" size=\"%zu\"/>\n", most);
    fprintf(stream, "<aspace type=\"total\" size=\"%zu\"/>\n", space);
    fprintf(stream, "<aspace type=\"mprotect\" size=\"%zu\"/>\n", most);
}

/* Heap 0 has the spans of threads that are gone; large objects are in none, as in glibc. */
static void write_heap(FILE *stream, const struct heap_row *row)
{
    const hf_heap_stats *heap = &row->stats;
    size_t free_objects = 0;
    size_t bytes = heap->spans * SPAN_SIZE + heap->cached_bytes;
    fprintf(stream, "<heap nr=\"%zu\">\n<sizes>\n", heap->number);
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        write_size(stream, bin, row->free_objects[bin]);
        free_objects += row->free_objects[bin];
    }
    fputs("</sizes>\n", stream);
    write_totals(stream, free_objects, heap->free_bytes + heap->cached_bytes);
    write_system(stream, bytes, bytes, bytes);
    fputs("</heap>\n", stream);
}

static void write_heaps(FILE *stream)
{
    struct heap_rows rows;
    for (const struct heap_row *row = heap_rows_begin(&rows); row != NULL; row = heap_rows_next(&rows))
        write_heap(stream, row);
}

EXPORT int malloc_info(int options, FILE *stream)
{
    if (options != 0) return EINVAL; /* returned, not set, as in glibc */
    struct statistics statistics;
    statistics_collect(&statistics); /* before writing, which may allocate */
    const hf_stats *total = &statistics.total;
    fputs("<malloc version=\"1\">\n", stream);
    write_heaps(stream);
    write_totals(stream, free_objects(&statistics), free_bytes(total));
    fprintf(stream, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", total->large_objects, total->large_bytes);
    write_system(stream, total->footprint, total->committed, total->reserved);
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
 * be faster or smaller. M_PERTURB is accepted too, and ignored: what new and freed memory contains is nothing that a correct
 * program looks at, each malloc would pay for the question, and programs that find bugs so have better means here
 * (guard_sample, the hardened library). 0 for what is unknown. */
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
    case M_PERTURB:
        return 1;
    default:
        return 0;
    }
}
