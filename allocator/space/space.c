/* The reservation and its runs.
 *
 * Free runs are found by length (segregated lists, best fit) and merge with free neighbours of the same state
 * through boundary tags: the first and the last descriptor of a free run hold its length (Knuth, TAOCP vol. 1,
 * 2.5, algorithm C). Clean and dirty runs do not merge: a request prefers memory that is resident already.
 */
#include "space.h"

#include <string.h>

struct space space;
struct space_settings space_settings = {
    .huge_pages = HUGE_PAGES_AUTO, .huge_page_cost_us = 700, .reservation = 0, .decay_ms = 500};

/* ---- constants --------------------------------------------------------------------------------------------- */

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

/* Spans made accessible at a time: an eighth of what is in use, within these bounds and up to the end of a huge page, so that
 * mprotect is rare and strict limits are not used up for nothing. */
enum { COMMIT_SPANS_MIN = 16, COMMIT_SPANS_MAX = 1024, COMMIT_SHARE = 8 };
/* Address space handed out before huge pages are asked for: smaller heaps get none, since one page partly used is much of
 * them, and the first-level TLB covers them anyway. */
#define HUGE_PAGES_AFTER (8 * MIB)
/* And only while this share of the spans handed out, in percent, is in use to the last page: a heap of spans that are hardly
 * used, such as thousands of threads make, would become resident as a whole. */
enum { HUGE_PAGES_DENSITY = 80 };

enum { HUGE_PAGE_SPANS = PLATFORM_HUGE_PAGE / SPAN_SIZE };

/* Descriptors made accessible at a time: 64 KiB of them. */
enum { COMMIT_DESCRIPTORS = 1024 };

/* Lists of free runs: one per length up to EXACT_LENGTHS, then one per power of two. */
enum { EXACT_LENGTHS = 32, LENGTH_LISTS = EXACT_LENGTHS + 32 };

enum { CLEAN = 0, DIRTY = 1, STATES = 2 };

/* ---- state: all under the lock ----------------------------------------------------------------------------- */

static struct {
    platform_lock lock;
    bool purge_refused; /* the kernel would not take pages back: they are locked in memory */
    uint32_t refused_at;
    uint32_t capacity; /* spans in the reservation */
    uint32_t frontier; /* spans ever handed out */
    uint32_t committed; /* spans accessible */
    uint32_t descriptors_committed;
    uint32_t lists[STATES][LENGTH_LISTS]; /* heads, SPAN_NONE when empty */
    uint64_t lists_filled[STATES]; /* bit per list that is not empty */
    uint32_t youngest, oldest; /* dirty runs by the time they were freed */
    uint32_t spans_free[STATES];
    uint32_t spans_metadata;
    uint32_t huge_pages_from; /* span from which on huge pages are asked for */
    uint32_t units_broken; /* see huge_pages_break */
    char *metadata_next, *metadata_end;
} state;

/* Outside the lock: counted by all threads, read as hints and for statistics. */
static _Atomic(int32_t) dense_spans;
static _Atomic(size_t) purged_bytes, purge_calls;

_Static_assert(LENGTH_LISTS <= 64, "lists_filled has a bit for each list");

/* ---- start --------------------------------------------------------------------------------------------------- */

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

    state.capacity = (uint32_t)(data / SPAN_SIZE);
    state.huge_pages_from = HUGE_PAGES_AFTER / SPAN_SIZE;
    state.youngest = state.oldest = SPAN_NONE;
    for (int s = 0; s < STATES; s++)
        for (int i = 0; i < LENGTH_LISTS; i++) state.lists[s][i] = SPAN_NONE;
    space.base = (uintptr_t)start + table;
    space.size = (size_t)state.capacity * SPAN_SIZE;
    return true;
}

/* ---- lists of free runs ---------------------------------------------------------------------------------------- */

static unsigned list_of_length(uint32_t spans)
{
    if (spans <= EXACT_LENGTHS) return spans - 1;
    return EXACT_LENGTHS + (31 - (unsigned)__builtin_clz(spans)) - 5; /* 5 = log2(EXACT_LENGTHS) */
}

