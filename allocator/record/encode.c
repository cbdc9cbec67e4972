/* One event as bytes, as format.h says. Which of two predictions an address is a distance from, and in which unit, is free for
 * an encoder to choose: here, whatever is the fewest bytes.
 */
#include "record/record.h"

#include <string.h>

/* ---- numbers ------------------------------------------------------------------------------------------------------- */

enum { VARINT_BITS = 7, VARINT_MORE = 1 << VARINT_BITS };

static inline uint8_t *put(uint8_t *out, uint64_t number)
{
    while (number >= VARINT_MORE) {
        *out++ = (uint8_t)(number | VARINT_MORE);
        number >>= VARINT_BITS;
    }
    *out++ = (uint8_t)number;
    return out;
}

/* A small distance of either sign becomes a small number. */
static inline uint64_t zigzag(int64_t number)
{
    return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

/* ---- addresses ----------------------------------------------------------------------------------------------------- */

enum { UNIT = 8 };

/* An address as it is written: the flags that it adds to the event's first byte, and the number. */
struct distance {
    uint64_t number;
    uint8_t flags;
};

static inline struct distance distance_from(uint64_t prediction, uint64_t address)
{
    int64_t bytes = (int64_t)(address - prediction);
    if (bytes % UNIT == 0) return (struct distance){.number = zigzag(bytes / UNIT)};
    return (struct distance){.number = zigzag(bytes), .flags = TRACE_UNIT_BYTE};
}

/* Bytes of a number, less one. */
static inline unsigned length(uint64_t number)
{
    return (unsigned)(63 - __builtin_clzll(number | 1)) / VARINT_BITS;
}

/* The usual prediction unless the other one saves a byte: the fewer flags change, the better the block compresses. */
static inline struct distance distance_choose(uint64_t usual, uint64_t other, uint64_t address)
{
    struct distance distance = distance_from(usual, address);
    if (distance.number < VARINT_MORE) return distance;
    struct distance alternative = distance_from(other, address);
    if (length(alternative.number) >= length(distance.number)) return distance;
    alternative.flags |= TRACE_OTHER;
    return alternative;
}

/* ---- events -------------------------------------------------------------------------------------------------------- */

static inline size_t encode_free(struct trace_coder *coder, const struct trace_event *event, uint8_t *out)
{
    struct distance distance = distance_choose(coder->freed, coder->allocated, event->address);
    uint8_t *at = out;
    *at++ = event->kind | distance.flags;
    at = put(at, event->tick - coder->tick);
    at = put(at, distance.number);
    coder->freed = event->address;
    return (size_t)(at - out);
}

/* Size, slack and site; sets the flags of these in the event's first byte. */
static inline uint8_t *put_block(struct trace_coder *coder, const struct trace_event *event, uint8_t *at,
                                 uint8_t *first)
{
    uint32_t *site = &coder->sites[trace_context(event->size)];
    at = put(at, event->size);
    if (event->address == 0) *first |= TRACE_FAILED;
    else at = put(at, event->usable - event->size);
    if (event->site != *site) {
        *first |= TRACE_SITE_FOLLOWS;
        at = put(at, event->site);
        *site = event->site;
    }
    return at;
}

static inline void allocated(struct trace_coder *coder, const struct trace_event *event)
{
    coder->allocated = event->address;
    coder->addresses[trace_context(event->size)] = event->address;
}

static inline size_t encode_allocation(struct trace_coder *coder, const struct trace_event *event, uint8_t *out)
{
    uint8_t *at = out;
    *at++ = event->kind;
    at = put(at, event->tick - coder->tick);
    if (event->kind == TRACE_ALIGNED || event->kind == TRACE_NEW_ALIGNED) at = put(at, event->alignment);
    at = put_block(coder, event, at, out);
    if (event->address != 0) {
        uint64_t usual = coder->addresses[trace_context(event->size)];
        struct distance distance = distance_choose(usual, coder->freed, event->address);
        *out |= distance.flags;
        at = put(at, distance.number);
        allocated(coder, event);
    }
    return (size_t)(at - out);
}

static inline size_t encode_realloc(struct trace_coder *coder, const struct trace_event *event, uint8_t *out)
{
    struct distance old = distance_choose(coder->freed, coder->allocated, event->old);
    uint8_t *at = out;
    *at++ = TRACE_REALLOC | old.flags;
    at = put(at, event->tick - coder->tick);
    at = put(at, old.number);
    at = put_block(coder, event, at, out);
    if (event->address != 0) {
        at = put(at, zigzag((int64_t)(event->address - event->old)));
        coder->freed = event->old;
        allocated(coder, event);
    }
    at = put(at, event->lasted);
    return (size_t)(at - out);
}

size_t trace_encode(struct trace_coder *coder, const struct trace_event *event, uint8_t *out)
{
    size_t size;
    if (event->kind == TRACE_FREE || event->kind == TRACE_DELETE) size = encode_free(coder, event, out);
    else if (event->kind == TRACE_REALLOC) size = encode_realloc(coder, event, out);
    else size = encode_allocation(coder, event, out);
    coder->tick = event->tick;
    return size;
}

size_t trace_section(uint32_t thread, uint64_t ticks, const void *raw, size_t size, uint8_t *out)
{
    uint8_t *at = put(put(put(out, thread), zigzag((int64_t)ticks)), size);
    memcpy(at, raw, size);
    return (size_t)(at - out) + size;
}
