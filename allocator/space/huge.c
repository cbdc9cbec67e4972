/* Huge pages: what stands behind each unit of 2 MiB. The kernel is asked for huge pages by advice, which it follows
 * when a unit is first touched and as long as it likes; or they are taken from the pool that its administrator has
 * set aside, for good.
 */
#include "state.h"

#include <string.h>

#define MIB ((size_t)1 << 20)

/* ---- units -------------------------------------------------------------------------------------------- */

/* Relaxed: the states that change while spans of the unit are in use differ only for those who hold the lock.
 * UNIT_TAKEN is written before the first span is handed out, and so seen by whoever has one. */
static enum unit_state unit_state(uint32_t unit)
{
    return (enum unit_state)__atomic_load_n(&span_at(unit)->huge, __ATOMIC_RELAXED);
}

static void unit_set(uint32_t unit, enum unit_state state)
{
    space_state.units[unit_state(unit)]--;
    space_state.units[state]++;
    __atomic_store_n(&span_at(unit)->huge, (uint8_t)state, __ATOMIC_RELAXED);
}

static char *unit_address(uint32_t unit)
{
    return (char *)space.base + (size_t)unit * SPAN_SIZE;
}

/* Tell the kernel about whole units, none of them taken. */
static void tell(uint32_t from, uint32_t to, enum unit_state state)
{
    platform_advise_huge_pages(unit_address(from), (size_t)(to - from) * SPAN_SIZE, state == UNIT_ADVISED);
    space_state.advice_calls++;
    for (uint32_t unit = from; unit < to; unit += HUGE_PAGE_SPANS) unit_set(unit, state);
}

/* Memory runs short: a unit would become resident as a whole. Relaxed: a setting stands for itself. */
static bool is_stopped(void)
{
    return atomic_load_explicit(&space_settings.huge_pages_stopped, memory_order_relaxed);
}

void huge_pages_advise(uint32_t from, uint32_t to)
{
    if (UNLIKELY(is_stopped())) return;
    from = unit_round_up(from);
    to = unit_round_down(to);
    if (from >= to || !space_commit_descriptors(to)) return;
    for (uint32_t end = from; from < to; from = end) {
        enum unit_state state = unit_state(from);
        while (end < to && unit_state(end) == state) end += HUGE_PAGE_SPANS;
        if (state == UNIT_PLAIN || state == UNIT_BROKEN) tell(from, end, UNIT_ADVISED);
    }
}

uint32_t huge_pages_alike(uint32_t index, uint32_t spans, bool *taken)
{
    uint32_t end = index + spans;
    *taken = unit_state(unit_round_down(index)) == UNIT_TAKEN;
    uint32_t unit = unit_round_down(index) + HUGE_PAGE_SPANS;
    while (unit < end && (unit_state(unit) == UNIT_TAKEN) == *taken) unit += HUGE_PAGE_SPANS;
    return (unit < end ? unit : end) - index;
}

void huge_pages_say_again(uint32_t index, uint32_t spans)
{
    uint32_t end = index + spans;
    if (space_settings.huge_pages < HUGE_PAGES_ALWAYS)
        platform_advise_huge_pages(unit_address(index), (size_t)spans * SPAN_SIZE, false); /* see space_start */
    for (uint32_t next; index < end; index = next) {
        next = unit_round_down(index) + HUGE_PAGE_SPANS < end ? unit_round_down(index) + HUGE_PAGE_SPANS : end;
        if (unit_state(unit_round_down(index)) == UNIT_ADVISED)
            platform_advise_huge_pages(unit_address(index), (size_t)(next - index) * SPAN_SIZE, true);
    }
}

static bool reads_as_zeros(const char *start, size_t size)
{
    uint64_t first;
    memcpy(&first, start, sizeof first);
    return first == 0 &&
           memcmp(start, start + sizeof first, size - sizeof first) == 0; /* each word is as the one before */
}

/* ---- by advice: whether it pays ------------------------------------------------------------------------ */

/* Heaps of less address space get none: one page partly used is much of them, and the first-level TLB covers them
 * anyway. */
