/* What is seen of the first objects of groups: a log of the newest observations, found again by the object's address;
 * and reading the heap without a fault while its owner goes on.
 *
 * All is static memory that reads as zeros, so it costs what is used of it: a program with few watched objects touches
 * few pages.
 */
#include "group.h"

/* ---- the log ---------------------------------------------------------------------------------------------------- */

static struct observation entries[LOG_ENTRIES];
static uint32_t made = 1; /* the next one's number */

/* Places in `entries`, by address. A place whose entry is of another address is as good as empty, so nothing is ever
 * taken out. When a bucket is full of others its oldest gives way: it could only have been forgotten soon. */
enum { BUCKETS_LOG2 = 13, BUCKETS = 1 << BUCKETS_LOG2, WAYS = 4 };
static uint16_t buckets[BUCKETS][WAYS];
_Static_assert(LOG_ENTRIES - 1 <= UINT16_MAX, "a place fits");

static uint16_t place_of_number(uint32_t number)
{
    return (uint16_t)(number % LOG_ENTRIES);
}

/* The number of what stands at a place now. */
static uint32_t number_at(uint16_t place)
{
    uint32_t newest = made - 1;
    return newest - (newest - place) % LOG_ENTRIES;
}

static uint16_t *bucket_of(uintptr_t object)
{
    /* Objects stand at multiples of 16; 2^64 divided by the golden ratio spreads what is left. */
    return buckets[(object / MALLOC_ALIGNMENT * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - BUCKETS_LOG2)];
}

uint32_t log_age(uint32_t number)
{
    return made - 1 - number;
}

const struct observation *log_at(uint32_t number)
{
    if (number == LOG_NONE || log_age(number) >= LOG_ENTRIES) return NULL;
    const struct observation *entry = &entries[place_of_number(number)];
    return entry->object != 0 ? entry : NULL;
}

uint32_t log_find(uintptr_t object)
{
    const uint16_t *bucket = bucket_of(object);
    for (unsigned way = 0; way < WAYS; way++)
        if (entries[bucket[way]].object == object) return number_at(bucket[way]);
    return LOG_NONE;
}

/* Where the bucket is to name an object: where it does already, or instead of the oldest. */
static uint16_t *bucket_way(uintptr_t object)
{
    uint16_t *bucket = bucket_of(object), *oldest = bucket;
    for (unsigned way = 0; way < WAYS; way++) {
        if (entries[bucket[way]].object == object) return &bucket[way];
        if (log_age(number_at(bucket[way])) > log_age(number_at(*oldest))) oldest = &bucket[way];
    }
    return oldest;
}

uint32_t log_add(uintptr_t object, uint32_t group, size_t size, uint32_t before)
{
    uint16_t *way = bucket_way(object);
    if (made == LOG_NONE) made++;
    uint32_t number = made++;
    *way = place_of_number(number);
    entries[*way] =
        (struct observation){.object = object, .group = (uint16_t)group, .size = (uint16_t)size, .before = before};
    return number;
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

/* The program may still be filling in what was allocated last, and linking it. */
enum { SETTLING = 8 };

static const struct observation *log_of_group(uint32_t number, uint32_t group)
{
    const struct observation *entry = log_at(number);
    return entry != NULL && entry->group == group ? entry : NULL;
}

unsigned log_samples(const struct group *group, uint32_t samples[SAMPLES_MAX])
{
    uint32_t identity = (uint32_t)(group - groups);
    uint32_t stride = (group->logged + SAMPLES_MAX - 1) / SAMPLES_MAX;
    uint32_t number = group->newest, passed = 0;
    unsigned count = 0;
    for (const struct observation *entry; count < SAMPLES_MAX; number = entry->before) {
        entry = log_of_group(number, identity);
        if (entry == NULL) break;
        if (log_age(number) >= SETTLING && passed++ % stride == 0) samples[count++] = number;
    }
    return count;
}

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

/* Why no load here can fault, whatever other threads do. A descriptor can always be read (space.h). One that says that
 * a span is cut into blocks says that the span was handed out, so its memory has been made accessible; and what the
 * space layer has made accessible stays so: given back, purged or moved away, it reads as zeros. (The one exception is
 * a stretch that the kernel took from us while it failed to move a large object there. It would have to happen between
 * two instructions here.) What is read may be stale or torn, for which all that use it must be prepared; no pointer
 * read is followed before it has come through here. */

static READS_RACILY bool span_blocks(const struct span *span, uint32_t *size, uint32_t *uncarved)
{
    if (span_kind_read(span) != SPAN_BLOCKS) return false;
    *size = __atomic_load_n(&span->block_size, __ATOMIC_RELAXED);
    *uncarved = __atomic_load_n(&span->uncarved, __ATOMIC_RELAXED);
    return *size >= MALLOC_ALIGNMENT && *size <= SMALL_MAX;
}

/* The block at `offset` of the span. */
static bool block_in(const struct span *span, uint32_t offset, struct block *found)
{
    uint32_t size, uncarved;
    if (!span_blocks(span, &size, &uncarved)) return false;
    uint32_t first = offset - offset % size;
    if (first + size > SPAN_SIZE || (uncarved >> (first >> CARVE_UNIT_LOG2) & 1) != 0) return false;
    *found = (struct block){.start = span_start(span) + first, .size = size, .span = span};
    return true;
}

bool block_of(uintptr_t address, struct block *found)
{
    size_t offset = space_offset((const void *)address);
    if (space_offset_is_foreign(offset)) return false;
    const struct span *span = span_of_offset(offset);
    return block_in(span, (uint32_t)(offset % SPAN_SIZE), found);
}

bool block_beside(const struct block *block, int distance, struct block *found)
{
    int64_t offset = (int64_t)(block->start % SPAN_SIZE) + (int64_t)distance * block->size;
    return offset >= 0 && offset < (int64_t)SPAN_SIZE && block_in(block->span, (uint32_t)offset, found) &&
           found->size == block->size;
}

READS_RACILY uintptr_t block_word(uintptr_t start, unsigned index)
{
    return __atomic_load_n(block_words(start) + index, __ATOMIC_RELAXED);
}

bool block_is_live(const struct block *block)
{
    return (block_word(block->start, 0) ^ space.link_key) > LINK_MAX;
}

bool observation_is_live(uint32_t number, const struct observation *observation, struct block *block)
{
    return log_find(observation->object) == number && block_of(observation->object, block) &&
           block->start == observation->object && block_is_live(block);
}

/* ---- lifetimes -------------------------------------------------------------------------------------------------- */

static unsigned count_freed(const uint32_t *samples, unsigned count)
{
    unsigned freed = 0;
    struct block block;
    for (unsigned i = 0; i < count; i++) freed += !observation_is_live(samples[i], log_at(samples[i]), &block);
    return freed;
}

static unsigned freed_share(const struct group *group)
{
    static uint32_t samples[SAMPLES_MAX]; /* not on the stack, as in shape.c */
    unsigned available = log_samples(group, samples), most = 0;
    for (unsigned quarter = 0; quarter < 4; quarter++) {
        unsigned from = available * quarter / 4, to = available * (quarter + 1) / 4;
        unsigned share = share_of(count_freed(samples + from, to - from), to - from);
        if (share > most) most = share;
    }
    return most;
}

unsigned log_freed_share(uint32_t group)
{
    struct group *known = &groups[group];
    if (known->freed_seen != made - 1) { /* once a look */
        known->freed = (uint16_t)freed_share(known);
        known->freed_seen = made - 1;
    }
    return known->freed;
}
