/* The stock: free runs that have been cleared before calloc asks for them, by a thread of our own, the housekeeper.
 *
 *     dirty runs ─► slots ─► (the housekeeper clears) ─► cleared ─► zeroed pools ─► space_acquire_zeroed
 *
 * The housekeeper runs only when no other thread wants its core, so it may lose the core at any point for a long
 * time. It must hold no lock then, and takes none: threads that come by with the space lock put runs into its slots,
 * and collect what it has cleared. For the same reason nobody waits for it.
 *
 * The stock is filled when a calloc finds half of it gone, out of dirty runs: they are free and resident, so this costs
 * no memory but what would otherwise have been given back in time. A malloc that finds no other gets those back that
 * the housekeeper has not begun. Where there are none it may be filled with memory fresh from the kernel, which the
 * housekeeper touches, but only with as much as callocs have asked for in vain, and half of what the program uses: a
 * large reserve alone does not make a process grow. What is in the stock does not decay: it is there to be kept. It
 * goes back when the setting falls, and before an allocation fails.
 *
 * The thread starts with the first calloc that has work for it, and ends after a second without any: so it comes back
 * by itself in a fork's child, and does not keep alive a process whose other threads have ended.
 */
#include "state.h"

/* ---- between the threads ---------------------------------------------------------------------------- */

enum housekeeper_status {
    HOUSEKEEPER_FORBIDDEN, /* too early in the life of the process to start threads */
    HOUSEKEEPER_ABSENT,
    HOUSEKEEPER_WANTED, /* there are runs to clear: the next calloc starts it */
    HOUSEKEEPER_WORKING, /* or about to look again */
    HOUSEKEEPER_ASLEEP, /* waits for `status` to change */
    HOUSEKEEPER_REFUSED, /* no thread could be had */
};

/* Runs that may wait. Each is at most PIECE_SPANS long, so that a calloc soon finds some of what is under way, and what
 * the housekeeper holds when memory runs out is little; as many as a huge page, so that these stay whole. */
enum { SLOTS = 256, PIECE_SPANS = HUGE_PAGE_SPANS };

/* A job is a run to be cleared: its index, doubled, and 1 when it reads as zeros and only wants touching; plus 1,
 * because 0 is no job. */
static struct {
    /* Written under the space lock, emptied by whoever is first: the housekeeper, or a thread with the lock that wants
     * the run back. Sequentially consistent where that pairs with `status`: see notify. */
    _Atomic(uint32_t) slots[SLOTS];
    _Atomic(uint32_t) clearing; /* the job that the housekeeper took last, or is about to take: for a fork's child */
    _Atomic(uint32_t) cleared; /* first of the runs that are done, as its index plus 1, linked by `next`; 0: none */
    _Atomic(uint32_t) status; /* enum housekeeper_status */
} housekeeper;

static uint32_t job_of(uint32_t index, bool fresh)
{
    return (index << 1 | fresh) + 1;
}

static uint32_t job_index(uint32_t job)
{
    return (job - 1) >> 1;
}

static bool job_is_fresh(uint32_t job)
{
    return ((job - 1) & 1) != 0;
}

static bool has_jobs(void)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (atomic_load_explicit(&housekeeper.slots[i], memory_order_seq_cst) != 0) return true;
    return false;
}

static bool status_change(uint32_t from, enum housekeeper_status to)
{
    return atomic_compare_exchange_strong_explicit(&housekeeper.status, &from, to, memory_order_seq_cst,
                                                   memory_order_relaxed);
}

/* ---- the housekeeper -------------------------------------------------------------------------------- */

/* Take one job and do it; false when there is none. */
static bool clear_one(void)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        uint32_t job = atomic_load_explicit(&housekeeper.slots[i], memory_order_relaxed);
        if (job == 0) continue;
        atomic_store_explicit(&housekeeper.clearing, job, memory_order_relaxed);
        /* Acquire: what was written to the run and its descriptor before. Release: a fork's child that does not find
         * the job here finds it in `clearing`. */
        if (!atomic_compare_exchange_strong_explicit(&housekeeper.slots[i], &job, 0, memory_order_acq_rel,
                                                     memory_order_relaxed))
            continue;
        struct span *run = span_at(job_index(job));
        void *start = (void *)span_start(run);
        size_t size = (size_t)run->run_spans * SPAN_SIZE;
        (job_is_fresh(job) ? platform_populate : platform_clear)(start, size);
        uint32_t head = atomic_load_explicit(&housekeeper.cleared, memory_order_relaxed);
        /* Release: pairs with the acquire in collect. There is no ABA: they take all or nothing. */
        do run->next = head;
        while (!atomic_compare_exchange_weak_explicit(&housekeeper.cleared, &head, span_index(run) + 1,
                                                      memory_order_release, memory_order_relaxed));
        return true;
    }
    return false;
}

