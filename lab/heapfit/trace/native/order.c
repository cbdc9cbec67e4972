/* All threads' events in the order of their time. A recorder writes what its threads noted in passes, and after each
 * a mark that says up to which tick the file tells everything. So each thread's payloads are held back, undecoded,
 * until a mark lets them out; then those of all threads are merged, a run of one thread's items at a time: as many as
 * are before the first of any other thread. A file that marks nothing is given out all the same, when too much would
 * be held: whatever then comes too late is given out at once, and counted.
 */
#include "reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- a thread's stream ------------------------------------------------------------------------------------------- */

struct payload *payload_make(size_t size)
{
    struct payload *payload = malloc(sizeof *payload + size + PAYLOAD_PADDING);
    if (payload == NULL) return NULL;
    *payload = (struct payload){.size = size};
    memset(payload->bytes + size, 0, PAYLOAD_PADDING);
    return payload;
}

static size_t payload_bytes(const struct payload *payload)
{
    return sizeof *payload + payload->size + PAYLOAD_PADDING;
}

static size_t stream_bytes(const struct stream *stream)
{
    return sizeof *stream + stream->room * sizeof *stream->items;
}

static void payload_drop(struct order *order, struct stream *stream)
{
    struct payload *payload = stream->first;
    stream->first = payload->next;
    order->held -= payload_bytes(payload);
    free(payload);
}

/* An event takes three bytes or more, and one that is two items more than six. Of a thread that does little few are decoded at a
 * time. Where there is no memory for more items, the room that there is will do. */
static void payload_start(struct order *order, struct stream *stream)
{
    enum { EVENT_LEAST = 3 };
    size_t items = stream->first->size / EVENT_LEAST + 2;
    uint32_t room = items < STREAM_ITEMS ? (uint32_t)items : STREAM_ITEMS;
    struct item *larger = room <= stream->room ? NULL : realloc(stream->items, room * sizeof *larger);
    if (larger != NULL) {
        order->held += (room - stream->room) * sizeof *larger;
        stream->items = larger;
        stream->room = room;
    }
    decode_start(&stream->decoder, stream->first->bytes, stream->first->size, stream->first->first_tick);
}

/* Decodes more items when all have been given out. false: the stream has none any more. */
static bool stream_fill(struct trace_reader *reader, struct stream *stream)
{
    stream->at = stream->count = 0;
    stream->decoder.sites = (uint32_t)reader->tables.site_count;
    while (stream->first != NULL) {
        stream->count = (uint32_t)decode(&stream->decoder, stream->items, stream->room);
        if (stream->count > 0) return true;
        reader->problems.damaged_blocks += stream->decoder.damaged;
        payload_drop(&reader->order, stream);
        if (stream->first != NULL) payload_start(&reader->order, stream);
    }
    return false;
}

static struct stream *stream_open(struct order *order, uint32_t thread, uint64_t now)
{
    struct stream *stream = order->unused;
    if (stream != NULL) order->unused = stream->next;
    else if ((stream = calloc(1, sizeof *stream)) == NULL) return NULL;
    stream->thread = thread;
    stream->first = NULL;
    stream->decoder.now = now;
    stream->decoder.backward = 0;
    order->held += stream_bytes(stream);
    return stream;
}

/* Its thread has no items for now. */
static void stream_close(struct trace_reader *reader, struct stream *stream)
{
    struct order *order = &reader->order;
    struct thread *thread = &reader->tables.states[stream->thread];
    thread->stream = NULL;
    thread->now = stream->decoder.now;
    reader->problems.backward_clocks += stream->decoder.backward;
    order->held -= stream_bytes(stream);
    stream->next = order->unused;
    order->unused = stream;
}

/* ---- the streams, the earliest first (a binary heap) ------------------------------------------------------------- */

/* Within one tick, frees come first (their time is smaller), then threads by their index. */
static bool before(const struct order *order, size_t a, size_t b)
{
    uint64_t time_a = order->heap[a].time, time_b = order->heap[b].time;
    if (time_a != time_b) return time_a < time_b;
    return order->heap[a].stream->thread < order->heap[b].stream->thread;
}

static size_t earliest(const struct order *order, size_t a, size_t b)
{
    return b < order->active && before(order, b, a) ? b : a;
}

