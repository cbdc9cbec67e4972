/* The course of memory: points at whole steps of time and at marks. Where nothing happens for long there are two, at
 * the first step and at the last, so that a line through them is level.
 */
#include "reader.h"

#include <stdlib.h>

enum { FIRST_STEP = 1000000 /* nanoseconds */ };

bool course_start(struct course *course)
{
    *course = (struct course){.step = FIRST_STEP, .points = calloc(COURSE_POINTS, sizeof *course->points)};
    return course->points != NULL;
}

/* ---- points ------------------------------------------------------------------------------------------------------ */

static bool is_mark(const struct trace_memory *point)
{
    return point->resident != 0;
}

/* Keeps the first point of each step, of those at marks and of the others. */
static size_t thin_out(struct trace_memory *points, size_t count, uint64_t step)
{
    uint64_t last[2] = {UINT64_MAX, UINT64_MAX};
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t *of_its_kind = &last[is_mark(&points[i])], at = points[i].ns / step;
        if (at == *of_its_kind) continue;
        *of_its_kind = at;
        points[kept++] = points[i];
    }
    return kept;
}

static void add_point(struct trace_reader *reader, uint64_t ns, const struct trace_mark *mark)
{
    struct course *course = &reader->objects.course;
    const struct trace_totals *totals = &reader->objects.totals;
    while (course->count == COURSE_POINTS) {
        course->step *= 2;
        course->count = thin_out(course->points, course->count, course->step);
    }
    course->points[course->count++] = (struct trace_memory){
        .ns = ns,
        .live_bytes = totals->end_bytes,
        .live_objects = totals->end_objects,
        .resident = mark == NULL ? 0 : mark->resident,
        .resident_anonymous = mark == NULL ? 0 : mark->resident_anonymous,
        .allocated_bytes = totals->bytes,
        .allocations = totals->allocations,
        .frees = totals->frees,
        .unmatched_frees = totals->unmatched_frees,
    };
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static uint64_t next_mark(const struct trace_reader *reader)
{
    size_t marks = reader->objects.course.marks;
    return marks < reader->clock.count ? reader->clock.marks[marks].tick : UINT64_MAX;
}

/* The marks' points: of those in one step the first. A mark that was read late stands where the time is. */
static void pass_mark(struct trace_reader *reader)
{
    struct course *course = &reader->objects.course;
    const struct trace_mark *mark = &reader->clock.marks[course->marks];
    bool first = course->marks == 0 || mark[-1].tick / course->step != mark->tick / course->step;
    uint64_t last = course->count == 0 ? 0 : course->points[course->count - 1].ns;
    course->marks++;
    if (first) add_point(reader, mark->tick > last ? mark->tick : last, mark);
}

void course_look(struct trace_reader *reader)
{
    struct course *course = &reader->objects.course;
    uint64_t mark = next_mark(reader);
    course->next = mark < course->boundary ? mark : course->boundary;
}

void course_advance(struct trace_reader *reader, uint64_t ns)
{
    struct course *course = &reader->objects.course;
    for (;;) {
        uint64_t mark = next_mark(reader);
        if (course->boundary > ns && mark > ns) break;
        if (mark <= course->boundary) {
            pass_mark(reader);
            continue;
        }
        add_point(reader, course->boundary, NULL);
        uint64_t until = (mark < ns ? mark : ns) / course->step * course->step;
        course->boundary = until > course->boundary ? until : (course->boundary / course->step + 1) * course->step;
    }
    course_look(reader);
}

void course_finish(struct trace_reader *reader, uint64_t ns)
{
    course_advance(reader, ns);
    while (next_mark(reader) != UINT64_MAX) pass_mark(reader); /* nothing has happened since the last event */
    const struct course *course = &reader->objects.course;
    uint64_t last = course->count == 0 ? 0 : course->points[course->count - 1].ns;
    if (course->count == 0 || last < ns) add_point(reader, ns, NULL);
}

TRACE_API size_t trace_memory(const struct trace_reader *reader, const struct trace_memory **points)
{
    *points = reader->objects.course.points;
    return reader->objects.course.count;
}
