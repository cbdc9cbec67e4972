/* How long memory is kept. Longer, where a program needs it again and again: a frame, a query, a tick of some seconds, with nothing
 * in between. Not at all, where it was outgrown.
 *
 * What is purged because of its age and taken again soon after was purged in vain, at the price of a system call and a page fault for
 * each page. When that has happened twice, the dirty runs of such a program are kept for as long as it was at rest, and a quarter more;
 * but for PATIENCE decay times at most, and only while they are little beside what is in use, or are what was in use a moment ago. So
 * the peak does not grow, and when the program ceases to come back for it, all goes.
 *
 * A table that has been copied into a larger one is freed, and the next one will be larger still. A program of one thread that then
 * calls no more would keep the old one for ever: so its pages go back at once, for less than it took to copy them. A program that
 * takes them again within the decay time, twice, builds such tables again and again, and keeps them from then on.
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

uint32_t patience_age(uint32_t decay_ms, uint64_t now)
{
    struct patience *patience = &space_state.patience;
    bool keeps = may_be_kept(patience, now) && patience->age_ms > decay_ms;
    return keeps ? (uint32_t)(patience->age_ms < longest() ? patience->age_ms : longest()) : decay_ms;
}

/* ---- what was outgrown ---------------------------------------------------------------------------------------------- */

/* Smaller ones are among what is not worth it, or of a use that does not show. */
enum { TABLE_SPANS = 64, LARGER_SHARE = 4 };

void patience_handed_out(uint32_t index, uint32_t spans, bool clean)
{
    struct outgrown *outgrown = &space_state.outgrown;
    if (spans >= TABLE_SPANS) {
        outgrown->newest = index;
        outgrown->newest_spans = spans;
    }
    if (LIKELY(outgrown->purged == 0) || !clean) return;
    outgrown->taken += spans;
    if (outgrown->taken < outgrown->purged / 2) return;
    if (age_at(platform_clock_ms(), outgrown->purged_at) <= atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed))
        outgrown->times++;
    outgrown->purged = outgrown->taken = 0;
}

bool patience_is_outgrown(uint32_t index, uint32_t spans, uint64_t now)
{
    struct outgrown *outgrown = &space_state.outgrown;
    if (LIKELY(spans < TABLE_SPANS)) return false;
    if (index == outgrown->newest) outgrown->newest_spans = 0;
    if (outgrown->newest_spans < spans + spans / LARGER_SHARE || outgrown->times >= TIMES) return false;
    outgrown->purged += spans;
    outgrown->purged_at = now;
    return true;
}