static void exchange(struct order *order, size_t a, size_t b)
{
    uint64_t time = order->heap[a].time;
    struct stream *stream = order->heap[a].stream;
    order->heap[a] = order->heap[b];
    order->heap[b].time = time;
    order->heap[b].stream = stream;
}

/* The first stream's time has grown. */
static void heap_sink(struct order *order)
{
    size_t at = 0;
    for (;;) {
        size_t least = earliest(order, earliest(order, at, 2 * at + 1), 2 * at + 2);
        if (least == at) return;
        exchange(order, at, least);
        at = least;
    }
}

static bool heap_add(struct trace_reader *reader, struct stream *stream)
{
    struct order *order = &reader->order;
    if (!room_for(reader, &order->heap, &order->capacity, order->active + 1, sizeof *order->heap)) return false;
    size_t at = order->active++;
    order->heap[at].time = stream->items[0].time;
    order->heap[at].stream = stream;
    for (; at > 0 && before(order, at, (at - 1) / 2); at = (at - 1) / 2) exchange(order, at, (at - 1) / 2);
    return true;
}

static void heap_drop_first(struct order *order)
{
    order->heap[0] = order->heap[--order->active];
    if (order->active > 0) heap_sink(order);
}

/* ---- what comes in ----------------------------------------------------------------------------------------------- */

/* The thread had no items: its stream begins with this payload. */
static void stream_begin(struct trace_reader *reader, uint32_t index, struct payload *payload)
{
    struct order *order = &reader->order;
    struct thread *thread = &reader->tables.states[index];
    struct stream *stream = stream_open(order, index, thread->now);
    if (stream == NULL) {
        free(payload);
        reader_stop(reader, ENOMEM);
        return;
    }
    order->held += payload_bytes(payload);
    stream->first = stream->last = payload;
    thread->stream = stream;
    payload_start(order, stream);
    if (stream->items == NULL) reader_stop(reader, ENOMEM);
    else if (stream_fill(reader, stream) && heap_add(reader, stream)) return;
    if (stream->first != NULL) {
        payload_drop(order, stream);
        reader_stop(reader, ENOMEM);
    }
    stream_close(reader, stream);
}

void order_add(struct trace_reader *reader, uint32_t thread, struct payload *payload)
{
    struct stream *stream = reader->tables.states[thread].stream;
    payload->next = NULL;
    if (stream == NULL) {
        stream_begin(reader, thread, payload);
        return;
    }
    stream->last->next = payload;
    stream->last = payload;
    reader->order.held += payload_bytes(payload);
}

void order_complete(struct order *order, uint64_t tick)
{
    uint64_t time = 2 * (tick < TICK_MAX ? tick : TICK_MAX + 1); /* the second: every item there can be */
    if (time > order->horizon) order->horizon = time;
}

/* ---- what goes out ----------------------------------------------------------------------------------------------- */

/* Everything before this may be given out. */
static uint64_t horizon(const struct order *order)
{
    return order->held > order->held_max ? UINT64_MAX : order->horizon;
}

/* The items of the first stream that are before those of all others, and before the horizon. */
static size_t run_length(const struct order *order)
{
    const struct stream *stream = order->heap[0].stream;
    uint64_t end = horizon(order);
    if (order->active > 1) {
        size_t second = earliest(order, 1, 2);
        uint64_t other = order->heap[second].time + (stream->thread < order->heap[second].stream->thread);
        if (other < end) end = other;
    }
    size_t length = 1;
    while (stream->at + length < stream->count && stream->items[stream->at + length].time < end) length++;
    return length;
}

/* The run has been used: its stream goes to the place where its next item belongs. */
static void run_finish(struct trace_reader *reader)
{
    struct order *order = &reader->order;
    if (order->run.count == 0) return;
    struct stream *stream = order->heap[0].stream;
    stream->at += (uint32_t)order->run.count;
    order->run = (struct run){0};
    if (stream->at < stream->count || stream_fill(reader, stream)) {
        order->heap[0].time = stream->items[stream->at].time;
        heap_sink(order);
    } else {
        heap_drop_first(order);
        stream_close(reader, stream);
    }
}