#define HUGE_PAGES_AFTER (8 * MIB)
/* Larger ones get them while this share of the spans handed out, in percent, is in use to the last page: a heap of
 * spans that are hardly used, such as thousands of threads make, would become resident as a whole. */
enum { HUGE_PAGES_DENSITY = 80 };

/* Outside the lock: counted by all threads, read as hints. */
static _Atomic(int32_t) dense_spans, block_spans;

void huge_pages_start(void)
{
    space_state.huge_pages_from = HUGE_PAGES_AFTER / SPAN_SIZE;
}

void space_dense_spans_add(int32_t spans)
{
    atomic_fetch_add_explicit(&dense_spans, spans, memory_order_relaxed);
}

void space_block_spans_add(int32_t spans)
{
    atomic_fetch_add_explicit(&block_spans, spans, memory_order_relaxed);
}

static bool is_dense(void)
{
    int64_t dense = atomic_load_explicit(&dense_spans, memory_order_relaxed);
    int64_t of = (int64_t)spans_handed_out() - atomic_load_explicit(&block_spans, memory_order_relaxed);
    return dense > 0 && dense * 100 >= of * HUGE_PAGES_DENSITY;
}

/* Large objects say nothing about each other's neighbours: a table that is touched here and there would become resident as a whole.
 * They get huge pages once so many in a row, looked at when they were freed or moved, had been filled. */
enum { BLOCKS_FILLED = 2 };

/* So many were last filled, one after the other; less than 0: were not. Relaxed: a hint, which stands for itself. */
static _Atomic(int32_t) blocks_filled;

static bool are_blocks_filled(void)
{
    return atomic_load_explicit(&blocks_filled, memory_order_relaxed) >= BLOCKS_FILLED;
}

/* A page that nobody has touched reads as zeros, and stays the kernel's page of zeros when it is read. Of so many pages of a block,
 * evenly apart, at most so few may read so. Those that the program has made inaccessible, as it may until it frees the block, or that
 * a fork has left out, are no more than that. A system call for each page: fewer are looked at where the answer is known. */
enum { PAGES_LOOKED_AT = 16, PAGES_PER_UNTOUCHED = 16, PAGES_IF_SURE = 4 };

static bool is_filled(const struct span *first, unsigned pages)
{
    size_t page = platform_page_size(), bytes = (size_t)first->run_spans * SPAN_SIZE;
    unsigned untouched = 0, most = pages / PAGES_PER_UNTOUCHED;
    for (size_t i = 1; i <= pages && untouched <= most; i++) {
        size_t offset = bytes / (pages + 1) * i & ~(page - 1);
        const char *at = (const char *)span_start(first) + offset;
        if (!platform_word_is_readable(at) || reads_as_zeros(at, page)) untouched++;
    }
    return untouched <= most;
}

static bool is_looked_at(void)
{
    return space_settings.huge_pages == HUGE_PAGES_AUTO;
}

bool space_block_is_filled(const struct span *first)
{
    return is_looked_at() && first->run_spans >= SPACE_BLOCK_SPANS && is_filled(first, PAGES_LOOKED_AT);
}

/* After so many alike in a row, one of so many is looked at: a look takes system calls. */
enum { BLOCKS_FOR_SURE = 16, BLOCKS_PER_LOOK = 8 };
static __thread uint8_t blocks_ended __attribute__((tls_model("initial-exec")));

void space_block_end_slow(const struct span *first)
{
    if (!is_looked_at()) return;
    int32_t row = atomic_load_explicit(&blocks_filled, memory_order_relaxed);
    bool is_sure = row == BLOCKS_FOR_SURE || row == -BLOCKS_FOR_SURE;
    if (is_sure && ++blocks_ended % BLOCKS_PER_LOOK != 0) return;
    if (is_sure && is_filled(first, PAGES_IF_SURE) == (row > 0)) return;
    bool filled = is_filled(first, PAGES_LOOKED_AT);
    if (is_sure && filled == (row > 0)) return;
    int32_t now = filled == (row > 0) ? row + (filled ? 1 : -1) : filled ? 1 : -1;
    atomic_store_explicit(&blocks_filled, now, memory_order_relaxed);
}

