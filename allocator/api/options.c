/* Options: one table, read from HEAPFIT_OPTIONS when the allocator starts, and by hf_option_set and hf_option_get.
 *
 * Parsing allocates nothing and may happen before the C library is ready. A mistake in HEAPFIT_OPTIONS is reported in one
 * line and the default holds: a program must not fail because of a tuning knob.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "api.h"

#include <errno.h>
#include <string.h>

/* ---- the table ----------------------------------------------------------------------------------------------------- */

struct option {
    hf_option public;
    void (*apply)(uint64_t value); /* hands the value to the layer that it is for; NULL: it is read here */
    bool keeps_memory; /* while the footprint is shrunk, this is in force at most, whatever the value: */
    uint64_t kept_shrunk;
    _Atomic(uint64_t) value;
};

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

static void apply_zeroed_reserve(uint64_t value)
{
    atomic_store_explicit(&space_settings.zeroed_reserve, (size_t)value, memory_order_relaxed);
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
enum { CONTROL_OFF, CONTROL_ON };
static const char *const control_choices[] = {[CONTROL_OFF] = "off", [CONTROL_ON] = "on"};
/* The first two are what a flag takes. */
static const char *const stats_choices[] = {[STATS_OFF] = "0", [STATS_TEXT] = "1", [STATS_JSON] = "json"};

/* More than any machine has: a threshold of so many bytes is none. */
#define BYTES_UNLIMITED (UINT64_C(1) << 46)

/* While the footprint is shrunk: what requests hand to each other within milliseconds goes round and would only come back, page
 * fault by page fault, under the same lock of the kernel's as the reload. What is beyond goes back at once. */
enum { DECAY_MS_SHRUNK = 10, FREE_PAGES_SHRUNK = 1 << 20, SHARED_SPANS_SHRUNK = 4 << 20 };

static void apply_numa(uint64_t value)
{
    space_settings.numa = value == NUMA_AUTO;
}

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

enum {
    LOCKLESS_THREADS,
    FREE_PAGE_THRESHOLD,
    THREAD_SPAN_THRESHOLD,
    SHARED_SPAN_THRESHOLD,
    DECAY_MS,
    REMOTE_FREE_BATCH,
    REMOTE_FREE_BYTES,
    REMOTE_FREE_HAND_OVER,
    HUGE_PAGES,
    ZEROED_RESERVE,
    CACHE_LINE_ALIGN,
    NUMA,
    RESERVATION,
    CONTROL,
    STATS_AT_EXIT,
    VERBOSE,
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

/* The defaults stand here alone: they are applied at the start, whatever the layers were initialised with. */
static struct option options[OPTION_COUNT] = {
    [LOCKLESS_THREADS] =
        {
            .public =
                {
                    .name = "lockless_threads",
                    .description = "threads that have a heap of their own; those beyond share some under locks",
                    .kind = HF_OPTION_NUMBER,
                    .live = 1,
                    .initial = UINT32_MAX,
                    .maximum = UINT32_MAX,
                    .unlimited = 1,
                },
            .apply = apply_lockless_threads,
        },
    [FREE_PAGE_THRESHOLD] =
        {
            .public =
                {
                    .name = "free_page_threshold",
                    .description = "bytes of free memory within spans in use that a heap keeps until it has decayed",
                    .kind = HF_OPTION_SIZE,
                    .live = 1,
                    .initial = BYTES_UNLIMITED,
                    .maximum = BYTES_UNLIMITED,
                    .unlimited = 1,
                },
            .keeps_memory = true,
            .kept_shrunk = FREE_PAGES_SHRUNK,
            .apply = apply_free_page_threshold,
        },
    [THREAD_SPAN_THRESHOLD] =
        {
            .public =
                {
                    .name = "thread_span_threshold",
                    .description = "bytes of free spans that a thread keeps for itself, in steps of 64k",
                    .kind = HF_OPTION_SIZE,
                    .live = 1,
                    .initial = 4 * SPAN_SIZE,
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
            .apply = apply_shared_span_threshold,
        },
    [DECAY_MS] =
        {
            .public =
                {
                    .name = "decay_ms",
                    .description = "milliseconds after which free memory is given back to the kernel",
                    .kind = HF_OPTION_NUMBER,
                    .live = 1,
                    .initial = 500,
                    .maximum = DECAY_NEVER,
                    .unlimited = 1,
                },
            .keeps_memory = true,
            .kept_shrunk = DECAY_MS_SHRUNK,
            .apply = apply_decay_ms,
        },
    [REMOTE_FREE_BATCH] =
        {
            .public =
                {
                    .name = "remote_free_batch",
                    .description = "blocks of another thread that a thread frees before it hands them over",
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
                    .description = "bytes of such blocks, in the same way",
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
                    .description =
                        "when blocks are handed over: full (one of the limits), refill (also whenever a bin is filled)",
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
                    .description = "back the heap by huge pages: never, auto (when large and dense), always, hugetlb "
                                   "(the kernel's pool)",
                    .kind = HF_OPTION_CHOICE,
                    .initial = HUGE_PAGES_AUTO,
                    .maximum = HUGE_PAGES_HUGETLB,
                    .choices = huge_pages_choices,
                },
            .apply = apply_huge_pages,
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
                    .description = "bytes of address space to reserve; 0: chosen from the machine's memory",
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
#ifdef HEAPFIT_POOLS
    [POOLS] =
        {
            .public =
                {
                    .name = "pools",
                    .description = "which objects get pools: judged (those that gain by it), all (past the limits), "
                                   "none (all else is done), off (nothing is done)",
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
                        "callers that tell which objects are of one kind: adaptive (as many as needed), 1 to 4, full",
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
                        "leave the room in pools that headers of objects would take, to measure what it costs",
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

/* ---- texts -------------------------------------------------------------------------------------------------------------- */

/* A stretch of a longer text. */
struct text {
    const char *start;
    size_t length;
};

static struct text text_of(const char *string)
{
    return (struct text){string, strlen(string)};
}

static bool text_equals(struct text text, const char *string)
{
    return strlen(string) == text.length && memcmp(text.start, string, text.length) == 0;
}

static struct text text_trimmed(struct text text)
{
    while (text.length > 0 && text.start[0] == ' ') text.start++, text.length--;
    while (text.length > 0 && text.start[text.length - 1] == ' ') text.length--;
    return text;
}

/* Cuts off and returns what stands before the first `separator`, or everything. */
static struct text text_cut(struct text *rest, char separator)
{
    const char *at = memchr(rest->start, separator, rest->length);
    struct text head = {rest->start, at == NULL ? rest->length : (size_t)(at - rest->start)};
    size_t used = at == NULL ? head.length : head.length + 1;
    rest->start += used;
    rest->length -= used;
    return head;
}

/* Texts longer than this are cut in messages and when they are compared with names. */
enum { WORD_MAX = 40 };

/* A text as a string, for messages. */
struct word {
    char text[WORD_MAX + 1];
};

static struct word word_of(struct text text)
{
    struct word word = {.text = ""};
    memcpy(word.text, text.start, text.length < WORD_MAX ? text.length : WORD_MAX);
    return word;
}

/* ---- names ---------------------------------------------------------------------------------------------------------------- */

static struct option *option_find(struct text name)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (text_equals(name, options[i].public.name)) return &options[i];
    return NULL;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Levenshtein's distance, row by row (Wagner, Fischer 1974). */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[WORD_MAX + 1];
    size_t columns = strlen(b);
    for (size_t j = 0; j <= columns; j++) row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = smaller(replaced, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[columns];
}

static const char *nearest_name(const char *name)
{
    const char *nearest = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        size_t distance = edit_distance(name, options[i].public.name);
        if (distance >= least) continue;
        least = distance;
        nearest = options[i].public.name;
    }
    return nearest;
}

/* ---- values ----------------------------------------------------------------------------------------------------------------- */

/* log2 of what a suffix multiplies by; -1 when it is none. */
static int suffix_shift(char suffix)
{
    switch (suffix) {
    case 'k':
    case 'K':
        return 10;
    case 'm':
    case 'M':
        return 20;
    case 'g':
    case 'G':
        return 30;
    default:
        return -1;
    }
}

/* Digits, with a suffix where sizes are wanted. Returns 0, EINVAL when the text is no number, ERANGE when it is too large
 * for 64 bits. */
static int parse_number(struct text text, bool with_suffix, uint64_t *number)
{
    int shift = with_suffix && text.length > 1 ? suffix_shift(text.start[text.length - 1]) : -1;
    if (shift >= 0) text.length--;
    else shift = 0;
    if (text.length == 0) return EINVAL;
    bool overflow = false;
    *number = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.start[i] < '0' || text.start[i] > '9') return EINVAL;
        overflow |= __builtin_mul_overflow(*number, 10, number);
        overflow |= __builtin_add_overflow(*number, (uint64_t)(text.start[i] - '0'), number);
    }
    overflow |= __builtin_mul_overflow(*number, UINT64_C(1) << shift, number);
    return overflow ? ERANGE : 0;
}

static int parse_choice(const hf_option *option, struct text text, uint64_t *value)
{
    for (*value = 0; *value <= option->maximum; ++*value)
        if (text_equals(text, option->choices[*value])) return 0;
    return EINVAL;
}

static const char unlimited[] = "unlimited";

static int option_parse(const struct option *option, struct text text, uint64_t *value)
{
    if (option->public.kind == HF_OPTION_CHOICE) return parse_choice(&option->public, text, value);
    if (option->public.unlimited && text_equals(text, unlimited)) {
        *value = option->public.maximum;
        return 0;
    }
    int error = parse_number(text, option->public.kind == HF_OPTION_SIZE, value);
    if (error != 0) return error;
    return *value < option->public.minimum || *value > option->public.maximum ? ERANGE : 0;
}

/* Under this lock values are set and handed to the layers: so the two agree, and the first to allocate and the first to set an
 * option may be two threads. */
static platform_lock lock;
static _Atomic(bool) configured;
static _Atomic(bool) shrunk; /* written under the lock */

bool options_shrunk(void)
{
    return atomic_load_explicit(&shrunk, memory_order_relaxed);
}

/* What the layers go by when an option has this value. */
static uint64_t in_force(const struct option *option, uint64_t value)
{
    bool bounded = option->keeps_memory && options_shrunk() && value > option->kept_shrunk;
    return bounded ? option->kept_shrunk : value;
}

static void option_apply(struct option *option, uint64_t value)
{
    /* Relaxed: a value stands for itself; nothing else is published with it. */
    atomic_store_explicit(&option->value, value, memory_order_relaxed);
    if (option->apply != NULL) option->apply(in_force(option, value));
}

static uint64_t option_value(const struct option *option)
{
    return atomic_load_explicit(&option->value, memory_order_relaxed);
}

struct option_text options_text(const hf_option *option, uint64_t value)
{
    struct option_text result = {.text = ""};
    const char *word = NULL;
    if (option->kind == HF_OPTION_CHOICE) word = option->choices[value];
    else if (option->unlimited && value == option->maximum) word = unlimited;
    if (word != NULL) memcpy(result.text, word, strlen(word));
    else platform_format(result.text, sizeof result.text, "%zu", (size_t)value);
    return result;
}

static struct option_text text_now(const struct option *option)
{
    return options_text(&option->public, option_value(option));
}

/* ---- mistakes ------------------------------------------------------------------------------------------------------------ */

static COLD void explain_name(struct text name, struct option_mistake *mistake)
{
    struct word word = word_of(name);
    platform_format(mistake->text, sizeof mistake->text, "there is no option '%s'; the nearest is '%s'", word.text,
                    nearest_name(word.text));
}

static COLD void explain_value(const struct option *option, struct text value, struct option_mistake *mistake)
{
    const hf_option *public = &option->public;
    struct word word = word_of(value);
    struct option_text stays = text_now(option);
    if (public->kind == HF_OPTION_CHOICE)
        platform_format(mistake->text, sizeof mistake->text, "'%s' is no value for '%s' (%s); it stays %s", word.text,
                        public->name, public->description, stays.text);
    else
        platform_format(mistake->text, sizeof mistake->text,
                        "'%s' is no value for '%s', which takes %s to %s%s; it stays %s", word.text, public->name,
                        options_text(public, public->minimum).text, options_text(public, public->maximum).text,
                        public->kind == HF_OPTION_SIZE ? " (k, m, g are understood)" : "", stays.text);
}

static COLD void explain_not_live(const struct option *option, struct option_mistake *mistake)
{
    platform_format(mistake->text, sizeof mistake->text,
                    "'%s' can only be set at the start, in HEAPFIT_OPTIONS; it stays %s", option->public.name,
                    text_now(option).text);
}

/* Returns 0, or an error of hf_option_set with nothing changed and the mistake explained. */
static int option_set(struct text name, struct text value, bool started, struct option_mistake *mistake)
{
    struct option *option = option_find(name);
    uint64_t number;
    if (option == NULL) {
        explain_name(name, mistake);
        return ENOENT;
    }
    int error = option_parse(option, value, &number);
    if (error != 0) {
        explain_value(option, value, mistake);
        return error;
    }
    if (started && !option->public.live) {
        explain_not_live(option, mistake);
        return EBUSY;
    }
    option_apply(option, number);
    return 0;
}

/* ---- HEAPFIT_OPTIONS ----------------------------------------------------------------------------------------------------------- */

static void read_entry(struct text entry)
{
    struct text value = entry;
    struct text name = text_trimmed(text_cut(&value, ':'));
    struct option_mistake mistake;
    if (option_set(name, text_trimmed(value), false, &mistake) != 0)
        platform_message("HEAPFIT_OPTIONS: %s", mistake.text);
}

static void read_environment(void)
{
    char buffer[1024];
    if (!platform_environment("HEAPFIT_OPTIONS", buffer, sizeof buffer)) return;
    struct text rest = text_of(buffer);
    while (rest.length > 0) {
        struct text entry = text_trimmed(text_cut(&rest, ','));
        if (entry.length > 0) read_entry(entry);
    }
}

/* A path is no value that an option can have. */
static void read_explain(void)
{
#ifdef HEAPFIT_POOLS
    char *path = pool_settings.explain;
    if (!platform_environment("HEAPFIT_POOLS_EXPLAIN", path, sizeof pool_settings.explain)) path[0] = '\0';
#endif
}

static COLD void report_options(void)
{
    platform_message("version %s, options:", hf_version());
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const hf_option *public = &options[i].public;
        platform_message("  %s:%s (%s)", public->name, text_now(&options[i]).text, public->description);
    }
}

void heap_configure(void)
{
    /* Acquire: pairs with the release below. */
    if (atomic_load_explicit(&configured, memory_order_acquire)) return;
    platform_lock_acquire(&lock);
    if (!atomic_load_explicit(&configured, memory_order_relaxed)) {
        for (size_t i = 0; i < OPTION_COUNT; i++) option_apply(&options[i], options[i].public.initial);
        read_environment();
        read_explain();
        if (option_value(&options[VERBOSE]) != 0) report_options();
        /* Release: whoever sees it sees what the options set. */
        atomic_store_explicit(&configured, true, memory_order_release);
    }
    platform_lock_release(&lock);
}

enum stats_at_exit options_stats_at_exit(void)
{
    return (enum stats_at_exit)option_value(&options[STATS_AT_EXIT]);
}

bool options_control(void)
{
    return option_value(&options[CONTROL]) == CONTROL_ON;
}

bool options_get(const char *name, struct option_text *value, struct option_mistake *mistake)
{
    heap_configure();
    const struct option *option = option_find(text_of(name));
    if (option == NULL) {
        explain_name(text_of(name), mistake);
        return false;
    }
    *value = text_now(option);
    return true;
}

struct option_text options_in_force(const char *name)
{
    const struct option *option = option_find(text_of(name));
    return options_text(&option->public, in_force(option, option_value(option)));
}

/* What some settings want done at once. Without the lock, since these take others or start a thread. */
static void follow(void)
{
    if (heap_is_started()) space_zeroed_adjust();
    control_start();
}

static int set(const char *name, const char *value, struct option_mistake *mistake)
{
    heap_configure(); /* or the start would overwrite what is set here */
    bool started = heap_is_started();
    platform_lock_acquire(&lock);
    int error = option_set(text_of(name), text_of(value), started, mistake);
    platform_lock_release(&lock);
    if (error == 0) follow();
    return error;
}

bool options_set(const char *name, const char *value, struct option_mistake *mistake)
{
    return set(name, value, mistake) == 0;
}

void options_shrink(bool now)
{
    heap_configure(); /* or the start would overwrite what is set here */
    platform_lock_acquire(&lock);
    atomic_store_explicit(&shrunk, now, memory_order_relaxed);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (options[i].keeps_memory) option_apply(&options[i], option_value(&options[i]));
    platform_lock_release(&lock);
    follow();
}

void options_fork_begin(void)
{
    platform_lock_fork_begin(&lock);
}

void options_fork_end(void)
{
    platform_lock_fork_end(&lock);
}

/* ---- for programs ---------------------------------------------------------------------------------------------------------------- */

EXPORT size_t hf_option_count(void)
{
    return OPTION_COUNT;
}

EXPORT const hf_option *hf_option_at(size_t index)
{
    return index < OPTION_COUNT ? &options[index].public : NULL;
}

static int fail(int error)
{
    errno = error;
    return -1;
}

EXPORT int hf_option_set(const char *name, const char *value)
{
    struct option_mistake mistake;
    int error = set(name, value, &mistake);
    return error == 0 ? 0 : fail(error);
}

EXPORT int hf_option_get(const char *name, char *buffer, size_t capacity)
{
    struct option_text value;
    struct option_mistake mistake;
    if (!options_get(name, &value, &mistake)) return fail(ENOENT);
    size_t size = strlen(value.text) + 1;
    if (size > capacity) return fail(ERANGE);
    memcpy(buffer, value.text, size);
    return 0;
}
