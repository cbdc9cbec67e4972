/* Purging: giving the pages of dirty runs back to the kernel, oldest first.
 *
 * However much is due, one call of the program does as much of it as it has made itself, and PURGE_STEP bytes: the next one goes on.
 * Because of their age a release does so once in a tick of the clock, for all that were released since. Only who asks for it, and
 * an allocation that would fail, purges all at once.
 */
#include "state.h"

#include <string.h>

/* ---- one run ------------------------------------------------------------------------------------------ */

bool purge_counted(void *start, size_t size)
{
    bool purged = platform_purge(start, size);
    atomic_fetch_add_explicit(&space_state.purge_calls, 1, memory_order_relaxed);
    if (purged) atomic_fetch_add_explicit(&space_state.purged_bytes, size, memory_order_relaxed);
    return purged;
}

/* Pages of the kernel's pool are cleared and stay. MADV_DONTNEED on less than a whole one says that it is done, and
 * is not; on a whole one it frees, before Linux 6.8, the reservation too, so that another process may take the page
 * and the next touch ends this one with SIGBUS. And what it freed would be of use only to others who use the pool. */
bool purge_spans(uint32_t index, uint32_t spans, bool breaks)
{
    bool purged = true;
    if (breaks) platform_split_huge_pages((void *)span_start(span_at(index)), (size_t)spans * SPAN_SIZE);
    while (spans != 0) {
        bool taken;
        uint32_t alike = huge_pages_alike(index, spans, &taken);
        void *start = (void *)span_start(span_at(index));
        if (taken) memset(start, 0, (size_t)alike * SPAN_SIZE);
        else purged &= purge_counted(start, (size_t)alike * SPAN_SIZE);
        index += alike;
        spans -= alike;
    }
    return purged;
}

/* Under strict overcommit, what is accessible counts as used, purged or not, and other processes cannot have it. But each stretch
 * taken off the account is a mapping of its own, whose number is limited (vm.max_map_count, 65,530): so only what is long, and a
 * share of all such that there are at most so many. */
enum { UNCOMMIT_SPANS_MIN = 16, UNCOMMITS_MAX = 8192 };

/* With the lock held. */
static bool is_worth_uncommitting(uint32_t spans)
{
    return spans >= UNCOMMIT_SPANS_MIN && spans >= space_state.committed / UNCOMMITS_MAX;
}

/* Without the lock. */
static enum platform_move run_uncommit(uint32_t index, uint32_t spans)
{
    bool taken;
    if (!platform_overcommit_is_strict() || huge_pages_alike(index, spans, &taken) < spans || taken)
        return MOVE_REFUSED;
    enum platform_move done = platform_uncommit((void *)span_start(span_at(index)), (size_t)spans * SPAN_SIZE);
    if (done == MOVE_DONE) huge_pages_say_again(index, spans);
    return done;
}

/* Put a stretch back into the pools. */
static void piece_free(uint32_t index, uint32_t spans, unsigned pool, uint64_t now, bool clean)
{
    const struct span *run = run_free(index, spans, clean ? CLEAN : pool, now);
    if (clean) huge_pages_mend(span_index(run), span_index(run) + run->run_spans, index, index + spans);
}

enum { PIECE_SPANS = PURGE_STEP / SPAN_SIZE };

/* Spans of a piece, a bit each, that the kernel has refused to take. */
typedef uint64_t refused_spans;
_Static_assert(PIECE_SPANS <= 64, "refused_spans has a bit for each span");

/* The kernel refuses a piece when one page of it is locked in memory. Which? When both ends are refused, most likely all. */
static refused_spans purge_span_by_span(uint32_t index, uint32_t spans)
{
    refused_spans all = UINT64_MAX >> (64 - spans), refused = 0;
    uint32_t last = spans - 1;
    bool first_refused = !purge_spans(index, 1, false);
    bool last_refused = spans == 1 ? first_refused : !purge_spans(index + last, 1, false);
    if (first_refused && last_refused) return all;
    refused = (refused_spans)first_refused | (refused_spans)last_refused << last;
    for (uint32_t i = 1; i < last; i++)
        if (!purge_spans(index + i, 1, false)) refused |= UINT64_C(1) << i;
    return refused;
}