/* The items get their place in time: nanoseconds, and never before an item that was given out. */
static void run_date(struct trace_reader *reader, struct run *run)
{
    struct order *order = &reader->order;
    struct trace_thread *thread = &reader->tables.threads[run->thread];
    size_t results = 0;
    for (size_t i = 0; i < run->count; i++) {
        struct item *item = &run->items[i];
        uint64_t tick = item->time >> 1;
        if (tick < order->now) reader->problems.late_events += item->kind != ITEM_RESULT;
        else order->now = tick;
        uint64_t ns = clock_ns(&reader->clock, order->now);
        if (ns > order->now_ns) order->now_ns = ns; /* a later mark may have made ticks that were guessed at shorter */
        item->time = order->now_ns;
        results += item->kind == ITEM_RESULT;
    }
    thread->events += run->count - results;
}

static void run_start(struct trace_reader *reader)
{
    struct order *order = &reader->order;
    struct stream *stream = order->heap[0].stream;
    order->run = (struct run){
        .items = stream->items + stream->at,
        .count = run_length(order),
        .ahead = stream->count - stream->at,
        .thread = stream->thread,
    };
    struct trace_thread *thread = &reader->tables.threads[stream->thread];
    bool first = thread->events == 0;
    run_date(reader, &order->run);
    if (first) thread->first_ns = order->run.items[0].time;
    thread->last_ns = order->now_ns;
}

bool order_next(struct trace_reader *reader)
{
    struct order *order = &reader->order;
    if (reader->problems.error == ENOMEM) return false;
    if (order->run.at < order->run.count) return true;
    run_finish(reader);
    while (order->active == 0 || order->heap[0].time >= horizon(order)) {
        if (reader_block(reader)) continue;
        if (order->active == 0 || reader->problems.error == ENOMEM) return false;
        order->horizon = UINT64_MAX; /* nothing is to come */
    }
    run_start(reader);
    return true;
}

void order_close(struct order *order)
{
    for (size_t i = 0; i < order->active; i++) {
        struct stream *stream = order->heap[i].stream;
        while (stream->first != NULL) payload_drop(order, stream);
        free(stream->items);
        free(stream);
    }
    for (struct stream *stream = order->unused, *next; stream != NULL; stream = next) {
        next = stream->next;
        free(stream->items);
        free(stream);
    }
    free(order->heap);
}

/* ---- as columns -------------------------------------------------------------------------------------------------- */

/* The result of a realloc follows its item; it is dated already when it is of the same run. */
static uint64_t result_ns(struct trace_reader *reader, const struct item *item)
{
    const struct run *run = &reader->order.run;
    const struct item *result = item + 1;
    if (result < run->items + run->count) return result->time;
    return trace_nanoseconds(reader, result->time >> 1);
}

static void put_event(struct trace_reader *reader, const struct item *item, const struct trace_events *columns,
                      size_t row)
{
    bool failed = (item->kind & TRACE_FAILED) != 0;
    bool realloc = (item->kind & TRACE_KIND_MASK) == TRACE_REALLOC;
    const struct item *block = realloc && !failed ? item + 1 : item;
    if (columns->ns != NULL) columns->ns[row] = item->time;
    if (columns->address != NULL) columns->address[row] = failed ? 0 : block->address;
    if (columns->old != NULL) columns->old[row] = realloc ? item->address : 0;
    if (columns->size != NULL) columns->size[row] = block->size;
    if (columns->usable != NULL) columns->usable[row] = block->usable;
    if (columns->lasted_ns != NULL) {
        uint64_t end = block == item ? item->time : result_ns(reader, item);
        columns->lasted_ns[row] = end > item->time ? end - item->time : 0;
    }
    if (columns->thread != NULL) columns->thread[row] = reader->order.run.thread;
    if (columns->site != NULL) columns->site[row] = block->site;
    if (columns->kind != NULL) columns->kind[row] = item->kind;
    if (columns->alignment != NULL) columns->alignment[row] = item->alignment;
}

TRACE_API size_t trace_next_events(struct trace_reader *reader, const struct trace_events *columns)
{
    size_t rows = 0;
    struct run *run = &reader->order.run;
    while (rows < columns->capacity && order_next(reader)) {
        for (; rows < columns->capacity && run->at < run->count; run->at++) {
            const struct item *item = &run->items[run->at];
            if (item->kind != ITEM_RESULT) put_event(reader, item, columns, rows++);
        }
    }
    return rows;
}
