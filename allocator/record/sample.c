/* Samples: which allocations are noted when not all are, and the frees of those.
 *
 * Points fall on the bytes that a thread allocates, one after the other, as a Poisson process: with so many bytes between two
 * on average, at distances that are exponentially distributed. An allocation is noted when a point falls into it. The
 * process has no memory, so that wherever it begins anew, behind each noted allocation, the chance of the next is the same:
 * an allocation of n bytes is noted with the probability 1 - exp(-n / mean), independently of all others. Hence each
 * noted one stands for 1 / (1 - exp(-n / mean)) of its size, without bias (Horvitz, Thompson, 1952). One of no bytes is never
 * noted.
 *
 * Addresses of noted objects are in a table, to note their frees too. It is written without locks: an address is its
 * object's alone from before the allocation returns until the free has looked, so no two threads ever seek the same one. A
 * filter in front (note.h) ends most searches.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "note.h"

#include <string.h>

/* ---- distances ----------------------------------------------------------------------------------------------------------------- */

/* Whole bytes up to the next point. */
static size_t distance(void)
{
    return chance_distance(&record_thread.random, record_settings.sample);
}

static void begin(void)
{
    /* Two threads are never given the same. */
    record_thread.random = (platform_random() ^ (uintptr_t)&record_thread) | 1;
    record_thread.mean = record_settings.sample;
    record_thread.until_sample = distance();
}

bool sample_falls(size_t size)
{
    if (UNLIKELY(record_thread.mean != record_settings.sample)) {
        begin();
        return sample_takes(size);
    }
    record_thread.until_sample = distance();
    return true;
}

/* ---- addresses of noted objects ------------------------------------------------------------------------------------------------------ */

_Atomic(uint8_t) sample_filter[1 << SAMPLE_FILTER_LOG];

enum {
    LINE_WORDS = CACHE_LINE / sizeof(uintptr_t),
    LINES_TRIED = 4, /* an address lies in one of so many lines in a row */
    LINES_LEAST_LOG = 9,
    LINES_MOST_LOG = 26, /* 4 GiB of address space */
    ROOM = 4, /* words for each noted object that memory is expected to hold */
    PART_LINES_LOG = 6, /* lines in a part of the table, of 4 KiB */
};

struct line {
    _Atomic(uintptr_t) addresses[LINE_WORDS];
};

struct table {
    struct line *lines;
    unsigned lines_log;
    unsigned wanted_log; /* of how many lines, which memory may not have sufficed for */
    unsigned stretch_log; /* addresses of so many bytes in a row share a part */
};

/* Written by sample_begin, while nothing is recorded; read by who has seen that something is (is_recording). That may have been the
 * recording before: who is late finds the table before or this one, each with its own numbers and never unmapped. Release and
 * acquire, for such a thread has seen nothing else that was written after this one was made. */
static _Atomic(struct table *) table;

/* Addresses of equal blocks are apart by the same number: one product alone would put some of these on a few lines. */
static uint64_t scattered(uint64_t number, unsigned bits)
{
    number = (number ^ number >> 32) * UINT64_C(0x9E3779B97F4A7C15); /* Knuth, 6.4 */
    return (number ^ number >> 29) * UINT64_C(0xD6E8FEB86659FD93) >> (64 - bits);
}

/* Of the table, sized by the machine's memory, only the parts of stretches that the program uses become resident. */
static struct line *line_of(const struct table *in, uintptr_t address, size_t tried)
{
    uint64_t part = scattered(address >> in->stretch_log, in->lines_log - PART_LINES_LOG);
    uint64_t line = part << PART_LINES_LOG | scattered(address, PART_LINES_LOG);
    return &in->lines[(line + tried) & (((size_t)1 << in->lines_log) - 1)];
}

/* The word that holds this; NULL: none. Relaxed: see above for addresses, which have the program's own ordering between what
 * is allocated and what is freed. A word that is seen to be free may be taken by another thread, as the caller finds out. */