/* Put the spans of a piece back, alike ones together. */
static void piece_free_by_parts(uint32_t index, uint32_t spans, unsigned pool, uint64_t now, refused_spans refused)
{
    for (uint32_t start = 0, end; start < spans; start = end) {
        bool is = (refused >> start & 1) != 0;
        for (end = start + 1; end < spans && (refused >> end & 1) == is; end++) {
        }
        if (end < spans) span_at(index + end)->kind = SPAN_METADATA; /* not to merge with yet */
        piece_free(index + start, end - start, pool, now, !is);
    }
}

/* At which end of a run a piece of so many spans at most is cut off, so that huge pages stay whole. */
static uint32_t piece_start(const struct span *run, uint32_t most, uint32_t *spans)
{
    uint32_t start = span_index(run), end = start + run->run_spans;
    *spans = run->run_spans;
    if (*spans <= most) return start;
    if (space_state.purge_from_end) {
        uint32_t from = unit_round_up(end - most) < end ? unit_round_up(end - most) : end - most;
        *spans = end - from;
        return from;
    }
    uint32_t to = unit_round_down(start + most) > start ? unit_round_down(start + most) : start + most;
    *spans = to - start;
    return start;
}

/* The purges whose runs are in nobody's hands but the purger's. Relaxed: a hint, for who finds no memory. */
static _Atomic(uint32_t) under_way;

bool space_is_being_purged(void)
{
    return atomic_load_explicit(&under_way, memory_order_relaxed) != 0;
}

void purge_fork_child(void)
{
    atomic_store_explicit(&under_way, 0, memory_order_relaxed);
}

/* Give up the lock for system calls. */
static void let_go(void)
{
    atomic_fetch_add_explicit(&under_way, 1, memory_order_relaxed);
    platform_lock_release(&space_state.lock);
}

/* False: a fork has the lock. */
static bool come_back(void)
{
    bool entered = space_enter_again();
    /* With the lock, so that who finds nothing under it waits for us. In the child of a signal's handler nothing is under way any more. */
    if (space_is_being_purged()) atomic_fetch_sub_explicit(&under_way, 1, memory_order_relaxed);
    return entered;
}

/* Purge what the kernel takes of a piece that it has refused as a whole. A run of which it takes nothing counts as young
 * again, and will be begun at its other end, so that it is not in the way of others. False: the lock is lost. */
static bool piece_purge_refused(uint32_t index, uint32_t spans, unsigned pool)
{
    let_go();
    refused_spans refused = purge_spans(index, spans, false) ? 0 : purge_span_by_span(index, spans);
    if (UNLIKELY(!come_back())) {
        run_defer(span_at(index));
        return false;
    }
    uint64_t now = platform_clock_ms();
    if (refused != UINT64_MAX >> (64 - spans)) {
        space_state.purge_refusals = 0;
        piece_free_by_parts(index, spans, pool, now, refused);
        return true;
    }
    space_state.purge_refusals++;
    space_state.purge_from_end = !space_state.purge_from_end;
    space_state.refused_at = now;
    run_renew(run_free(index, spans, pool, now), now);
    return true;
}

/* The same of more than a piece. */
static void purge_by_pieces(uint32_t index, uint32_t spans, unsigned pool)
{
    bool whole = true;
    while (whole && spans != 0) {
        uint32_t piece = spans < PIECE_SPANS ? spans : PIECE_SPANS;
        run_hand_out(index, piece, SPAN_METADATA, pool);
        index += piece;
        spans -= piece;
        if (spans != 0) run_hand_out(index, spans, SPAN_METADATA, pool); /* not to merge with yet */
        whole = piece_purge_refused(index - piece, piece, pool);
    }
    if (spans != 0) run_defer(span_at(index));
}

/* Called with the lock, which is let go during the system calls: the spans are marked as in use meanwhile. When a fork has taken the
 * lock since, it is lost, and they come back later. */
