/* Writing traces: what cut, merge, anonymise and the tests make files with.
 *
 * Each thread's events are encoded into room of its own, which becomes a block when it is full; a mark first makes blocks of
 * all that waits, so that what it says of completeness is true. Of threads that have little waiting, several share one. The first failure stays: after it every call returns false
 * with its errno, and so does trace_finish. A writer is of one thread.
 */
#include "record/record.h"
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    WHY = 256, /* bytes of a text that says why */
    EVENTS_RAW = 128 * 1024, /* of a block of events before compression: as much as zstd's first level looks back on */
    FIRST_RAW = 1024, /* room that a thread begins with, since many threads do little */
    BUSY_MAX = 1 << 14, /* threads of which something waits: 32 MiB when each has little */
    SITES_RAW = 64 * 1024,
    SITE_MAX = 20, /* no encoded site is longer */
    VARINT_BITS = 7,
    MARK_EVENTS = 1 << 18, /* between two marks: a reader holds back no more than this */
    SHARE_MOST = 16 * 1024, /* of a thread's events, to share a block */
    THREADS_MAX = 1 << 24, /* as the reader's: an index beyond is a mistake, which should not cost its memory */
    ROOM = 1 << 20, /* of the file, between two writes */
};

/* What waits to become a block of one thread's events. */
struct waiting {
    struct trace_coder coder;
    uint64_t first_tick;
    uint32_t thread, events, used, room; /* the last two in bytes */
    uint8_t raw[];
};

struct trace_writer {
    FILE *file;
    struct waiting **threads; /* by index; NULL: nothing of it waits */
    uint32_t *busy; /* indices of those that have something */
    size_t threads_room, busy_count, busy_room;
    uint8_t *shared; /* sections that wait to be a block: EVENTS_RAW bytes */
    uint32_t shared_used, shared_events;
    uint64_t shared_first, shared_last; /* ticks */
    uint8_t sites[SITES_RAW];
    size_t sites_used;
    uint32_t sites_first; /* number of the first that waits, less one */
    uint32_t sites_made;
    uint8_t *block; /* one finished block */
    void *workspace;
    uint64_t tick; /* the latest of any event or mark */
    uint64_t events;
    uint32_t last_thread; /* of the last event */
    uint32_t sequence;
    uint32_t unmarked; /* events since the last mark */
    bool in_order; /* events came by trace_write_events, which may have set them later */
    int error; /* errno of the first failure; 0: none */
};

/* ---- blocks -------------------------------------------------------------------------------------------------------- */

static bool fail(struct trace_writer *writer, int error)
{
    if (writer->error == 0) writer->error = error;
    errno = writer->error;
    return false;
}

static bool fine(struct trace_writer *writer)
{
    return writer->error == 0 || fail(writer, 0);
}

static bool append(struct trace_writer *writer, const void *bytes, size_t size)
{
    if (!fine(writer)) return false;
    return fwrite(bytes, 1, size, writer->file) == size || fail(writer, errno);
}

static bool write_block(struct trace_writer *writer, struct trace_block_header header, const void *raw, size_t size)
{
    if (size > TRACE_RAW_MAX) return fail(writer, EMSGSIZE);
    if (!fine(writer)) return false;
    header.sequence = writer->sequence++;
    return append(writer, writer->block, trace_block_make(&header, raw, size, writer->workspace, writer->block));
}

/* A block of any type but events. */
static bool write_plain(struct trace_writer *writer, enum trace_block type, const void *raw, size_t size)
{
    struct trace_block_header header = {.type = (uint8_t)type, .first_tick = writer->tick, .last_tick = writer->tick};
    return write_block(writer, header, raw, size);
}

static bool flush_sites(struct trace_writer *writer)
{
    if (writer->sites_used == 0) return fine(writer);
    struct trace_block_header header = {
        .type = TRACE_SITES, .thread = writer->sites_first + 1, .first_tick = writer->tick, .last_tick = writer->tick};
    size_t used = writer->sites_used;
    writer->sites_used = 0;
    writer->sites_first = writer->sites_made;
    return write_block(writer, header, writer->sites, used);
}