/* A block that is not known to be filled does without what was said for the sake of those that were here before. */
static void withdraw(uint32_t from, uint32_t to)
{
    for (uint32_t unit = unit_round_up(from); unit < unit_round_down(to); unit += HUGE_PAGE_SPANS)
        if (unit_state(unit) == UNIT_ADVISED) tell(unit, unit + HUGE_PAGE_SPANS, UNIT_PLAIN);
}

/* What the kernel takes to give a page to a unit that has none. */
static uint64_t fault_cost_us(uint32_t unit)
{
    volatile char *first = unit_address(unit);
    uint64_t start = platform_clock_thread_us();
    *first = 0;
    return platform_clock_thread_us() - start;
}

/* As last measured, 0 before. Relaxed: a measurement stands for itself. */
static _Atomic(uint64_t) small_pages_cost_us;

static bool is_cheap(uint64_t cost_us)
{
    uint64_t small = atomic_load_explicit(&small_pages_cost_us, memory_order_relaxed);
    return cost_us * 100 < small * space_settings.huge_page_price;
}

/* A huge page may cost more than as many small ones: the kernel first moves others' pages out of the way, or the host
 * of a virtual machine has taken the memory away. How much more is too much is measured against small pages, here and
 * now, and not against a clock: on a machine that gets memory slowly, small pages are slow too. The first units of
 * what the program is about to use are touched to see, several, since one alone may have bad luck. */
enum { UNITS_TRIED = 3 };

static bool is_any_cheap(uint32_t from, uint32_t to)
{
    for (uint32_t unit = from; unit < to; unit += HUGE_PAGE_SPANS) {
        uint64_t cost = fault_cost_us(unit);
        if (is_cheap(cost)) return true;
        atomic_store_explicit(&small_pages_cost_us, platform_small_pages_cost_us(), memory_order_relaxed);
        if (is_cheap(cost)) return true;
    }
    return false;
}

/* Where huge pages cost too much, the heap does without until it has grown so many times. */
enum { HUGE_PAGES_RETRY_GROWTH = 4 };

/* Of a block's last huge page, behind which nothing follows: from so much on it is worth to have it. */
enum { NEARLY_FULL_SPANS = HUGE_PAGE_SPANS - HUGE_PAGE_SPANS / 8 };

struct huge_trial huge_pages_of_run_slow(uint32_t from, uint32_t to, enum run_fill fill)
{
    struct huge_trial trial = space_state.trial;
    space_state.trial.to = 0;
    bool is_block = fill == FILL_AS_BLOCKS || fill == FILL_APART;
    bool is_apart = fill == FILL_APART && to - unit_round_down(to) < NEARLY_FULL_SPANS;
    bool filled = fill == FILL_WHOLE || (is_block && are_blocks_filled());
    if (fill != FILL_AS_OTHERS && space_settings.huge_pages == HUGE_PAGES_AUTO) {
        /* At the frontier nobody else has a part of the last unit yet. */
        bool is_last = !is_apart && to == space_state.frontier && unit_round_up(to) <= space_state.committed;
        if (filled) huge_pages_advise(from, is_last ? unit_round_up(to) : to);
        else withdraw(from, to);
    }
    if (trial.to == 0) return trial;
    /* What became accessible ends with the run, or goes on behind it; or it lies apart, since it was for the allocator itself. */
    bool dense = is_dense();
    uint32_t behind = unit_round_up(to), edge = is_apart ? unit_round_down(to) : behind;
    if (edge > trial.to) edge = trial.to;
    if (edge < trial.from) edge = trial.from;
    if (trial.from < unit_round_up(from)) trial.from = unit_round_up(from);
    trial.needed = to;
    if (fill == FILL_AS_OTHERS) filled = dense;
    if (dense) huge_pages_advise(edge > behind ? edge : behind, trial.to);
    else trial.to = edge;
    if (filled) huge_pages_advise(trial.from, edge);
    if (!filled || trial.from >= to || trial.from >= trial.to) trial.to = 0;
    return trial;
}