static void length_list_add(struct span *run)
{
    unsigned list = list_of_length(run->run_spans);
    uint32_t *head = &state.lists[run->dirty][list];
    run->prev = SPAN_NONE;
    run->next = *head;
    if (*head != SPAN_NONE) span_at(*head)->prev = span_index(run);
    *head = span_index(run);
    state.lists_filled[run->dirty] |= UINT64_C(1) << list;
}

static void length_list_remove(struct span *run)
{
    unsigned list = list_of_length(run->run_spans);
    uint32_t *head = &state.lists[run->dirty][list];
    if (run->next != SPAN_NONE) span_at(run->next)->prev = run->prev;
    if (run->prev != SPAN_NONE) span_at(run->prev)->next = run->next;
    else *head = run->next;
    if (*head == SPAN_NONE) state.lists_filled[run->dirty] &= ~(UINT64_C(1) << list);
}

/* Dirty runs stand in one list ordered by age; a run that is older than the youngest is put in its place. */
static void age_list_add(struct span *run)
{
    uint32_t after = SPAN_NONE; /* the next younger run */
    uint32_t place = state.youngest;
    while (place != SPAN_NONE && (int32_t)(span_at(place)->since - run->since) > 0) {
        after = place;
        place = span_at(place)->owned_next;
    }
    run->owned_prev = after;
    run->owned_next = place;
    if (after != SPAN_NONE) span_at(after)->owned_next = span_index(run);
    else state.youngest = span_index(run);
    if (place != SPAN_NONE) span_at(place)->owned_prev = span_index(run);
    else state.oldest = span_index(run);
}

static void age_list_remove(struct span *run)
{
    if (run->owned_prev != SPAN_NONE) span_at(run->owned_prev)->owned_next = run->owned_next;
    else state.youngest = run->owned_next;
    if (run->owned_next != SPAN_NONE) span_at(run->owned_next)->owned_prev = run->owned_prev;
    else state.oldest = run->owned_prev;
}

/* ---- free runs --------------------------------------------------------------------------------------------------- */

/* Only the ends of a free run are ever looked at. */
static void run_tag(struct span *first, uint32_t spans, bool dirty, uint32_t freed_at)
{
    struct span *last = first - (spans - 1); /* the table grows downwards */
    last->run_spans = first->run_spans = spans;
    last->dirty = first->dirty = dirty;
    first->since = freed_at;
}

static void run_insert(struct span *first)
{
    length_list_add(first);
    if (first->dirty) age_list_add(first);
    state.spans_free[first->dirty] += first->run_spans;
}

static void run_remove(struct span *first)
{
    length_list_remove(first);
    if (first->dirty) age_list_remove(first);
    state.spans_free[first->dirty] -= first->run_spans;
}

static bool is_free_end(uint32_t index, bool dirty)
{
    if (index >= state.frontier) return false; /* also when index is -1: before span 0 */
    const struct span *span = span_at(index);
    return span_kind_read(span) == SPAN_FREE && span->dirty == dirty;
}

/* Put a run into the free lists, merged with its free neighbours of the same state, and return the whole. */
static struct span *run_free(uint32_t index, uint32_t spans, bool dirty, uint32_t freed_at)
{
    /* Its ends may come to lie inside the merged run: a second free of the object must not find it there. */
    span_at(index)->kind = SPAN_FREE;
    span_at(index + spans - 1)->kind = SPAN_FREE;
    uint32_t largest = spans; /* the merged run is as old as its largest part: a span that comes and goes at */
    /* the edge of a large one must not keep it young for ever */
    if (is_free_end(index + spans, dirty)) {
        struct span *after = span_at(index + spans);
        run_remove(after);
        if (after->run_spans > largest) {
            largest = after->run_spans;
            freed_at = after->since;
        }
        spans += after->run_spans;
    }
    if (is_free_end(index - 1, dirty)) {
        uint32_t length = span_at(index - 1)->run_spans;
        struct span *before = span_at(index - length);
        run_remove(before);
        if (length > largest) freed_at = before->since;
        index -= length;
        spans += length;
    }
    struct span *first = span_at(index);
    run_tag(first, spans, dirty, freed_at);
    run_insert(first);
    return first;
}

