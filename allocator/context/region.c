/* Regions: a pointer is bumped through chunks, and nothing is freed before all is (the paper's section 4.1). */
#include "context.h"

#include <string.h>

/* A request above this share of a chunk does not end the present chunk, but gets a chunk of its own. */
enum { ALONE_SHARE = 8 };

static uintptr_t round_up(uintptr_t value, size_t alignment)
{
    return (value + alignment - 1) & ~(uintptr_t)(alignment - 1);
}

static bool region_next_chunk(struct hf_context *context)
{
    struct chunk *chunk = context->region_chunk == NULL ? context->chunks : context->region_chunk->next;
    if (chunk == NULL) chunk = chunk_add(context);
    if (chunk == NULL) return false;
    context->region_chunk = chunk;
    context_need(context, chunk);
    context->region_next = chunk->start;
    context->region_end = chunk->start + chunk->size;
    return true;
}

static void *region_malloc_alone(struct hf_context *context, size_t size, size_t alignment)
{
    const struct chunk *chunk = chunk_add_alone(context, size, alignment);
    return chunk == NULL ? NULL : (void *)chunk->start;
}

void *region_malloc(struct hf_context *context, size_t size, size_t alignment)
{
    size = round_up(size == 0 ? 1 : size, context->alignment);
    if (alignment < context->alignment) alignment = context->alignment;
    uintptr_t object = round_up(context->region_next, alignment);
    if (UNLIKELY(object > context->region_end || size > context->region_end - object)) {
        if (size > context->chunk_size / ALONE_SHARE || alignment > context->chunk_size / ALONE_SHARE)
            return region_malloc_alone(context, size, alignment);
        if (!region_next_chunk(context)) return NULL;
        object = round_up(context->region_next, alignment);
    }
    region_took(context, object, object + size);
    return (void *)object;
}

/* The newest object can grow and shrink where it is. Any other is copied: how long it is nobody knows, but what follows it
 * in its chunk is memory of the context, and may be copied along. */
void *region_realloc(struct hf_context *context, struct chunk *chunk, uintptr_t object, size_t size)
{
    size_t rounded = round_up(size == 0 ? 1 : size, context->alignment);
    if (chunk->number == CHUNK_ALONE && rounded <= chunk->size) return (void *)object;
    if (object == context->region_last && chunk == context->region_chunk && rounded <= context->region_end - object) {
        if (context->used > context->used_peak) context->used_peak = context->used;
        context->used -= context->region_next - object;
        context->used += rounded;
        if (CONTEXT_CHECKS) check_context_unused(object + rounded, context->region_next);
        context->region_next = object + rounded;
        return (void *)object;
    }
    uintptr_t end = chunk == context->region_chunk ? context->region_next : chunk->start + chunk->size;
    void *moved = region_malloc(context, size, context->alignment);
    if (moved == NULL) return NULL;
    memcpy(moved, (void *)object, size < end - object ? size : end - object);
    return moved;
}

/* The owner may be writing to what follows, of which any bytes will do. */
size_t region_copyable(const struct chunk *chunk, uintptr_t object)
{
    return chunk->start + chunk->size - object;
}

void region_free_all(struct hf_context *context)
{
    if (CONTEXT_CHECKS)
        for (const struct chunk *chunk = context->chunks; chunk != NULL; chunk = chunk->next)
            check_context_chunk_empty(chunk);
    context->region_chunk = NULL;
    context->region_next = context->region_end = 0;
    context->region_last = 0;
}
