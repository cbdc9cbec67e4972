/* The ledger: every resident page of the process is put under one cause.
 *
 * In three steps. First the heap: the descriptors of a window of spans are noted under the lock of the space, then, without it, the
 * kernel is asked which pages of these are there, and spans of blocks are looked through (survey.h). Then the kernel's list of
 * mappings, which also says how many of the heap's pages it counts. Last the rows of the heap, when that is known.
 *
 * The kernel's one page of zeros is resident wherever the process has read memory that it never wrote to, and the kernel counts it
 * nowhere. Such pages cannot be told from those that are shared with a child. So where the heap has more resident pages than the
 * kernel counts, what is too much is taken off the doubtful ones, from each cause in proportion to what it has of them.
 *
 * What is noted meanwhile lies in pages borrowed from the kernel: by the time its mappings are listed, only a few are left.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../heap/survey.h"
#include "api.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- causes ------------------------------------------------------------------------------------------------------ */

enum cause {
    CAUSE_LIVE,
    CAUSE_POOLS,
    CAUSE_PINNED,
    CAUSE_KEPT,
    CAUSE_CACHED,
    CAUSE_ON_THE_WAY,
    HEAP_CAUSES, /* those before this one are counted for each heap */
    CAUSE_ORPHANED = HEAP_CAUSES,
    CAUSE_GUARDED,
    CAUSE_CONTEXTS,
    CAUSE_DECAYING,
    CAUSE_ZEROED,
    CAUSE_NEVER_USED,
    CAUSE_TABLES,
    CAUSES,
    CAUSE_OF_BLOCKS = CAUSES, /* of a span: to be looked through */
};

static const char *const cause_names[CAUSES] = {
    [CAUSE_LIVE] = "live",
    [CAUSE_POOLS] = "pools",
    [CAUSE_PINNED] = "pinned",
    [CAUSE_KEPT] = "kept",
    [CAUSE_CACHED] = "cached",
    [CAUSE_ON_THE_WAY] = "on_the_way",
    [CAUSE_ORPHANED] = "orphaned",
    [CAUSE_GUARDED] = "guarded",
    [CAUSE_CONTEXTS] = "contexts",
    [CAUSE_DECAYING] = "decaying",
    [CAUSE_ZEROED] = "zeroed",
    [CAUSE_TABLES] = "tables",
    [CAUSE_NEVER_USED] = "never_used",
};

/* ---- sums -------------------------------------------------------------------------------------------------------- */

struct amount {
    size_t resident, swapped;
    size_t doubtful; /* of the resident */
};

struct heap_amounts {
    long thread;
    struct amount amounts[HEAP_CAUSES];
};

/* What one span is for. */
struct mark {
    uint32_t heap; /* that keeps it; 0: none */
    uint8_t cause;
};

/* Spans whose descriptors are looked through at a time. */
enum { WINDOW_SPANS = 1 << 16 };

struct ledger {
    struct platform_pages pages;
    struct space_bounds bounds;
    struct amount sums[CAUSES]; /* of no heap, or of one that was made meanwhile */
    struct heap_amounts *heaps; /* by their numbers; borrowed */
    size_t heaps_count;
    struct mark *marks; /* of a window; borrowed */
    void *copy; /* room for that of a span; borrowed */
    uint32_t window; /* the first span of it */
};

static struct amount *amount_of(struct ledger *ledger, enum cause cause, size_t heap)
{
    bool known = cause < HEAP_CAUSES && heap != 0 && heap < ledger->heaps_count;
    return known ? &ledger->heaps[heap].amounts[cause] : &ledger->sums[cause];
}

static void add(struct amount *amount, uint8_t state, size_t bytes)
{
    if ((state & PAGE_RESIDENT) != 0) amount->resident += bytes;
    if ((state & PAGE_DOUBTFUL) != 0) amount->doubtful += bytes;
    if ((state & PAGE_SWAPPED) != 0) amount->swapped += bytes;
}

/* ---- what spans are for: under the lock of the space --------------------------------------------------------------- */

/* A heap may be making blocks of it, without that lock. */
READS_RACILY static struct mark mark_of_metadata(const struct span *first)
{
    uint32_t use = run_use(first);
    if (use == RUN_OF_TABLES) return (struct mark){.cause = CAUSE_TABLES};
    if (use == RUN_ON_ITS_WAY) return (struct mark){.cause = CAUSE_DECAYING};
    return (struct mark){.cause = CAUSE_CACHED, .heap = use - 1};
}

