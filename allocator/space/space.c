/* The reservation, its frontier, and handing out runs: from the free ones (run.c) or beyond the frontier. */
#include "state.h"

struct space space;
struct space_state space_state;
struct space_settings space_settings = {
    .huge_pages = HUGE_PAGES_AUTO, .huge_page_cost_us = 700, .reservation = 0, .decay_ms = 500};

/* ---- constants -------------------------------------------------------------------------------------- */

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* The reservation is this many times the physical memory: a span may have only one of its sixteen 4 KiB pages
 * touched, so that address space runs out only when memory does. */
enum { RESERVATION_PER_MEMORY = 16 };
#define RESERVATION_MIN ((size_t)1 << 40)
#define RESERVATION_MAX ((size_t)1 << 46)
/* The smallest that is worth trying, where limits forbid more. */
#define RESERVATION_TINY (16 * MIB)
/* Under RLIMIT_AS, thread stacks and other mappings must find room beside us. */
enum { RESERVATION_SHARE_OF_LIMIT = 2 };
/* Spans start at multiples of a huge page. */
#define RESERVATION_ALIGNMENT (2 * MIB)

/* Spans made accessible at a time: an eighth of what is in use, within these bounds and up to the end of a huge
 * page, so that mprotect is rare and strict limits are not used up for nothing. */
enum { COMMIT_SPANS_MIN = 16, COMMIT_SPANS_MAX = 1024, COMMIT_SHARE = 8 };
/* Descriptors made accessible at a time: 64 KiB of them. */
enum { COMMIT_DESCRIPTORS = 1024 };

/* ---- start ------------------------------------------------------------------------------------------ */

static size_t round_up_power_of_two(size_t value)
{
    return value <= 1 ? 1 : (size_t)1 << (64 - __builtin_clzl(value - 1));
}

static size_t reservation_wanted(void)
{
    size_t wanted = space_settings.reservation;
    if (wanted == 0) {
        wanted = round_up_power_of_two(platform_physical_memory() * RESERVATION_PER_MEMORY);
        if (wanted < RESERVATION_MIN) wanted = RESERVATION_MIN;
    }
    size_t limit = platform_address_space_limit() / RESERVATION_SHARE_OF_LIMIT;
    if (wanted > RESERVATION_MAX) wanted = RESERVATION_MAX;
    if (wanted > limit) wanted = limit;
    if (wanted < RESERVATION_TINY) wanted = RESERVATION_TINY;
    return wanted & ~(RESERVATION_ALIGNMENT - 1);
}

bool space_start(void)
{
    if (space.base != 0) return true;
    char *start = NULL;
    size_t table = 0;
    size_t data = reservation_wanted();
    for (; data >= RESERVATION_TINY; data = data / 2 & ~(RESERVATION_ALIGNMENT - 1)) {
        table = (data / SPAN_SIZE * sizeof(struct span) + RESERVATION_ALIGNMENT - 1) & ~(RESERVATION_ALIGNMENT - 1);
        start = platform_reserve(table + data, RESERVATION_ALIGNMENT);
        if (start != NULL) break;
    }
    if (start == NULL || !platform_make_readable(start, table)) return false;
    /* Where the system gives everybody huge pages, a small program would get one on its first malloc. */
    if (space_settings.huge_pages != HUGE_PAGES_ALWAYS) platform_advise_huge_pages(start, table + data, false);

    space_state.capacity = (uint32_t)(data / SPAN_SIZE);
    huge_pages_start();
    run_lists_start();
    space.base = (uintptr_t)start + table;
    space.size = (size_t)space_state.capacity * SPAN_SIZE;
    return true;
}

/* ---- the frontier ----------------------------------------------------------------------------------- */

bool space_commit_descriptors(uint32_t up_to)
{
    if (up_to <= space_state.descriptors_committed) return true;
    uint32_t target = (up_to + COMMIT_DESCRIPTORS - 1) / COMMIT_DESCRIPTORS * COMMIT_DESCRIPTORS;
    char *low = (char *)((struct span *)space.base - target);
    char *high = (char *)((struct span *)space.base - space_state.descriptors_committed);
    if (!platform_commit(low, (size_t)(high - low))) return false;
    space_state.descriptors_committed = target;
    return true;
}

static bool commit_spans(uint32_t up_to)
{
    if (up_to <= space_state.committed) return true;
    uint32_t before = space_state.committed;
    uint32_t step = space_state.frontier / COMMIT_SHARE;
    if (step < COMMIT_SPANS_MIN) step = COMMIT_SPANS_MIN;
    if (step > COMMIT_SPANS_MAX) step = COMMIT_SPANS_MAX;
    uint64_t generous = ((uint64_t)up_to + step + HUGE_PAGE_SPANS - 1) & ~(uint64_t)(HUGE_PAGE_SPANS - 1);
    if (generous > space_state.capacity) generous = space_state.capacity;
    char *start = (char *)space.base + (size_t)before * SPAN_SIZE;
    /* Where limits leave no room for the generous step, the least that is needed. */
    if (platform_commit(start, ((size_t)generous - before) * SPAN_SIZE)) space_state.committed = (uint32_t)generous;
    else if (platform_commit(start, ((size_t)up_to - before) * SPAN_SIZE)) space_state.committed = up_to;
    if (space_state.committed > before) huge_pages_advise_committed(before, space_state.committed);
    return up_to <= space_state.committed;
}

