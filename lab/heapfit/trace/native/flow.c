/* Which thread freed what which other one allocated: a table of those pairs of threads that there are, open
 * addressing. */
#include "reader.h"

#include <stdlib.h>
#include <string.h>

enum { CAPACITY_LEAST = 256 };

static struct trace_flow *place(struct flow *flow, uint32_t born, uint32_t died)
{
    uint64_t hash = ((uint64_t)born << 32 | died) * flow->secret;
    for (size_t at = hash >> 32;; at++) {
        struct trace_flow *pair = &flow->pairs[at & (flow->capacity - 1)];
        if (pair->blocks == 0 || (pair->born_thread == born && pair->died_thread == died)) return pair;
    }
}

static bool resize(struct trace_reader *reader, size_t capacity)
{
    struct flow *flow = &reader->objects.flow;
    if (!memory_take(reader, (capacity - flow->capacity) * sizeof *flow->pairs)) return false;
    struct trace_flow *old = flow->pairs, *pairs = calloc(capacity, sizeof *pairs);
    size_t count = flow->capacity;
    if (pairs == NULL) return false;
    flow->pairs = pairs;
    flow->capacity = capacity;
    for (size_t i = 0; i < count; i++)
        if (old[i].blocks != 0) *place(flow, old[i].born_thread, old[i].died_thread) = old[i];
    free(old);
    return true;
}

bool flow_start(struct trace_reader *reader, uint64_t secret)
{
    struct flow *flow = &reader->objects.flow;
    *flow = (struct flow){.secret = secret, .last = &flow->others};
    flow->others = (struct trace_flow){.born_thread = UINT32_MAX, .died_thread = UINT32_MAX};
    return resize(reader, CAPACITY_LEAST);
}

static struct trace_flow *pair_of(struct trace_reader *reader, uint32_t born, uint32_t died)
{
    struct flow *flow = &reader->objects.flow;
    struct trace_flow *pair = place(flow, born, died);
    if (pair->blocks != 0) return pair;
    if (flow->count >= FLOW_PAIRS) return &flow->others;
    if (2 * (flow->count + 1) > flow->capacity) {
        if (!resize(reader, 2 * flow->capacity)) return NULL;
        pair = place(flow, born, died);
    }
    flow->count++;
    pair->born_thread = born;
    pair->died_thread = died;
    return pair;
}

bool flow_add(struct trace_reader *reader, uint32_t born, uint32_t died, uint64_t bytes)
{
    struct flow *flow = &reader->objects.flow;
    struct trace_flow *pair = flow->last;
    if (pair->born_thread != born || pair->died_thread != died) pair = pair_of(reader, born, died);
    if (pair == NULL) return false;
    flow->last = pair;
    pair->blocks++;
    pair->bytes += bytes;
    return true;
}

void flow_close(struct flow *flow)
{
    free(flow->pairs);
    free(flow->listed);
}

/* ---- as a list --------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct trace_flow *x = a, *y = b;
    if (x->born_thread != y->born_thread) return x->born_thread < y->born_thread ? -1 : 1;
    return (x->died_thread > y->died_thread) - (x->died_thread < y->died_thread);
}

TRACE_API size_t trace_flow(struct trace_reader *reader, const struct trace_flow **pairs)
{
    struct flow *flow = &reader->objects.flow;
    free(flow->listed);
    *pairs = flow->listed = malloc((flow->count + 1) * sizeof *flow->listed);
    if (flow->listed == NULL) return 0;
    size_t count = 0;
    for (size_t i = 0; i < flow->capacity; i++)
        if (flow->pairs[i].blocks != 0) flow->listed[count++] = flow->pairs[i];
    if (flow->others.blocks != 0) flow->listed[count++] = flow->others;
    if (count > 1) qsort(flow->listed, count, sizeof *flow->listed, compare);
    return count;
}
