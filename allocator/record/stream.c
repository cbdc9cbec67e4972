/* From rings to blocks: the recorder's thread takes the events of each ring, encodes them, and keeps the bytes until there are
 * enough for a block, or all are to go into the file.
 *
 * The order in the file is what a reader relies on: new sites come before the events that name them, a thread's name before its
 * first events.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "record.h"

#include <string.h>

/* A larger one compresses little better, and each thread of the program has one. */
enum { STREAM_BYTES = 64 << 10, NAME_BYTES = 16 };

/* Of one ring: what has been encoded of its events, and is not in the file. */
struct record_stream {
    uint32_t thread; /* whose they are: its index in the file */
    int32_t tid;
    uint32_t blocks; /* of this thread, in this file */
    uint32_t events;
    uint64_t first_tick;
    size_t used;
    char name[NAME_BYTES]; /* as the file has it */
    struct trace_coder coder;
    uint8_t raw[STREAM_BYTES];
};

/* Sections of several streams that had little, to be one block: a block of its own takes 48 bytes more, and compresses worse. Between
 * two passes there are none but of threads that have ended. */
enum { SHARED_BYTES = 128 << 10, SHARE_MOST = STREAM_BYTES / 4 };
static struct {
    uint32_t sections, events;
    uint32_t thread; /* the first section's ... */
    size_t first; /* ... and where its events begin, should it stay the only one */
    uint64_t first_tick, last_tick;
    size_t used;
    uint8_t raw[SHARED_BYTES];
} shared;

static uint32_t threads; /* in this file */
static size_t sites_written; /* to it */
static size_t places_written; /* to it: bytes of their text */
static enum sites_limit limit_written; /* to it */
static bool strange; /* some of these are in no module that is known */
static uint8_t scratch[TRACE_RAW_MAX]; /* for blocks other than of events */

static struct record_ring *first_ring(void)
{
    /* Acquire: pairs with the release of the thread that has made it. */
    return atomic_load_explicit(&record_rings, memory_order_acquire);
}

/* ---- other blocks that events need ----------------------------------------------------------------------------------- */

static uint8_t *put_varint(uint8_t *at, uint64_t number)
{
    for (; number > 127; number >>= 7) *at++ = (uint8_t)(number | 128);
    *at++ = (uint8_t)number;
    return at;
}

/* That new chains are not told apart any more, from about here on. */
static void limit_flush(void)
{
    enum sites_limit limit = sites_limit();
    if (limit == limit_written) return;
    limit_written = limit;
    size_t size = facts_sites_limit((char *)scratch, limit);
    file_block(TRACE_LIMIT, 0, scratch, size);
}

/* Whole lines of them. */
static void places_flush(void)
{
    const char *text;
    size_t told = places_told(&text);
    while (places_written < told) {
        size_t size = told - places_written;
        if (size > TRACE_RAW_MAX) {
            const char *end = memrchr(text + places_written, '\n', TRACE_RAW_MAX);
            size = (size_t)(end + 1 - (text + places_written));
        }
        file_block(TRACE_MODULES, 0, text + places_written, size);
        places_written += size;
    }
}

static void sites_flush(void)
{
    enum { SITE_BYTES = 5 + 10 };
    limit_flush();
    const struct record_site *sites;
    size_t count = sites_published(&sites);
    if (sites_written < count) places_flush();
    while (sites_written < count) {
        uint32_t first = (uint32_t)sites_written + 1;
        uint8_t *at = scratch;
        while (sites_written < count && at + SITE_BYTES <= scratch + sizeof scratch) {
            const struct record_site *site = &sites[++sites_written];
            at = put_varint(put_varint(at, site->caller), site->address);
            strange = strange || (site->address < TRACE_PLACES && !facts_is_code(site->address));
        }
        file_block(TRACE_SITES, first, scratch, (size_t)(at - scratch));
    }
}

/* A thread gets its name a while after it has begun, and it may change: it is asked for again ever more seldom. */
static void name_flush(struct record_stream *stream)
{
    char name[NAME_BYTES] = "";
    stream->blocks++;
    if (!is_power_of_two(stream->blocks)) return;
    bool known = facts_thread_name(stream->tid, name);
    if (stream->blocks > 1 && (!known || memcmp(name, stream->name, sizeof name) == 0)) return;
    memcpy(stream->name, name, sizeof name);
    size_t size = facts_thread((char *)scratch, stream->thread, stream->tid, name);
    file_block(TRACE_THREAD, 0, scratch, size);
}

static void shared_flush(void)
{
    struct trace_block_header header = {
        .type = TRACE_SHARED, .events = shared.events, .first_tick = shared.first_tick, .last_tick = shared.last_tick};
    if (shared.sections > 1) {
        file_events(&header, shared.raw, shared.used);
    } else if (shared.sections == 1) {
        header.type = TRACE_EVENTS;
        header.thread = shared.thread;
        file_events(&header, shared.raw + shared.first, shared.used - shared.first);
    }
    shared.sections = shared.events = 0;
    shared.used = 0;
}