/* Move the frontier up by `spans`; the new spans are clean. */
static bool frontier_raise(uint32_t spans)
{
    if (spans > space_state.capacity - space_state.frontier) return false;
    uint32_t raised = space_state.frontier + spans;
    if (!space_commit_descriptors(raised) || !commit_spans(raised)) return false;
    space_state.frontier = raised;
    return true;
}

/* ---- handing out ------------------------------------------------------------------------------------ */

/* The first index at or after `index` whose address is aligned to `alignment` spans. */
static uint32_t index_aligned(uint32_t index, uint32_t alignment)
{
    uintptr_t number = (space.base >> SPAN_SHIFT) + index;
    uintptr_t aligned = (number + alignment - 1) & ~(uintptr_t)(alignment - 1);
    return index + (uint32_t)(aligned - number);
}

static uint32_t acquire_from_free(uint32_t spans, uint32_t alignment, bool dirty)
{
    struct span *run = run_find(spans + alignment - 1, dirty);
    if (run == NULL) return SPAN_NONE;
    uint32_t index = index_aligned(span_index(run), alignment);
    run_cut(run, index, spans);
    return index;
}

static uint32_t acquire_from_frontier(uint32_t spans, uint32_t alignment)
{
    uint32_t start = space_state.frontier;
    uint32_t index = index_aligned(start, alignment);
    uint64_t needed = (uint64_t)(index - start) + spans;
    if (needed > space_state.capacity || !frontier_raise((uint32_t)needed)) return SPAN_NONE;
    span_at(index)->kind = SPAN_METADATA; /* as in run_cut */
    if (index > start) run_free(start, index - start, CLEAN, 0);
    return index;
}

static uint32_t acquire_index(uint32_t spans, uint32_t alignment, bool *zeroed)
{
    *zeroed = false;
    uint32_t index = acquire_from_free(spans, alignment, DIRTY);
    if (index != SPAN_NONE) return index;
    *zeroed = true;
    index = acquire_from_free(spans, alignment, CLEAN);
    if (index != SPAN_NONE) return index;
    return acquire_from_frontier(spans, alignment);
}

struct span *space_acquire(uint32_t spans, uint32_t alignment, enum span_kind kind, bool *zeroed)
{
    bool clean;
    if ((uint64_t)spans + alignment - 1 > space_state.capacity)
        return NULL; /* written once, before any other thread is here */
    platform_lock_acquire(&space_state.lock);
    uint32_t index = acquire_index(spans, alignment, &clean);
    if (index == SPAN_NONE && space_state.spans_free[DIRTY] != 0) {
        /* Dirty and clean neighbours merge once both are clean: they may be long enough together. */
        purge_older_than(0);
        index = acquire_index(spans, alignment, &clean);
    }
    struct span *first = NULL;
    if (index != SPAN_NONE) {
        first = span_at(index);
        span_at(index + spans - 1)->kind = SPAN_TAIL;
        first->kind = (uint8_t)kind;
        first->run_spans = spans;
        if (kind == SPAN_LARGE) space_dense_spans_add((int32_t)spans);
    }
    platform_lock_release(&space_state.lock);
    if (zeroed != NULL) *zeroed = clean;
    return first;
}

void space_release(struct span *first)
{
    uint32_t now = (uint32_t)platform_clock_ms();
    uint32_t decay = atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed);
    platform_lock_acquire(&space_state.lock);
    if (first->kind == SPAN_LARGE) space_dense_spans_add(-(int32_t)first->run_spans);
    run_free(span_index(first), first->run_spans, DIRTY, now);
    if (is_worth_purging()) purge_older_than(decay);
    platform_lock_release(&space_state.lock);
}

struct span *space_lend(uint32_t spans, uint32_t alignment, void *guest, bool huge_pages)
{
    struct span *first = space_acquire(spans, alignment, SPAN_METADATA, NULL);
    if (first == NULL) return NULL;
    for (uint32_t i = 0; i < spans; i++) {
        (first - i)->free = (uintptr_t)guest;
        /* Release: whoever asks what an address is, and sees the kind, sees the guest. */
        __atomic_store_n(&(first - i)->kind, SPAN_GUEST, __ATOMIC_RELEASE);
    }
    if (huge_pages && space_settings.huge_pages != HUGE_PAGES_NEVER) {
        platform_lock_acquire(&space_state.lock);
        uint32_t from = unit_round_up(span_index(first));
        uint32_t to = unit_round_down(span_index(first) + spans);
        if (from < to) huge_pages_advise(from, to);
        platform_lock_release(&space_state.lock);
    }
    return first;
}

