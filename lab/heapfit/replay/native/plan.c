/* Makes a plan of events, in one pass: streams are written as they fill, and only the live blocks are remembered.
 *
 * A recording need not be whole. What does not fit is left out or made up, and counted: plan.h says what. */
#include "plan.h"

#include "parts.h"
#include "record/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* Operations of a thread's first chunk, and of its largest: a thread that does little takes little room. */
    FIRST_CHUNK = 64,
    LAST_CHUNK = 4096,

    /* Reallocs at the same time whose results are waited for: a sound trace has one for each processor. */
    UNBORN_MAX = 256,

    THREADS_MAX = 1 << 20,
};

/* The new block of a realloc lives from when the call returned, and other threads' events may come before that: one may yet free
 * the block that stands at its address, or get one there and lose it again. So it waits here until then. */
struct unborn {
    struct block block;
    uint64_t returned_ns;
    uint32_t thread; /* that called */
};

struct stream {
    struct plan_op *ops; /* the chunk at hand */
    uint64_t at; /* number of its first operation */
    uint32_t used, room;
    uint64_t paced, paced_ns; /* at its last PLAN_PACE */
    struct thread_slots slots;
    struct plan_stream described;
};

struct plan_maker {
    int fd;
    bool one_thread, began;
    struct plan_header header;
    struct stream *streams;
    uint32_t streams_room, last; /* the stream of the event before */
    uint32_t *threads; /* the stream of each, + 1, by its index in the trace; 0: the thread is new */
    size_t threads_count;
    struct blocks blocks;
    struct unborn unborn[UNBORN_MAX]; /* in the order of their calls */
    uint32_t unborn_count;
    struct slots slots;
    uint64_t live, looked_at; /* bytes; and how many at the last peak that has a PLAN_PACE */
    uint64_t *course;
    size_t course_room;
    uint64_t first_ns, now_ns;
};

/* Room for `count` elements of `size` bytes, at least doubled; new ones are zero. */
static void *with_room(void *array, size_t *room, size_t count, size_t size)
{
    if (count <= *room) return array;
    size_t larger = *room * 2 > count ? *room * 2 : count;
    char *moved = realloc(array, larger * size);
    if (moved == NULL) return NULL;
    memset(moved + *room * size, 0, (larger - *room) * size);
    *room = larger;
    return moved;
}

/* ---- the file ----------------------------------------------------------------------------------------------------------- */

