/* The table of options: what each is called, may be and is by default, and to which layer its value goes. options.c reads and
 * sets them. */
#include "options.h"

/* ---- how a value gets to its layer, and the words of choices ------------------------------------------------------- */

/* More than any machine has: a threshold of so many bytes is none. */
#define BYTES_UNLIMITED (UINT64_C(1) << 46)

static void apply_decay_ms(uint64_t value)
{
    atomic_store_explicit(&space_settings.decay_ms, (uint32_t)value, memory_order_relaxed);
}

static void apply_remote_free_batch(uint64_t value)
{
    atomic_store_explicit(&heap_settings.remote_free_batch, (uint32_t)value, memory_order_relaxed);
}

static void apply_thread_span_threshold(uint64_t value)
{
    atomic_store_explicit(&heap_settings.thread_spans_cached, (uint32_t)(value / SPAN_SIZE), memory_order_relaxed);
}

static void apply_remote_free_bytes(uint64_t value)
{
    atomic_store_explicit(&heap_settings.remote_free_bytes, (size_t)value, memory_order_relaxed);
}

static void apply_remote_free_hand_over(uint64_t value)
{
    atomic_store_explicit(&heap_settings.remote_hand_over, (uint32_t)value, memory_order_relaxed);
}

static void apply_free_page_threshold(uint64_t value)
{
    atomic_store_explicit(&heap_settings.free_page_threshold, (size_t)value, memory_order_relaxed);
}

static void apply_shared_span_threshold(uint64_t value)
{
    atomic_store_explicit(&space_settings.shared_dirty_max, (size_t)value, memory_order_relaxed);
}

static void apply_lockless_threads(uint64_t value)
{
    atomic_store_explicit(&heap_settings.lockless_threads, (uint32_t)value, memory_order_relaxed);
}

static void apply_share_first(uint64_t value)
{
    atomic_store_explicit(&heap_settings.share_first, (uint32_t)value, memory_order_relaxed);
}

static void apply_zeroed_reserve(uint64_t value)
{
    atomic_store_explicit(&space_settings.zeroed_reserve, (size_t)value, memory_order_relaxed);
}

static const char *const memory_limit_words[] = {"auto", "none"};

static void apply_memory_limit(uint64_t value)
{
    heap_pressure_limit(value == BYTES_UNLIMITED ? MEMORY_LIMIT_NONE : (size_t)value);
}

static void apply_background(uint64_t value)
{
    atomic_store_explicit(&heap_settings.background, (uint32_t)value, memory_order_relaxed);
}

static void want_picks(bool wanted)
{
    if (wanted) atomic_store_explicit(&pick_wanted, true, memory_order_relaxed); /* a setting */
}

static void apply_sample(uint64_t value)
{
    atomic_store_explicit(&sample_mean, (size_t)value, memory_order_relaxed);
    want_picks(value != 0);
}

static void apply_guard_sample(uint64_t value)
{
    want_picks(value != 0);
    atomic_store_explicit(&guard_mean, (size_t)value, memory_order_relaxed);
}

static void apply_cache_line_align(uint64_t value)
{
    heap_settings.cache_line_align = value != 0;
}

static void apply_reservation(uint64_t value)
{
    space_settings.reservation = (size_t)value;
}

static void apply_huge_pages(uint64_t value)
{
    space_settings.huge_pages = (enum huge_pages)value;
}

static const char *const huge_pages_choices[] = {
    [HUGE_PAGES_NEVER] = "never",
    [HUGE_PAGES_AUTO] = "auto",
    [HUGE_PAGES_ALWAYS] = "always",
    [HUGE_PAGES_HUGETLB] = "hugetlb",
};
static const char *const hand_over_choices[] = {[REMOTE_HAND_OVER_FULL] = "full", [REMOTE_HAND_OVER_REFILL] = "refill"};
enum { NUMA_AUTO, NUMA_OFF };
static const char *const numa_choices[] = {[NUMA_AUTO] = "auto", [NUMA_OFF] = "off"};
static const char *const background_choices[] = {
    [BACKGROUND_OFF] = "off", [BACKGROUND_ON] = "on", [BACKGROUND_AUTO] = "auto"};
