/* Fuzz target: the input is a trace. Its first byte says how it is given to the reader: as the bytes of a file, or as
 * a list of blocks that get their magic number, length and checksum here, so that what is behind the checksum is
 * reached; as events or as objects. Whatever comes, the reader ends, stays within its limits, and gives out nothing
 * that contradicts its own tables.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "pattern.h"
#include "reader.h"
#include "record/record.h"

#include <sys/mman.h>
#include <unistd.h>

enum { AS_BLOCKS = 1, AS_OBJECTS = 2, ONE_BY_ONE = 4 };
enum { ROWS = 64, LIVE_LIMIT = 1 << 14, HELD_LIMIT = 1 << 16, EVENTS_LIMIT = 1 << 21 };

static void append(int file, const void *bytes, size_t size)
{
    require(write(file, bytes, size) == (ssize_t)size, "no room for the input");
}

static uint64_t take(const uint8_t **data, size_t *size, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes && *size > 0; i++, (*size)--) number |= (uint64_t)*(*data)++ << 8 * i;
    return number;
}

/* A byte for the type and the codec, one for the thread, two for the clock, two for the payload's length, the
 * payload. */
static void append_block(int file, const uint8_t **data, size_t *size, uint32_t sequence)
{
    struct trace_block_header header = {.magic = TRACE_BLOCK_MAGIC, .sequence = sequence};
    uint64_t kind = take(data, size, 1);
    header.type = kind & 15;
    header.codec = kind >> 7;
    header.thread = (uint32_t)take(data, size, 1);
    header.first_tick = header.last_tick = take(data, size, 2) << (kind >> 4 & 7) * 6;
    uint64_t length = take(data, size, 2);
    header.stored = (uint32_t)(length < *size ? length : *size);
    header.raw = header.codec != 0 ? header.stored + (uint32_t)take(data, size, 1) * 4096 : header.stored;
    if (header.stored > *size) header.stored = (uint32_t)*size;
    if (header.codec == 0) header.raw = header.stored;
    header.checksum = trace_crc(trace_crc(0, &header, sizeof header), *data, header.stored);
    append(file, &header, sizeof header);
    append(file, *data, header.stored);
    *data += header.stored;
    *size -= header.stored;
}

static void append_blocks(int file, const uint8_t *data, size_t size)
{
    struct trace_file_header header = {.magic = TRACE_MAGIC, .version = TRACE_VERSION, .size = sizeof header};
    append(file, &header, sizeof header);
    for (uint32_t sequence = 0; size > 0; sequence++) append_block(file, &data, &size, sequence);
}

static void read_objects(struct trace_reader *reader, size_t capacity)
{
    static uint64_t ids[ROWS], born[ROWS], died[ROWS];
    static uint32_t threads[ROWS], sites[ROWS];
    const struct trace_objects columns = {
        .capacity = capacity, .id = ids, .born_ns = born, .died_ns = died, .born_thread = threads, .site = sites};
    const struct trace_thread *known_threads;
    const struct trace_site *known_sites;
    uint64_t rows = 0;
    for (size_t count; rows < EVENTS_LIMIT && (count = trace_next_objects(reader, &columns)) > 0; rows += count) {
        for (size_t i = 0; i < count; i++) {
            require(born[i] <= died[i], "an object dies before it is born");
            require(threads[i] < trace_threads(reader, &known_threads), "an object is of a thread that is unknown");
            require(sites[i] < trace_sites(reader, &known_sites), "an object is of a site that is unknown");
        }
    }
    struct trace_totals totals = trace_totals(reader);
    if (rows < EVENTS_LIMIT) require(rows == totals.allocations, "there are other objects than allocations");
    const struct trace_memory *points;
    size_t count = trace_memory(reader, &points);
    for (size_t i = 1; i < count; i++) require(points[i - 1].ns <= points[i].ns, "memory goes back in time");
}

static void read_events(struct trace_reader *reader, size_t capacity)
{
    static uint64_t ns[ROWS];
    static uint8_t kinds[ROWS];
    const struct trace_events columns = {.capacity = capacity, .ns = ns, .kind = kinds};
    uint64_t now = 0, rows = 0;
    for (size_t count; rows < EVENTS_LIMIT && (count = trace_next_events(reader, &columns)) > 0; rows += count) {
        for (size_t i = 0; i < count; i++) {
            require(ns[i] >= now, "an event goes back in time");
            require((kinds[i] & ~TRACE_FAILED) <= TRACE_DELETE, "an event is of no kind");
            now = ns[i];
        }
    }
}

static void read_tables(struct trace_reader *reader)
{
    const struct trace_site *sites;
    const struct trace_flow *pairs;
    const struct trace_mark *marks;
    size_t count = trace_sites(reader, &sites);
    for (size_t i = 1; i < count; i++) require(sites[i].caller < i, "a site's callers have no end");
    count = trace_marks(reader, &marks);
    for (size_t i = 1; i < count; i++) require(marks[i - 1].tick <= marks[i].tick, "a mark goes back in time");
    trace_flow(reader, &pairs);
    trace_nanoseconds(reader, UINT64_MAX);
    require(strlen(trace_info(reader)) + strlen(trace_end(reader)) + strlen(trace_modules(reader)) < UINT32_MAX,
            "no texts");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[256] = "";
    if (size == 0) return 0;
    uint8_t how = *data++;
    int file = memfd_create("trace", MFD_CLOEXEC);
    if ((how & AS_BLOCKS) != 0) append_blocks(file, data, size - 1);
    else append(file, data, size - 1);
    require(lseek(file, 0, SEEK_SET) == 0, "no way back");
    struct trace_reader *reader = reader_open(file, why);
    require(reader != NULL || why[0] != '\0', "it is refused without a reason");
    if (reader == NULL) return 0;
    reader->objects.live.max = LIVE_LIMIT;
    reader->order.held_max = HELD_LIMIT;
    size_t capacity = (how & ONE_BY_ONE) != 0 ? 1 : ROWS;
    if ((how & AS_OBJECTS) != 0) read_objects(reader, capacity < 2 ? 2 : capacity); /* see trace_objects */
    else read_events(reader, capacity);
    read_tables(reader);
    trace_close(reader);
    return 0;
}