static bool flush_shared(struct trace_writer *writer)
{
    struct trace_block_header header = {.type = TRACE_SHARED,
                                        .events = writer->shared_events,
                                        .first_tick = writer->shared_first,
                                        .last_tick = writer->shared_last};
    uint32_t used = writer->shared_used;
    writer->shared_used = writer->shared_events = 0;
    return used == 0 ? fine(writer) : write_block(writer, header, writer->shared, used);
}

/* Sites stand before the events that name them. */
static bool flush_events(struct trace_writer *writer, struct waiting *waiting)
{
    if (waiting->events == 0) return fine(writer);
    struct trace_block_header header = {.type = TRACE_EVENTS,
                                        .thread = waiting->thread,
                                        .events = waiting->events,
                                        .first_tick = waiting->first_tick,
                                        .last_tick = waiting->coder.tick};
    uint32_t used = waiting->used;
    waiting->events = waiting->used = 0;
    return flush_sites(writer) && write_block(writer, header, waiting->raw, used);
}

static bool share_events(struct trace_writer *writer, const struct waiting *waiting)
{
    if (writer->shared_used + TRACE_SECTION_MAX + waiting->used > EVENTS_RAW && !flush_shared(writer)) return false;
    if (!flush_sites(writer)) return false;
    if (writer->shared_used == 0) writer->shared_first = writer->shared_last = waiting->first_tick;
    uint64_t ticks = waiting->first_tick - writer->shared_first;
    uint8_t *out = writer->shared + writer->shared_used;
    writer->shared_used += (uint32_t)trace_section(waiting->thread, ticks, waiting->raw, waiting->used, out);
    writer->shared_events += waiting->events;
    if (waiting->coder.tick > writer->shared_last) writer->shared_last = waiting->coder.tick;
    return true;
}

/* What each thread's room held is in the file then, and the room is given back: many threads come once. */
static bool flush_all(struct trace_writer *writer)
{
    for (size_t i = 0; i < writer->busy_count; i++) {
        struct waiting *waiting = writer->threads[writer->busy[i]];
        if (waiting->used > SHARE_MOST || writer->busy_count == 1) flush_events(writer, waiting);
        else if (waiting->used > 0) share_events(writer, waiting);
        writer->threads[writer->busy[i]] = NULL;
        free(waiting);
    }
    writer->busy_count = 0;
    return flush_shared(writer) && flush_sites(writer);
}

/* ---- the file ------------------------------------------------------------------------------------------------------ */

static void release(struct trace_writer *writer)
{
    if (writer->file != NULL) fclose(writer->file);
    for (size_t i = 0; i < writer->busy_count; i++) free(writer->threads[writer->busy[i]]);
    free(writer->threads);
    free(writer->busy);
    free(writer->shared);
    free(writer->block);
    free(writer->workspace);
    free(writer);
}

/* For its owner alone, as the recorder's files: a trace says how a program was called. */
static FILE *open_private(const char *path)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
    return descriptor < 0 ? NULL : fdopen(descriptor, "wb");
}

static bool begin(struct trace_writer *writer, const char *path, const char *info)
{
    writer->block = malloc(trace_block_bound(TRACE_RAW_MAX));
    writer->workspace = malloc(trace_workspace_size());
    writer->shared = malloc(EVENTS_RAW);
    writer->file = open_private(path);
    if (writer->block == NULL || writer->workspace == NULL || writer->shared == NULL || writer->file == NULL)
        return false;
    setvbuf(writer->file, NULL, _IOFBF, ROOM);
    struct trace_file_header header = {.magic = TRACE_MAGIC, .version = TRACE_VERSION, .size = TRACE_FILE_HEADER};
    return append(writer, &header, sizeof header) && write_plain(writer, TRACE_INFO, info, strlen(info));
}

TRACE_API struct trace_writer *trace_create(const char *path, const char *info, char *why)
{
    struct trace_writer *writer = calloc(1, sizeof *writer);
    if (writer != NULL && begin(writer, path, info)) return writer;
    snprintf(why, WHY, "%s", strerror(errno));
    if (writer != NULL) release(writer);
    return NULL;
}

