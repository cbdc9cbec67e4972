/* Huge pages: which units of 2 MiB the kernel is asked to back with one page, and which no more. */
#include "state.h"

/* Address space handed out before huge pages are asked for: smaller heaps get none, since one page partly used is
 * much of them, and the first-level TLB covers them anyway. */
#define HUGE_PAGES_AFTER (8 * ((size_t)1 << 20))
/* And only while this share of the spans handed out, in percent, is in use to the last page: a heap of spans that
 * are hardly used, such as thousands of threads make, would become resident as a whole. */
enum { HUGE_PAGES_DENSITY = 80 };

/* Outside the lock: counted by all threads, read as a hint. */
static _Atomic(int32_t) dense_spans;

void huge_pages_start(void)
{
    space_state.huge_pages_from = HUGE_PAGES_AFTER / SPAN_SIZE;
}

void space_dense_spans_add(int32_t spans)
{
    atomic_fetch_add_explicit(&dense_spans, spans, memory_order_relaxed);
}

static bool is_dense(void)
{
    int64_t dense = atomic_load_explicit(&dense_spans, memory_order_relaxed);
    return dense * 100 >= (int64_t)spans_handed_out() * HUGE_PAGES_DENSITY;
}

/* What was said to the kernel about a unit, as span.huge of its first span. */
enum { HUGE_NOT_ADVISED = 0, HUGE_ADVISED, HUGE_BROKEN };

void huge_pages_advise(uint32_t from, uint32_t to)
{
    if (!space_commit_descriptors(to)) return;
    platform_advise_huge_pages((char *)space.base + (size_t)from * SPAN_SIZE, (size_t)(to - from) * SPAN_SIZE, true);
    for (uint32_t unit = from; unit < to; unit += HUGE_PAGE_SPANS) {
        if (span_at(unit)->huge == HUGE_BROKEN) space_state.units_broken--;
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

/* Whether [*from, *to) spans, reduced to whole units, should have huge pages. */
static bool wants_huge_pages(uint32_t *from, uint32_t *to)
{
    if (space_settings.huge_pages == HUGE_PAGES_NEVER) return false;
    *from = unit_round_up(*from);
    *to = unit_round_down(*to);
    if (space_settings.huge_pages == HUGE_PAGES_AUTO) {
        if (!is_dense()) return false;
        if (*from < space_state.huge_pages_from) *from = space_state.huge_pages_from;
    }
    return *from < *to;
}

/* A huge page must pay for itself. Where it takes longer to get one than as many small pages (a virtual machine
 * whose host takes unused memory away gets it back at ten times the price), the heap does without until it has grown
 * so many times. */
enum { HUGE_PAGES_RETRY_GROWTH = 4 };

/* What the kernel takes to give a page to a clean unit. */
static uint64_t fault_cost_us(uint32_t unit)
{
    volatile char *first = (volatile char *)space.base + (size_t)unit * SPAN_SIZE;
    uint64_t start = platform_clock_us();
    *first = 0;
    return platform_clock_us() - start;
}

/* Advise on what becomes accessible in [from, to) spans. Huge pages begin with the first whole unit: what has been
 * touched before is backed by small pages and stays so. */
void huge_pages_advise_committed(uint32_t from, uint32_t to)
{
    if (!wants_huge_pages(&from, &to)) return;
    huge_pages_advise(from, to);
    if (space_settings.huge_pages == HUGE_PAGES_ALWAYS) return;
    if (fault_cost_us(from) <= space_settings.huge_page_cost_us) return;
    huge_pages_forgo(from + HUGE_PAGE_SPANS, to);
    space_state.huge_pages_from = from * HUGE_PAGES_RETRY_GROWTH;
}

/* Each unit whose advice differs from its neighbours' is a mapping of its own in the kernel, whose number is
 * limited. */
enum { UNITS_BROKEN_MAX = 4096 };

/* A part of the unit of this span is about to be purged. The kernel would fill it again, in search of huge pages: so
 * no more advice here. */
void huge_pages_break(uint32_t index)
{
    struct span *unit = span_at(unit_round_down(index));
    if (unit->huge != HUGE_ADVISED || space_settings.huge_pages == HUGE_PAGES_ALWAYS ||
        space_state.units_broken == UNITS_BROKEN_MAX)
        return;
    unit->huge = HUGE_BROKEN;
    space_state.units_broken++;
    platform_advise_huge_pages((void *)span_start(unit), PLATFORM_HUGE_PAGE, false);
}

/* The clean run [from, to) has become longer by [new_from, new_to): broken units that it now contains are whole
 * again. */
void huge_pages_mend(uint32_t from, uint32_t to, uint32_t new_from, uint32_t new_to)
{
    if (space_state.units_broken == 0 || !wants_huge_pages(&from, &to)) return;
    uint32_t last = unit_round_up(new_to);
    for (uint32_t unit = unit_round_down(new_from); unit < last; unit += HUGE_PAGE_SPANS) {
        if (unit < from || unit >= to || span_at(unit)->huge != HUGE_BROKEN) continue;
        huge_pages_advise(unit, unit + HUGE_PAGE_SPANS);
    }
}
