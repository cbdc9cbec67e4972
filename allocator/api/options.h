/* The table of options (options_table.c), for options.c alone: all others go through that. */
#ifndef HEAPFIT_API_OPTIONS_H
#define HEAPFIT_API_OPTIONS_H

#include "api.h"

/* As much as heap_settings_bound was told last. */
#define KEPT_OF_MARGIN UINT64_MAX

struct option {
    hf_option public;
    void (*apply)(uint64_t value); /* hands the value to the layer that it is for; NULL: options.c reads it */
    bool keeps_memory; /* and so whatever the value, this is in force at most: */
    uint64_t kept_shrunk; /* while the footprint is shrunk, or memory is about to run short */
    uint64_t kept_pressed; /* while little memory is left */
    _Atomic(uint64_t) value;
};

/* Places in the table. */
enum {
    LOCKLESS_THREADS,
    SHARE_FIRST,
    FREE_PAGE_THRESHOLD,
    THREAD_SPAN_THRESHOLD,
    SHARED_SPAN_THRESHOLD,
    DECAY_MS,
    REMOTE_FREE_BATCH,
    REMOTE_FREE_BYTES,
    REMOTE_FREE_HAND_OVER,
    HUGE_PAGES,
    MEMORY_LIMIT,
    BACKGROUND,
    ZEROED_RESERVE,
    CACHE_LINE_ALIGN,
    NUMA,
    RESERVATION,
    CONTROL,
    DEEPBIND,
    GUARD_SAMPLE,
    SAMPLE,
    STATS_AT_EXIT,
    VERBOSE,
#ifdef HEAPFIT_HARDENED
    CHECK_FAMILY,
#endif
#ifdef HEAPFIT_POOLS
    POOLS,
    POOL_CHAIN,
    POOL_MERGE,
    POOL_HEADERS,
    POOL_SEGMENT_SIZE,
    POOL_MIN_OBJECTS,
    POOL_MAX_SIZE,
#endif
    OPTION_COUNT
};

/* What choices mean that options.c itself goes by. */
enum { CONTROL_OFF, CONTROL_ON };
enum { DEEPBIND_DROP, DEEPBIND_KEEP };

extern struct option options_table[OPTION_COUNT];

#endif