/* Sleeps double from the first to the last, about a second in all. Work tends to come in bursts: in the first ones, too
 * short to matter, nobody need spend a system call on a wake. */
enum { SLEEP_FIRST_US = 64, SLEEP_WAKEABLE_US = 512, SLEEP_LAST_US = 64 << 13 };

static void sleep_for(uint32_t us)
{
    if (us < SLEEP_WAKEABLE_US) {
        platform_wait(&housekeeper.status, HOUSEKEEPER_WORKING, us);
        return;
    }
    /* Either we see the jobs that came before, or who brought them sees that we are asleep: see notify. */
    atomic_store_explicit(&housekeeper.status, HOUSEKEEPER_ASLEEP, memory_order_seq_cst);
    if (!has_jobs()) platform_wait(&housekeeper.status, HOUSEKEEPER_ASLEEP, us);
    atomic_store_explicit(&housekeeper.status, HOUSEKEEPER_WORKING, memory_order_relaxed);
}

/* False when jobs have come at the last moment, and no other housekeeper for them. */
static bool may_leave(void)
{
    atomic_store_explicit(&housekeeper.status, HOUSEKEEPER_ABSENT, memory_order_seq_cst); /* as in sleep_for */
    return !has_jobs() || (!status_change(HOUSEKEEPER_ABSENT, HOUSEKEEPER_WORKING) &&
                           !status_change(HOUSEKEEPER_WANTED, HOUSEKEEPER_WORKING));
}

static void housekeeper_run(void *unused)
{
    (void)unused;
    uint32_t sleep_us = SLEEP_FIRST_US;
    for (;;) {
        while (clear_one()) sleep_us = SLEEP_FIRST_US;
        if (sleep_us <= SLEEP_LAST_US) {
            sleep_for(sleep_us);
            sleep_us *= 2;
        } else if (may_leave()) {
            return;
        }
    }
}

void space_zeroed_allow(void)
{
    status_change(HOUSEKEEPER_FORBIDDEN, HOUSEKEEPER_ABSENT);
}

/* Undisturbed, as heap/background.c's. */
static void start_undisturbed(void *unused)
{
    (void)unused;
    /* A fork's child does first away with the housekeeper that it does not have: see catch_up. */
    enum space_access access = space_enter();
    space_leave(access);
    if (access == SPACE_DENIED || !status_change(HOUSEKEEPER_WANTED, HOUSEKEEPER_WORKING)) return;
    if (platform_thread_start("heapfit-zero", housekeeper_run, NULL, true)) return;
    atomic_store_explicit(&housekeeper.status, HOUSEKEEPER_REFUSED, memory_order_relaxed);
    platform_message("zeroed_reserve: the system has no thread for it; calloc clears memory itself");
    space_zeroed_release();
}

void space_zeroed_start(void)
{
    /* Relaxed: a hint. Most calls end here. */
    if (UNLIKELY(atomic_load_explicit(&housekeeper.status, memory_order_relaxed) == HOUSEKEEPER_WANTED))
        platform_undisturbed(start_undisturbed, NULL);
}

/* Jobs are in the slots. Sequentially consistent, as the stores to the slots: either we see that the housekeeper sleeps
 * or leaves, or it sees the jobs. */
static void notify(void)
{
    uint32_t status = atomic_load_explicit(&housekeeper.status, memory_order_seq_cst);
    if (status == HOUSEKEEPER_ABSENT) {
        status_change(HOUSEKEEPER_ABSENT, HOUSEKEEPER_WANTED);
    } else if (status == HOUSEKEEPER_ASLEEP && status_change(HOUSEKEEPER_ASLEEP, HOUSEKEEPER_WORKING)) {
        platform_wake(&housekeeper.status);
    }
}

/* ---- the stock: all below is done with the space lock held ------------------------------------------ */

static struct {
    uint32_t next_slot;
    uint32_t wish; /* spans that the last calloc wanted which found no such run */
    uint32_t fresh; /* spans that may be had fresh from the kernel */
    bool filling; /* from when a calloc has found half of it gone, until it is full */
} stock = {.wish = 1};

/* A mistaken reserve takes an eighth of the machine's memory at most. */
enum { SHARE_OF_MEMORY = 8 };

static uint32_t reserve_spans(void)
{
    static size_t most;
    /* Relaxed: a setting stands for itself. */
    size_t wanted = atomic_load_explicit(&space_settings.zeroed_reserve, memory_order_relaxed);
    if (most == 0) most = platform_physical_memory() / SHARE_OF_MEMORY;
    return (uint32_t)((wanted < most ? wanted : most) / SPAN_SIZE);
}