static const char *const control_choices[] = {[CONTROL_OFF] = "off", [CONTROL_ON] = "on"};
static const char *const deepbind_choices[] = {[DEEPBIND_DROP] = "drop", [DEEPBIND_KEEP] = "keep"};
/* The first two are what a flag takes. */
static const char *const stats_choices[] = {[STATS_OFF] = "0", [STATS_TEXT] = "1", [STATS_JSON] = "json"};

/* While the footprint is shrunk: what requests hand to each other within milliseconds goes round and would only come back, page
 * fault by page fault, under the same lock of the kernel's as the reload. What is beyond goes back at once. */
enum { DECAY_MS_SHRUNK = 10, FREE_PAGES_SHRUNK = 1 << 20, SHARED_SPANS_SHRUNK = 4 << 20 };

/* While little memory is left, what comes round within so long stays, up to a share of what is left: it costs a page fault each
 * time otherwise, and the process stands still when it is its neighbours that have taken the rest. */
enum { DECAY_MS_PRESSED = 50 };

/* In a shared heap a malloc and its free cost some 230 instructions more, which so many times is what the kernel takes for the 200
 * or so pages that a heap of one's own comes to hold meanwhile. Not where pools are chosen: a shared heap has none. */
enum { SHARE_FIRST_CALLS = POOLS_EXIST ? 0 : 4096 };

static void apply_numa(uint64_t value)
{
    space_settings.numa = value == NUMA_AUTO;
}

#ifdef HEAPFIT_HARDENED
static void apply_check_family(uint64_t value)
{
    atomic_store_explicit(&hardened_families, value != 0, memory_order_relaxed);
}
#endif

#ifdef HEAPFIT_POOLS

static const char *const pools_choices[] = {
    [POOL_PLACING_JUDGED] = "judged",
    [POOL_PLACING_ALL] = "all",
    [POOL_PLACING_NONE] = "none",
    [POOL_PLACING_OFF] = "off",
};
static const char *const pool_chain_choices[] = {
    [POOL_CHAIN_ADAPTIVE] = "adaptive",
    [POOL_CHAIN_1] = "1",
    [POOL_CHAIN_2] = "2",
    [POOL_CHAIN_3] = "3",
    [POOL_CHAIN_4] = "4",
    [POOL_CHAIN_FULL] = "full",
};

static void apply_pools(uint64_t value)
{
    pool_settings.placing = (enum pool_placing)value;
}

static void apply_pool_chain(uint64_t value)
{
    pool_settings.chain = (enum pool_chain)value;
}

static void apply_pool_merge(uint64_t value)
{
    pool_settings.merge = value != 0;
}

static void apply_pool_headers(uint64_t value)
{
    pool_settings.headers = value != 0;
}

static void apply_pool_segment_size(uint64_t value)
{
    pool_settings.segment_size = (uint32_t)value;
    heap_settings.pool_carve_units = (uint32_t)(value / CARVE_UNIT);
}

static void apply_pool_min_objects(uint64_t value)
{
    pool_settings.min_objects = (uint32_t)value;
}

static void apply_pool_max_size(uint64_t value)
{
    pool_settings.max_size = (uint32_t)value;
}

#endif

/* ---- the table ----------------------------------------------------------------------------------------------------- */