static struct mark mark_of(const struct space_run *run)
{
    static const uint8_t of_free[] = {
        [RUN_CLEAN] = CAUSE_NEVER_USED, [RUN_DIRTY] = CAUSE_DECAYING, [RUN_ZEROED] = CAUSE_ZEROED};
    if (run->state != RUN_HANDED_OUT) return (struct mark){.cause = of_free[run->state]};
    switch (span_kind_read(run->first)) {
    case SPAN_LARGE:
        return (struct mark){.cause = CAUSE_LIVE};
    case SPAN_GUEST:
        return (struct mark){.cause = CAUSE_CONTEXTS};
    case SPAN_GUARD:
        return (struct mark){.cause = CAUSE_GUARDED};
    case SPAN_BLOCKS:
        return (struct mark){.cause = CAUSE_OF_BLOCKS};
    default:
        return mark_of_metadata(run->first);
    }
}

static void mark_run(const struct space_run *run, void *argument)
{
    const struct ledger *ledger = argument;
    struct mark mark = mark_of(run);
    uint32_t end = ledger->window + WINDOW_SPANS;
    uint32_t from = run->index > ledger->window ? run->index : ledger->window;
    uint32_t to = run->index + run->spans < end ? run->index + run->spans : end;
    for (uint32_t span = from; span < to; span++) ledger->marks[span - ledger->window] = mark;
}

/* Spans that were never handed out are in no run. */
static void mark_window(struct ledger *ledger, uint32_t window)
{
    ledger->window = window;
    for (uint32_t i = 0; i < WINDOW_SPANS && window + i < (ledger->bounds.committed - space.base) / SPAN_SIZE; i++)
        ledger->marks[i] = (struct mark){.cause = CAUSE_NEVER_USED};
    space_visit_runs(window, window + WINDOW_SPANS, mark_run, ledger);
}

/* ---- spans of blocks ----------------------------------------------------------------------------------------------- */

/* Free blocks of the page, and those of them that are on the way: how many there are is known of the span, not where. */
static void add_blocks_of_page(struct ledger *ledger, const struct span_survey *survey, uint8_t state, unsigned page)
{
    const struct heap *owner = survey->owner;
    bool is_orphan = owner->number == 0 || atomic_load_explicit(&owner->thread, memory_order_relaxed) == 0;
    size_t live = survey->live[page], free = survey->free[page];
    size_t on_the_way = survey->free_blocks == 0 ? 0 : free * survey->on_the_way / survey->free_blocks;
    enum cause cause = live != 0 ? CAUSE_PINNED : is_orphan ? CAUSE_ORPHANED : CAUSE_KEPT;
    if (live + free == 0 && survey->zeros) cause = CAUSE_NEVER_USED;
    add(amount_of(ledger, survey->in_pool ? CAUSE_POOLS : CAUSE_LIVE, owner->number), state, live);
    add(amount_of(ledger, CAUSE_ON_THE_WAY, owner->number), state, on_the_way);
    add(amount_of(ledger, cause, owner->number), state, ledger->pages.page - live - on_the_way);
}

static void add_pages(struct ledger *ledger, struct mark mark, const uint8_t *states, size_t count)
{
    struct amount *amount = amount_of(ledger, (enum cause)mark.cause, mark.heap);
    for (size_t page = 0; page < count; page++) add(amount, states[page], ledger->pages.page);
}

/* It may have been released since it was noted. */
static void add_span_of_blocks(struct ledger *ledger, uint32_t index, const uint8_t *states, size_t pages)
{
    struct span_survey survey;
    span_survey(span_at(index), states, ledger->copy, &survey);
    if (survey.owner == NULL) {
        add_pages(ledger, (struct mark){.cause = CAUSE_DECAYING}, states, pages);
        return;
    }
    for (unsigned page = 0; page < pages; page++) add_blocks_of_page(ledger, &survey, states[page], page);
}

/* ---- the space ----------------------------------------------------------------------------------------------------- */

static bool any_there(const uint8_t *states, size_t pages)
{
    for (size_t i = 0; i < pages; i++)
        if (states[i] != 0) return true;
    return false;
}

static void add_span(struct ledger *ledger, uint32_t index, const uint8_t *states, size_t pages)
{
    struct mark mark = ledger->marks[index - ledger->window];
    if (!any_there(states, pages)) return;
    if (mark.cause == CAUSE_OF_BLOCKS) add_span_of_blocks(ledger, index, states, pages);
    else add_pages(ledger, mark, states, pages);
}