/* The smallest free run of this state with at least `spans`, or NULL. */
static struct span *run_find(uint32_t spans, bool dirty)
{
    unsigned list = list_of_length(spans);
    if (spans > EXACT_LENGTHS) { /* runs of this list may be too short: look through it */
        struct span *best = NULL;
        for (uint32_t i = state.lists[dirty][list]; i != SPAN_NONE; i = span_at(i)->next) {
            struct span *run = span_at(i);
            if (run->run_spans >= spans && (best == NULL || run->run_spans < best->run_spans)) best = run;
        }
        if (best != NULL) return best;
        list++;
        if (list >= LENGTH_LISTS) return NULL;
    }
    uint64_t filled = state.lists_filled[dirty] >> list << list;
    return filled == 0 ? NULL : span_at(state.lists[dirty][__builtin_ctzll(filled)]);
}

/* ---- the frontier -------------------------------------------------------------------------------------------------- */

static bool commit_descriptors(uint32_t up_to)
{
    if (up_to <= state.descriptors_committed) return true;
    uint32_t target = (up_to + COMMIT_DESCRIPTORS - 1) / COMMIT_DESCRIPTORS * COMMIT_DESCRIPTORS;
    char *low = (char *)((struct span *)space.base - target);
    char *high = (char *)((struct span *)space.base - state.descriptors_committed);
    if (!platform_commit(low, (size_t)(high - low))) return false;
    state.descriptors_committed = target;
    return true;
}

void space_dense_spans_add(int32_t spans)
{
    atomic_fetch_add_explicit(&dense_spans, spans, memory_order_relaxed);
}

static bool is_dense(void)
{
    uint32_t handed_out = state.frontier - state.spans_free[CLEAN] - state.spans_free[DIRTY];
    int64_t dense = atomic_load_explicit(&dense_spans, memory_order_relaxed);
    return dense * 100 >= (int64_t)handed_out * HUGE_PAGES_DENSITY;
}

/* What was said to the kernel about a unit, as span.huge of its first span. */
enum { HUGE_NOT_ADVISED = 0, HUGE_ADVISED, HUGE_BROKEN };

static void huge_pages_advise(uint32_t from, uint32_t to)
{
    if (!commit_descriptors(to)) return;
    platform_advise_huge_pages((char *)space.base + (size_t)from * SPAN_SIZE, (size_t)(to - from) * SPAN_SIZE, true);
    for (uint32_t unit = from; unit < to; unit += HUGE_PAGE_SPANS) {
        if (span_at(unit)->huge == HUGE_BROKEN) state.units_broken--;
        span_at(unit)->huge = HUGE_ADVISED;
    }
}

/* Take the advice back on what has not been touched yet. */
static void huge_pages_forgo(uint32_t from, uint32_t to)
{
    if (from >= to) return;
    platform_advise_huge_pages((char *)space.base + (size_t)from * SPAN_SIZE, (size_t)(to - from) * SPAN_SIZE, false);
    for (uint32_t unit = from; unit < to; unit += HUGE_PAGE_SPANS) span_at(unit)->huge = HUGE_NOT_ADVISED;
}

static uint32_t unit_round_up(uint32_t index)
{
    return (index + HUGE_PAGE_SPANS - 1) & ~(uint32_t)(HUGE_PAGE_SPANS - 1);
}

/* Whether [*from, *to) spans, reduced to whole units, should have huge pages. */
static bool wants_huge_pages(uint32_t *from, uint32_t *to)
{
    if (space_settings.huge_pages == HUGE_PAGES_NEVER) return false;
    *from = unit_round_up(*from);
    *to &= ~(uint32_t)(HUGE_PAGE_SPANS - 1);
    if (space_settings.huge_pages == HUGE_PAGES_AUTO) {
        if (!is_dense()) return false;
        if (*from < state.huge_pages_from) *from = state.huge_pages_from;
    }
    return *from < *to;
}

/* A huge page must pay for itself. Where it takes longer to get one than as many small pages (a virtual machine whose host
 * takes unused memory away gets it back at ten times the price), the heap does without until it has grown so many times. */
enum { HUGE_PAGES_RETRY_GROWTH = 4 };

/* What the kernel takes to give a page to a clean unit. */
static uint64_t fault_cost_us(uint32_t unit)
{
    volatile char *first = (volatile char *)space.base + (size_t)unit * SPAN_SIZE;
    uint64_t start = platform_clock_us();
    *first = 0;
    return platform_clock_us() - start;
}

