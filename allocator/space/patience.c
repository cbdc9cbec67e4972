/* How long memory is kept. Longer, where a program needs it again and again: a frame, a query, a tick of some seconds, with nothing
 * in between. Not at all, where a large block has had its time.
 *
 * What is purged because of its age and taken again soon after was purged in vain, at the price of a system call and a page fault for
 * each page. When that has happened twice, the dirty runs of such a program are kept for as long as it was at rest, and a quarter more;
 * but for PATIENCE decay times at most, and only while they are little beside what is in use, or are what was in use a moment ago. So
 * the peak does not grow, and when the program ceases to come back for it, all goes.
 *
 * Where most of the heap is free, and much, it goes back after an eighth of the decay time, unless that was in vain: the memory of a
 * phase that is over is not there when the process needs some for other things.
 *
 * A large block is freed: a table that has been copied into a larger one, a picture that has been drawn, the data of a phase. What
 * the program fills next is seldom of the same length and stands beside it, so that the peak would be higher by what is kept; and a
 * program of one thread that then calls no more would keep it for ever. So the pages go back at once, for less than it took to fill
 * them; but not where there is more free memory beside the block, with which it can serve a larger one. A program that soon takes them
 * again, twice, needs blocks of up to such a length again and again, and keeps them for a minute.
 */
#include "state.h"

enum { PATIENCE = 8 };

/* Less is not worth it. */
enum { WORTH_SPANS = 64, TIMES = 2 };

static uint64_t longest(void)
{
    return (uint64_t)atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed) * PATIENCE;
}

static void begin_anew(struct patience *patience)
{
    patience->purged = patience->taken = 0;
}

void patience_purged(uint32_t spans, uint64_t since, uint64_t now)
{
    struct patience *patience = &space_state.patience;
    if (patience->purged != 0 && age_at(now, patience->rests_since) > longest()) {
        begin_anew(patience); /* not in vain */
        patience->times = patience->age_ms = 0;
    }
    if (patience->purged == 0) patience->rests_since = since;
    patience->purged += spans;
}

void patience_taken(uint32_t spans)
{
    struct patience *patience = &space_state.patience;
    if (LIKELY(patience->purged < WORTH_SPANS)) return;
    patience->taken += spans;
    if (patience->taken < patience->purged / 2) return;
    uint64_t rest = age_at(platform_clock_ms(), patience->rests_since);
    begin_anew(patience);
    if (rest > longest()) patience->times = patience->age_ms = 0;
    else if (++patience->times >= TIMES && patience->age_ms < rest + rest / 4) patience->age_ms = rest + rest / 4;
}

/* A peak counts for as long as the longest rest, and up to twice that. */
static uint32_t peak_lately(struct patience *patience, uint64_t now)
{
    if (age_at(now, patience->peak_since) > longest()) {
        patience->peak_before = patience->peak;
        patience->peak = spans_handed_out();
        patience->peak_since = now;
    }
    return patience->peak > patience->peak_before ? patience->peak : patience->peak_before;
}

/* At most half of what is in use; or, where that is little, as much as it was. */
static bool may_be_kept(struct patience *patience, uint64_t now)
{
    enum { HALF = 2, LITTLE = 4 };
    uint32_t peak = peak_lately(patience, now), used = spans_handed_out(), dirty = spans_dirty();
    return dirty <= used / HALF || (used <= peak / LITTLE && used + dirty <= peak);
}

/* How much sooner what is free goes back where it is most of the heap, and much. */
enum { SOONER = 8 };

uint32_t patience_age(uint32_t decay_ms, uint64_t now)
{
    struct patience *patience = &space_state.patience;
    uint32_t age = decay_ms;
    size_t dirty = (size_t)spans_dirty() * SPAN_SIZE;
    if (space_is_mostly_free((size_t)spans_handed_out() * SPAN_SIZE + dirty, dirty)) {
        age = decay_ms / SOONER;
        if (patience->age_ms > age) age = patience->age_ms < decay_ms ? (uint32_t)patience->age_ms : decay_ms;
    }
    bool keeps = patience->age_ms > decay_ms && may_be_kept(patience, now);
    return keeps ? (uint32_t)(patience->age_ms < longest() ? patience->age_ms : longest()) : age;
}

/* ---- large blocks that have had their time -------------------------------------------------------------------------- */

/* From which size, and which share of what is in use. Smaller ones are not worth a system call each. */
enum { SPENT_SPANS = 16, SPENT_SHARE = 16 };

/* When what was in vain is forgotten: a service may need a phase's block once more. And how soon at least memory is taken again that
 * was purged in vain, however short the decay time is. */
enum { FORGOTTEN_MS = 60000, SOON_MS = 100 };

static bool was_soon(uint64_t rest)
{
    return rest <= (longest() > SOON_MS ? longest() : SOON_MS);
}

void patience_taken_again(uint32_t spans)
{
    struct spent *spent = &space_state.spent;
    if (LIKELY(spent->purged == 0)) return;
    spent->taken += spans;
    if (spent->taken < spent->purged / 2) return;
    spent->times = was_soon(age_at(platform_clock_ms(), spent->purged_at)) ? spent->times + 1 : 0;
    if (spent->times >= TIMES) {
        spent->kept = spent->longest > spent->kept ? spent->longest : spent->kept;
        spent->times = spent->longest = 0;
    }
    spent->purged = spent->taken = 0;
}

bool patience_is_spent(uint32_t spans, uint64_t now)
{
    struct spent *spent = &space_state.spent;
    if (LIKELY(spans < SPENT_SPANS) || spans < spans_handed_out() / SPENT_SHARE) return false;
    uint64_t rest = age_at(now, spent->purged_at);
    if (!was_soon(rest)) spent->purged = spent->taken = 0;
    if (rest > FORGOTTEN_MS) spent->times = spent->longest = spent->kept = 0;
    bool refused = spent->refused_at != 0 && age_at(now, spent->refused_at) < FORGOTTEN_MS;
    if (refused || spans <= spent->kept) return false;
    spent->purged += spans;
    spent->purged_at = now;
    if (spans > spent->longest) spent->longest = spans;
    return true;
}