static void add_spans(struct ledger *ledger)
{
    uint8_t states[PAGES_AT_ONCE];
    size_t per_span = SPAN_SIZE / ledger->pages.page;
    uint32_t at_once = (uint32_t)(PAGES_AT_ONCE / per_span);
    uint32_t end = (uint32_t)((ledger->bounds.committed - space.base) / SPAN_SIZE);
    for (uint32_t index = 0; index < end;) {
        if (index % WINDOW_SPANS == 0) mark_window(ledger, index);
        uint32_t count = end - index < at_once ? end - index : at_once;
        platform_pages_look(&ledger->pages, span_start(span_at(index)), count * per_span, states);
        for (uint32_t i = 0; i < count; i++) add_span(ledger, index + i, states + i * per_span, per_span);
        index += count;
    }
}

static void add_pages_between(const struct ledger *ledger, uintptr_t start, uintptr_t end, struct amount *amount)
{
    uint8_t states[PAGES_AT_ONCE];
    size_t page = ledger->pages.page;
    for (start &= ~(page - 1); start < end;) {
        size_t left = (end - start + page - 1) / page;
        size_t count = left < PAGES_AT_ONCE ? left : PAGES_AT_ONCE;
        platform_pages_look(&ledger->pages, start, count, states);
        for (size_t i = 0; i < count; i++) add(amount, states[i], page);
        start += count * page;
    }
}

/* ---- mappings: where stacks are ------------------------------------------------------------------------------------ */

/* More threads than that have their stacks among other memory. */
enum { STACKS_MAX = 1 << 14 };

struct stacks {
    size_t count;
    struct stack {
        uintptr_t address; /* somewhere in it */
        long thread;
    } all[STACKS_MAX];
};

static void stack_add(struct stacks *stacks, uintptr_t address, long thread)
{
    if (address == 0 || stacks->count == STACKS_MAX) return;
    stacks->all[stacks->count++] = (struct stack){.address = address, .thread = thread};
}

static void stack_of_thread(int32_t number, uintptr_t stack, void *argument)
{
    stack_add(argument, stack, number);
}

/* The kernel does not say where the stack of a thread is that runs. The C library puts its thread-local variables there, but for the
 * first thread's. */
static void stack_of_heap(const struct heap *heap, void *argument)
{
    int32_t thread = atomic_load_explicit(&heap->thread, memory_order_relaxed);
    if (thread <= 0 || thread == getpid()) return;
    stack_add(argument, (uintptr_t)__atomic_load_n(&heap->place, __ATOMIC_ACQUIRE), thread);
}

static void stacks_find(struct stacks *stacks)
{
    stack_add(stacks, (uintptr_t)__builtin_frame_address(0), platform_thread_number());
    platform_threads_visit(stack_of_thread, stacks);
    if (heap_is_started()) heap_visit_all(stack_of_heap, stacks);
}

static const struct stack *stack_in(const struct stacks *stacks, const struct platform_mapping *mapping)
{
    for (size_t i = 0; i < stacks->count; i++)
        if (stacks->all[i].address - mapping->start < mapping->end - mapping->start) return &stacks->all[i];
    return NULL;
}

/* ---- mappings ------------------------------------------------------------------------------------------------------ */

struct own_memory {
    uintptr_t start, end;
};

struct reading {
    struct ledger *ledger;
    struct stacks *stacks; /* borrowed */
    struct own_memory own[2]; /* tables outside of the space */
    struct amount own_amount; /* what of them is there */
    size_t heap_resident; /* as the kernel counts */
    struct platform_mapping last; /* the variables of a module that are 0 at first stand behind those that are not */
    void (*visit)(const hf_ledger_row *row, void *argument);
    void *argument;
};

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_shared_memory(const struct platform_mapping *mapping)
{
    return mapping->shared && (starts_with(mapping->name, "/dev/") || starts_with(mapping->name, "/memfd:") ||
                               starts_with(mapping->name, "/SYSV") || starts_with(mapping->name, "[anon_shmem"));
}

static bool is_of_last_module(const struct reading *reading, const struct platform_mapping *mapping)
{
    const struct platform_mapping *last = &reading->last;
    return last->has_file && last->writable && !last->shared && last->end == mapping->start && mapping->writable &&
           !mapping->executable;
}