static void stream_share(const struct record_stream *stream)
{
    if (shared.used + TRACE_SECTION_MAX + stream->used > sizeof shared.raw) shared_flush();
    if (shared.sections == 0) {
        shared.thread = stream->thread;
        shared.first_tick = shared.last_tick = stream->first_tick;
    }
    uint64_t ticks = stream->first_tick - shared.first_tick;
    shared.used += trace_section(stream->thread, ticks, stream->raw, stream->used, shared.raw + shared.used);
    if (shared.sections == 0) shared.first = shared.used - stream->used;
    if (stream->coder.tick > shared.last_tick) shared.last_tick = stream->coder.tick;
    shared.events += stream->events;
    shared.sections++;
}

static void stream_flush(struct record_stream *stream)
{
    if (stream->events == 0) return;
    sites_flush();
    name_flush(stream);
    struct trace_block_header header = {.type = TRACE_EVENTS,
                                        .thread = stream->thread,
                                        .events = stream->events,
                                        .first_tick = stream->first_tick,
                                        .last_tick = stream->coder.tick};
    if (stream->used <= SHARE_MOST) stream_share(stream);
    else file_events(&header, stream->raw, stream->used);
    stream->events = 0;
}

/* ---- taking events -------------------------------------------------------------------------------------------------- */

static void stream_put(struct record_stream *stream, const struct trace_event *event)
{
    if (stream->events != 0 && stream->used > STREAM_BYTES - TRACE_EVENT_MAX) stream_flush(stream);
    if (stream->events == 0) {
        memset(&stream->coder, 0, sizeof stream->coder);
        stream->used = 0;
        stream->first_tick = stream->coder.tick = event->tick;
    }
    stream->used += trace_encode(&stream->coder, event, stream->raw + stream->used);
    stream->events++;
}

static struct trace_event event_of(const struct record_event *noted)
{
    return (struct trace_event){
        .tick = noted->tick,
        .address = noted->address,
        .size = noted->size,
        .usable = noted->size + noted->slack,
        .site = noted->site,
        .kind = noted->kind,
        .alignment = noted->alignment,
    };
}

static struct trace_event event_of_realloc(const struct record_event *called, const struct record_event *returned)
{
    struct trace_event event = event_of(returned);
    event.kind = TRACE_REALLOC;
    event.tick = called->tick;
    event.old = called->address;
    event.site = called->site;
    event.lasted = returned->tick - called->tick;
    return event;
}

/* How many events of the ring were taken as one: two of a realloc, 0 when it has not returned. */
static unsigned stream_take(const struct record_ring *ring, struct record_stream *stream, uint64_t tail, uint64_t head)
{
    const struct record_event *noted = &ring->events[tail % RECORD_RING_EVENTS];
    const struct record_event *next = &ring->events[(tail + 1) % RECORD_RING_EVENTS];
    struct trace_event event = event_of(noted);
    if (noted->kind == RECORD_RESULT || noted->kind == RECORD_ENDED)
        return 1; /* the recording began while it was called */
    if (noted->kind == TRACE_REALLOC) {
        if (tail + 1 == head) return 0;
        if (next->kind == RECORD_RESULT) {
            event = event_of_realloc(noted, next);
            stream_put(stream, &event);
            return 2;
        }
        /* Or the recording ended while it was called: what is sure is that the old block may be gone. */
        event.kind = TRACE_FREE;
        stream_put(stream, &event);
        return next->kind == RECORD_ENDED ? 2 : 1;
    }
    stream_put(stream, &event);
    return 1;
}

static struct record_stream *stream_make(void)
{
    size_t page = platform_page_size();
    size_t size = (sizeof(struct record_stream) + page - 1) & -page;
    struct record_stream *stream = platform_reserve(size, page);
    return stream != NULL && platform_commit(stream, size) ? stream : NULL;
}

/* The ring's stream, ready for its owner's events. NULL: there is no memory. */
static struct record_stream *stream_of(struct record_ring *ring)
{
    if (ring->stream == NULL) ring->stream = stream_make();
    struct record_stream *stream = ring->stream;
    /* Relaxed, all: a new owner has written them before its first event, which we have acquired. */
    if (stream != NULL && atomic_load_explicit(&ring->thread, memory_order_relaxed) == RECORD_THREAD_NEW) {
        stream_flush(stream); /* of the owner before */
        stream->thread = threads++;
        stream->tid = atomic_load_explicit(&ring->tid, memory_order_relaxed);
        stream->blocks = 0;
        atomic_store_explicit(&ring->thread, stream->thread, memory_order_relaxed);
    }
    return stream;
}

static void ring_release(struct record_ring *ring, uint64_t tail)
{
    /* Release: the events have been read. Sequentially consistent, both: either the owner sees the room, or we see that it
     * waits (writer_wait). */
    atomic_store_explicit(&ring->tail, tail, memory_order_seq_cst);
    if (atomic_load_explicit(&ring->waiting, memory_order_seq_cst) == 0) return;
    atomic_store_explicit(&ring->waiting, 0, memory_order_relaxed);
    platform_wake(&ring->waiting);
}

