/* Purging: giving the pages of dirty runs back to the kernel, oldest first. */
#include "state.h"

#include <string.h>

/* ---- one run ------------------------------------------------------------------------------------------ */

static bool purge_counted(void *start, size_t size)
{
    bool purged = platform_purge(start, size);
    atomic_fetch_add_explicit(&space_state.purge_calls, 1, memory_order_relaxed);
    if (purged) atomic_fetch_add_explicit(&space_state.purged_bytes, size, memory_order_relaxed);
    return purged;
}

void purge_prepare(uint32_t index, uint32_t spans)
{
    if (index % HUGE_PAGE_SPANS != 0) huge_pages_break(index);
    if ((index + spans) % HUGE_PAGE_SPANS != 0) huge_pages_break(index + spans);
}

/* Pages of the kernel's pool are cleared and stay. MADV_DONTNEED on less than a whole one says that it is done, and
 * is not; on a whole one it frees, before Linux 6.8, the reservation too, so that another process may take the page
 * and the next touch ends this one with SIGBUS. And what it freed would be of use only to others who use the pool. */
bool purge_spans(uint32_t index, uint32_t spans)
{
    bool purged = true;
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

/* Purge one dirty run. Called with the lock, which is let go during the system call: the run is marked as in use
 * meanwhile. When a fork has taken the lock since, it is lost, and the run comes back later. */
static void run_purge(struct span *first)
{
    uint32_t index = span_index(first);
    uint32_t spans = first->run_spans;
    unsigned pool = first->pool;
    run_remove(first);
    first->kind = SPAN_METADATA;
    (first - (spans - 1))->kind = SPAN_METADATA;
    purge_prepare(index, spans);
    platform_lock_release(&space_state.lock);

    bool purged = purge_spans(index, spans);

    if (UNLIKELY(!platform_lock_enter(&space_state.lock))) {
        run_defer(first);
        return;
    }
    space_state.purge_refused = !purged;
    space_state.refused_at = (uint32_t)platform_clock_ms();
    const struct span *run = run_free(index, spans, purged ? CLEAN : pool, space_state.refused_at);
    if (purged) huge_pages_mend(span_index(run), span_index(run) + run->run_spans, index, index + spans);
}

/* ---- which runs ----------------------------------------------------------------------------------------- */

/* After the kernel has refused, how long until it is asked again. */
enum { REFUSED_RETRY_MS = 10000 };

static bool purge_is_refused(void)
{
    if (UNLIKELY(!space_is_whole(SPACE_WHOLE))) return true; /* the lock is lost */
    return space_state.purge_refused && (uint32_t)platform_clock_ms() - space_state.refused_at < REFUSED_RETRY_MS;
}

static void pool_purge_older_than(const struct pool *pool, uint32_t age_ms)
{
    uint32_t now = (uint32_t)platform_clock_ms();
    while (pool->oldest != SPAN_NONE && !purge_is_refused()) {
        struct span *oldest = span_at(pool->oldest);
        if ((int32_t)(now - oldest->since) < (int32_t)age_ms) break;
        run_purge(oldest);
    }
}

void purge_older_than(uint32_t age_ms)
{
    if (age_ms == DECAY_NEVER) return;
    for (unsigned pool = DIRTY; pool < pools_end(); pool++) pool_purge_older_than(&space_state.pools[pool], age_ms);
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

/* True when younger runs are left that will be purged in time. */
static bool purge_old(void)
{
    /* Relaxed, here and below: a setting stands for itself. One that changes meanwhile is seen at the next release. */
    uint32_t decay = atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed);
    if (decay == DECAY_NEVER || !is_worth_purging()) return false;
    purge_older_than(decay);
    return spans_dirty() != 0;
}

/* Whatever its age and however little it is: who sets a threshold means it. */
static void pool_purge_excess(const struct pool *pool)
{
    size_t most = atomic_load_explicit(&space_settings.shared_dirty_max, memory_order_relaxed) / SPAN_SIZE;
    while (pool->spans > most && !purge_is_refused()) run_purge(span_at(pool->oldest));
}

void purge_after_release(unsigned pool)
{
    pool_purge_excess(&space_state.pools[pool]);
    purge_old();
}

/* ---- for the layers above --------------------------------------------------------------------------------- */

bool space_purge_old(void)
{
    enum space_access access = space_enter();
    bool left = access != SPACE_WHOLE; /* who knows */
    if (access == SPACE_WHOLE) {
        for (unsigned pool = DIRTY; pool < pools_end(); pool++) pool_purge_excess(&space_state.pools[pool]);
        left = purge_old();
    }
    space_leave(access);
    return left;
}

void space_purge_all(void)
{
    enum space_access access = space_enter();
    if (access == SPACE_WHOLE) purge_older_than(0);
    space_leave(access);
}

void space_purge_pages(void *start, size_t size)
{
    bool taken; /* then there is nothing to give back: what is free of a page of the pool goes with the rest of it */
    uint32_t index = (uint32_t)(space_offset(start) / SPAN_SIZE);
    huge_pages_alike(index, 1, &taken);
    if (taken) return;
    enum space_access access = space_enter();
    if (access == SPACE_WHOLE) huge_pages_break(index);
    space_leave(access);
    if (access == SPACE_WHOLE) purge_counted(start, size); /* or the pages stay, for once */
}