void huge_pages_try(const struct huge_trial *trial)
{
    if (LIKELY(trial->to == 0)) return;
    uint32_t tried = trial->from + UNITS_TRIED * HUGE_PAGE_SPANS;
    if (tried > unit_round_up(trial->needed)) tried = unit_round_up(trial->needed);
    if (tried > trial->to) tried = trial->to;
    if (is_any_cheap(trial->from, tried)) return;
    enum space_access access = space_enter();
    if (access == SPACE_WHOLE) {
        space_state.huge_pages_from = trial->needed * HUGE_PAGES_RETRY_GROWTH;
        if (tried < trial->to) tell(tried, trial->to, UNIT_PLAIN); /* most have not been touched yet */
    }
    space_leave(access);
}

/* Each unit whose advice differs from its neighbours' is a mapping of its own in the kernel, whose number is limited.
 * */
enum { UNITS_BROKEN_MAX = 4096 };

/* The kernel would fill the unit again, in search of huge pages: so no more advice here, as long as its mappings suffice. Returns
 * whether the unit may have a huge page. */
static bool unit_break(uint32_t unit)
{
    if (unit_state(unit) != UNIT_ADVISED || space_settings.huge_pages != HUGE_PAGES_AUTO) return false;
    if (space_state.units[UNIT_BROKEN] < UNITS_BROKEN_MAX) tell(unit, unit + HUGE_PAGE_SPANS, UNIT_BROKEN);
    return true;
}

bool huge_pages_purged(uint32_t index, uint32_t spans)
{
    uint32_t end = index + spans;
    bool breaks = index % HUGE_PAGE_SPANS != 0 && unit_break(unit_round_down(index));
    breaks |= end % HUGE_PAGE_SPANS != 0 && unit_break(unit_round_down(end));
    return breaks;
}

void huge_pages_mend(uint32_t from, uint32_t to, uint32_t new_from, uint32_t new_to)
{
    if (space_state.units[UNIT_BROKEN] == 0 || !is_dense() || is_stopped()) return;
    from = unit_round_up(from);
    to = unit_round_down(to);
    uint32_t last = unit_round_up(new_to);
    for (uint32_t unit = unit_round_down(new_from); unit < last; unit += HUGE_PAGE_SPANS) {
        if (unit < from || unit >= to || unit_state(unit) != UNIT_BROKEN) continue;
        tell(unit, unit + HUGE_PAGE_SPANS, UNIT_ADVISED);
    }
}

/* ---- from the kernel's pool -------------------------------------------------------------------------------------- */

/* When the pool was empty, how long until it is asked again, should the heap then grow: other processes may have
 * ended. */
enum { HUGETLB_RETRY_MS = 10000 };

enum { MESSAGE_NONE, MESSAGE_DUE, MESSAGE_SAID };

static void hugetlb_is_dry(void)
{
    space_state.hugetlb_dry = true;
    space_state.hugetlb_asked_at = platform_clock_ms();
    uint8_t none = MESSAGE_NONE; /* relaxed: nothing but the message depends on it */
    atomic_compare_exchange_strong_explicit(&space_state.message, &none, MESSAGE_DUE, memory_order_relaxed,
                                            memory_order_relaxed);
}