static _Atomic(uintptr_t) *word_find(uintptr_t address, uintptr_t sought)
{
    const struct table *in = atomic_load_explicit(&table, memory_order_acquire);
    for (size_t tried = 0; tried < LINES_TRIED; tried++) {
        struct line *line = line_of(in, address, tried);
        for (size_t i = 0; i < LINE_WORDS; i++)
            if (atomic_load_explicit(&line->addresses[i], memory_order_relaxed) == sought) return &line->addresses[i];
    }
    return NULL;
}

/* A counter that has reached its end stays there: then all frees of its pages are searched for. */
static void count(uintptr_t address, int change)
{
    _Atomic(uint8_t) *counter = sample_counter(address);
    uint8_t before = atomic_load_explicit(counter, memory_order_relaxed), after;
    do after = before == UINT8_MAX ? before : (uint8_t)(before + change);
    while (!atomic_compare_exchange_weak_explicit(counter, &before, after, memory_order_relaxed, memory_order_relaxed));
}

bool sample_remember(uintptr_t address)
{
    _Atomic(uintptr_t) *word;
    uintptr_t nobody = 0;
    while ((word = word_find(address, 0)) != NULL &&
           !atomic_compare_exchange_strong_explicit(word, &nobody, address, memory_order_relaxed, memory_order_relaxed))
        nobody = 0;
    if (word == NULL) return false;
    count(address, 1);
    return true;
}

bool sample_forget_found(uintptr_t address)
{
    _Atomic(uintptr_t) *word = word_find(address, address);
    if (word == NULL) return false;
    atomic_store_explicit(word, 0, memory_order_relaxed);
    count(address, -1);
    return true;
}

/* ---- start ---------------------------------------------------------------------------------------------------------------------------- */

static size_t lines_size(unsigned lines_log)
{
    return sizeof(struct line) << lines_log;
}

/* So many lines that what memory holds fills a quarter of them. */
static struct table table_wanted(void)
{
    struct table wanted = {.wanted_log = LINES_LEAST_LOG};
    size_t words = ROOM * (platform_physical_memory() / record_settings.sample);
    size_t stretch = record_settings.sample * (LINE_WORDS << PART_LINES_LOG) / ROOM;
    while (stretch >> wanted.stretch_log > 1) wanted.stretch_log++;
    while (wanted.wanted_log < LINES_MOST_LOG && words >> wanted.wanted_log > LINE_WORDS) wanted.wanted_log++;
    return wanted;
}

/* If so many lines cannot be had, fewer: then some samples are lost. It stands behind its lines. */
static bool table_make(struct table wanted)
{
    size_t page = platform_page_size();
    for (wanted.lines_log = wanted.wanted_log; wanted.lines_log >= LINES_LEAST_LOG; wanted.lines_log--) {
        size_t size = lines_size(wanted.lines_log);
        char *start = platform_reserve(size + page, page);
        if (start == NULL || !platform_commit(start, size + page)) continue;
        struct table *made = (struct table *)(start + size);
        *made = wanted;
        made->lines = (struct line *)start;
        atomic_store_explicit(&table, made, memory_order_release);
        return true;
    }
    return false;
}

/* Locked memory cannot be given back. */
static void table_clear(const struct table *old)
{
    size_t size = lines_size(old->lines_log);
    if (!platform_purge(old->lines, size)) memset((void *)old->lines, 0, size);
}

bool sample_begin(void)
{
    if (record_settings.sample == 0) return true;
    const struct table *old = atomic_load_explicit(&table, memory_order_relaxed); /* written by this thread alone */
    struct table wanted = table_wanted();
    if (old == NULL) return table_make(wanted);
    memset((void *)sample_filter, 0, sizeof sample_filter);
    table_clear(old);
    /* Of a finer sample each part of the old one would hold too much. It serves all the same where there is no memory for another. */
    if (wanted.wanted_log > old->wanted_log || wanted.stretch_log < old->stretch_log) table_make(wanted);
    return true;
}
