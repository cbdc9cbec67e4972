/* Which blocks of the program live: a record each, found by its address. The table of slots is rebuilt twice as large
 * when half full; the records stay where they are, in a mapping that the kernel can enlarge without copying.
 */
#include "reader.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { BITS_LEAST = 10, BITS_MOST = 31, RECORDS_LEAST = 1 << 9 };

static uint64_t random_number(void)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint64_t)time(NULL) * (uint64_t)getpid() * UINT64_C(0x9E3779B97F4A7C15);
    return number;
}

static bool records_grow(struct trace_reader *reader)
{
    struct live *live = &reader->objects.live;
    size_t size = (size_t)live->capacity * sizeof *live->records;
    if (!memory_take(reader, size)) return false;
    struct record *records = mremap(live->records, size, 2 * size, MREMAP_MAYMOVE);
    if (records == MAP_FAILED) return false;
    live->records = records;
    live->capacity *= 2;
    return true;
}

bool live_start(struct live *live)
{
    size_t size = RECORDS_LEAST * sizeof *live->records;
    void *records = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (records == MAP_FAILED) return false;
    *live = (struct live){
        .slots = calloc((size_t)1 << BITS_LEAST, sizeof *live->slots),
        .bits = BITS_LEAST,
        .secret = random_number() | 1,
        .records = records,
        .used = 1,
        .capacity = RECORDS_LEAST,
        .max = UINT32_C(1) << (BITS_MOST - 1),
    };
    return live->slots != NULL;
}

void live_close(struct live *live)
{
    free(live->slots);
    if (live->records != NULL) munmap(live->records, (size_t)live->capacity * sizeof *live->records);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static size_t slot_after(const struct live *live, size_t at)
{
    return (at + 1) & (((size_t)1 << live->bits) - 1);
}

static void slot_fill(struct live *live, struct slot slot)
{
    size_t at = live_home(live, slot.hash);
    while (live->slots[at].record != LIVE_NONE) at = slot_after(live, at);
    live->slots[at] = slot;
}

static bool slots_grow(struct trace_reader *reader)
{
    struct live *live = &reader->objects.live;
    struct slot *old = live->slots;
    size_t count = (size_t)1 << live->bits;
    if (!memory_take(reader, count * sizeof *old)) return false;
    struct slot *larger = calloc(2 * count, sizeof *larger);
    if (larger == NULL) return false;
    live->slots = larger;
    live->bits++;
    for (size_t i = 0; i < count; i++)
        if (old[i].record != LIVE_NONE) slot_fill(live, old[i]);
    free(old);
    return true;
}

/* Whether a slot that is `at` may move back to the `empty` one: its home is not between the two. */
static bool may_move(const struct live *live, size_t at, size_t empty)
{
    size_t mask = ((size_t)1 << live->bits) - 1;
    size_t home = live_home(live, live->slots[at].hash);
    return ((at - home) & mask) >= ((at - empty) & mask);
}

/* Slots behind it that would not be found any more move up. */
static void slot_empty(struct live *live, size_t empty)
{
    for (size_t at = slot_after(live, empty); live->slots[at].record != LIVE_NONE; at = slot_after(live, at)) {
        if (!may_move(live, at, empty)) continue;
        live->slots[empty] = live->slots[at];
        empty = at;
    }
    live->slots[empty].record = LIVE_NONE;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

bool live_make_room(struct trace_reader *reader)
{
    struct live *live = &reader->objects.live;
    if (live->count >= live->max) return false;
    if (2 * ((size_t)live->count + 1) > (size_t)1 << live->bits && !slots_grow(reader)) return false;
    return live->unused != LIVE_NONE || live->used < live->capacity || records_grow(reader);
}

static uint32_t record_take(struct live *live)
{
    uint32_t record = live->unused;
    if (record == LIVE_NONE) return live->used++;
    live->unused = live->records[record].thread;
    return record;
}

struct record *live_add(struct live *live, struct slot *slot, uint64_t address)
{
    *slot = (struct slot){.hash = live_hash(live, address), .record = record_take(live)};
    live->count++;
    struct record *record = &live->records[slot->record];
    record->address = address;
    return record;
}

void live_remove(struct live *live, struct slot *slot)
{
    struct record *record = &live->records[slot->record];
    record->address = 0; /* see live_sorted */
    record->thread = live->unused;
    live->unused = slot->record;
    live->count--;
    slot_empty(live, (size_t)(slot - live->slots));
}

/* ---- in order of birth ------------------------------------------------------------------------------------------- */

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

static unsigned digit(const struct live *live, uint32_t record, unsigned shift)
{
    return live->records[record].id >> shift & (DIGITS - 1);
}

/* One pass of a radix sort. */
static void sort_by_digit(const struct live *live, const uint32_t *from, uint32_t *to, unsigned shift)
{
    size_t starts[DIGITS] = {0}, sum = 0;
    for (size_t i = 0; i < live->count; i++) starts[digit(live, from[i], shift)]++;
    for (size_t i = 0; i < DIGITS; i++) {
        size_t count = starts[i];
        starts[i] = sum;
        sum += count;
    }
    for (size_t i = 0; i < live->count; i++) to[starts[digit(live, from[i], shift)]++] = from[i];
}

uint32_t *live_sorted(const struct live *live)
{
    uint32_t *sorted = malloc((live->count + 1) * sizeof *sorted), *other = malloc((live->count + 1) * sizeof *other);
    if (sorted == NULL || other == NULL) {
        free(sorted);
        free(other);
        return NULL;
    }
    size_t count = 0;
    uint64_t largest = 0;
    for (uint32_t record = 1; record < live->used; record++) {
        if (live->records[record].address == 0) continue; /* not used */
        sorted[count++] = record;
        if (live->records[record].id > largest) largest = live->records[record].id;
    }
    for (unsigned shift = 0; shift < 64 && largest >> shift != 0; shift += DIGIT_BITS) {
        sort_by_digit(live, sorted, other, shift);
        uint32_t *swapped = sorted;
        sorted = other;
        other = swapped;
    }
    free(other);
    return sorted;
}