static void row_of_anonymous(const struct reading *reading, const struct platform_mapping *mapping, hf_ledger_row *row)
{
    const struct stack *stack = stack_in(reading->stacks, mapping);
    row->cause = mapping->executable ? "jit" : "anonymous";
    if (stack != NULL) {
        row->cause = "stack";
        row->thread = stack->thread;
    } else if (is_of_last_module(reading, mapping)) {
        row->cause = "file";
        row->name = reading->last.name;
    }
}

static hf_ledger_row row_of_mapping(const struct reading *reading, const struct platform_mapping *mapping)
{
    hf_ledger_row row = {.name = mapping->name, .heap = -1, .swapped = mapping->swapped};
    row.resident = mapping->resident;
    if (is_shared_memory(mapping)) row.cause = "shared";
    else if (mapping->has_file) row.cause = "file";
    else if (strcmp(mapping->name, "[heap]") == 0) row.cause = "brk";
    else if (strcmp(mapping->name, "[stack]") == 0) row.cause = "stack";
    else if (starts_with(mapping->name, "[v")) row.cause = "kernel"; /* vdso, vvar, vsyscall */
    else row_of_anonymous(reading, mapping, &row);
    if (strcmp(mapping->name, "[stack]") == 0) row.thread = getpid();
    return row;
}

/* Our own pages in a mapping, which the kernel may have made one with a neighbour's. */
static void take_out_own(struct reading *reading, const struct platform_mapping *mapping, hf_ledger_row *row)
{
    for (size_t i = 0; i < sizeof reading->own / sizeof *reading->own; i++) {
        uintptr_t start = reading->own[i].start, end = reading->own[i].end;
        if (start < mapping->start) start = mapping->start;
        if (end > mapping->end) end = mapping->end;
        if (start >= end) continue;
        struct amount amount = {0};
        add_pages_between(reading->ledger, start, end, &amount);
        if (amount.resident > row->resident) amount.resident = row->resident;
        row->resident -= amount.resident;
        reading->own_amount.resident += amount.resident;
    }
}

static void read_mapping(struct reading *reading, const struct platform_mapping *mapping)
{
    const struct space_bounds *bounds = &reading->ledger->bounds;
    if (mapping->start >= bounds->table && mapping->start < bounds->end) {
        reading->heap_resident += mapping->resident;
        return;
    }
    hf_ledger_row row = row_of_mapping(reading, mapping);
    take_out_own(reading, mapping, &row);
    if (row.resident + row.swapped != 0) reading->visit(&row, reading->argument);
    reading->last = *mapping;
}

static bool read_mappings(struct reading *reading)
{
    struct platform_mappings mappings;
    struct platform_mapping mapping;
    if (!platform_mappings_open(&mappings)) return false;
    stacks_find(reading->stacks);
    while (platform_mappings_next(&mappings, &mapping)) read_mapping(reading, &mapping);
    platform_mappings_close(&mappings);
    return true;
}

/* ---- rows of the heap ---------------------------------------------------------------------------------------------- */

static void heap_amounts_add(const struct heap_amounts *heap, struct amount *total)
{
    for (unsigned cause = 0; cause < HEAP_CAUSES; cause++) {
        total->resident += heap->amounts[cause].resident;
        total->doubtful += heap->amounts[cause].doubtful;
    }
}

static struct amount heap_total(const struct ledger *ledger)
{
    struct amount total = {0};
    for (unsigned cause = 0; cause < CAUSES; cause++) {
        total.resident += ledger->sums[cause].resident;
        total.doubtful += ledger->sums[cause].doubtful;
    }
    for (size_t heap = 0; heap < ledger->heaps_count; heap++) heap_amounts_add(&ledger->heaps[heap], &total);
    return total;
}

/* Which part of the doubtful pages the kernel does not count. */
struct excess {
    size_t zeros, doubtful;
};

static struct excess excess_over(const struct ledger *ledger, size_t counted)
{
    struct amount total = heap_total(ledger);
    size_t zeros = total.resident > counted ? total.resident - counted : 0;
    return (struct excess){.zeros = zeros < total.doubtful ? zeros : total.doubtful, .doubtful = total.doubtful};
}

static size_t without_excess(const struct amount *amount, struct excess excess)
{
    if (excess.zeros == 0) return amount->resident;
    return amount->resident - (size_t)((double)amount->doubtful * (double)excess.zeros / (double)excess.doubtful);
}

