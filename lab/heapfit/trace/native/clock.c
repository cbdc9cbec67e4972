/* From ticks to nanoseconds, by the marks: between two of them in proportion. The time before the first mark goes by
 * what INFO says of the clock, the time after the last one by all marks together.
 */
#include "reader.h"

enum { NS_PER_SECOND = 1000000000 };

/* Nanoseconds per tick; the largest there is when it is more. */
static uint64_t rate(uint64_t nanoseconds, uint64_t ticks)
{
    uint128 quotient = ((uint128)nanoseconds << RATE_BITS) / ticks;
    return quotient < UINT64_MAX ? (uint64_t)quotient : UINT64_MAX;
}

void clock_start(struct clock *clock, uint64_t origin, const char *info)
{
    int64_t per_second = json_number(info, "ticks_per_second_guess", 0);
    clock->origin = origin;
    clock->guess = rate(NS_PER_SECOND, per_second > 0 ? (uint64_t)per_second : NS_PER_SECOND);
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

/* How many marks are not after this tick. */
static size_t marks_until(const struct clock *clock, uint64_t tick)
{
    size_t low = 0, high = clock->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (clock->ticks[middle] <= tick) low = middle + 1;
        else high = middle;
    }
    return low;
}

static uint64_t rate_of_all(const struct clock *clock)
{
    size_t last = clock->count - 1;
    if (clock->count == 0 || clock->ticks[last] == clock->ticks[0]) return clock->guess;
    return rate(clock->marks[last].tick - clock->marks[0].tick, clock->ticks[last] - clock->ticks[0]);
}

/* So many ticks that their nanoseconds stay below NS_MAX. */
static uint64_t span_for(uint64_t rate)
{
    uint128 span = rate == 0 ? TICK_MAX : ((uint128)NS_MAX << RATE_BITS) / rate;
    return span < TICK_MAX ? (uint64_t)span : TICK_MAX;
}

struct segment clock_segment(const struct clock *clock, uint64_t tick)
{
    size_t marks = marks_until(clock, tick);
    struct segment segment = {.from = clock->origin};
    if (marks > 0) segment = (struct segment){.from = clock->ticks[marks - 1], .base = clock->marks[marks - 1].tick};
    if (marks < clock->count) {
        segment.span = clock->ticks[marks] - segment.from;
        segment.rate = segment.span == 0 ? 0 : rate(clock->marks[marks].tick - segment.base, segment.span);
    } else {
        segment.rate = rate_of_all(clock);
        segment.span = span_for(segment.rate);
    }
    return segment;
}

/* Also of ticks beyond the segment's ends, which are as the ends. */
uint64_t clock_in_segment(const struct segment *segment, uint64_t tick)
{
    uint64_t since = tick < segment->from ? 0 : tick - segment->from;
    if (since > segment->span) since = segment->span;
    return segment->base + ns_of(since, segment->rate);
}

TRACE_API uint64_t trace_nanoseconds(const struct trace_reader *reader, uint64_t tick)
{
    struct segment segment = clock_segment(&reader->clock, tick);
    return clock_in_segment(&segment, tick);
}

/* ---- marks ------------------------------------------------------------------------------------------------------- */

/* Whether the clock has gone on since the last mark, or since the trace's start. */
static bool is_later(const struct clock *clock, const struct trace_mark *mark)
{
    if (mark->tick < clock->origin || mark->tick > TICK_MAX || mark->monotonic_ns >= NS_MAX) return false;
    if (clock->count == 0) return true;
    size_t last = clock->count - 1;
    return mark->tick >= clock->ticks[last] && mark->monotonic_ns >= clock->first_ns &&
           mark->monotonic_ns - clock->first_ns + clock->marks[0].tick >= clock->marks[last].tick;
}

bool clock_mark(struct trace_reader *reader, const struct trace_mark *mark)
{
    struct clock *clock = &reader->clock;
    if (!is_later(clock, mark)) {
        reader->problems.backward_clocks++;
        return false;
    }
    if (!room_for(reader, &clock->marks, &clock->marks_capacity, clock->count + 1, sizeof *clock->marks) ||
        !room_for(reader, &clock->ticks, &clock->ticks_capacity, clock->count + 1, sizeof *clock->ticks))
        return false;
    struct trace_mark *kept = &clock->marks[clock->count];
    *kept = *mark;
    if (clock->count == 0) {
        kept->tick = trace_nanoseconds(reader, mark->tick);
        clock->first_ns = mark->monotonic_ns;
    } else {
        kept->tick = clock->marks[0].tick + (mark->monotonic_ns - clock->first_ns);
    }
    clock->ticks[clock->count++] = mark->tick;
    clock->segment = (struct segment){0}; /* it may have been cut */
    kept->complete_tick = trace_nanoseconds(reader, mark->complete_tick);
    return true;
}

TRACE_API size_t trace_marks(const struct trace_reader *reader, const struct trace_mark **marks)
{
    *marks = reader->clock.marks;
    return reader->clock.count;
}