/* The defaults stand here alone: they are applied at the start, whatever the layers were initialised with. */
struct option options_table[OPTION_COUNT] = {
    [LOCKLESS_THREADS] =
        {
            .public =
                {
                    .name = "lockless_threads",
                    .description = "threads that have a heap of their own; further ones share some under locks",
                    .kind = HF_OPTION_NUMBER,
                    .live = 1,
                    .initial = UINT32_MAX,
                    .maximum = UINT32_MAX,
                    .unlimited = 1,
                },
            .apply = apply_lockless_threads,
        },
    [SHARE_FIRST] =
        {
            .public =
                {
                    .name = "share_first",
                    .description = "with more than 4 threads per core, a new thread shares a heap for its first N "
                                   "allocations",
                    .kind = HF_OPTION_NUMBER,
                    .live = 1,
                    .initial = SHARE_FIRST_CALLS,
                    .maximum = UINT32_MAX,
                    .unlimited = 1,
                },
            .apply = apply_share_first,
        },
    [FREE_PAGE_THRESHOLD] =
        {
            .public =
                {
                    .name = "free_page_threshold",
                    .description = "bytes of free memory in spans in use that a heap keeps until it has decayed",
                    .kind = HF_OPTION_SIZE,
                    .live = 1,
                    .initial = BYTES_UNLIMITED,
                    .maximum = BYTES_UNLIMITED,
                    .unlimited = 1,
                },
            .keeps_memory = true,
            .kept_shrunk = FREE_PAGES_SHRUNK,
            .kept_pressed = FREE_PAGES_SHRUNK,
            .apply = apply_free_page_threshold,
        },
    [THREAD_SPAN_THRESHOLD] =
        {
            .public =
                {
                    .name = "thread_span_threshold",
                    .description = "bytes of free spans that a thread keeps for itself at most, in steps of 64k",
                    .kind = HF_OPTION_SIZE,
                    .live = 1,
                    .initial = 64 * SPAN_SIZE,
                    .maximum = BYTES_UNLIMITED,
                    .unlimited = 1,
                },
            .keeps_memory = true,
            .apply = apply_thread_span_threshold,
        },
    [SHARED_SPAN_THRESHOLD] =
        {
            .public =
                {
                    .name = "shared_span_threshold",
                    .description = "bytes of free spans, per NUMA node, that all threads share until they have decayed",
                    .kind = HF_OPTION_SIZE,
                    .live = 1,
                    .initial = BYTES_UNLIMITED,
                    .maximum = BYTES_UNLIMITED,
                    .unlimited = 1,
                },
            .keeps_memory = true,
            .kept_shrunk = SHARED_SPANS_SHRUNK,
            .kept_pressed = KEPT_OF_MARGIN,
            .apply = apply_shared_span_threshold,
        },
    [DECAY_MS] =
        {
            .public =
                {
                    .name = "decay_ms",
                    .description = "milliseconds after which free memory is returned to the kernel",
                    .kind = HF_OPTION_NUMBER,
                    .live = 1,
                    .initial = 500,
                    .maximum = DECAY_NEVER,
                    .unlimited = 1,
                },
            .keeps_memory = true,
            .kept_shrunk = DECAY_MS_SHRUNK,
            .kept_pressed = DECAY_MS_PRESSED,
            .apply = apply_decay_ms,
        },
    [REMOTE_FREE_BATCH] =
        {
            .public =
                {
                    .name = "remote_free_batch",
                    .description = "freed blocks of another thread that a thread collects before it hands them over",
                    .kind = HF_OPTION_NUMBER,
                    .live = 1,
                    .initial = 256,
                    .minimum = 1,
                    .maximum = 4096, /* a thread that never comes to it keeps so many from their owner */
                },
            .apply = apply_remote_free_batch,
        },
    [REMOTE_FREE_BYTES] =
        {
            .public =
                {
                    .name = "remote_free_bytes",
                    .description =
                        "bytes of freed blocks of another thread that a thread collects before it hands them "
                        "over",
                    .kind = HF_OPTION_SIZE,
                    .live = 1,
                    .initial = UINT64_C(64) * 1024,
                    .minimum = 1,
                    .maximum = BYTES_UNLIMITED,
                    .unlimited = 1,
                },
            .apply = apply_remote_free_bytes,
        },
    [REMOTE_FREE_HAND_OVER] =
        {
            .public =
                {
                    .name = "remote_free_hand_over",
                    .description = "when freed blocks of another thread are handed over: full (at remote_free_batch or "
                                   "remote_free_bytes), refill (also whenever a bin is refilled)",
                    .kind = HF_OPTION_CHOICE,
                    .live = 1,
                    .initial = REMOTE_HAND_OVER_FULL,
                    .maximum = REMOTE_HAND_OVER_REFILL,
                    .choices = hand_over_choices,
                },
            .apply = apply_remote_free_hand_over,
        },
    [HUGE_PAGES] =
        {
            .public =
                {
                    .name = "huge_pages",
                    .description = "back the heap with huge pages: never, auto (when large and dense), always, hugetlb "
                                   "(the kernel's pool)",
                    .kind = HF_OPTION_CHOICE,
                    .initial = HUGE_PAGES_AUTO,
                    .maximum = HUGE_PAGES_HUGETLB,
                    .choices = huge_pages_choices,
                },
            .apply = apply_huge_pages,
        },
    [MEMORY_LIMIT] =
        {
            .public =
                {
                    .name = "memory_limit",
                    .description =
                        "bytes of memory near which no free memory is kept (live memory is not limited): auto or 0 "
                        "(the control groups' limit), none",
                    .kind = HF_OPTION_SIZE,
                    .live = 1,
                    .initial = MEMORY_LIMIT_AUTO,
                    .maximum = BYTES_UNLIMITED,
                    .words = memory_limit_words,
                },
            .apply = apply_memory_limit,
        },
    [BACKGROUND] =
        {
            .public =
                {
                    .name = "background",
                    .description = "let a thread give memory back while the program sleeps, once the heap has 16m: "
                                   "auto (in programs with threads), on (in all programs, and also from sleeping "
                                   "threads' heaps), off",
                    .kind = HF_OPTION_CHOICE,
                    .live = 1,
                    .initial = BACKGROUND_AUTO,
                    .maximum = BACKGROUND_AUTO,
                    .choices = background_choices,
                },
            .apply = apply_background,
        },
    [ZEROED_RESERVE] =
        {
            .public =
                {
                    .name = "zeroed_reserve",
                    .description = "bytes of spans that a housekeeper thread keeps cleared for calloc; 0: no thread",
                    .kind = HF_OPTION_SIZE,
                    .live = 1,
                    .maximum = BYTES_UNLIMITED,
                },
            .keeps_memory = true,
            .apply = apply_zeroed_reserve,
        },
    [CACHE_LINE_ALIGN] =
        {
            .public =
                {
                    .name = "cache_line_align",
                    .description = "round small blocks up to cache lines, so that no two share one",
                    .kind = HF_OPTION_FLAG,
                    .maximum = 1,
                },
            .apply = apply_cache_line_align,
        },
    [NUMA] =
        {
            .public =
                {
                    .name = "numa",
                    .description = "keep free memory apart by NUMA node: auto (where there are several), off",
                    .kind = HF_OPTION_CHOICE,
                    .initial = NUMA_AUTO,
                    .maximum = NUMA_OFF,
                    .choices = numa_choices,
                },
            .apply = apply_numa,
        },
    [RESERVATION] =
        {
            .public =
                {
                    .name = "reservation",
                    .description = "bytes of address space to reserve at most; 0: chosen from the machine's memory",
                    .kind = HF_OPTION_SIZE,
                    .maximum = UINT64_C(1) << 46, /* half of what a process has on x86-64 */
                },
            .apply = apply_reservation,
        },
    [CONTROL] =
        {
            .public =
                {
                    .name = "control",
                    .description = "let processes of the same user set options and read statistics: off, on",
                    .kind = HF_OPTION_CHOICE,
                    .initial = CONTROL_OFF,
                    .maximum = CONTROL_ON,
                    .choices = control_choices,
                },
        },
    [DEEPBIND] =
        {
            .public =
                {
                    .name = "deepbind",
                    .description =
                        "RTLD_DEEPBIND in the program's dlopen: drop (so that plug-ins use the same malloc), keep",
                    .kind = HF_OPTION_CHOICE,
                    .initial = DEEPBIND_DROP,
                    .maximum = DEEPBIND_KEEP,
                    .live = true,
                    .choices = deepbind_choices,
                },
        },
    [GUARD_SAMPLE] =
        {
            .public =
                {
                    .name = "guard_sample",
                    .description = "bytes allocated, on average, for each small object that is put against an "
                                   "inaccessible page to find memory errors; 0: none",
                    .kind = HF_OPTION_SIZE,
                    .live = 1,
                    .maximum = BYTES_UNLIMITED,
                },
            .apply = apply_guard_sample,
        },
    [SAMPLE] =
        {
            .public =
                {
                    .name = "sample",
                    .description = "bytes allocated, on average, for each object whose call site is recorded for live "
                                   "profiles; 0: none",
                    .kind = HF_OPTION_SIZE,
                    .live = 1,
                    .maximum = BYTES_UNLIMITED,
                },
            .apply = apply_sample,
        },
    [STATS_AT_EXIT] =
        {
            .public =
                {
                    .name = "stats_at_exit",
                    .description = "write statistics to stderr when the process ends: 0, 1 (text), json",
                    .kind = HF_OPTION_CHOICE,
                    .live = 1,
                    .initial = STATS_OFF,
                    .maximum = STATS_JSON,
                    .choices = stats_choices,
                },
        },
    [VERBOSE] =
        {
            .public =
                {
                    .name = "verbose",
                    .description = "say on stderr at the start which options are in force",
                    .kind = HF_OPTION_FLAG,
                    .maximum = 1,
                },
        },
#ifdef HEAPFIT_HARDENED
    [CHECK_FAMILY] =
        {
            .public =
                {
                    .name = "check_family",
                    .description = "end the program when free is called on what operator new returned, delete on what "
                                   "malloc or new[] returned, and so on",
                    .kind = HF_OPTION_FLAG,
                    .maximum = 1,
                },
            .apply = apply_check_family,
        },
#endif
#ifdef HEAPFIT_POOLS
    [POOLS] =
        {
            .public =
                {
                    .name = "pools",
                    .description = "which objects get pools: judged (those that gain from it), all (past the limits), "
                                   "none (but everything else is done), off (nothing is done)",
                    .kind = HF_OPTION_CHOICE,
                    .initial = POOL_PLACING_JUDGED,
                    .maximum = POOL_PLACING_OFF,
                    .choices = pools_choices,
                },
            .apply = apply_pools,
        },
    [POOL_CHAIN] =
        {
            .public =
                {
                    .name = "pool_chain",
                    .description =
                        "callers that distinguish kinds of objects: adaptive (as many as needed), 1 to 4, full",
                    .kind = HF_OPTION_CHOICE,
                    .initial = POOL_CHAIN_ADAPTIVE,
                    .maximum = POOL_CHAIN_FULL,
                    .choices = pool_chain_choices,
                },
            .apply = apply_pool_chain,
        },
    [POOL_MERGE] =
        {
            .public =
                {
                    .name = "pool_merge",
                    .description = "put kinds of objects that build one data structure into one pool",
                    .kind = HF_OPTION_FLAG,
                    .initial = 1,
                    .maximum = 1,
                },
            .apply = apply_pool_merge,
        },
    [POOL_HEADERS] =
        {
            .public =
                {
                    .name = "pool_headers",
                    .description =
                        "leave the room in pools that object headers would take, to measure what they would cost",
                    .kind = HF_OPTION_FLAG,
                    .maximum = 1,
                },
            .apply = apply_pool_headers,
        },
    [POOL_SEGMENT_SIZE] =
        {
            .public =
                {
                    .name = "pool_segment_size",
                    .description = "bytes that a pool takes at a time, in steps of 4k",
                    .kind = HF_OPTION_SIZE,
                    .initial = 4096,
                    .minimum = 4096,
                    .maximum = SPAN_SIZE,
                },
            .apply = apply_pool_segment_size,
        },
    [POOL_MIN_OBJECTS] =
        {
            .public =
                {
                    .name = "pool_min_objects",
                    .description = "objects of a kind before it may get a pool",
                    .kind = HF_OPTION_NUMBER,
                    .initial = 100,
                    .minimum = 1,
                    .maximum = 1 << 20,
                },
            .apply = apply_pool_min_objects,
        },
    [POOL_MAX_SIZE] =
        {
            .public =
                {
                    .name = "pool_max_size",
                    .description = "bytes of the largest objects that may get a pool",
                    .kind = HF_OPTION_SIZE,
                    .initial = 128,
                    .minimum = MALLOC_ALIGNMENT,
                    .maximum = FAST_MAX,
                },
            .apply = apply_pool_max_size,
        },
#endif
};
