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
 * A table that has been copied into a larger one, the next to be asked for, is freed, and the next one will be larger still; a block
 * that was most of the heap is freed at the end of a phase. A program of one thread that then calls no more would keep it for ever,
 * and others until the decay time is over: so its pages go back at once, for less than it took to fill them. A program that soon takes
 * them again, twice, needs such blocks again and again, and keeps them for a minute.
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

/* From which size, and which share of what is in use, a run is taken for a table that was outgrown, by a run that is larger by such a
 * share; and from which for a phase's block. Smaller ones are not worth a system call each. */
enum { TABLE_SPANS = 64, TABLE_SHARE = 16, LARGER_SHARE = 4, PHASE_SPANS = SPACE_MUCH / SPAN_SIZE };

/* When what was in vain is forgotten: a service may need a phase's block once more. And how soon at least memory is taken again that
 * was purged in vain, however short the decay time is. */
enum { FORGOTTEN_MS = 60000, SOON_MS = 100 };

static bool was_soon(uint64_t rest)
{
    return rest <= (longest() > SOON_MS ? longest() : SOON_MS);
}

void patience_handed_out(uint32_t index, uint32_t spans, uint32_t clean)
{
    struct outgrown *outgrown = &space_state.outgrown;
    if (spans >= TABLE_SPANS) {
        if (index != outgrown->newest) outgrown->before = outgrown->newest; /* else it has grown in place */
        outgrown->newest = index;
        outgrown->newest_spans = spans;
    }
    if (LIKELY(outgrown->purged == 0) || clean == 0) return;
    outgrown->taken += clean;
    if (outgrown->taken < outgrown->purged / 2) return;
    outgrown->times = was_soon(age_at(platform_clock_ms(), outgrown->purged_at)) ? outgrown->times + 1 : 0;
    outgrown->purged = outgrown->taken = 0;
}

bool patience_is_outgrown(uint32_t index, uint32_t spans, uint64_t now)
{
    struct outgrown *outgrown = &space_state.outgrown;
    if (LIKELY(spans < TABLE_SPANS)) return false;
    if (index == outgrown->newest) outgrown->newest_spans = 0;
    bool table = index == outgrown->before && outgrown->newest_spans >= spans + spans / LARGER_SHARE &&
                 spans >= spans_handed_out() / TABLE_SHARE;
    bool phase = spans >= PHASE_SPANS && spans > spans_handed_out() - spans;
    if (!table && !phase) return false;
    uint64_t rest = age_at(now, outgrown->purged_at);
    if (!was_soon(rest)) outgrown->purged = outgrown->taken = 0;
    if (rest > FORGOTTEN_MS) outgrown->times = 0;
    if (outgrown->times >= TIMES) return false;
    outgrown->purged += spans;
    outgrown->purged_at = now;
    return true;
}
