/* Purging: giving the pages of dirty runs back to the kernel, oldest first. */
#include "state.h"

/* Less dirty memory than this, or than this share of what is handed out, is not worth system calls: a server in a
 * steady state always has some. */
#define PURGE_WORTH_SPANS 16
enum { PURGE_WORTH_SHARE = 64 };

bool is_worth_purging(void)
{
    uint32_t worth = spans_handed_out() / PURGE_WORTH_SHARE;
    return space_state.spans_free[DIRTY] >= (worth > PURGE_WORTH_SPANS ? worth : PURGE_WORTH_SPANS);
}

/* After the kernel has refused, how long until it is asked again. */
enum { REFUSED_RETRY_MS = 10000 };

static bool purge_counted(void *start, size_t size)
{
    bool purged = platform_purge(start, size);
    atomic_fetch_add_explicit(&space_state.purge_calls, 1, memory_order_relaxed);
    if (purged) atomic_fetch_add_explicit(&space_state.purged_bytes, size, memory_order_relaxed);
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
    platform_lock_release(&space_state.lock);

    bool purged = purge_counted((char *)space.base + (size_t)index * SPAN_SIZE, (size_t)spans * SPAN_SIZE);

    platform_lock_acquire(&space_state.lock);
    space_state.purge_refused = !purged;
    space_state.refused_at = (uint32_t)platform_clock_ms();
    const struct span *run = run_free(index, spans, purged ? CLEAN : DIRTY, space_state.refused_at);
    if (purged) huge_pages_mend(span_index(run), span_index(run) + run->run_spans, index, index + spans);
}

static bool purge_is_refused(uint32_t now)
{
    return space_state.purge_refused && now - space_state.refused_at < REFUSED_RETRY_MS;
}

void purge_older_than(uint32_t age_ms)
{
    uint32_t now = (uint32_t)platform_clock_ms();
    while (space_state.oldest != SPAN_NONE && !purge_is_refused(now)) {
        struct span *oldest = span_at(space_state.oldest);
        if ((int32_t)(now - oldest->since) < (int32_t)age_ms) break;
        run_purge(oldest);
    }
}

bool space_purge_old(void)
{
    platform_lock_acquire(&space_state.lock);
    bool worth = is_worth_purging();
    if (worth) purge_older_than(atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed));
    bool left = worth && space_state.oldest != SPAN_NONE;
    platform_lock_release(&space_state.lock);
    return left;
}

void space_purge_all(void)
{
    platform_lock_acquire(&space_state.lock);
    purge_older_than(0);
    platform_lock_release(&space_state.lock);
}

void space_purge_pages(void *start, size_t size)
{
    platform_lock_acquire(&space_state.lock);
    huge_pages_break((uint32_t)(space_offset(start) / SPAN_SIZE));
    platform_lock_release(&space_state.lock);
    purge_counted(start, size);
}