void huge_pages_say(void)
{
    uint8_t due = MESSAGE_DUE;
    if (LIKELY(atomic_load_explicit(&space_state.message, memory_order_relaxed) != MESSAGE_DUE)) return;
    if (!atomic_compare_exchange_strong_explicit(&space_state.message, &due, MESSAGE_SAID, memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    platform_message(
        "huge_pages:hugetlb: the kernel has no more pages of 2 MiB in its pool (vm.nr_hugepages), or is older "
        "than Linux 5.16; from here on transparent ones");
}

/* Take as many of the whole units [from, to) as there are, from the first on, in few mappings. */
static void hugetlb_take(uint32_t from, uint32_t to)
{
    bool rests = space_state.hugetlb_dry && platform_clock_ms() - space_state.hugetlb_asked_at < HUGETLB_RETRY_MS;
    space_state.hugetlb_dry = rests;
    uint32_t step = rests ? 0 : to - from;
    while (from < to && step != 0) {
        if (step > to - from) step = to - from;
        enum platform_move move = platform_take_huge_pages(unit_address(from), (size_t)step * SPAN_SIZE);
        space_state.advice_calls++;
        if (move == MOVE_TARGET_LOST) {
            space_end_at(from);
            return;
        }
        if (move == MOVE_REFUSED) {
            step = unit_round_down(step / 2);
            if (step == 0) hugetlb_is_dry();
            continue;
        }
        for (uint32_t end = from + step; from < end; from += HUGE_PAGE_SPANS) unit_set(from, UNIT_TAKEN);
    }
}

static bool pages_can_move(const void *start, size_t size)
{
    if (space_settings.huge_pages != HUGE_PAGES_HUGETLB) return true;
    bool taken;
    uint32_t first = (uint32_t)(space_offset(start) / SPAN_SIZE);
    uint32_t spans = (uint32_t)((size + SPAN_SIZE - 1) / SPAN_SIZE);
    return huge_pages_alike(first, spans, &taken) == spans && !taken;
}

/* From here on moving page tables is cheaper than copying. Each move may split a kernel mapping in two, whose number is
 * limited (vm.max_map_count), so it must pay well. */
#define MOVE_PAGES_MIN ((size_t)4 << 20)

/* As memcpy does it, but pages that hold nothing at either place are not written to, and so take no memory. */
static void copy_pages(char *to, const char *from, size_t bytes)
{
    size_t page = platform_page_size(), done = 0;
    while (done < bytes) {
        size_t start = done;
        while (done < bytes && !(bytes - done >= page && reads_as_zeros(from + done, page)))
            done += bytes - done < page ? bytes - done : page;
        if (done > start) memcpy(to + start, from + start, done - start);
        for (; bytes - done >= page && reads_as_zeros(from + done, page); done += page)
            if (!reads_as_zeros(to + done, page)) memset(to + done, 0, page);
    }
}

/* The kernel moves one mapping at a time, and refuses where there are more: then each half by itself. What is too small for that is
 * copied, and given back at once, so that it does not exist twice. Returns how many bytes have been moved. */
static size_t move_or_copy(char *to, char *from, size_t bytes)
{
    if (bytes >= MOVE_PAGES_MIN) {
        enum platform_move move = platform_move_pages(from, to, bytes);
        if (move != MOVE_REFUSED) return move == MOVE_DONE ? bytes : 0;
        size_t half = (bytes / 2 + PLATFORM_HUGE_PAGE - 1) & ~(PLATFORM_HUGE_PAGE - 1);
        size_t moved = move_or_copy(to, from, half);
        return moved < half ? moved : half + move_or_copy(to + half, from + half, bytes - half);
    }
    copy_pages(to, from, bytes);
    size_t whole = bytes & ~(platform_page_size() - 1);
    if (whole != 0) purge_counted(from, whole);
    return bytes;
}

bool space_move(void *to, void *from, size_t bytes)
{
    if (bytes < MOVE_PAGES_MIN || !pages_can_move(from, bytes) || !pages_can_move(to, bytes)) {
        copy_pages(to, from, bytes);
        return true;
    }
    size_t moved = move_or_copy(to, from, bytes);
    if (moved != bytes) memcpy(from, to, moved);
    return moved == bytes;
}

/* ---- what has become accessible ---------------------------------------------------------------------------- */

/* Whole units only: what of another has been touched before is backed by small pages and stays so. */
void huge_pages_committed(uint32_t from, uint32_t to)
{
    from = unit_round_up(from);
    to = unit_round_down(to);
    if (from >= to || space_settings.huge_pages == HUGE_PAGES_NEVER || !space_commit_descriptors(to)) return;
    if (space_settings.huge_pages == HUGE_PAGES_AUTO) { /* it depends on for whom: see huge_pages_of_run */
        if (space_state.frontier >= space_state.huge_pages_from && !is_stopped())
            space_state.trial = (struct huge_trial){.from = from, .to = to};
        return;
    }
    /* Not the first unit: small programs leave the pool to others, and what the allocator itself writes to in the child
     * of a fork, which may get no page of the pool any more, lies there. */
    if (space_settings.huge_pages == HUGE_PAGES_HUGETLB) hugetlb_take(from == 0 ? HUGE_PAGE_SPANS : from, to);
    huge_pages_advise(from, to < space_state.reserved ? to : space_state.reserved);
}