/* Advise on what becomes accessible in [from, to) spans. Huge pages begin with the first whole unit: what has been touched
 * before is backed by small pages and stays so. */
static void advise_committed(uint32_t from, uint32_t to)
{
    if (!wants_huge_pages(&from, &to)) return;
    huge_pages_advise(from, to);
    if (space_settings.huge_pages == HUGE_PAGES_ALWAYS) return;
    if (fault_cost_us(from) <= space_settings.huge_page_cost_us) return;
    huge_pages_forgo(from + HUGE_PAGE_SPANS, to);
    state.huge_pages_from = from * HUGE_PAGES_RETRY_GROWTH;
}

/* Each unit whose advice differs from its neighbours' is a mapping of its own in the kernel, whose number is limited. */
enum { UNITS_BROKEN_MAX = 4096 };

/* A part of the unit of this span is about to be purged. The kernel would fill it again, in search of huge pages: so no more
 * advice here. */
static void huge_pages_break(uint32_t index)
{
    struct span *unit = span_at(index & ~(uint32_t)(HUGE_PAGE_SPANS - 1));
    if (unit->huge != HUGE_ADVISED || space_settings.huge_pages == HUGE_PAGES_ALWAYS ||
        state.units_broken == UNITS_BROKEN_MAX)
        return;
    unit->huge = HUGE_BROKEN;
    state.units_broken++;
    platform_advise_huge_pages((void *)span_start(unit), PLATFORM_HUGE_PAGE, false);
}

/* The clean run [from, to) has become longer by [new_from, new_to): broken units that it now contains are whole again. */
static void huge_pages_mend(uint32_t from, uint32_t to, uint32_t new_from, uint32_t new_to)
{
    if (state.units_broken == 0 || !wants_huge_pages(&from, &to)) return;
    uint32_t last = unit_round_up(new_to);
    for (uint32_t unit = new_from & ~(uint32_t)(HUGE_PAGE_SPANS - 1); unit < last; unit += HUGE_PAGE_SPANS) {
        if (unit < from || unit >= to || span_at(unit)->huge != HUGE_BROKEN) continue;
        huge_pages_advise(unit, unit + HUGE_PAGE_SPANS);
    }
}

static bool commit_spans(uint32_t up_to)
{
    if (up_to <= state.committed) return true;
    uint32_t before = state.committed;
    uint32_t step = state.frontier / COMMIT_SHARE;
    if (step < COMMIT_SPANS_MIN) step = COMMIT_SPANS_MIN;
    if (step > COMMIT_SPANS_MAX) step = COMMIT_SPANS_MAX;
    uint64_t generous = ((uint64_t)up_to + step + HUGE_PAGE_SPANS - 1) & ~(uint64_t)(HUGE_PAGE_SPANS - 1);
    if (generous > state.capacity) generous = state.capacity;
    char *start = (char *)space.base + (size_t)state.committed * SPAN_SIZE;
    /* Where limits leave no room for the generous step, the least that is needed. */
    if (platform_commit(start, ((size_t)generous - state.committed) * SPAN_SIZE)) state.committed = (uint32_t)generous;
    else if (platform_commit(start, ((size_t)up_to - state.committed) * SPAN_SIZE)) state.committed = up_to;
    if (state.committed > before) advise_committed(before, state.committed);
    return up_to <= state.committed;
}

/* Move the frontier up by `spans`; the new spans are clean. */
static bool frontier_raise(uint32_t spans)
{
    if (spans > state.capacity - state.frontier) return false;
    uint32_t raised = state.frontier + spans;
    if (!commit_descriptors(raised) || !commit_spans(raised)) return false;
    state.frontier = raised;
    return true;
}

/* ---- purging ---------------------------------------------------------------------------------------------------------- */

/* Less dirty memory than this, or than this share of what is handed out, is not worth system calls: a server in a steady
 * state always has some. */
#define PURGE_WORTH_SPANS 16
enum { PURGE_WORTH_SHARE = 64 };

static bool is_worth_purging(void)
{
    uint32_t handed_out = state.frontier - state.spans_free[CLEAN] - state.spans_free[DIRTY];
    uint32_t worth = handed_out / PURGE_WORTH_SHARE;
    return state.spans_free[DIRTY] >= (worth > PURGE_WORTH_SPANS ? worth : PURGE_WORTH_SPANS);
}

