/* Address space for contexts: chunks, borrowed from the space layer, and the map of their segments. */
#include "context.h"

#include <string.h>

/* ---- the map ------------------------------------------------------------------------------------------------------------ */

/* A byte for each MAP_UNIT of the whole reservation, made when the first context is. All of it can be read; it is made
 * writable as far as chunks reach, by so many bytes at a time. */
enum { MAP_COMMIT = 1 << 16 };

static struct {
    platform_lock lock;
    uint8_t *reserved; /* NULL until there is one */
    uint8_t *bytes; /* the same, once it can be read */
    size_t committed;
} map;

static uint8_t *map_biased(void)
{
    return map.bytes - (space.base >> MAP_UNIT_SHIFT);
}

const uint8_t *chunk_map(void)
{
    platform_lock_acquire(&map.lock);
    if (map.bytes == NULL) {
        size_t size = space.window >> MAP_UNIT_SHIFT;
        if (map.reserved == NULL) map.reserved = platform_reserve(size, SPAN_SIZE);
        if (map.reserved != NULL && platform_make_readable(map.reserved, size)) map.bytes = map.reserved;
    }
    const uint8_t *biased = map.bytes == NULL ? NULL : map_biased();
    platform_lock_release(&map.lock);
    return biased;
}

static bool map_commit(uintptr_t end)
{
    size_t needed = (end - space.base) >> MAP_UNIT_SHIFT;
    platform_lock_acquire(&map.lock);
    if (needed > map.committed) {
        size_t target = (needed + MAP_COMMIT - 1) & ~(size_t)(MAP_COMMIT - 1);
        if (target > space.window >> MAP_UNIT_SHIFT) target = space.window >> MAP_UNIT_SHIFT;
        if (platform_commit(map.bytes + map.committed, target - map.committed)) map.committed = target;
    }
    bool done = needed <= map.committed;
    platform_lock_release(&map.lock);
    return done;
}

void chunk_map_set(uintptr_t start, size_t size, uint8_t class)
{
    memset(map_biased() + (start >> MAP_UNIT_SHIFT), class, size >> MAP_UNIT_SHIFT);
}

size_t chunk_map_bytes(uintptr_t *start)
{
    platform_lock_acquire(&map.lock);
    *start = (uintptr_t)map.bytes;
    size_t size = map.committed;
    platform_lock_release(&map.lock);
    return size;
}

/* Each step is complete before it is noted, so that one of which the child knows nothing may be done again. */
void chunk_fork_child(void)
{
    platform_lock_mend(&map.lock);
}

/* ---- chunks ----------------------------------------------------------------------------------------------------------------- */

static bool is_within_limit(const struct hf_context *context, size_t size)
{
    return context->limit == 0 || (size <= context->limit && context->footprint <= context->limit - size);
}

static struct chunk *chunk_make(struct hf_context *context, size_t size, size_t alignment)
{
    if (!is_within_limit(context, size)) return NULL;
    struct chunk *chunk = heap_malloc_own(sizeof *chunk);
    if (chunk == NULL) return NULL;
    *chunk = (struct chunk){.context = context, .size = size}; /* before any thread can find it by an address */
    size_t spans = size / SPAN_SIZE;
    size_t aligned = alignment <= SPAN_SIZE ? 1 : alignment / SPAN_SIZE;
    struct span *first = spans > UINT32_MAX || aligned > UINT32_MAX
                             ? NULL
                             : space_lend((uint32_t)spans, (uint32_t)aligned, chunk, context->huge_pages);
    if (first != NULL) {
        chunk->first = first;
        chunk->start = span_start(first);
    }
    if (first == NULL || !map_commit(chunk->start + size) || (CONTEXT_CHECKS && !check_context_chunk_new(chunk))) {
        if (first != NULL) space_take_back(first);
        heap_free(chunk);
        return NULL;
    }
    heap_pressure_grown(size, size);
    context->footprint += size;
    if (context->footprint > context->footprint_peak) context->footprint_peak = context->footprint;
    return chunk;
}

static void chunk_unmake(struct hf_context *context, struct chunk *chunk)
{
    context->footprint -= chunk->size;
    space_take_back(chunk->first);
    heap_free(chunk);
    heap_chores_expect_own();
}

size_t chunk_alignment(const struct hf_context *context)
{
    /* A chunk of whole huge pages begins where one does; segments are aligned to their own size. */
    size_t alignment = context->chunk_size % PLATFORM_HUGE_PAGE == 0 ? PLATFORM_HUGE_PAGE : SPAN_SIZE;
    size_t segment = (size_t)1 << context->segment_shift;
    return alignment < segment ? segment : alignment;
}

struct chunk *chunk_add(struct hf_context *context)
{
    struct chunk *chunk = chunk_make(context, context->chunk_size, chunk_alignment(context));
    if (chunk == NULL) return NULL;
    chunk->number = context->chunks_count++;
    if (context->chunks_last != NULL) context->chunks_last->next = chunk;
    else context->chunks = chunk;
    context->chunks_last = chunk;
    return chunk;
}

struct chunk *chunk_add_alone(struct hf_context *context, size_t size, size_t alignment)
{
    if (size > SIZE_MAX - SPAN_SIZE) return NULL;
    struct chunk *chunk = chunk_make(context, (size + SPAN_SIZE - 1) & ~(SPAN_SIZE - 1), alignment);
    if (chunk == NULL) return NULL;
    chunk->number = CHUNK_ALONE;
    chunk->next = context->alone;
    if (chunk->next != NULL) chunk->next->previous = chunk;
    context->alone = chunk;
    context_use(context, chunk->size);
    return chunk;
}

void chunk_remove_alone(struct hf_context *context, struct chunk *chunk)
{
    if (chunk->next != NULL) chunk->next->previous = chunk->previous;
    if (chunk->previous != NULL) chunk->previous->next = chunk->next;
    else context->alone = chunk->next;
    context->used -= chunk->size;
    chunk_unmake(context, chunk);
}

void chunk_remove_all_alone(struct hf_context *context)
{
    while (context->alone != NULL) chunk_remove_alone(context, context->alone);
}

void chunk_trim(struct hf_context *context, uint32_t count)
{
    if (context->open != NULL && context->open->number >= count) context->open = NULL;
    struct chunk **end = &context->chunks;
    context->chunks_last = NULL;
    for (; *end != NULL && (*end)->number < count; end = &(*end)->next) context->chunks_last = *end;
    struct chunk *rest = *end;
    *end = NULL;
    while (rest != NULL) {
        struct chunk *next = rest->next;
        chunk_map_set(rest->start, rest->size, CLASS_NONE);
        chunk_unmake(context, rest);
        context->chunks_count--;
        rest = next;
    }
}