TRACE_API bool trace_finish(struct trace_writer *writer, const char *end)
{
    flush_all(writer);
    struct trace_mark mark = {.tick = writer->tick, .monotonic_ns = writer->tick, .complete_tick = UINT64_MAX};
    write_plain(writer, TRACE_MARK, &mark, sizeof mark);
    write_plain(writer, TRACE_END, end, strlen(end));
    if (fflush(writer->file) != 0) fail(writer, errno);
    int error = writer->error;
    release(writer);
    errno = error;
    return error == 0;
}

/* ---- texts, sites and marks ---------------------------------------------------------------------------------------- */

/* `text` as a JSON string with its quotes, cut where `room` ends. */
static void quote(const char *text, char *out, size_t room)
{
    char *end = out + room - sizeof "\\u0000\"";
    *out++ = '"';
    for (; *text != '\0' && out < end; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < ' ') out += sprintf(out, "\\u%04x", byte);
        else if (byte == '"' || byte == '\\') *out++ = '\\', *out++ = *text;
        else *out++ = *text;
    }
    *out++ = '"';
    *out = '\0';
}

TRACE_API bool trace_write_thread(struct trace_writer *writer, uint32_t thread, int32_t tid, const char *name)
{
    char quoted[WHY], text[2 * WHY];
    quote(name, quoted, sizeof quoted);
    int size = snprintf(text, sizeof text, "{\"thread\": %u, \"tid\": %d, \"name\": %s}", thread, tid, quoted);
    return write_plain(writer, TRACE_THREAD, text, (size_t)size);
}

static uint8_t *put(uint8_t *out, uint64_t number)
{
    for (; number >> VARINT_BITS != 0; number >>= VARINT_BITS) *out++ = (uint8_t)(number | 1 << VARINT_BITS);
    *out++ = (uint8_t)number;
    return out;
}

TRACE_API bool trace_write_site(struct trace_writer *writer, uint32_t caller, uint64_t address)
{
    if (writer->sites_used + SITE_MAX > sizeof writer->sites && !flush_sites(writer)) return false;
    uint8_t *at = put(put(writer->sites + writer->sites_used, caller), address);
    writer->sites_used = (size_t)(at - writer->sites);
    writer->sites_made++;
    return fine(writer);
}

/* Lines may be more than a block holds: as many whole ones as do, again and again. */
TRACE_API bool trace_write_modules(struct trace_writer *writer, const char *lines)
{
    for (size_t left = strlen(lines); left > 0;) {
        size_t size = left;
        if (size > TRACE_RAW_MAX) {
            const char *newline = memrchr(lines, '\n', TRACE_RAW_MAX);
            size = newline == NULL ? TRACE_RAW_MAX : (size_t)(newline + 1 - lines);
        }
        if (!write_plain(writer, TRACE_MODULES, lines, size)) return false;
        lines += size;
        left -= size;
    }
    return fine(writer);
}

TRACE_API bool trace_write_mark(struct trace_writer *writer, const struct trace_mark *mark)
{
    struct trace_mark made = *mark;
    if (writer->in_order && made.tick < writer->tick) made.tick = made.monotonic_ns = writer->tick;
    if (made.tick > writer->tick) writer->tick = made.tick;
    writer->unmarked = 0;
    return flush_all(writer) && write_plain(writer, TRACE_MARK, &made, sizeof made);
}

/* ---- events -------------------------------------------------------------------------------------------------------- */

static bool grow(void *array, size_t *room, size_t least, size_t size)
{
    void *old;
    memcpy(&old, array, sizeof old);
    size_t larger = least > 2 * *room ? least : 2 * *room;
    char *grown = realloc(old, larger * size);
    if (grown == NULL) return false;
    memset(grown + *room * size, 0, (larger - *room) * size);
    memcpy(array, &grown, sizeof grown);
    *room = larger;
    return true;
}

/* Room of `room` bytes for the thread's events, with those that it has. NULL: no memory. */
static struct waiting *resize(struct trace_writer *writer, uint32_t thread, uint32_t room)
{
    struct waiting *waiting = realloc(writer->threads[thread], sizeof *waiting + room);
    if (waiting == NULL) return NULL;
    waiting->room = room;
    return writer->threads[thread] = waiting;
}