static void purge_held(uint32_t index, uint32_t spans, unsigned pool)
{
    run_hand_out(index, spans, SPAN_METADATA, pool);
    bool breaks = huge_pages_purged(index, spans);
    bool uncommits = is_worth_uncommitting(spans);
    let_go();
    bool purged = purge_spans(index, spans, breaks);
    enum platform_move uncommitted = purged && uncommits ? run_uncommit(index, spans) : MOVE_REFUSED;

    if (UNLIKELY(!come_back())) {
        /* Deferred runs are accessible. */
        if (uncommitted == MOVE_DONE && !platform_commit((void *)span_start(span_at(index)), (size_t)spans * SPAN_SIZE))
            uncommitted = MOVE_TARGET_LOST;
        if (uncommitted != MOVE_TARGET_LOST) run_defer(span_at(index));
        return;
    }
    if (uncommitted == MOVE_DONE) space_state.uncommits = true;
    if (UNLIKELY(uncommitted == MOVE_TARGET_LOST)) return; /* never to be handed out again */
    if (purged) {
        space_state.purge_refusals = 0;
        piece_free(index, spans, pool, 0, true);
        return;
    }
    space_state.spent.refused_at = platform_clock_ms();
    purge_by_pieces(index, spans, pool);
}

/* Purge at most so many spans of a dirty run; returns how many were tried. With the lock, as above. */
static uint32_t run_purge(struct span *run, uint32_t most)
{
    uint32_t spans;
    uint32_t index = piece_start(run, most, &spans);
    unsigned pool = run->pool;
    run_cut(run, index, spans);
    purge_held(index, spans, pool);
    return spans;
}

/* ---- which runs ----------------------------------------------------------------------------------------- */

/* When the kernel has refused so many runs, one after the other, the process has locked all its memory (mlockall); how long
 * until it is asked again. */
enum { REFUSALS_MAX = 4, REFUSED_RETRY_MS = 10000 };

READS_RACILY bool purge_is_hopeless(void)
{
    return __atomic_load_n(&space_state.purge_refusals, __ATOMIC_RELAXED) >= REFUSALS_MAX &&
           platform_clock_ms() - __atomic_load_n(&space_state.refused_at, __ATOMIC_RELAXED) < REFUSED_RETRY_MS;
}

static bool purge_is_refused(void)
{
    if (UNLIKELY(!space_is_whole(SPACE_WHOLE))) return true; /* the lock is lost */
    return purge_is_hopeless();
}

/* Purge the runs of this age or older, at most so many spans; returns how many are left of `most`. */
static uint32_t pool_purge_older_than(const struct pool *pool, uint32_t age_ms, uint32_t most)
{
    uint64_t now = platform_clock_ms();
    while (most != 0 && !purge_is_refused() && pool->oldest != SPAN_NONE) {
        struct span *oldest = span_at(pool->oldest);
        if (span_age(oldest, now) < age_ms) break;
        most -= run_purge(oldest, most);
    }
    return most;
}

/* A run that the kernel refuses comes back: so no more than there were at first. */
void purge_all(void)
{
    for (unsigned pool = DIRTY; pool < pools_end(); pool++)
        pool_purge_older_than(&space_state.pools[pool], 0, space_state.pools[pool].spans);
}

/* Less dirty memory than this, or than this share of what is handed out, is not worth system calls because of its
 * age: a server in a steady state always has some. */
#define PURGE_WORTH_SPANS 16
enum { PURGE_WORTH_SHARE = 64 };

static bool is_worth_purging(void)
{
    uint32_t worth = spans_handed_out() / PURGE_WORTH_SHARE;
    return spans_dirty() >= (worth > PURGE_WORTH_SPANS ? worth : PURGE_WORTH_SPANS);
}

/* Since when the oldest dirty run has been free. */
static uint64_t oldest_since(uint64_t now)
{
    uint64_t since = now;
    for (unsigned pool = DIRTY; pool < pools_end(); pool++) {
        uint32_t oldest = space_state.pools[pool].oldest;
        if (oldest != SPAN_NONE && span_age(span_at(oldest), now) > age_at(now, since))
            since = span_since(span_at(oldest));
    }
    return since;
}

