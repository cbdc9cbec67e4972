/* The malloc family for contexts, and the objects of contexts for the malloc family. */
#include "context.h"

#include <errno.h>
#include <string.h>

/* ---- allocating ------------------------------------------------------------------------------------------------------------- */

static void *or_no_memory(void *object)
{
    if (UNLIKELY(object == NULL)) errno = ENOMEM;
    return object;
}

/* The next bytes of a region's chunk: where nearly all requests end. Chunks begin aligned, and sizes keep it so. */
static void *region_malloc_next(struct hf_context *context, size_t size)
{
    uintptr_t object = context->region_next;
    size_t rounded = (size + context->alignment - 1) & ~(context->alignment - 1);
    /* Less 1: neither a size of 0 nor one that wrapped passes. */
    if (UNLIKELY(rounded - 1 >= context->region_end - object || size > rounded))
        return or_no_memory(size <= OBJECT_MAX ? region_malloc(context, size, context->alignment) : NULL);
    region_took(context, object, object + rounded);
    return (void *)object;
}

void *context_malloc_slow(struct hf_context *context, size_t size)
{
    if (context->kind == HF_REGION) return region_malloc_next(context, size);
    unsigned class = dodging_class(context, size);
    if (class == CLASS_NONE) return or_no_memory(size <= OBJECT_MAX ? dodging_large_malloc(context, size, 1) : NULL);
    return context_malloc_class(context, class);
}

void *context_malloc_aligned(struct hf_context *context, size_t size, size_t alignment)
{
    if (size > OBJECT_MAX) return NULL;
    if (context->kind == HF_REGION) return region_malloc(context, size, alignment);
    /* Objects stand at multiples of their size from a segment's start: one whose size is a multiple of the alignment is
     * aligned. */
    unsigned class = dodging_class(context, size < alignment ? alignment : size);
    for (; class != CLASS_NONE && class <= context->classes; class++)
        if (context->sizes[class] % alignment == 0) return context_malloc(context, context->sizes[class]);
    return dodging_large_malloc(context, size, alignment);
}

EXPORT void *hf_context_malloc(hf_context *context, size_t size)
{
    return context_malloc(context, size);
}

EXPORT void *hf_context_calloc(hf_context *context, size_t count, size_t size)
{
    size_t bytes;
    void *object = __builtin_mul_overflow(count, size, &bytes) ? NULL : context_malloc(context, bytes);
    return object == NULL ? or_no_memory(NULL) : memset(object, 0, bytes);
}

EXPORT void *hf_context_aligned_alloc(hf_context *context, size_t alignment, size_t size)
{
    if (is_power_of_two(alignment)) return or_no_memory(context_malloc_aligned(context, size, alignment));
    errno = EINVAL;
    return NULL;
}

/* ---- freeing ---------------------------------------------------------------------------------------------------------------- */

/* An object of a context, as far as can be told, or the end of the program. */
static size_t usable_or_fail(const char *function, const struct hf_context *context, const struct chunk *chunk,
                             const void *pointer)
{
    size_t usable = dodging_usable(context, chunk, (uintptr_t)pointer);
    if (UNLIKELY(usable == 0)) check_pointer_failed(function, pointer);
    return usable;
}

static COLD void guarded_free(const struct hf_context *context, void *pointer)
{
    if (guard_owner(pointer) != context) guard_report_mistake(GUARD_POINTER, "hf_context_free", pointer);
    guard_free("hf_context_free", pointer);
}

void context_free_slow(struct hf_context *context, void *pointer)
{
    if (context->kind == HF_REGION) return;
    if (UNLIKELY(is_guarded(pointer))) {
        guarded_free(context, pointer);
        return;
    }
    if (UNLIKELY(!hf_context_owns(context, pointer))) check_pointer_failed("hf_context_free", pointer);
    struct chunk *chunk = chunk_of_address((uintptr_t)pointer);
    usable_or_fail("hf_context_free", context, chunk, pointer);
    dodging_large_free(context, chunk, (uintptr_t)pointer);
}

EXPORT void hf_context_free(hf_context *context, void *pointer)
{
    context_free(context, pointer);
}

static NOINLINE void guest_free_slow(struct span *span, void *pointer)
{
    struct hf_context *context = chunk_of(span)->context;
    if (context->kind == HF_REGION) return;
    usable_or_fail("free", context, chunk_of(span), pointer);
    if (context_is_mine(context)) context_free(context, pointer);
    else context_free_remote(context, pointer);
}

/* Where most come from: a small object of a context of this thread's. */
void heap_guest_free(struct span *span, void *pointer)
{
    struct hf_context *context = chunk_of(span)->context;
    unsigned class = context->map[(uintptr_t)pointer >> MAP_UNIT_SHIFT];
    if (LIKELY(class != CLASS_NONE && context_is_mine(context) && dodging_starts(context, class, (uintptr_t)pointer)))
        context_push(context, class, (uintptr_t)pointer);
    else guest_free_slow(span, pointer);
}

/* ---- resizing ----------------------------------------------------------------------------------------------------------------- */

/* To an object of the context, or NULL; where it stays, at its place to the byte. */
static COLD void *guarded_realloc(struct hf_context *context, void *pointer, size_t size)
{
    size_t usable = guard_usable_size("realloc", pointer);
    if (size == usable) return pointer;
    void *moved = context_malloc(context, size);
    if (moved == NULL) return size <= usable ? pointer : NULL; /* as below */
    memcpy(moved, pointer, usable < size ? usable : size);
    guard_free("realloc", pointer);
    return moved;
}