/* The thread has nothing that waits. */
static struct waiting *begin_waiting(struct trace_writer *writer, uint32_t thread)
{
    if (writer->busy_count == BUSY_MAX && !flush_all(writer)) return NULL;
    if (thread >= THREADS_MAX ||
        (thread >= writer->threads_room &&
         !grow(&writer->threads, &writer->threads_room, (size_t)thread + 1, sizeof *writer->threads)) ||
        (writer->busy_count == writer->busy_room &&
         !grow(&writer->busy, &writer->busy_room, writer->busy_count + 1, sizeof *writer->busy)))
        return NULL;
    struct waiting *waiting = resize(writer, thread, FIRST_RAW);
    if (waiting == NULL) return NULL;
    waiting->thread = thread;
    waiting->events = waiting->used = 0;
    writer->busy[writer->busy_count++] = thread;
    return waiting;
}

/* With room for one more event, by growing or by finishing a block. NULL: it failed. */
static struct waiting *with_room(struct trace_writer *writer, uint32_t thread)
{
    struct waiting *waiting = thread < writer->threads_room ? writer->threads[thread] : NULL;
    if (waiting == NULL) waiting = begin_waiting(writer, thread);
    else if (waiting->used + TRACE_EVENT_MAX <= waiting->room) return waiting;
    else if (waiting->room >= EVENTS_RAW) return flush_events(writer, waiting) ? waiting : NULL;
    else waiting = resize(writer, thread, 2 * waiting->room);
    if (waiting == NULL) fail(writer, ENOMEM);
    return waiting;
}

TRACE_API bool trace_write_event(struct trace_writer *writer, uint32_t thread, const struct trace_event *event)
{
    struct waiting *waiting = with_room(writer, thread);
    if (waiting == NULL) return false;
    if (waiting->events++ == 0) {
        waiting->first_tick = event->tick;
        waiting->coder = (struct trace_coder){.tick = event->tick};
    }
    waiting->used += (uint32_t)trace_encode(&waiting->coder, event, waiting->raw + waiting->used);
    if (event->tick > writer->tick) writer->tick = event->tick;
    writer->last_thread = thread;
    writer->events++;
    writer->unmarked++;
    return fine(writer);
}

/* Marks what has been written as complete; how much memory is resident is not known. */
static bool mark_complete(struct trace_writer *writer)
{
    struct trace_mark mark = {.tick = writer->tick, .monotonic_ns = writer->tick, .complete_tick = writer->tick};
    return trace_write_mark(writer, &mark);
}

/* The clock at an event that follows all that were given so far: of another thread it must be later, or a reader, which goes by the
 * clock, could not tell which was first. */
static uint64_t tick_after(const struct trace_writer *writer, uint64_t tick, uint32_t thread)
{
    uint64_t least = writer->events == 0 ? 0 : writer->tick + (thread != writer->last_thread);
    return tick > least ? tick : least;
}

static uint64_t at64(const uint64_t *column, size_t row)
{
    return column == NULL ? 0 : column[row];
}

static struct trace_event row_event(const struct trace_events *columns, size_t row)
{
    return (struct trace_event){
        .address = at64(columns->address, row),
        .old = at64(columns->old, row),
        .size = at64(columns->size, row),
        .usable = at64(columns->usable, row),
        .lasted = at64(columns->lasted_ns, row),
        .site = columns->site == NULL ? 0 : columns->site[row],
        .kind = columns->kind[row] & TRACE_KIND_MASK,
        .alignment = columns->alignment == NULL ? 0 : columns->alignment[row],
    };
}

TRACE_API bool trace_write_events(struct trace_writer *writer, const struct trace_events *columns, size_t count)
{
    writer->in_order = true;
    for (size_t row = 0; row < count; row++) {
        struct trace_event event = row_event(columns, row);
        uint32_t thread = columns->thread[row];
        if ((columns->kind[row] & TRACE_FAILED) != 0) event.address = event.usable = 0;
        event.tick = tick_after(writer, columns->ns[row], thread);
        if (!trace_write_event(writer, thread, &event)) return false;
        if (writer->unmarked >= MARK_EVENTS && !mark_complete(writer)) return false;
    }
    return true;
}