static void collect(void)
{
    /* Relaxed, a hint; then acquire: pairs with the release in clear_one. */
    if (atomic_load_explicit(&housekeeper.cleared, memory_order_relaxed) == 0) return;
    uint32_t head = atomic_exchange_explicit(&housekeeper.cleared, 0, memory_order_acquire);
    while (head != 0) {
        struct span *run = span_at(head - 1);
        head = run->next;
        space_state.spans_zeroing -= run->run_spans;
        run_free(span_index(run), run->run_spans, pool_zeroed(run->pool), 0);
    }
}

/* Give back the shortest runs of the stock until `keep` spans are left. As dirty ones: they are resident. */
static void stock_cut_down(uint32_t keep)
{
    uint64_t now = platform_clock_ms();
    for (unsigned pool = pools_end(); pool < pools_zeroed_end(); pool++) {
        struct span *run;
        while (spans_zeroed() > keep && (run = run_find(1, 1, pool)) != NULL) {
            uint32_t index = span_index(run);
            uint32_t surplus = spans_zeroed() - keep;
            uint32_t spans = run->run_spans < surplus ? run->run_spans : surplus;
            run_cut(run, index, spans);
            run_free(index, spans, pool_dirty(pool), now);
        }
    }
}

/* A job has been taken out of its slot, not to be done. */
static void job_undo(uint32_t job)
{
    const struct span *run = span_at(job_index(job));
    space_state.spans_zeroing -= run->run_spans;
    run_free(job_index(job), run->run_spans, job_is_fresh(job) ? CLEAN : run->pool, platform_clock_ms());
}

/* Take the jobs back that the housekeeper has not begun. */
static void take_jobs_back(void)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        /* Acquire is not needed: they were put here under the lock that we hold. */
        uint32_t job = atomic_exchange_explicit(&housekeeper.slots[i], 0, memory_order_relaxed);
        if (job != 0) job_undo(job);
    }
}

bool zeroed_return_job(uint32_t spans)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        /* Relaxed: put here under the lock that we hold, and done with when the housekeeper has it. */
        uint32_t job = atomic_load_explicit(&housekeeper.slots[i], memory_order_relaxed);
        if (job == 0 || job_is_fresh(job) || span_at(job_index(job))->run_spans < spans) continue;
        if (atomic_compare_exchange_strong_explicit(&housekeeper.slots[i], &job, 0, memory_order_relaxed,
                                                    memory_order_relaxed)) {
            job_undo(job);
            return true;
        }
    }
    return false;
}

bool zeroed_release(void)
{
    uint32_t before = spans_zeroed() + space_state.spans_zeroing;
    if (before == 0) return false;
    collect();
    take_jobs_back();
    stock_cut_down(0);
    return before != space_state.spans_zeroing;
}

/* The run to be cleared next; one that would have served the last calloc in vain is worth most, then the oldest: malloc
 * would want it last. NULL: none. */
static struct span *dirty_run(void)
{
    for (unsigned pool = DIRTY; pool < pools_end(); pool++) {
        struct span *run = run_find(stock.wish, 1, pool);
        if (run != NULL) return run;
    }
    for (unsigned pool = DIRTY; pool < pools_end(); pool++)
        if (space_state.pools[pool].oldest != SPAN_NONE) return span_at(space_state.pools[pool].oldest);
    return NULL;
}

/* Put [index, index+spans), which is in no pool, into a slot that is empty. */
static void slot_fill(_Atomic(uint32_t) *slot, uint32_t index, uint32_t spans, unsigned pool, bool fresh)
{
    struct span *run = run_hand_out(index, spans, SPAN_METADATA, pool);
    space_state.spans_zeroing += run->run_spans;
    stock.next_slot++;
    atomic_store_explicit(slot, job_of(index, fresh), memory_order_seq_cst); /* see notify */
}

/* Memory fresh from the kernel is had for what callocs have asked for in vain, and only while the stock is less than
 * this share of what the program uses. */
enum { FRESH_SHARE = 2 };

static uint32_t fresh_spans(void)
{
    /* Where there are several nodes, a page must be touched first by a thread of the right one. */
    if (space_state.nodes > 1) return 0;
    uint32_t used = spans_handed_out() - space_state.spans_zeroing;
    return spans_zeroed() + space_state.spans_zeroing < used / FRESH_SHARE ? stock.fresh : 0;
}