/* After the kernel has refused, how long until it is asked again. */
enum { REFUSED_RETRY_MS = 10000 };

static bool purge_counted(void *start, size_t size)
{
    bool purged = platform_purge(start, size);
    atomic_fetch_add_explicit(&purge_calls, 1, memory_order_relaxed);
    if (purged) atomic_fetch_add_explicit(&purged_bytes, size, memory_order_relaxed);
    return purged;
}

/* Purge one dirty run. Called with the lock, which is let go during the system call: the run is marked as in use
 * meanwhile. */
static void run_purge(struct span *first)
{
    uint32_t index = span_index(first);
    uint32_t spans = first->run_spans;
    run_remove(first);
    first->kind = SPAN_METADATA;
    (first - (spans - 1))->kind = SPAN_METADATA;
    if (index % HUGE_PAGE_SPANS != 0) huge_pages_break(index);
    if ((index + spans) % HUGE_PAGE_SPANS != 0) huge_pages_break(index + spans);
    platform_lock_release(&state.lock);

    bool purged = purge_counted((char *)space.base + (size_t)index * SPAN_SIZE, (size_t)spans * SPAN_SIZE);

    platform_lock_acquire(&state.lock);
    state.purge_refused = !purged;
    state.refused_at = (uint32_t)platform_clock_ms();
    const struct span *run = run_free(index, spans, purged ? CLEAN : DIRTY, state.refused_at);
    if (purged) huge_pages_mend(span_index(run), span_index(run) + run->run_spans, index, index + spans);
}

static bool purge_is_refused(uint32_t now)
{
    return state.purge_refused && now - state.refused_at < REFUSED_RETRY_MS;
}

static void purge_older_than(uint32_t age_ms)
{
    uint32_t now = (uint32_t)platform_clock_ms();
    while (state.oldest != SPAN_NONE && !purge_is_refused(now)) {
        struct span *oldest = span_at(state.oldest);
        if ((int32_t)(now - oldest->since) < (int32_t)age_ms) break;
        run_purge(oldest);
    }
}

/* ---- handing out ---------------------------------------------------------------------------------------------------------- */

/* Cut [index, index+wanted) out of a free run that contains it; what is left goes back. */
static void run_cut(struct span *run, uint32_t index, uint32_t wanted)
{
    uint32_t start = span_index(run);
    uint32_t spans = run->run_spans;
    bool dirty = run->dirty;
    uint32_t freed_at = run->since;
    run_remove(run);
    /* Take the middle out of the free world first, so that the parts do not merge with it again. */
    span_at(index)->kind = SPAN_METADATA;
    span_at(index + wanted - 1)->kind = SPAN_METADATA;
    if (index > start) run_free(start, index - start, dirty, freed_at);
    if (start + spans > index + wanted) run_free(index + wanted, start + spans - index - wanted, dirty, freed_at);
}

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
    uint32_t start = state.frontier;
    uint32_t index = index_aligned(start, alignment);
    uint64_t needed = (uint64_t)(index - start) + spans;
    if (needed > state.capacity || !frontier_raise((uint32_t)needed)) return SPAN_NONE;
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
    if ((uint64_t)spans + alignment - 1 > state.capacity)
        return NULL; /* written once, before any other thread is here */
    platform_lock_acquire(&state.lock);
    uint32_t index = acquire_index(spans, alignment, &clean);
    if (index == SPAN_NONE && state.spans_free[DIRTY] != 0) {
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
    platform_lock_release(&state.lock);
    if (zeroed != NULL) *zeroed = clean;
    return first;
}