/* Of a context that another thread has. */
static COLD void *guarded_realloc_remote(void *pointer, size_t size)
{
    size_t usable = guard_usable_size("realloc", pointer);
    if (size <= usable) return pointer;
    void *moved = heap_malloc_own(size);
    if (moved == NULL) return NULL;
    memcpy(moved, pointer, usable);
    guard_free("realloc", pointer);
    return moved;
}

static void *dodging_realloc(struct hf_context *context, struct chunk *chunk, void *pointer, size_t size)
{
    size_t usable = usable_or_fail("realloc", context, chunk, pointer);
    if (object_fits(size, usable)) return pointer;
    bool large = context->map[(uintptr_t)pointer >> MAP_UNIT_SHIFT] == CLASS_NONE;
    if (large && dodging_class(context, size) == CLASS_NONE &&
        dodging_large_resize(context, chunk, (uintptr_t)pointer, size))
        return pointer;
    void *moved = context_malloc(context, size);
    if (moved == NULL) return size <= usable ? pointer : NULL; /* no program expects that shrinking fails */
    memcpy(moved, pointer, usable < size ? usable : size);
    context_free(context, pointer);
    return moved;
}

void *context_realloc(struct hf_context *context, void *pointer, size_t size)
{
    if (pointer == NULL) return context_malloc(context, size);
    if (size > OBJECT_MAX) return NULL;
    if (CONTEXT_CHECKS) check_context_has(context, pointer);
    if (CONTEXT_CHECKS && context->kind != HF_REGION && !is_guarded(pointer))
        check_context_live("a context's object is reallocated that is not live: freed, or after free_all", pointer);
    /* Where most calls end: a small object that stays. */
    unsigned class = context->map[(uintptr_t)pointer >> MAP_UNIT_SHIFT];
    if (LIKELY(class != CLASS_NONE) && object_fits(size, context->sizes[class])) return pointer;
    if (UNLIKELY(class == CLASS_NONE && is_guarded(pointer))) return guarded_realloc(context, pointer, size);
    struct chunk *chunk = chunk_of_address((uintptr_t)pointer);
    return context->kind == HF_REGION ? region_realloc(context, chunk, (uintptr_t)pointer, size)
                                      : dodging_realloc(context, chunk, pointer, size);
}

EXPORT void *hf_context_realloc(hf_context *context, void *pointer, size_t size)
{
    if (CONTEXT_CHECKS) check_context_owner(context);
    if (LIKELY(pointer == NULL || size != 0)) return or_no_memory(context_realloc(context, pointer, size));
    context_free(context, pointer); /* as hf_realloc does */
    return NULL;
}

/* realloc of any thread's. Only the owner can find the object another place in its context. */
void *heap_guest_realloc(struct span *span, void *pointer, size_t size)
{
    bool guarded = span->kind == SPAN_GUARD;
    struct chunk *chunk = guarded ? NULL : chunk_of(span);
    struct hf_context *context = guarded ? guard_owner(pointer) : chunk->context;
    if (LIKELY(context_is_mine(context))) return context_realloc(context, pointer, size);
    if (guarded) return guarded_realloc_remote(pointer, size);
    bool region = context->kind == HF_REGION;
    size_t usable =
        region ? region_copyable(chunk, (uintptr_t)pointer) : usable_or_fail("realloc", context, chunk, pointer);
    if (!region && size <= usable) return pointer;
    void *moved = heap_malloc_own(size);
    if (moved == NULL) return NULL;
    memcpy(moved, pointer, usable < size ? usable : size);
    if (!region) context_free_remote(context, pointer);
    return moved;
}

size_t heap_guest_usable_size(const char *function, const struct span *span, const void *pointer)
{
    const struct hf_context *context = chunk_of(span)->context;
    return context->kind == HF_REGION ? 0 : usable_or_fail(function, context, chunk_of(span), pointer);
}

/* ---- switching ------------------------------------------------------------------------------------------------------------------ */

static __thread struct hf_context *thread_context __attribute__((tls_model("initial-exec")));

EXPORT hf_context *hf_context_current(void)
{
    /* A thread that is exiting is no longer diverted. */
    return thread_heap == &heap_diverted ? thread_context : NULL;
}

EXPORT hf_context *hf_context_switch(hf_context *context)
{
    hf_context *before = hf_context_current();
    if (context != NULL && !context_is_mine(context)) hf_context_enter(context);
    thread_context = context;
    heap_divert(context != NULL);
    return before;
}

/* malloc promises 16 where the context may have 8: a size that is a multiple of 16 has a class that is too, or is large. */
static NOINLINE void *guest_malloc_aligned(struct hf_context *context, size_t size, size_t alignment)
{
    if (size > OBJECT_MAX) return or_no_memory(NULL);
    if (context->kind != HF_REGION) size = (size + MALLOC_ALIGNMENT - 1) & ~(size_t)(MALLOC_ALIGNMENT - 1);
    return or_no_memory(context_malloc_aligned(context, size, alignment));
}

void *heap_guest_malloc(size_t size, size_t alignment)
{
    struct hf_context *context = thread_context;
    return LIKELY(alignment <= context->alignment) ? context_malloc(context, size)
                                                   : guest_malloc_aligned(context, size, alignment);
}