/* Hand over one run of at most `most` spans; returns its length, 0: there is none. */
static uint32_t hand_over(_Atomic(uint32_t) *slot, uint32_t most)
{
    struct span *run = dirty_run();
    if (run != NULL) {
        uint32_t index = span_index(run);
        uint32_t spans = smaller(run->run_spans, smaller(most, PIECE_SPANS));
        unsigned pool = run->pool;
        run_cut(run, index, spans);
        slot_fill(slot, index, spans, pool, false);
        return spans;
    }
    uint32_t spans = smaller(fresh_spans(), smaller(most, PIECE_SPANS));
    uint32_t index = spans == 0 ? SPAN_NONE : run_take_clean(spans);
    if (index == SPAN_NONE) return 0;
    stock.fresh -= spans;
    slot_fill(slot, index, spans, DIRTY, true);
    return spans;
}

/* Runs handed over at a time, for the lock is held meanwhile. */
enum { HANDED_OVER_MAX = 64 };

static void stock_fill(uint32_t reserve)
{
    uint32_t status = atomic_load_explicit(&housekeeper.status, memory_order_relaxed); /* these two are for ever */
    if (status == HOUSEKEEPER_FORBIDDEN || status == HOUSEKEEPER_REFUSED) return;
    uint32_t have = spans_zeroed() + space_state.spans_zeroing;
    unsigned count = 0;
    for (; stock.filling && have < reserve && count < HANDED_OVER_MAX; count++) {
        _Atomic(uint32_t) *slot = &housekeeper.slots[stock.next_slot % SLOTS];
        /* Relaxed: only we fill it. */
        uint32_t spans = atomic_load_explicit(slot, memory_order_relaxed) == 0 ? hand_over(slot, reserve - have) : 0;
        if (spans == 0) break;
        have += spans;
    }
    if (have >= reserve) stock.filling = false;
    if (count > 0) notify();
}

void zeroed_tend_slow(void)
{
    uint32_t reserve = reserve_spans();
    if (reserve == 0) {
        zeroed_release();
        return;
    }
    collect();
    if (UNLIKELY(spans_zeroed() > reserve)) stock_cut_down(reserve);
    stock_fill(reserve);
}

/* A calloc has asked for such a run in vain. When the stock consists of shorter ones, some of them make room. */
static void missed(uint32_t spans)
{
    uint32_t reserve = reserve_spans();
    if (spans > reserve) return;
    stock.wish = spans;
    stock.fresh = smaller(stock.fresh + spans, reserve);
    uint32_t zeroed = spans_zeroed();
    if (zeroed > reserve / 2) stock_cut_down(zeroed - smaller(spans, zeroed));
}

/* ---- for the others ---------------------------------------------------------------------------------- */

bool space_zeroed_is_on(void)
{
    return atomic_load_explicit(&space_settings.zeroed_reserve, memory_order_relaxed) != 0;
}

static struct span *acquire_zeroed(uint32_t spans, enum span_kind kind, unsigned own)
{
    collect();
    struct span *run = run_find(spans, 1, pool_zeroed(own));
    struct span *first = NULL;
    if (run != NULL) {
        uint32_t index = span_index(run);
        run_cut(run, index, spans);
        first = run_hand_out(index, spans, kind, own);
    } else {
        missed(spans);
    }
    if (spans_zeroed() + space_state.spans_zeroing <= reserve_spans() / 2) stock.filling = true;
    zeroed_tend();
    return first;
}

struct span *space_acquire_zeroed(uint32_t spans, enum span_kind kind)
{
    if (!space_zeroed_is_on()) return NULL;
    unsigned own = DIRTY + node_here();
    enum space_access access = space_enter();
    struct span *first = access == SPACE_WHOLE ? acquire_zeroed(spans, kind, own) : NULL;
    space_leave(access);
    return first;
}

void space_zeroed_adjust(void)
{
    enum space_access access = space_enter();
    if (access == SPACE_WHOLE && space.base != 0) zeroed_tend_slow();
    space_leave(access);
}

void space_zeroed_release(void)
{
    enum space_access access = space_enter();
    if (access == SPACE_WHOLE) zeroed_release();
    space_leave(access);
}

/* The child has no housekeeper. What that had not begun, or had done, lies where it always does; at most one run was in
 * its hands, which is what is then still missing. */
void zeroed_inherit(void)
{
    collect();
    take_jobs_back();
    if (space_state.spans_zeroing != 0) {
        uint32_t index = job_index(atomic_load_explicit(&housekeeper.clearing, memory_order_relaxed));
        run_free(index, space_state.spans_zeroing, span_at(index)->pool, platform_clock_ms());
        space_state.spans_zeroing = 0;
    }
    uint32_t status = atomic_load_explicit(&housekeeper.status, memory_order_relaxed);
    if (status != HOUSEKEEPER_FORBIDDEN && status != HOUSEKEEPER_REFUSED)
        atomic_store_explicit(&housekeeper.status, HOUSEKEEPER_ABSENT, memory_order_relaxed);
}