void space_release(struct span *first)
{
    uint32_t now = (uint32_t)platform_clock_ms();
    uint32_t decay = atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed);
    platform_lock_acquire(&state.lock);
    if (first->kind == SPAN_LARGE) space_dense_spans_add(-(int32_t)first->run_spans);
    run_free(span_index(first), first->run_spans, DIRTY, now);
    if (is_worth_purging()) purge_older_than(decay);
    platform_lock_release(&state.lock);
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
        platform_lock_acquire(&state.lock);
        uint32_t from = unit_round_up(span_index(first));
        uint32_t to = (span_index(first) + spans) & ~(uint32_t)(HUGE_PAGE_SPANS - 1);
        if (from < to) huge_pages_advise(from, to);
        platform_lock_release(&state.lock);
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
    while (found < spans && end + found < state.frontier) {
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
    platform_lock_acquire(&state.lock);
    bool done = spans < old || extend_at(index + old, spans - old);
    if (done && spans > old && old > 1) span_at(index + old - 1)->kind = SPAN_FREE; /* no longer the end */
    if (done) {
        if (first->kind == SPAN_LARGE) space_dense_spans_add((int32_t)spans - (int32_t)old);
        first->run_spans = spans;
        if (spans > 1) span_at(index + spans - 1)->kind = SPAN_TAIL;
        if (spans < old) run_free(index + spans, old - spans, DIRTY, (uint32_t)platform_clock_ms());
    }
    platform_lock_release(&state.lock);
    return done;
}

/* ---- the rest ----------------------------------------------------------------------------------------------------------------- */

void *space_metadata(size_t size)
{
    size = (size + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
    platform_lock_acquire(&state.lock);
    if ((size_t)(state.metadata_end - state.metadata_next) < size) {
        uint32_t spans = (uint32_t)((size + SPAN_SIZE - 1) / SPAN_SIZE);
        /* Always from the clean: it must read as zeros. What is left of the last run is given up. */
        uint32_t index = acquire_from_free(spans, 1, CLEAN);
        if (index == SPAN_NONE) index = acquire_from_frontier(spans, 1);
        if (index == SPAN_NONE) {
            platform_lock_release(&state.lock);
            return NULL;
        }
        span_at(index + spans - 1)->kind = SPAN_TAIL;
        span_at(index)->kind = SPAN_METADATA;
        span_at(index)->run_spans = spans;
        state.spans_metadata += spans;
        state.metadata_next = (char *)span_start(span_at(index));
        state.metadata_end = state.metadata_next + (size_t)spans * SPAN_SIZE;
    }
    void *memory = state.metadata_next;
    state.metadata_next += size;
    platform_lock_release(&state.lock);
    return memory;
}

bool space_purge_old(void)
{
    platform_lock_acquire(&state.lock);
    bool worth = is_worth_purging();
    if (worth) purge_older_than(atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed));
    bool left = worth && state.oldest != SPAN_NONE;
    platform_lock_release(&state.lock);
    return left;
}

void space_purge_all(void)
{
    platform_lock_acquire(&state.lock);
    purge_older_than(0);
    platform_lock_release(&state.lock);
}

void space_purge_pages(void *start, size_t size)
{
    platform_lock_acquire(&state.lock);
    huge_pages_break((uint32_t)(space_offset(start) / SPAN_SIZE));
    platform_lock_release(&state.lock);
    purge_counted(start, size);
}

void space_fork_begin(void)
{
    platform_lock_fork_begin(&state.lock);
}

void space_fork_end(void)
{
    platform_lock_fork_end(&state.lock);
}

void space_figures(struct space_figures *figures)
{
    platform_lock_acquire(&state.lock);
    uint32_t spans_free = state.spans_free[CLEAN] + state.spans_free[DIRTY];
    *figures = (struct space_figures){
        .reserved = (size_t)state.capacity * SPAN_SIZE,
        .committed = (size_t)state.committed * SPAN_SIZE,
        .handed_out = (size_t)(state.frontier - spans_free) * SPAN_SIZE,
        .dirty = (size_t)state.spans_free[DIRTY] * SPAN_SIZE,
        .clean = (size_t)state.spans_free[CLEAN] * SPAN_SIZE,
        .metadata = (size_t)state.spans_metadata * SPAN_SIZE,
        .purged = atomic_load_explicit(&purged_bytes, memory_order_relaxed),
        .purge_calls = atomic_load_explicit(&purge_calls, memory_order_relaxed),
    };
    platform_lock_release(&state.lock);
}

void space_visit(void (*visit)(const struct span *span, void *argument), void *argument)
{
    platform_lock_acquire(&state.lock);
    for (uint32_t index = 0; index < state.frontier;) {
        const struct span *span = span_at(index);
        if (span_kind_read(span) != SPAN_FREE) visit(span, argument);
        index += span->run_spans;
    }
    platform_lock_release(&state.lock);
}
