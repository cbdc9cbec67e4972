/* Contexts as a whole: birth, free_all, death, owners, and what other threads free. */
#include "context.h"

#include <errno.h>
#include <string.h>

enum { CHUNK_DODGING = 2 << 20, CHUNK_REGION = 16 << 20 };

/* `recent` is a fixed-point number: after each transaction it moves by an eighth towards what that one needed. Rounding its
 * own part up lets it come all the way down. */
enum { RECENT_ONE = 256, RECENT_SHARE = 8 };

static _Atomic(size_t) contexts; /* for statistics: relaxed */

/* ---- owners ------------------------------------------------------------------------------------------------------------------ */

__thread uint64_t context_thread_number __attribute__((tls_model("initial-exec"))) = NUMBER_NONE;

static uint64_t own_number(void)
{
    static _Atomic(uint64_t) numbers;
    if (UNLIKELY(context_thread_number == NUMBER_NONE)) /* relaxed: only that no two are equal matters */
        context_thread_number = atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
    return context_thread_number;
}

EXPORT void hf_context_enter(hf_context *context)
{
    /* Relaxed: whatever told this thread of the context has synchronised with the owner before. */
    atomic_store_explicit(&context->owner, own_number(), memory_order_relaxed);
}

EXPORT void hf_context_leave(hf_context *context)
{
    if (CONTEXT_CHECKS) check_context_owner(context);
    if (hf_context_current() == context) hf_context_switch(NULL); /* this thread may no longer allocate there */
    /* Before the other thread is told: from here on this one never again reads its own number, and frees as any other. */
    atomic_store_explicit(&context->owner, 0, memory_order_relaxed);
}

/* ---- what other threads free ------------------------------------------------------------------------------------------------------ */

void context_free_remote(struct hf_context *context, void *pointer)
{
    uintptr_t block = (uintptr_t)pointer;
    uintptr_t head = atomic_load_explicit(&context->remote, memory_order_relaxed);
    do {
        *block_words(block) = head;
        /* Release: the owner, which acquires, sees the link, and all that was done to the object before. There is no ABA: the
         * owner takes the whole list, and `head` is only written into our own object. */
    } while (!atomic_compare_exchange_weak_explicit(&context->remote, &head, block, memory_order_release,
                                                    memory_order_relaxed));
}

void context_take_remote(struct hf_context *context)
{
    if (LIKELY(atomic_load_explicit(&context->remote, memory_order_relaxed) == 0)) return; /* a hint */
    uintptr_t block = atomic_exchange_explicit(&context->remote, 0, memory_order_acquire);
    while (block != 0) {
        uintptr_t next = *block_words(block); /* freeing writes another link */
        context_free(context, (void *)block);
        block = next;
    }
}

/* ---- birth ------------------------------------------------------------------------------------------------------------------------- */

/* Contexts are all of one size and often made one after the other: without this, what each malloc touches would lie in the
 * same cache sets in all of them (the paper's section 3.3, by process). */
enum { OFFSETS = 16 };

static struct hf_context *context_allocate(void)
{
    static _Atomic(unsigned) offsets;
    unsigned offset = atomic_fetch_add_explicit(&offsets, 1, memory_order_relaxed) % OFFSETS;
    char *memory = heap_malloc_own(sizeof(struct hf_context) + (size_t)OFFSETS * CACHE_LINE);
    if (memory == NULL) return NULL;
    uintptr_t start = ((uintptr_t)memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1);
    struct hf_context *context = (struct hf_context *)(start + (size_t)offset * CACHE_LINE);
    memset(context, 0, sizeof *context);
    context->memory = memory;
    return context;
}

static bool set_up(struct hf_context *context, const hf_context_config *config)
{
    bool region = config->kind == HF_REGION;
    context->kind = config->kind;
    context->huge_pages = config->huge_pages != 0;
    context->alignment = config->alignment != 0 ? config->alignment : MALLOC_ALIGNMENT;
    context->chunk_size = config->chunk_size != 0 ? config->chunk_size : region ? CHUNK_REGION : CHUNK_DODGING;
    context->limit = config->limit;
    context->retain = config->retain;
    if (!region && config->kind != HF_DEFRAG_DODGING) return false;
    if (context->alignment != GRAIN && context->alignment != MALLOC_ALIGNMENT) return false;
    if (context->chunk_size % SPAN_SIZE != 0 || context->chunk_size > OBJECT_MAX / 2) return false;
    return region || dodging_set_up(context, config);
}