static bool write_at(int fd, uint64_t offset, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t written = pwrite(fd, at, size, (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        at += written;
        size -= (size_t)written;
        offset += (uint64_t)written;
    }
    return true;
}

static uint64_t offset_of(uint64_t op)
{
    return sizeof(struct plan_header) + op * sizeof(struct plan_op);
}

static bool write_chunk(const struct plan_maker *maker, const struct stream *stream)
{
    return write_at(maker->fd, offset_of(stream->at), stream->ops, stream->used * sizeof *stream->ops);
}

/* ---- streams ------------------------------------------------------------------------------------------------------------ */

static bool chunk_begin(struct plan_maker *maker, struct stream *stream)
{
    uint32_t room = stream->room == 0 ? FIRST_CHUNK : stream->room * 2 < LAST_CHUNK ? stream->room * 2 : LAST_CHUNK;
    if (room != stream->room) {
        struct plan_op *ops = realloc(stream->ops, room * sizeof *ops);
        if (ops == NULL) return false;
        stream->ops = ops;
        stream->room = room;
    }
    stream->at = maker->header.ops;
    stream->used = 0;
    maker->header.ops += room;
    return true;
}

/* The last place of a chunk is for the way to the next. */
static bool append(struct plan_maker *maker, struct stream *stream, struct plan_op op)
{
    if (stream->used == stream->room - 1) {
        stream->ops[stream->used++] = (struct plan_op){.kind = PLAN_JUMP, .size = maker->header.ops};
        if (!write_chunk(maker, stream) || !chunk_begin(maker, stream)) return false;
    }
    stream->ops[stream->used++] = op;
    return true;
}

static bool append_pace(struct plan_maker *maker, struct stream *stream, bool after_peak)
{
    uint64_t order = maker->header.events, ns = maker->now_ns - maker->first_ns;
    stream->paced = order;
    stream->paced_ns = ns;
    struct plan_op op = {.kind = PLAN_PACE, .slot = (uint32_t)order, .turn = (uint32_t)(order >> 32)};
    op.size = ns >> 10;
    op.alignment = after_peak;
    return append(maker, stream, op);
}

/* Before whatever takes place now: no operation is further than a step from its thread's last PLAN_PACE, else a thread could
 * wait for one that waits for it. */
static bool pace(struct plan_maker *maker, struct stream *stream)
{
    uint64_t ns = maker->now_ns - maker->first_ns;
    bool near = maker->header.events - stream->paced < PLAN_STEP && ns - stream->paced_ns < PLAN_STEP_NS;
    return near || append_pace(maker, stream, false);
}

static bool stream_begin(struct plan_maker *maker, uint32_t number, uint32_t recorded)
{
    size_t room = maker->streams_room;
    struct stream *streams = with_room(maker->streams, &room, (size_t)number + 1, sizeof *streams);
    if (streams == NULL) return false;
    maker->streams = streams;
    maker->streams_room = (uint32_t)room;
    maker->header.streams = number + 1;
    struct stream *stream = &streams[number];
    *stream = (struct stream){.described.recorded = recorded};
    thread_slots_init(&stream->slots);
    stream->described.first = maker->header.ops;
    if (!chunk_begin(maker, stream) || !append_pace(maker, stream, false)) return false;
    /* The thread of the event before starts this one: in a program it is, as a rule, the one that did. */
    if (number == 0) return true;
    struct stream *starter = &streams[maker->last];
    return pace(maker, starter) && append(maker, starter, (struct plan_op){.kind = PLAN_START, .slot = number});
}

/* The stream of a thread of the trace, which begins now if the thread is new; NULL: no memory, or too many. */
static struct stream *stream_of(struct plan_maker *maker, uint32_t recorded)
{
    if (recorded >= THREADS_MAX) {
        errno = EOVERFLOW;
        return NULL;
    }
    uint32_t *threads = with_room(maker->threads, &maker->threads_count, (size_t)recorded + 1, sizeof *threads);
    if (threads == NULL) return NULL;
    maker->threads = threads;
    if (threads[recorded] == 0) {
        bool shared = maker->one_thread && maker->header.streams == 1;
        if (!shared && !stream_begin(maker, maker->header.streams, recorded)) return NULL;
        threads[recorded] = maker->header.streams;
    }
    maker->last = threads[recorded] - 1;
    return &maker->streams[maker->last];
}

/* ---- events ------------------------------------------------------------------------------------------------------------- */

static bool course_point(struct plan_maker *maker)
{
    struct plan_header *header = &maker->header;
    if (header->events % PLAN_STEP != 0) return true;
    uint64_t *course = with_room(maker->course, &maker->course_room, header->course_points + 1, sizeof *course);
    if (course == NULL) return false;
    maker->course = course;
    course[header->course_points++] = maker->live;
    return true;
}

/* Adds the operation on a slot, and counts it as an event. */
static bool act(struct plan_maker *maker, struct stream *stream, uint32_t slot, struct plan_op op)
{
    op.slot = slot;
    op.turn = maker->slots.states[slot].turn++;
    if (!course_point(maker) || !pace(maker, stream) || !append(maker, stream, op)) return false;
    maker->header.events++;
    stream->described.events++;
    return true;
}

/* Counts a block that `stream` has just allocated. The peak is only known at the end, so each may be the one. */
static bool lives(struct plan_maker *maker, struct stream *stream, uint64_t size)
{
    struct plan_header *header = &maker->header;
    maker->live += size;
    header->bytes += size;
    if (maker->live <= header->peak_bytes) return true;
    header->peak_bytes = maker->live;
    header->peak_blocks = maker->blocks.count + maker->unborn_count;
    header->peak_order = header->events;
    if (maker->live - maker->looked_at <= maker->looked_at / PLAN_PEAK_SHARE) return true;
    maker->looked_at = maker->live;
    header->peak_look = header->events;
    return append_pace(maker, stream, true);
}

/* Frees the block that was found, in `stream`. */
static bool dies(struct plan_maker *maker, struct stream *stream, struct block *found, uint8_t kind)
{
    struct block block = *found;
    blocks_take(&maker->blocks, found);
    struct plan_op op = {.kind = kind, .size = block.size};
    if (kind == PLAN_DELETE && block.kind == PLAN_NEW_ALIGNED) op.alignment = block.alignment;
    if (!act(maker, stream, block.slot, op)) return false;
    slot_give(&maker->slots, &stream->slots, block.slot, maker->header.events);
    maker->live -= block.size;
    return true;
}

/* Notes where a block lives. One that lived there has died unseen: `stream` frees it. */
static bool settle(struct plan_maker *maker, struct stream *stream, struct block block)
{
    struct block *there = blocks_find(&maker->blocks, block.address);
    if (there != NULL) {
        maker->header.lost_frees++;
        bool is_new = there->kind == PLAN_NEW || there->kind == PLAN_NEW_ALIGNED;
        if (!dies(maker, stream, there, is_new ? PLAN_DELETE : PLAN_FREE)) return false;
    }
    return blocks_add(&maker->blocks, block);
}

/* The block is born. One that lived at its address dies in `stream`. */
static bool bear(struct plan_maker *maker, struct stream *stream, uint32_t number)
{
    struct unborn born = maker->unborn[number];
    maker->unborn_count--;
    memmove(&maker->unborn[number], &maker->unborn[number + 1], (maker->unborn_count - number) * sizeof born);
    return settle(maker, stream, born.block);
}

/* Those whose calls have returned before an event, or whose thread goes on with it. */
static bool bear_returned(struct plan_maker *maker, struct stream *stream, const struct plan_event *event)
{
    for (uint32_t i = 0; i < maker->unborn_count;) {
        const struct unborn *unborn = &maker->unborn[i];
        if (unborn->returned_ns >= event->ns && unborn->thread != event->thread) i++;
        else if (!bear(maker, stream, i)) return false;
    }
    return true;
}

/* One that is to be born there is: of several, that whose call returns first. */
static bool bear_at(struct plan_maker *maker, struct stream *stream, uint64_t address)
{
    uint32_t first = maker->unborn_count;
    for (uint32_t i = 0; i < maker->unborn_count; i++) {
        if (maker->unborn[i].block.address != address) continue;
        if (first == maker->unborn_count || maker->unborn[i].returned_ns < maker->unborn[first].returned_ns) first = i;
    }
    return first == maker->unborn_count || bear(maker, stream, first);
}

/* The live block at an address, in `found`, or NULL there: none that is known. */
static bool find(struct plan_maker *maker, struct stream *stream, uint64_t address, struct block **found)
{
    *found = blocks_find(&maker->blocks, address);
    if (*found != NULL) return true;
    if (!bear_at(maker, stream, address)) return false;
    *found = blocks_find(&maker->blocks, address);
    return true;
}

static uint64_t clipped(uint64_t size)
{
    return size < PLAN_SIZE_MAX ? size : PLAN_SIZE_MAX;
}

static bool add_allocation(struct plan_maker *maker, struct stream *stream, const struct plan_event *event,
                           uint8_t kind)
{
    struct block block = {
        .address = event->address, .size = clipped(event->size), .kind = kind, .alignment = event->alignment};
    block.slot = slot_take(&maker->slots, &stream->slots, maker->header.events);
    if (block.slot == PLAN_NO_SLOT || !settle(maker, stream, block)) return false;
    struct plan_op op = {.kind = kind, .size = block.size, .alignment = event->alignment};
    if (!act(maker, stream, block.slot, op)) return false;
    maker->header.allocations++;
    return lives(maker, stream, block.size);
}

static bool add_realloc(struct plan_maker *maker, struct stream *stream, const struct plan_event *event)
{
    struct block *found;
    if (!find(maker, stream, event->old, &found)) return false;
    if (found == NULL) {
        maker->header.unmatched_reallocs++;
        return add_allocation(maker, stream, event, PLAN_MALLOC);
    }
    uint64_t old_size = found->size;
    struct unborn unborn = {.block = *found, .returned_ns = event->ns + event->lasted_ns, .thread = event->thread};
    unborn.block.address = event->address;
    unborn.block.size = clipped(event->size);
    blocks_take(&maker->blocks, found);
    struct plan_op op = {.kind = PLAN_REALLOC, .size = unborn.block.size};
    if (!act(maker, stream, unborn.block.slot, op)) return false;
    maker->header.reallocs++;
    if (maker->unborn_count == UNBORN_MAX && !bear(maker, stream, 0)) return false;
    maker->unborn[maker->unborn_count++] = unborn;
    maker->live -= old_size; /* a replay's realloc takes place at once, in this thread */
    return lives(maker, stream, unborn.block.size);
}

static bool add_free(struct plan_maker *maker, struct stream *stream, const struct plan_event *event)
{
    struct block *found;
    if (!find(maker, stream, event->address, &found)) return false;
    if (found == NULL) {
        maker->header.unmatched_frees++;
        return true;
    }
    maker->header.frees++;
    return dies(maker, stream, found, event->kind);
}

/* Whether an event has a place in a replay: a call that got no memory changed nothing. */
static bool counts(struct plan_maker *maker, const struct plan_event *event)
{
    bool allocates = (event->kind & TRACE_KIND_MASK) != TRACE_FREE && (event->kind & TRACE_KIND_MASK) != TRACE_DELETE;
    if ((event->kind & TRACE_FAILED) != 0 || (allocates && event->address == 0)) {
        maker->header.failed++;
        return false;
    }
    return event->kind <= TRACE_DELETE && event->address != 0;
}

bool plan_add(struct plan_maker *maker, const struct plan_event *event)
{
    if (!maker->began) maker->first_ns = event->ns;
    maker->began = true;
    if (event->ns > maker->now_ns) maker->now_ns = event->ns; /* what comes late counts as now */
    if (!counts(maker, event)) return true;
    struct stream *stream = stream_of(maker, event->thread);
    if (stream == NULL || !bear_returned(maker, stream, event)) return false;
    if (event->kind == TRACE_REALLOC) return add_realloc(maker, stream, event);
    if (event->kind == TRACE_FREE || event->kind == TRACE_DELETE) return add_free(maker, stream, event);
    return add_allocation(maker, stream, event, event->kind);
}

void plan_foresee(const struct plan_maker *maker, uint64_t address)
{
    blocks_foresee(&maker->blocks, address);
}

/* ---- beginning and end ---------------------------------------------------------------------------------------------------- */

struct plan_maker *plan_create(const char *path, bool one_thread)
{
    struct plan_maker *maker = calloc(1, sizeof *maker);
    if (maker == NULL) return NULL;
    maker->one_thread = one_thread;
    slots_init(&maker->slots);
    maker->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (maker->fd >= 0) return maker;
    free(maker);
    return NULL;
}

static void describe(struct plan_maker *maker, uint32_t main_thread)
{
    struct plan_header *header = &maker->header;
    memcpy(header->magic, PLAN_MAGIC, sizeof header->magic);
    header->version = PLAN_VERSION;
    bool main_acts = main_thread < maker->threads_count && maker->threads[main_thread] != 0;
    header->main = main_acts ? maker->threads[main_thread] - 1 : 0;
    header->slots = maker->slots.count;
    header->duration_ns = maker->began ? maker->now_ns - maker->first_ns : 0;
    header->left_blocks = maker->blocks.count + maker->unborn_count;
    header->left_bytes = maker->live;
    header->ops += PLAN_AHEAD; /* so that looking ahead stays in the file */
    header->course = offset_of(header->ops);
    header->streams_at = header->course + header->course_points * sizeof *maker->course;
    header->file_size = header->streams_at + header->streams * sizeof(struct plan_stream);
}

static bool write_rest(struct plan_maker *maker)
{
    const struct plan_header *header = &maker->header;
    if (ftruncate(maker->fd, (off_t)header->file_size) != 0) return false;
    for (uint32_t i = 0; i < header->streams; i++) {
        struct stream *stream = &maker->streams[i];
        uint64_t at = header->streams_at + i * sizeof stream->described;
        if (!write_chunk(maker, stream) || !write_at(maker->fd, at, &stream->described, sizeof stream->described)) {
            return false;
        }
    }
    return write_at(maker->fd, header->course, maker->course, header->course_points * sizeof *maker->course);
}

static bool write_header(struct plan_maker *maker)
{
    struct plan_header *header = &maker->header;
    char *file = mmap(NULL, header->file_size, PROT_READ, MAP_SHARED, maker->fd, 0);
    if (file == MAP_FAILED) return false;
    header->checksum = plan_checksum(0, file + sizeof *header, header->file_size - sizeof *header);
    munmap(file, header->file_size);
    return write_at(maker->fd, 0, header, sizeof *header);
}

static void release(struct plan_maker *maker)
{
    for (uint32_t i = 0; i < maker->header.streams; i++) free(maker->streams[i].ops);
    free(maker->streams);
    free(maker->threads);
    free(maker->course);
    free(maker->slots.states);
    blocks_free(&maker->blocks);
    free(maker);
}

bool plan_finish(struct plan_maker *maker, uint32_t main_thread, struct plan_header *header)
{
    /* The ends of streams may take a chunk more: before it is known where the rest begins. */
    bool good = true;
    while (good && maker->unborn_count > 0) good = bear(maker, &maker->streams[maker->last], 0);
    for (uint32_t i = 0; good && i < maker->header.streams; i++) {
        good = append(maker, &maker->streams[i], (struct plan_op){.kind = PLAN_END});
    }
    describe(maker, main_thread);
    good = good && write_rest(maker) && write_header(maker);
    int error = errno;
    if (close(maker->fd) != 0 && good) {
        error = errno;
        good = false;
    }
    *header = maker->header;
    release(maker);
    errno = error;
    return good;
}
