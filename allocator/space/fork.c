/* The space while the process forks.
 *
 * A fork holds the space's lock, so that the child finds the space whole. But the forking thread may wait for any other,
 * in another library's handler or for a lock of the C library's, and so no thread may wait for the fork. Who finds the lock
 * held for one works *beside* the space as it is:
 *
 *     releases  a run by putting it onto a list (`deferred`), to be taken in by whoever has the space's lock next
 *     takes     one from there, or what lies beyond the frontier, under a lock that no fork holds (`beside`)
 *
 * and goes without the rest; where that is not enough, it waits for a while (space.c). So that not each fork takes new addresses
 * for good, it first puts free runs onto the list, if there were too few at the forks before. The child may find such a taker in
 * the midst: then the frontier is raised or is not, and if it is, then what lies below it is described; and a run that was being
 * cut is whole, or its parts are (cut_deferred).
 *
 * A thread that forks in a signal's handler, having been interrupted with a lock of ours, cannot hold the space: it may be
 * the one that is in the middle of it, or another thread be, which waits for it. In its child the space is the calling
 * thread's own, as soon as that goes on with what it was doing; or it is whole; or it is in the middle of something that
 * nobody will end. Then the child works beside it for good (platform_lock_fork_end_in_child).
 */
#include "state.h"

/* ---- deferred ------------------------------------------------------------------------------------------------------ */

/* Short runs have a list for each length: then one that need not be aligned is only cut off a longer run when none of its length is
 * free, so that what a long fork cuts is bounded by what is live. */
static unsigned list_of_length(uint32_t spans)
{
    if (spans <= DEFERRED_EXACT) return spans - 1;
    unsigned list =
        DEFERRED_EXACT + (31 - (unsigned)__builtin_clz(spans)) - (31 - (unsigned)__builtin_clz(DEFERRED_EXACT));
    return list < DEFERRED_LISTS ? list : DEFERRED_LISTS - 1;
}

/* Nobody's object, whoever frees it again. */
static struct span *describe(uint32_t index, uint32_t spans, unsigned pool)
{
    return run_hand_out(index, spans, SPAN_METADATA, pool);
}

static void list_add(struct span *first)
{
    uint32_t index = span_index(first);
    _Atomic(uint32_t) *list = &space_state.deferred[list_of_length(first->run_spans)];
    uint32_t head = atomic_load_explicit(list, memory_order_relaxed);
    /* Release: pairs with the acquires below. */
    do first->next = head;
    while (!atomic_compare_exchange_weak_explicit(list, &head, index + 1, memory_order_release, memory_order_relaxed));
    atomic_store_explicit(&space_state.any_deferred, true, memory_order_relaxed); /* a hint; taking synchronises */
}

void run_defer(const struct span *first)
{
    list_add(describe(span_index(first), first->run_spans, first->pool));
}

/* So many of a list are looked at. The youngest come first, so that who frees and allocates the same lengths finds his at once. */
enum { COMPARED_MAX = 32 };

/* How much of a run lies before the first place at which an object may begin. */
static uint32_t spans_before(const struct span *run, uint32_t alignment)
{
    return index_aligned(span_index(run), alignment) - span_index(run);
}

/* Take a run that has room for so many spans out of a list, or NULL. Others only put runs in before the first meanwhile, since we have
 * the lock under which they are taken out: so there is no ABA, and behind the first nobody else writes. */
static struct span *deferred_pop(_Atomic(uint32_t) *list, uint32_t spans, uint32_t alignment)
{
    struct span *before = NULL;
    /* Acquire, here and below: pairs with the release in run_defer. */
    uint32_t place = atomic_load_explicit(list, memory_order_acquire);
    for (unsigned i = 0; i < COMPARED_MAX && place != 0; i++) {
        struct span *run = span_at(place - 1);
        if (run->run_spans < spans || run->run_spans - spans < spans_before(run, alignment)) {
            before = run;
            place = run->next;
        } else if (before != NULL) {
            before->next = run->next;
            return run;
        } else if (atomic_compare_exchange_weak_explicit(list, &place, run->next, memory_order_acquire,
                                                         memory_order_acquire)) {
            return run;
        } /* else others have come before it: `place` is the first of them now */
    }
    return NULL;
}