/* A realloc that lasts is waited for, unless its thread has ended without a word. */
static bool will_return(const struct record_ring *ring)
{
    return platform_thread_exists(atomic_load_explicit(&ring->tid, memory_order_relaxed));
}

static uint64_t ring_take(struct record_ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed); /* only we write it */
    /* Acquire: pairs with the owner's release: the events are there, and whose they are. */
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t complete = UINT64_MAX;
    if (tail == head) return complete;
    struct record_stream *stream = stream_of(ring);
    if (stream == NULL) atomic_fetch_add_explicit(&record_lost, head - tail, memory_order_relaxed);
    while (stream != NULL && tail != head) {
        unsigned taken = stream_take(ring, stream, tail, head);
        if (taken == 0 && will_return(ring)) {
            complete = ring->events[tail % RECORD_RING_EVENTS].tick;
            head = tail;
        } else {
            tail += taken == 0 ? 1 : taken;
        }
    }
    ring_release(ring, head);
    return complete;
}

/* ---- all rings ----------------------------------------------------------------------------------------------------- */

void streams_begin(void)
{
    threads = 0;
    sites_written = places_written = 0;
    limit_written = SITES_ALL;
    shared.sections = shared.events = 0;
    shared.used = 0;
    for (struct record_ring *ring = first_ring(); ring != NULL; ring = ring->next) {
        if (ring->stream != NULL) ring->stream->events = 0;
        ring_release(ring, atomic_load_explicit(&ring->head, memory_order_acquire));
        atomic_store_explicit(&ring->thread, RECORD_THREAD_NEW, memory_order_relaxed);
    }
}

/* Whether the ring's thread has ended and all its events have been taken; `thorough`: looks also at threads that have not said
 * goodbye. The kernel is asked first: a thread that it does not know writes no more. */
static bool ring_is_over(const struct record_ring *ring, int32_t tid, bool thorough)
{
    if (!thorough && !atomic_load_explicit(&ring->left, memory_order_relaxed)) return false; /* a hint */
    if (platform_thread_exists(tid)) return false;
    /* Acquire: as in ring_take. Relaxed: only we write it. */
    return atomic_load_explicit(&ring->head, memory_order_acquire) ==
           atomic_load_explicit(&ring->tail, memory_order_relaxed);
}

static size_t rings_owned(void)
{
    size_t count = 0;
    for (struct record_ring *ring = first_ring(); ring != NULL; ring = ring->next)
        count += atomic_load_explicit(&ring->tid, memory_order_relaxed) != 0; /* a hint */
    return count;
}

/* Make the rings of threads that have ended nobody's. Threads that never said goodbye are rare (raw clone, no key left), and asking
 * about all takes a system call for each: it is done whenever twice as many rings are somebody's as were when it was last done. */
static void rings_reclaim(void)
{
    static size_t thorough_at;
    bool thorough = rings_owned() > thorough_at;
    for (struct record_ring *ring = first_ring(); ring != NULL; ring = ring->next) {
        /* Relaxed: a thread that takes the ring meanwhile finds it nobody's, and so do we. */
        int32_t tid = atomic_load_explicit(&ring->tid, memory_order_relaxed);
        /* Release: the events have been read. No thread takes a ring that is somebody's, so it is still that one's. */
        if (tid != 0 && ring_is_over(ring, tid, thorough)) atomic_store_explicit(&ring->tid, 0, memory_order_release);
    }
    if (thorough) thorough_at = 2 * rings_owned();
}

uint64_t streams_take(void)
{
    uint64_t complete = UINT64_MAX;
    /* Relaxed: who says so from now on may be late, and says so again. */
    atomic_store_explicit(&record_rings_many, false, memory_order_relaxed);
    for (struct record_ring *ring = first_ring(); ring != NULL; ring = ring->next) {
        uint64_t until = ring_take(ring);
        if (until < complete) complete = until;
    }
    rings_reclaim();
    return complete;
}

void streams_flush(void)
{
    for (struct record_ring *ring = first_ring(); ring != NULL; ring = ring->next)
        if (ring->stream != NULL) stream_flush(ring->stream);
    shared_flush();
}

bool streams_strange(void)
{
    bool was = strange;
    strange = false;
    return was;
}

bool streams_call(void)
{
    if (atomic_load_explicit(&record_rings_many, memory_order_seq_cst)) return true; /* see sleep.c */
    for (struct record_ring *ring = first_ring(); ring != NULL; ring = ring->next) {
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_seq_cst);
        if (head - atomic_load_explicit(&ring->tail, memory_order_relaxed) >= RECORD_RING_EVENTS / 2) return true;
    }
    return false;
}

void streams_wake(void)
{
    for (struct record_ring *ring = first_ring(); ring != NULL; ring = ring->next)
        ring_release(ring, atomic_load_explicit(&ring->tail, memory_order_relaxed));
}