void space_take_back(struct span *first)
{
    /* Only the ends of a run have a kind; what lies between must not be found by an address. */
    for (uint32_t i = 1; i + 1 < first->run_spans; i++) span_kind_write(first - i, SPAN_FREE);
    space_release(first);
}

/* Take `spans` more that follow span `end`, from free runs and the frontier; all or nothing. */
static bool extend_at(uint32_t end, uint32_t spans)
{
    uint32_t found = 0;
    while (found < spans && end + found < space_state.frontier) {
        const struct span *run = span_at(end + found);
        if (span_kind_read(run) != SPAN_FREE) return false;
        found += run->run_spans;
    }
    if (found < spans && !frontier_raise(spans - found)) return false;
    uint32_t from_runs = found < spans ? found : spans;
    for (uint32_t taken = 0; taken < from_runs;) {
        struct span *run = span_at(end + taken);
        uint32_t length = run->run_spans < from_runs - taken ? run->run_spans : from_runs - taken;
        run_cut(run, end + taken, length);
        span_at(end + taken)->kind = SPAN_FREE; /* now inside the run that grows */
        span_at(end + taken + length - 1)->kind = SPAN_FREE;
        taken += length;
    }
    return true;
}

bool space_resize(struct span *first, uint32_t spans)
{
    uint32_t index = span_index(first);
    uint32_t old = first->run_spans;
    if (spans == old) return true;
    platform_lock_acquire(&space_state.lock);
    bool done = spans < old || extend_at(index + old, spans - old);
    if (done && spans > old && old > 1) span_at(index + old - 1)->kind = SPAN_FREE; /* no longer the end */
    if (done) {
        if (first->kind == SPAN_LARGE) space_dense_spans_add((int32_t)spans - (int32_t)old);
        first->run_spans = spans;
        if (spans > 1) span_at(index + spans - 1)->kind = SPAN_TAIL;
        if (spans < old) run_free(index + spans, old - spans, DIRTY, (uint32_t)platform_clock_ms());
    }
    platform_lock_release(&space_state.lock);
    return done;
}

/* ---- the rest --------------------------------------------------------------------------------------- */

void *space_metadata(size_t size)
{
    size = (size + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
    platform_lock_acquire(&space_state.lock);
    if ((size_t)(space_state.metadata_end - space_state.metadata_next) < size) {
        uint32_t spans = (uint32_t)((size + SPAN_SIZE - 1) / SPAN_SIZE);
        /* Always from the clean: it must read as zeros. What is left of the last run is given up. */
        uint32_t index = acquire_from_free(spans, 1, CLEAN);
        if (index == SPAN_NONE) index = acquire_from_frontier(spans, 1);
        if (index == SPAN_NONE) {
            platform_lock_release(&space_state.lock);
            return NULL;
        }
        span_at(index + spans - 1)->kind = SPAN_TAIL;
        span_at(index)->kind = SPAN_METADATA;
        span_at(index)->run_spans = spans;
        space_state.spans_metadata += spans;
        space_state.metadata_next = (char *)span_start(span_at(index));
        space_state.metadata_end = space_state.metadata_next + (size_t)spans * SPAN_SIZE;
    }
    void *memory = space_state.metadata_next;
    space_state.metadata_next += size;
    platform_lock_release(&space_state.lock);
    return memory;
}

void space_fork_begin(void)
{
    platform_lock_fork_begin(&space_state.lock);
}

void space_fork_end(void)
{
    platform_lock_fork_end(&space_state.lock);
}

void space_figures(struct space_figures *figures)
{
    platform_lock_acquire(&space_state.lock);
    *figures = (struct space_figures){
        .reserved = (size_t)space_state.capacity * SPAN_SIZE,
        .committed = (size_t)space_state.committed * SPAN_SIZE,
        .handed_out = (size_t)spans_handed_out() * SPAN_SIZE,
        .dirty = (size_t)space_state.spans_free[DIRTY] * SPAN_SIZE,
        .clean = (size_t)space_state.spans_free[CLEAN] * SPAN_SIZE,
        .metadata = (size_t)space_state.spans_metadata * SPAN_SIZE,
        .purged = atomic_load_explicit(&space_state.purged_bytes, memory_order_relaxed),
        .purge_calls = atomic_load_explicit(&space_state.purge_calls, memory_order_relaxed),
        .commit_calls = atomic_load_explicit(&platform_calls.protect, memory_order_relaxed),
        .advice_calls = atomic_load_explicit(&platform_calls.advise, memory_order_relaxed),
    };
    platform_lock_release(&space_state.lock);
}

void space_visit(void (*visit)(const struct span *span, void *argument), void *argument)
{
    platform_lock_acquire(&space_state.lock);
    for (uint32_t index = 0; index < space_state.frontier;) {
        const struct span *span = span_at(index);
        if (span_kind_read(span) != SPAN_FREE) visit(span, argument);
        index += span->run_spans;
    }
    platform_lock_release(&space_state.lock);
}
