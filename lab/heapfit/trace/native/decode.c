/* The bytes of a payload as items. Predictions and flags are format.h's; this is record/encode.c the other way round,
 * but for input that no encoder has made.
 */
#include "reader.h"

#include <string.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

enum { VARINT_BITS = 7, VARINT_BYTES = 10 };

/* Five to ten bytes; bits beyond 64 are dropped. */
static __attribute__((noinline, cold)) uint64_t long_number(const uint8_t **at)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < VARINT_BYTES; i++) {
        uint8_t byte = *(*at)++;
        number |= (uint64_t)(byte & 0x7F) << (VARINT_BITS * i);
        if (byte < 0x80) break;
    }
    return number;
}

/* Up to four bytes at once, as nearly all are: how long a number is nobody could predict, so there is no branch that
 * depends on it. */
static inline uint64_t number(const uint8_t **at)
{
    uint32_t word;
    memcpy(&word, *at, sizeof word);
    uint32_t ends = ~word & UINT32_C(0x80808080);
    if (__builtin_expect(ends == 0, 0)) return long_number(at);
    *at += (unsigned)__builtin_ctz(ends) / 8 + 1;
    word &= ends ^ (ends - 1); /* the bytes up to the first that ends a number */
    word = (word & UINT32_C(0x7F007F00)) >> 1 | (word & UINT32_C(0x007F007F)); /* two of 14 bits */
    return (word >> 2 & UINT32_C(0x0FFFC000)) | (word & UINT32_C(0x3FFF));
}

static inline uint64_t distance(const uint8_t **at)
{
    uint64_t zigzag = number(at);
    return zigzag >> 1 ^ -(zigzag & 1);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static inline uint64_t address(const uint8_t **at, uint8_t first, uint64_t usual, uint64_t other)
{
    uint64_t prediction = (first & TRACE_OTHER) != 0 ? other : usual;
    return prediction + (distance(at) << ((first & TRACE_UNIT_BYTE) != 0 ? 0 : 3)); /* units of 8 bytes, or of 1 */
}

/* A thread's clock does not go back: there is an order of its events, and it is the one in the file. */
static inline uint64_t lift(struct decoder *decoder, uint64_t tick)
{
    if (__builtin_expect(tick < decoder->now, 0)) {
        decoder->backward++;
        tick = decoder->now;
    }
    return decoder->now = tick < TICK_MAX ? tick : TICK_MAX;
}

/* Size, slack and site. */
static inline bool take_block(struct decoder *decoder, const uint8_t **at, uint8_t first, struct item *item)
{
    item->size = number(at);
    item->usable = (first & TRACE_FAILED) != 0 ? 0 : item->size + number(at);
    if (item->usable < item->size && (first & TRACE_FAILED) == 0) item->usable = item->size;
    uint32_t *site = &decoder->coder.sites[trace_context(item->size)];
    if ((first & TRACE_SITE_FOLLOWS) != 0) {
        uint64_t follows = number(at);
        if (follows > UINT32_MAX) return false;
        *site = (uint32_t)follows;
    }
    item->site = *site < decoder->sites ? *site : 0;
    return true;
}

static inline void allocated(struct decoder *decoder, const struct item *item)
{
    decoder->coder.allocated = item->address;
    decoder->coder.addresses[trace_context(item->size)] = item->address;
}

static inline size_t take_free(struct decoder *decoder, const uint8_t **at, uint8_t first, struct item *item)
{
    struct trace_coder *coder = &decoder->coder;
    if ((first & (TRACE_FAILED | TRACE_SITE_FOLLOWS)) != 0) return 0;
    coder->freed = address(at, first, coder->freed, coder->allocated);
    *item = (struct item){.time = item->time, .address = coder->freed, .kind = first & TRACE_KIND_MASK};
    return 1;
}

static inline size_t take_allocation(struct decoder *decoder, const uint8_t **at, uint8_t first, struct item *item)
{
    struct trace_coder *coder = &decoder->coder;
    uint8_t kind = first & TRACE_KIND_MASK;
    uint64_t alignment = kind == TRACE_ALIGNED || kind == TRACE_NEW_ALIGNED ? number(at) : 0;
    if (alignment > 63 || !take_block(decoder, at, first, item)) return 0;
    item->alignment = (uint8_t)alignment;
    item->address = 0;
    if ((first & TRACE_FAILED) == 0) {
        item->address = address(at, first, coder->addresses[trace_context(item->size)], coder->freed);
        allocated(decoder, item);
        item->time++;
    }
    item->kind = item->address != 0 ? kind : kind | TRACE_FAILED;
    return 1;
}

static size_t take_realloc(struct decoder *decoder, const uint8_t **at, uint8_t first, struct item *item)
{
    struct trace_coder *coder = &decoder->coder;
    uint64_t old = address(at, first, coder->freed, coder->allocated);
    if (!take_block(decoder, at, first, item)) return 0;
    item->alignment = 0;
    item->address = old;
    item->kind = TRACE_REALLOC;
    struct item *result = item + 1;
    *result = *item;
    if ((first & TRACE_FAILED) == 0) {
        coder->freed = old;
        result->address = old + distance(at);
        allocated(decoder, result);
    }
    uint64_t lasted = number(at);
    if ((first & TRACE_FAILED) != 0 || result->address == 0) {
        item->kind |= TRACE_FAILED;
        return 1;
    }
    result->kind = ITEM_RESULT;
    result->time = 2 * lift(decoder, lasted < TICK_MAX ? decoder->now + lasted : TICK_MAX) + 1;
    return 2;
}

/* Which kinds there are, and what follows their first byte and tick. 0: this is no event. */
static inline size_t take(struct decoder *decoder, const uint8_t **at, uint8_t first, struct item *item)
{
    switch (first & TRACE_KIND_MASK) {
    case TRACE_FREE:
    case TRACE_DELETE:
        return take_free(decoder, at, first, item);
    case TRACE_REALLOC:
        return take_realloc(decoder, at, first, item);
    case TRACE_MALLOC:
    case TRACE_CALLOC:
    case TRACE_ALIGNED:
    case TRACE_NEW:
    case TRACE_NEW_ALIGNED:
        return take_allocation(decoder, at, first, item);
    default:
        return 0;
    }
}

/* ---- payloads ---------------------------------------------------------------------------------------------------- */

void decode_start(struct decoder *decoder, const uint8_t *payload, size_t size, uint64_t first_tick)
{
    decoder->at = payload;
    decoder->end = payload + size;
    decoder->coder = (struct trace_coder){.tick = first_tick};
    decoder->damaged = false;
}

size_t decode(struct decoder *decoder, struct item *items, size_t capacity)
{
    const uint8_t *at = decoder->at;
    size_t count = 0;
    while (at < decoder->end && count + 2 <= capacity) { /* an event is two items at most */
        uint8_t first = *at++;
        decoder->coder.tick += number(&at);
        items[count].time = 2 * lift(decoder, decoder->coder.tick);
        size_t taken = take(decoder, &at, first, &items[count]);
        if (taken == 0 || at > decoder->end) {
            decoder->damaged = true;
            at = decoder->end;
            break;
        }
        count += taken;
    }
    decoder->at = at;
    return count;
}
