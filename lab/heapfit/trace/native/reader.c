/* Finds the blocks of a file, checks them, and hands each to the part that it concerns. What is no whole block is
 * passed over to the next magic number. The file is read with read() into a buffer of two blocks: a mapping would be
 * the end of a reader whose file gets shorter.
 */
#include "reader.h"
#include "record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

enum {
    BLOCK_MAX = TRACE_BLOCK_HEADER + TRACE_RAW_MAX,
    BUFFER_SIZE = 2 * BLOCK_MAX,
    WHY_SIZE = 256,
};

void reader_stop(struct trace_reader *reader, int error)
{
    if (reader->problems.error == 0) reader->problems.error = error;
    reader->ended = true;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static size_t buffered(const struct source *source)
{
    return source->end - source->start;
}

static const uint8_t *here(const struct source *source)
{
    return source->buffer + source->start;
}

static void use(struct source *source, size_t size)
{
    source->start += size;
    source->position += size;
}

static void pass_over(struct trace_reader *reader, size_t size)
{
    reader->problems.damaged_bytes += size;
    use(&reader->source, size);
}

/* Reads until so many bytes are in the buffer, at most BLOCK_MAX. false: the file has no more. */
static bool have(struct trace_reader *reader, size_t size)
{
    struct source *source = &reader->source;
    if (buffered(source) >= size) return true;
    if (source->at_end) return false;
    memmove(source->buffer, here(source), buffered(source));
    source->end -= source->start;
    source->start = 0;
    while (!source->at_end && source->end < size) {
        ssize_t count = read(source->descriptor, source->buffer + source->end, BUFFER_SIZE - source->end);
        if (count > 0) source->end += (size_t)count;
        else if (count == 0) source->at_end = true;
        else if (errno != EINTR) {
            source->at_end = true;
            if (reader->problems.error == 0) reader->problems.error = errno;
        }
    }
    return source->end >= size;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static bool is_likely(const struct trace_block_header *header)
{
    return header->magic == TRACE_BLOCK_MAGIC && header->codec <= 1 && header->raw <= TRACE_RAW_MAX &&
           (header->codec == 0 ? header->stored == header->raw : header->stored <= header->raw);
}

/* A file may hold many headers whose blocks overlap. It does not get many times its own length computed for nothing. */
static bool is_vain(const struct source *source)
{
    enum { TIMES = 4, FREE = 64 << 20 };
    return source->vain > TIMES * source->position + FREE;
}

/* Whether there is a whole block here. */
static bool block_is_here(struct trace_reader *reader, struct trace_block_header *header)
{
    struct source *source = &reader->source;
    memcpy(header, here(source), sizeof *header);
    if (!is_likely(header) || is_vain(source) || !have(reader, sizeof *header + header->stored)) return false;
    struct trace_block_header unsealed = *header;
    unsealed.checksum = 0;
    uint32_t checksum = trace_crc(0, &unsealed, sizeof unsealed);
    if (trace_crc(checksum, here(source) + sizeof *header, header->stored) == header->checksum) return true;
    reader->problems.damaged_blocks++;
    source->vain += header->stored;
    return false;
}

/* To the next byte that may begin a block. */
static void to_next_magic(struct trace_reader *reader)
{
    struct source *source = &reader->source;
    const uint8_t *from = here(source) + 1;
    const uint8_t *next = memchr(from, TRACE_BLOCK_MAGIC & 0xFF, buffered(source) - 1);
    pass_over(reader, next == NULL ? buffered(source) : (size_t)(next - here(source)));
}

/* The next whole block, which then is here. */
static bool find_block(struct trace_reader *reader, struct trace_block_header *header)
{
    struct source *source = &reader->source;
    for (;;) {
        if (!have(reader, sizeof *header)) {
            pass_over(reader, buffered(source));
            return false;
        }
        if (block_is_here(reader, header)) return true;
        to_next_magic(reader);
    }
}

/* Where in the file the block ends, which is here. */
static uint64_t block_end(const struct trace_reader *reader, const struct trace_block_header *header)
{
    return reader->source.position + sizeof *header + header->stored;
}

/* The block's payload into `out`, which has room for it. */
static bool unpack(struct trace_reader *reader, const struct trace_block_header *header, uint8_t *out)
{
    struct source *source = &reader->source;
    const uint8_t *stored = here(source) + sizeof *header;
    if (header->codec != 0)
        return unpack_take(reader, header->raw, block_end(reader, header)) &&
               ZSTD_decompressDCtx(source->zstd, out, header->raw, stored, header->stored) == header->raw;
    memcpy(out, stored, header->raw);
    return true;
}

/* ---- what the blocks say ----------------------------------------------------------------------------------------- */

/* Hands a payload on, or drops it. false: there cannot be such a thread. */
static bool add_payload(struct trace_reader *reader, uint32_t thread, uint64_t first_tick, struct payload *payload)
{
    payload->first_tick = first_tick;
    if (tables_thread(reader, thread, reader->source.position) == NULL) {
        free(payload);
        return false;
    }
    order_add(reader, thread, payload);
    return true;
}

static bool take_events(struct trace_reader *reader, const struct trace_block_header *header)
{
    struct payload *payload = payload_make(header->raw);
    if (payload == NULL) {
        reader_stop(reader, ENOMEM);
        return true;
    }
    if (!unpack(reader, header, payload->bytes)) {
        free(payload);
        return false;
    }
    return add_payload(reader, header->thread, header->first_tick, payload);
}

/* Of several threads. Up to a section that cannot be. */
static bool take_shared(struct trace_reader *reader, const struct trace_block_header *header)
{
    const uint8_t *at = reader->source.payload, *end = at + header->raw;
    while (at < end && !reader->ended) {
        uint64_t thread, ticks, size;
        if (!number_take(&at, end, &thread) || !number_take(&at, end, &ticks) || !number_take(&at, end, &size) ||
            thread > UINT32_MAX || size > (uint64_t)(end - at))
            return false;
        struct payload *payload = payload_make(size);
        if (payload == NULL) {
            reader_stop(reader, ENOMEM);
            return true;
        }
        memcpy(payload->bytes, at, size);
        at += size;
        uint64_t first_tick = header->first_tick + (ticks >> 1 ^ -(ticks & 1));
        if (!add_payload(reader, (uint32_t)thread, first_tick, payload)) return false;
    }
    return true;
}

static bool take_mark(struct trace_reader *reader, const uint8_t *payload, size_t size)
{
    struct trace_mark mark;
    if (size < sizeof mark) return false;
    memcpy(&mark, payload, sizeof mark);
    if (mark.lost > reader->problems.lost_events) reader->problems.lost_events = mark.lost;
    clock_mark(reader, &mark);
    order_complete(&reader->order, mark.complete_tick);
    return true;
}

/* false: it does not decode. */
static bool take_block(struct trace_reader *reader, const struct trace_block_header *header)
{
    struct source *source = &reader->source;
    if (header->type == TRACE_EVENTS) return take_events(reader, header);
    if (!unpack(reader, header, source->payload)) return false;
    source->payload[header->raw] = '\0';
    const char *text = (const char *)source->payload;
    switch (header->type) {
    case TRACE_INFO:
        return tables_info(reader, text);
    case TRACE_THREAD:
        return tables_name(reader, text, source->position);
    case TRACE_MARK:
        return take_mark(reader, source->payload, header->raw);
    case TRACE_MODULES:
        return tables_modules(reader, text);
    case TRACE_SITES:
        return tables_sites(reader, header->thread, source->payload, header->raw, block_end(reader, header));
    case TRACE_END:
        return tables_end(reader, text);
    case TRACE_SHARED:
        return take_shared(reader, header);
    case TRACE_LIMIT:
        return tables_limit(reader, text);
    default:
        reader->problems.unknown_blocks++;
        return true;
    }
}

/* What stands behind the end is of another file. */
static void pass_over_rest(struct trace_reader *reader)
{
    struct stat file;
    uint64_t position = reader->source.position;
    if (fstat(reader->source.descriptor, &file) == 0 && S_ISREG(file.st_mode) && (uint64_t)file.st_size > position)
        reader->problems.damaged_bytes += (uint64_t)file.st_size - position;
    reader->ended = true;
}

bool reader_block(struct trace_reader *reader)
{
    struct source *source = &reader->source;
    struct trace_block_header header;
    if (reader->ended || !find_block(reader, &header)) {
        reader->ended = true;
        return false;
    }
    size_t size = sizeof header + header.stored;
    if (header.sequence < source->sequence) {
        reader->problems.damaged_blocks++;
        pass_over(reader, size);
        return true;
    }
    reader->problems.missing_blocks += header.sequence - source->sequence;
    source->sequence = header.sequence == UINT32_MAX ? UINT32_MAX : header.sequence + 1;
    if (!take_block(reader, &header) && !reader->ended) reader->problems.damaged_blocks++;
    use(source, size);
    if (reader->tables.end != NULL) pass_over_rest(reader);
    return true;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool check_file_header(struct trace_reader *reader, char *why)
{
    struct trace_file_header header;
    struct source *source = &reader->source;
    bool whole = have(reader, sizeof header);
    size_t compared = buffered(source) < sizeof header.magic ? buffered(source) : sizeof header.magic;
    if (reader->problems.error != 0) snprintf(why, WHY_SIZE, "it cannot be read: %s", strerror(reader->problems.error));
    else if (buffered(source) == 0)
        snprintf(why, WHY_SIZE, "it is empty: nothing has been recorded, or not yet written");
    else if (memcmp(here(source), TRACE_MAGIC, compared) != 0) snprintf(why, WHY_SIZE, "it is not a trace of heapfit");
    else if (!whole) snprintf(why, WHY_SIZE, "it is cut short: not even a trace's header is there");
    else {
        memcpy(&header, here(source), sizeof header);
        if (header.version > TRACE_VERSION)
            snprintf(why, WHY_SIZE,
                     "it is of the trace format's version %u, and this heapfit reads up to %d: use a newer one",
                     header.version, TRACE_VERSION);
        else if (header.version == 0 || header.size < sizeof header) snprintf(why, WHY_SIZE, "its header is damaged");
        else return true;
    }
    return false;
}

static bool open_parts(struct trace_reader *reader)
{
    struct source *source = &reader->source;
    limits_start(&reader->limits);
    source->buffer = malloc(BUFFER_SIZE);
    source->payload = malloc(TRACE_RAW_MAX + 1);
    source->zstd = ZSTD_createDCtx();
    reader->order.held_max = HELD_MAX;
    return source->buffer != NULL && source->payload != NULL && source->zstd != NULL &&
           live_start(&reader->objects.live) && tables_sites(reader, 1, source->payload, 0, 0); /* the first is none */
}

/* The file's header and its first block, whose tick is the trace's time 0. */
static bool read_start(struct trace_reader *reader, char *why)
{
    struct source *source = &reader->source;
    struct trace_file_header header;
    struct trace_block_header first;
    if (!check_file_header(reader, why)) return false;
    memcpy(&header, here(source), sizeof header);
    if (have(reader, header.size)) use(source, header.size);
    if (!find_block(reader, &first)) {
        snprintf(why, WHY_SIZE,
                 "no whole block is in it: recording ended before anything was written, or all is damaged");
        return false;
    }
    clock_start(&reader->clock, first.first_tick, "");
    reader_block(reader);
    clock_start(&reader->clock, first.first_tick, trace_info(reader));
    return true;
}

struct trace_reader *reader_open(int descriptor, char *why)
{
    struct trace_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        snprintf(why, WHY_SIZE, "there is no memory to read it");
        close(descriptor);
        return NULL;
    }
    reader->source.descriptor = descriptor;
    if (!open_parts(reader)) snprintf(why, WHY_SIZE, "there is no memory to read it");
    else if (read_start(reader, why)) return reader;
    trace_close(reader);
    return NULL;
}

TRACE_API struct trace_reader *trace_open(const char *path, char *why)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor >= 0) return reader_open(descriptor, why);
    snprintf(why, WHY_SIZE, "it cannot be opened: %s", strerror(errno));
    return NULL;
}

TRACE_API void trace_close(struct trace_reader *reader)
{
    if (reader == NULL) return;
    close(reader->source.descriptor);
    free(reader->source.buffer);
    free(reader->source.payload);
    ZSTD_freeDCtx(reader->source.zstd);
    order_close(&reader->order);
    objects_close(&reader->objects);
    free(reader->tables.info);
    free(reader->tables.end);
    free(reader->tables.threads);
    free(reader->tables.states);
    free(reader->tables.sites);
    free(reader->tables.modules);
    free(reader->tables.lines);
    free(reader->tables.mapped.known);
    free(reader->tables.mapped.now);
    free(reader->tables.mapped.left);
    free(reader->clock.marks);
    free(reader->clock.ticks);
    free(reader);
}

TRACE_API struct trace_problems trace_problems(const struct trace_reader *reader)
{
    struct trace_problems problems = reader->problems;
    problems.cut_short = reader->tables.end == NULL;
    return problems;
}

TRACE_API uint64_t trace_position(const struct trace_reader *reader)
{
    return reader->source.position;
}