/* With the space's lock. */
static void deferred_take(void)
{
    uint64_t now = platform_clock_ms();
    atomic_store_explicit(&space_state.any_deferred, false, memory_order_relaxed); /* first: more may come */
    for (unsigned list = 0; list < DEFERRED_LISTS; list++) {
        uint32_t head = atomic_exchange_explicit(&space_state.deferred[list], 0, memory_order_acquire);
        while (head != 0) {
            const struct span *run = span_at(head - 1);
            head = run->next;
            run_free(span_index(run), run->run_spans, run->pool, now);
        }
    }
    space_state.clean_aside = 0; /* last, or the heap would look larger than it is to who reads without the lock */
    zeroed_tend();
}

/* ---- entering -------------------------------------------------------------------------------------------------------- */

/* The lock is ours: do what others could not. */
static void catch_up(void)
{
    if (UNLIKELY(atomic_load_explicit(&space_state.any_deferred, memory_order_relaxed))) deferred_take();
    if (UNLIKELY(space_state.inherited)) {
        space_state.inherited = false;
        zeroed_inherit();
    }
}

/* Beside is only who finds that a fork has the space, and will have it until we leave: see space_fork_end. In a child, nothing
 * has it any more: where a signal's handler has forked in the midst of that, nobody enters before the interrupted thread has left. */
enum space_access space_enter(void)
{
    for (;;) {
        if (LIKELY(platform_lock_enter(&space_state.lock))) {
            if (LIKELY(!platform_lock_is_own(&space_state.beside))) {
                catch_up();
                return SPACE_WHOLE;
            }
            platform_lock_release(&space_state.lock);
            return SPACE_DENIED;
        }
        if (platform_lock_is_own(&space_state.lock) || !platform_lock_enter(&space_state.beside)) return SPACE_DENIED;
        if (platform_lock_is_held_by_fork(&space_state.lock)) return SPACE_BESIDE;
        platform_lock_release(&space_state.beside);
    }
}

bool space_enter_again(void)
{
    bool entered = platform_lock_enter(&space_state.lock);
    if (LIKELY(entered)) catch_up();
    return entered;
}

void space_leave(enum space_access access)
{
    if (LIKELY(space_is_whole(access))) platform_lock_release(&space_state.lock);
    else if (access == SPACE_BESIDE) platform_lock_release(&space_state.beside);
}

/* ---- beside the space -------------------------------------------------------------------------------------------------- */

/* Cut [index, index + spans) out of a run that is in no list; what is left of it goes back. A child may find us anywhere here: so from
 * behind, each part is described before the one in front of it ends where it begins, and all are before one of them is told of. */
static struct span *cut_deferred(struct span *run, uint32_t index, uint32_t spans, enum span_kind kind, unsigned pool)
{
    uint32_t start = span_index(run), end = start + run->run_spans;
    unsigned before = run->pool;
    struct span *behind = NULL;
    if (end > index + spans) behind = describe(index + spans, end - index - spans, before);
    atomic_thread_fence(memory_order_release);
    struct span *first = run_hand_out(index, spans, kind, pool);
    atomic_thread_fence(memory_order_release);
    if (index > start) list_add(describe(start, index - start, before));
    if (behind != NULL) list_add(behind);
    return first;
}

/* Out of what others have released since. The longest are cut first: they are what a fork has put aside. */
static struct span *acquire_deferred(uint32_t spans, uint32_t alignment, enum span_kind kind, bool *zeroed)
{
    unsigned own = list_of_length(spans);
    struct span *run = deferred_pop(&space_state.deferred[own], spans, alignment);
    for (unsigned list = DEFERRED_LISTS - 1; run == NULL && list > own; list--)
        run = deferred_pop(&space_state.deferred[list], spans, alignment);
    if (run == NULL) return NULL;
    *zeroed = run->pool == CLEAN;
    if (*zeroed) space_state.clean_aside -= spans;
    unsigned pool = *zeroed ? DIRTY + node_here() : run->pool;
    return cut_deferred(run, span_index(run) + spans_before(run, alignment), spans, kind, pool);
}

/* So many were lacked, however often they are asked for; if as many are free, so that a fork could put them aside. Numbers alone are
 * read: in a child that works beside the space for good, its lists are as somebody has left them. */
static void lacks(uint32_t spans)
{
    uint32_t free = space_state.pools[CLEAN].spans + spans_dirty();
    if (spans <= free && space_state.beside_new < spans) space_state.beside_new = spans;
}