static void visit_amount(const struct reading *reading, enum cause cause, const struct amount *amount, long heap,
                         long thread, struct excess excess)
{
    hf_ledger_row row = {.cause = cause_names[cause], .name = "", .in_heap = 1, .heap = heap, .thread = thread};
    row.resident = without_excess(amount, excess);
    row.swapped = amount->swapped;
    if (row.resident + row.swapped != 0) reading->visit(&row, reading->argument);
}

static void visit_heap_rows(const struct reading *reading, struct excess excess)
{
    const struct ledger *ledger = reading->ledger;
    for (unsigned cause = 0; cause < CAUSES; cause++)
        visit_amount(reading, (enum cause)cause, &ledger->sums[cause], -1, 0, excess);
    visit_amount(reading, CAUSE_TABLES, &reading->own_amount, -1, 0, (struct excess){0});
    for (size_t heap = 0; heap < ledger->heaps_count; heap++) {
        const struct heap_amounts *amounts = &ledger->heaps[heap];
        for (unsigned cause = 0; cause < HEAP_CAUSES; cause++)
            visit_amount(reading, (enum cause)cause, &amounts->amounts[cause], (long)heap, amounts->thread, excess);
    }
}

/* ---- what is borrowed ---------------------------------------------------------------------------------------------- */

static void count_heap(const struct heap *heap, void *argument)
{
    struct ledger *ledger = argument;
    if (heap->number >= ledger->heaps_count) ledger->heaps_count = (size_t)heap->number + 1;
}

static void name_thread(const struct heap *heap, void *argument)
{
    struct ledger *ledger = argument;
    bool shared = atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_SHARED && heap != &heap_orphans;
    if (heap->number >= ledger->heaps_count) return;
    ledger->heaps[heap->number].thread = shared ? -1 : atomic_load_explicit(&heap->thread, memory_order_relaxed);
}

static bool borrow_heaps(struct ledger *ledger)
{
    heap_visit_all(count_heap, ledger);
    ledger->heaps = platform_borrow(ledger->heaps_count * sizeof *ledger->heaps);
    if (ledger->heaps == NULL) return false;
    heap_visit_all(name_thread, ledger);
    return true;
}

static bool collect_spans(struct ledger *ledger)
{
    const size_t marks = WINDOW_SPANS * sizeof *ledger->marks;
    char *room = platform_borrow(marks + SPAN_SIZE);
    if (room == NULL) return false;
    ledger->marks = (struct mark *)room;
    ledger->copy = room + marks;
    add_spans(ledger);
    add_pages_between(ledger, ledger->bounds.table, ledger->bounds.base, &ledger->sums[CAUSE_TABLES]);
    platform_give_back(room, marks + SPAN_SIZE);
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------------------------------- */

static void find_own(struct reading *reading)
{
    size_t records = guard_records(&reading->own[0].start), map = chunk_map_bytes(&reading->own[1].start);
    reading->own[0].end = reading->own[0].start + records;
    reading->own[1].end = reading->own[1].start + map;
}

static int write_up(struct ledger *ledger, struct reading *reading)
{
    if (ledger->bounds.base != 0 && !collect_spans(ledger)) return ENOMEM; /* it may have started since */
    find_own(reading);
    reading->stacks = platform_borrow(sizeof *reading->stacks);
    if (reading->stacks == NULL) return ENOMEM;
    bool listed = read_mappings(reading);
    platform_give_back(reading->stacks, sizeof *reading->stacks);
    visit_heap_rows(reading, listed ? excess_over(ledger, reading->heap_resident) : (struct excess){0});
    return listed ? 0 : ENOENT;
}

static int ledger_make(void (*visit)(const hf_ledger_row *row, void *argument), void *argument)
{
    struct ledger ledger = {.bounds = {0}};
    struct reading reading = {.ledger = &ledger, .visit = visit, .argument = argument};
    if (heap_is_started()) {
        ledger.bounds = space_bounds();
        if (!borrow_heaps(&ledger)) return ENOMEM;
    }
    platform_pages_open(&ledger.pages);
    int error = write_up(&ledger, &reading);
    platform_pages_close(&ledger.pages);
    if (ledger.heaps != NULL) platform_give_back(ledger.heaps, ledger.heaps_count * sizeof *ledger.heaps);
    return error;
}

EXPORT int hf_ledger(void (*visit)(const hf_ledger_row *row, void *argument), void *argument)
{
    int saved = errno;
    int error = visit == NULL ? EINVAL : ledger_make(visit, argument);
    errno = error != 0 ? error : saved;
    return error != 0 ? -1 : 0;
}
