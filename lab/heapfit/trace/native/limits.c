/* What reading a file may cost: see reader.h. */
#include "reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char MEMORY[] = "HEAPFIT_TRACE_MEMORY", TIMES[] = "HEAPFIT_TRACE_EXPANSION";

/* ---- what the user allows ---------------------------------------------------------------------------------------- */

/* A whole number, perhaps with a unit of 2^10 and its powers; `otherwise` where there is none, or another thing. */
static uint64_t number_of(const char *name, uint64_t otherwise)
{
    static const char units[] = "kmgt";
    const char *text = getenv(name);
    if (text == NULL || *text < '0' || *text > '9') return otherwise;
    char *end;
    uint64_t number = strtoull(text, &end, 10);
    const char *unit = *end == '\0' ? NULL : strchr(units, *end | ' ');
    unsigned shift = unit == NULL ? 0 : 10 * (unsigned)(unit - units + 1);
    if (*end != '\0' && (unit == NULL || end[1] != '\0')) return otherwise;
    return number > UINT64_MAX >> shift ? UINT64_MAX : number << shift;
}

void limits_start(struct limits *limits)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    *limits = (struct limits){.memory_max = number_of(MEMORY, machine / 2), .expansion = number_of(TIMES, EXPANSION)};
    if (limits->expansion == 0) limits->expansion = 1;
}

TRACE_API bool trace_stopped(const struct trace_reader *reader, char *why)
{
    enum { WHY = 256, MIB = 1 << 20 };
    const struct limits *limits = &reader->limits;
    if (reader->problems.error == EFBIG)
        snprintf(why, WHY,
                 "it unpacks to more than %llu times its size, as no recording does; if you trust it, set %s higher",
                 (unsigned long long)limits->expansion, TIMES);
    else if (reader->problems.error == ENOMEM)
        snprintf(
            why, WHY,
            "reading it takes more than %llu MiB of memory; read a part of it (heapfit trace cut), or set %s higher",
            (unsigned long long)(limits->memory_max / MIB), MEMORY);
    else return false;
    return true;
}

/* ---- what is used ------------------------------------------------------------------------------------------------ */

bool memory_take(struct trace_reader *reader, uint64_t bytes)
{
    struct limits *limits = &reader->limits;
    if (bytes > limits->memory_max || limits->memory > limits->memory_max - bytes) {
        reader_stop(reader, ENOMEM);
        return false;
    }
    limits->memory += bytes;
    return true;
}

void memory_give(struct trace_reader *reader, uint64_t bytes)
{
    reader->limits.memory -= bytes;
}

bool unpack_take(struct trace_reader *reader, uint32_t raw, uint64_t position)
{
    struct limits *limits = &reader->limits;
    limits->unpacked += raw;
    if (limits->unpacked <= EXPANSION_FREE || (limits->unpacked - EXPANSION_FREE) / limits->expansion <= position)
        return true;
    reader_stop(reader, EFBIG);
    return false;
}

/* The new elements are of fresh memory, most of which nobody may ever touch: a thread or a site may be far ahead of
 * the others. */
bool room_for(struct trace_reader *reader, void *array, size_t *capacity, size_t needed, size_t size)
{
    enum { LEAST = 16 };
    if (needed <= *capacity) return true;
    size_t larger = *capacity < LEAST ? LEAST : *capacity;
    while (larger < needed) larger *= 2;
    if (!memory_take(reader, (larger - *capacity) * size)) return false;
    void *old, *new = calloc(larger, size);
    if (new == NULL) {
        memory_give(reader, (larger - *capacity) * size);
        reader_stop(reader, ENOMEM);
        return false;
    }
    memcpy(&old, array, sizeof old);
    if (old != NULL) memcpy(new, old, *capacity * size);
    memcpy(array, &new, sizeof new);
    free(old);
    *capacity = larger;
    return true;
}