static struct span *acquire_from_frontier(uint32_t spans, uint32_t alignment, enum span_kind kind)
{
    uint32_t start = space_state.frontier;
    uint32_t index = index_aligned(start, alignment);
    uint64_t end = (uint64_t)index + spans;
    if (end > space_state.capacity || !frontier_prepare((uint32_t)end)) {
        lacks(spans);
        return NULL;
    }
    struct span *first = run_hand_out(index, spans, kind, DIRTY + node_here());
    struct span *gap = index == start ? NULL : describe(start, index - start, CLEAN);
    /* Release: what lies below it is described, even to a child that this thread is not in. */
    __atomic_store_n(&space_state.frontier, (uint32_t)end, __ATOMIC_RELEASE);
    space_state.beside_new += (uint32_t)end - start;
    if (gap != NULL) {
        space_state.clean_aside += index - start;
        list_add(gap);
    }
    return first;
}

struct span *acquire_beside(uint32_t spans, uint32_t alignment, enum span_kind kind, bool *zeroed)
{
    struct span *first = *zeroed ? NULL : acquire_deferred(spans, alignment, kind, zeroed);
    if (first != NULL) return first;
    *zeroed = true;
    return acquire_from_frontier(spans, alignment, kind);
}

/* ---- forks ---------------------------------------------------------------------------------------------------------------- */

/* Clean runs cost nothing, and so many of the longest are put aside; of what is lacked then, in no more runs than this. */
enum { STOCK_CLEAN = 4, STOCK_RUNS = 64, STOCK_SHRINKS = 16 };

/* With the space's lock, here and below: put so many of a pool's longest runs where who works beside the fork finds them, and of the last
 * no more than is wanted. Returns how many spans. */
static uint32_t put_aside(unsigned pool, unsigned runs, uint32_t wanted)
{
    uint32_t all = 0;
    for (unsigned i = 0; i < runs && all < wanted; i++) {
        uint32_t spans = smaller(run_longest(pool), wanted - all);
        if (pool == CLEAN) space_state.clean_aside += spans; /* first, as above */
        uint32_t index = spans == 0 ? SPAN_NONE : run_take(spans, pool);
        if (index == SPAN_NONE) {
            if (pool == CLEAN) space_state.clean_aside -= spans;
            break;
        }
        list_add(describe(index, spans, pool));
        all += spans;
    }
    return all;
}

/* In the child, and when the fork ends, all are taken in again, and are as if just freed. So of dirty runs no more than was lacked, or
 * they would never become old; and that shrinks, since no two forks are alike, if they are to become old at all. What is clean, but
 * would have to be committed first, comes last. */
static void stock_up(void)
{
    uint32_t lacked = space_state.beside_new, stock = space_state.stock;
    space_state.beside_new = 0;
    if (lacked == 0 && stock == 0) return; /* nobody has ever lacked any */
    bool is_kept = atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed) == DECAY_NEVER;
    if (lacked != 0) stock = smaller(stock + lacked, space_state.frontier);
    else if (!is_kept) stock -= stock > STOCK_SHRINKS ? stock / STOCK_SHRINKS : stock > 1;
    space_state.stock = stock;
    uint32_t have = space_state.uncommits ? 0 : put_aside(CLEAN, STOCK_CLEAN, UINT32_MAX);
    if (have < stock) have += put_aside(DIRTY + node_here(), STOCK_RUNS, stock - have);
    if (have < stock) put_aside(CLEAN, STOCK_RUNS, stock - have);
}

/* When the first of the forks that have the space began. Relaxed: a number, for those who wait. */
static _Atomic(uint64_t) began_ms;

uint64_t space_fork_age_ms(void)
{
    return platform_clock_ms() - atomic_load_explicit(&began_ms, memory_order_relaxed);
}

/* While another fork has the space, nothing in it is moved. */
void space_fork_begin(void)
{
    enum space_access access = space_enter();
    if (space_is_whole(access)) {
        stock_up();
        atomic_store_explicit(&began_ms, platform_clock_ms(), memory_order_relaxed);
    } else {
        space_leave(access);
    }
    platform_lock_fork_begin(&space_state.lock);
}

/* Whoever works beside ends first; that takes no lock of ours. */
void space_fork_end(void)
{
    platform_lock_acquire(&space_state.beside);
    platform_lock_fork_end(&space_state.lock);
    platform_lock_release(&space_state.beside);
    space_leave(space_enter()); /* see catch_up */
}

void space_fork_child(void)
{
    platform_lock_mend(&space_state.beside);
    reservation_fork_child();
    purge_fork_child();
    platform_lock_fork_end_in_child(&space_state.lock);
    space_state.inherited = true;
    space_state.beside_new = 0; /* who was beside the fork is not here */
    space_leave(space_enter());
}