/* Purge at most so many spans because of their age. */
static enum space_left purge_old(uint32_t most)
{
    /* Relaxed, here and below: a setting stands for itself. One that changes meanwhile is seen at the next release. */
    uint32_t decay = atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed);
    if (UNLIKELY(!space_is_whole(SPACE_WHOLE))) return SPACE_LEFT_YOUNG; /* who knows: the lock is lost */
    if (decay == DECAY_NEVER || !is_worth_purging()) return SPACE_LEFT_NONE;
    uint64_t now = platform_clock_ms(), since = oldest_since(now);
    uint32_t age = patience_age(decay, now), before = most;
    for (unsigned pool = DIRTY; pool < pools_end() && most != 0; pool++)
        most = pool_purge_older_than(&space_state.pools[pool], age, most);
    if (before != most) patience_purged(before - most, since, now);
    if (UNLIKELY(!space_is_whole(SPACE_WHOLE))) return SPACE_LEFT_YOUNG;
    if (spans_dirty() == 0 || purge_is_hopeless()) return SPACE_LEFT_NONE;
    return most == 0 ? SPACE_LEFT_OLD : SPACE_LEFT_YOUNG;
}

/* Whatever its age and however little it is: who sets a threshold means it. But one that has been lowered is reached step by
 * step: at most so many spans. */
static void pool_purge_excess(const struct pool *pool, uint32_t most)
{
    size_t kept = atomic_load_explicit(&space_settings.shared_dirty_max, memory_order_relaxed) / SPAN_SIZE;
    while (most != 0 && !purge_is_refused() && pool->spans > kept) {
        uint32_t refusals = space_state.purge_refusals;
        most -= run_purge(span_at(pool->oldest), most);
        if (space_state.purge_refusals > refusals) break;
    }
}

void purge_after_release(unsigned pool, uint32_t spans, uint64_t now)
{
    pool_purge_excess(&space_state.pools[pool], spans + PIECE_SPANS);
    if (UNLIKELY(!space_is_whole(SPACE_WHOLE))) return; /* the lock is lost */
    if (atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed) == 0) { /* nothing is to be kept */
        purge_old(spans + PIECE_SPANS);
        return;
    }
    space_state.pools[pool].released += spans;
    if (space_state.aged_at == now) return; /* a call that releases many runs */
    space_state.aged_at = now;
    uint32_t released = space_state.pools[pool].released;
    space_state.pools[pool].released = 0;
    patience_used(spans_handed_out() + released); /* the most of them, when they begin to come back */
    purge_old(released + PIECE_SPANS);
}

bool purge_spent(struct span *run, uint32_t spans, uint64_t now)
{
    uint32_t decay = atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed);
    if (run->run_spans - spans > spans || decay == DECAY_NEVER || purge_is_refused()) return false;
    if (!patience_is_spent(spans, now)) return false;
    patience_used(spans_handed_out() + spans);
    unsigned pool = run->pool;
    run_purge(run, run->run_spans);
    if (LIKELY(space_is_whole(SPACE_WHOLE))) purge_after_release(pool, 0, now); /* of the others */
    return true;
}

/* ---- for the layers above --------------------------------------------------------------------------------- */

enum space_left space_purge_old(void)
{
    enum space_access access = space_enter();
    enum space_left left = SPACE_LEFT_YOUNG; /* who knows */
    if (access == SPACE_WHOLE) {
        for (unsigned pool = DIRTY; pool < pools_end(); pool++)
            pool_purge_excess(&space_state.pools[pool], PIECE_SPANS);
        left = purge_old(PIECE_SPANS);
    }
    space_leave(access);
    return left;
}

void space_purge_all(void)
{
    enum space_access access = space_enter();
    if (access == SPACE_WHOLE) purge_all();
    space_leave(access);
}

void space_purge_pages(void *start, size_t size)
{
    bool taken; /* then there is nothing to give back: what is free of a page of the pool goes with the rest of it */
    uint32_t index = (uint32_t)(space_offset(start) / SPAN_SIZE);
    huge_pages_alike(index, 1, &taken);
    if (taken) return;
    enum space_access access = space_enter();
    bool breaks = access == SPACE_WHOLE && huge_pages_purged(index, 1);
    space_leave(access);
    if (breaks) platform_split_huge_pages(start, size);
    if (access == SPACE_WHOLE) purge_counted(start, size); /* or the pages stay, for once */
}