EXPORT hf_context *hf_context_create(const hf_context_config *config)
{
    static const hf_context_config defaults;
    struct hf_context *context = context_allocate();
    if (context == NULL) return NULL; /* errno is set */
    bool understood = set_up(context, config != NULL ? config : &defaults);
    context->map = chunk_map();
    if (!understood || context->map == NULL) {
        heap_free(context->memory);
        errno = understood ? ENOMEM : EINVAL;
        return NULL;
    }
    hf_context_enter(context);
    atomic_fetch_add_explicit(&contexts, 1, memory_order_relaxed);
    return context;
}

/* ---- free_all, death ------------------------------------------------------------------------------------------------------------------- */

/* How many chunks to keep for the next transaction. */
static uint32_t chunks_to_keep(struct hf_context *context)
{
    size_t needed = (size_t)context->chunks_needed * RECENT_ONE;
    size_t given_up = (context->recent + RECENT_SHARE - 1) / RECENT_SHARE;
    bool first = context->free_alls == 0;
    context->recent = first ? needed : context->recent - given_up + needed / RECENT_SHARE;
    size_t keep =
        context->retain != 0 ? context->retain / context->chunk_size : (context->recent + RECENT_ONE - 1) / RECENT_ONE;
    if (keep == 0) keep = 1;
    return keep < context->chunks_count ? (uint32_t)keep : context->chunks_count;
}

static void free_all_guarded(struct hf_context *context)
{
    if (LIKELY(!context->has_guarded)) return;
    guard_free_all(context);
    context->has_guarded = false;
}

EXPORT void hf_context_free_all(hf_context *context)
{
    if (CONTEXT_CHECKS) check_context_owner(context);
    /* What others have freed is freed with the rest. Relaxed: nothing of it is read. */
    atomic_store_explicit(&context->remote, 0, memory_order_relaxed);
    free_all_guarded(context);
    chunk_remove_all_alone(context);
    chunk_trim(context, chunks_to_keep(context));
    if (context->kind == HF_REGION) region_free_all(context);
    else dodging_free_all(context);
    context->used = context->used_peak = 0;
    context->chunks_needed = 0;
    context->footprint_peak = context->footprint;
    context->free_alls++;
}

/* One more than the number of the last chunk that has something in it. */
static uint32_t chunks_in_use(const struct hf_context *context)
{
    if (context->kind == HF_REGION) return context->region_chunk == NULL ? 0 : context->region_chunk->number + 1;
    uint32_t in_use = 0;
    for (const struct chunk *chunk = context->chunks; chunk != NULL; chunk = chunk->next)
        if (chunk->used != 0) in_use = chunk->number + 1;
    return in_use;
}

bool context_give_back_unused(struct hf_context *context)
{
    uint32_t in_use = chunks_in_use(context);
    if (in_use == context->chunks_count) return false;
    chunk_trim(context, in_use);
    return true;
}

EXPORT void hf_context_destroy(hf_context *context)
{
    if (context == NULL) return;
    if (hf_context_current() == context) hf_context_switch(NULL);
    free_all_guarded(context);
    chunk_remove_all_alone(context);
    chunk_trim(context, 0);
    atomic_fetch_sub_explicit(&contexts, 1, memory_order_relaxed);
    heap_free(context->memory);
}

/* ---- limits, figures ---------------------------------------------------------------------------------------------------------------------- */

EXPORT int hf_context_set_limit(hf_context *context, size_t limit)
{
    if (limit != 0 && limit < context->footprint) {
        errno = ENOMEM;
        return -1;
    }
    context->limit = limit;
    return 0;
}

EXPORT int hf_context_owns(const hf_context *context, const void *pointer)
{
    size_t offset = space_offset(pointer);
    if (space_offset_is_foreign(offset)) return 0;
    const struct span *span = span_of_offset(offset);
    if (UNLIKELY(is_guarded(pointer))) return guard_owner(pointer) == context;
    return span_is_guest(span) && chunk_of(span)->context == context;
}

EXPORT int hf_context_stats_get(const hf_context *context, hf_context_stats *stats, size_t size)
{
    if (stats == NULL) {
        errno = EINVAL;
        return -1;
    }
    size_t guarded = context->has_guarded ? guard_owned_bytes(context) : 0;
    hf_context_stats all = {
        .live_bytes = context->kind == HF_REGION ? context->used : dodging_live(context) + guarded,
        .used_bytes = context->used + guarded,
        .peak_bytes = (context->used > context->used_peak ? context->used : context->used_peak) + guarded,
        .footprint = context->footprint + guarded,
        .footprint_peak = context->footprint_peak + guarded,
        .chunks = context->chunks_count,
        .free_alls = context->free_alls,
    };
    memset(stats, 0, size);
    memcpy(stats, &all, size < sizeof all ? size : sizeof all);
    return 0;
}

size_t context_count(void)
{
    return atomic_load_explicit(&contexts, memory_order_relaxed);
}
