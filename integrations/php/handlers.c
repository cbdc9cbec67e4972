/* emalloc, efree and erealloc: Zend's memory manager calls these instead of itself.
 *
 * The paths that most calls take are a pop and a push, with no call and no spill; look at them with objdump after any
 * change. An address tells where a block is from: outside the reservation is what Zend allocated itself before we were
 * there; in it, the map gives the size class of small objects, and the span's descriptor the context of others.
 *
 * A small object of a side context that is freed during a request goes to the main context's list: all contexts have the
 * same classes, and the side context that serves the start of a request is emptied together with the main one.
 */
#include "heap.h"

#include <string.h>

struct request_heap request_heap;

/* ---- where a block is from --------------------------------------------------------------------------------------------- */

ALWAYS_INLINE bool is_zends(const void *pointer)
{
    return space_offset_is_foreign(space_offset(pointer));
}

static struct chunk *chunk_of_block(const char *function, void *pointer)
{
    struct span *span = span_of_offset(space_offset(pointer));
    if (UNLIKELY(span_kind_read(span) != SPAN_GUEST)) check_pointer_failed(function, pointer);
    return chunk_of(span);
}

/* The context of an object. One that is guarded lies outside of all chunks. */
static struct hf_context *context_of_block(const char *function, void *pointer)
{
    struct hf_context *guarded = is_guarded(pointer) ? guard_owner(pointer) : NULL;
    return UNLIKELY(guarded != NULL) ? guarded : chunk_of_block(function, pointer)->context;
}

/* Zend frees its heap itself, as the last thing of all, with the handler: not before that is it over with ours. */
static COLD void zend_heap_free(void)
{
    zend_mm_heap *heap = request_heap.zend;
    handlers_uninstall();
    zend_mm_shutdown(heap, true, true);
    life_end();
}

static NOINLINE void free_elsewhere(void *pointer)
{
    if (pointer == NULL) return;
    if (is_zends(pointer)) {
        if (UNLIKELY(pointer == (void *)request_heap.zend)) zend_heap_free();
        else zend_mm_free(request_heap.zend, pointer);
        return;
    }
    context_free(context_of_block("efree", pointer), pointer);
}

/* ---- a request's malloc and free, defrag-dodging ------------------------------------------------------------------------- */

/* At the limit, or out of memory. */
static COLD void *malloc_failed(size_t size)
{
    void *object = context_give_back_unused(request_heap.main) ? context_malloc(request_heap.main, size) : NULL;
    if (object != NULL) return object;
    if (!limit_may_pass(size)) return NULL;
    object = context_malloc(request_heap.main, size);
    if (object == NULL) limit_end_process(size);
    return object;
}

static NOINLINE void *malloc_slow(size_t size)
{
    void *object = context_malloc(request_heap.main, size);
    return LIKELY(object != NULL) ? object : malloc_failed(size);
}

static void *request_malloc(size_t size)
{
    struct hf_context *context = request_heap.main;
    if (UNLIKELY(size > context->table_max)) return malloc_slow(size);
    unsigned class = context->table[(size + GRAIN - 1) / GRAIN];
    void *object = context_take(context, class);
    return LIKELY(object != NULL) ? object : malloc_slow(size);
}

static void request_free(void *pointer)
{
    struct hf_context *context = request_heap.main;
    if (UNLIKELY(is_zends(pointer))) { /* or NULL */
        free_elsewhere(pointer);
        return;
    }
    unsigned class = context->map[(uintptr_t)pointer >> MAP_UNIT_SHIFT];
    if (UNLIKELY(class == CLASS_NONE)) free_elsewhere(pointer);
    else context_push(context, class, (uintptr_t)pointer);
}

/* ---- the same, of a region ------------------------------------------------------------------------------------------------- */

/* In Zend's manager, and with size classes, an object is aligned to what its size is a multiple of, and some of PHP's code for
 * vectors relies on it (ext/hash does). So here: to 8 or 16 where it is bumped, to a cache line where it is larger. */
enum { BUMP_MAX = 256 };

static NOINLINE void *region_malloc_slow(size_t size)
{
    struct hf_context *context = request_heap.main;
    bool aligned = size % (2 * GRAIN) == 0 || size > BUMP_MAX;
    if (aligned && size <= OBJECT_MAX) {
        void *object = region_malloc(context, size, size > BUMP_MAX ? CACHE_LINE : 2 * GRAIN);
        if (LIKELY(object != NULL)) return object;
    }
    return malloc_slow(size);
}

static void *region_request_malloc(size_t size)
{
    struct hf_context *context = request_heap.main;
    /* No bytes: the object would not have an address of its own. */
    if (CONTEXT_CHECKS || UNLIKELY(size - 1 >= BUMP_MAX)) return region_malloc_slow(size);
    size_t rounded = (size + GRAIN - 1) & ~(size_t)(GRAIN - 1);
    uintptr_t object = context->region_next;
    object += object & GRAIN & ~rounded; /* to a multiple of 16 if the size is one */
    uintptr_t next = object + rounded;
    if (UNLIKELY(next > context->region_end)) return region_malloc_slow(size);
    region_took(context, object, next);
    return (void *)object;
}

static void region_request_free(void *pointer)
{
    if (UNLIKELY(is_zends(pointer))) free_elsewhere(pointer);
}

/* ---- realloc ------------------------------------------------------------------------------------------------------------------ */

/* An object that fills chunks of its own cannot grow in place. Programs append to long strings byte by byte: so such an
 * object gets an eighth more than it needs, and the number of copies grows with the logarithm of its length. */
enum { GROWTH_SHARE = 8 };

static void *malloc_with_room(struct hf_context *context, size_t size)
{
    void *object = context_malloc(context, size + size / GROWTH_SHARE);
    return object != NULL ? object : malloc_slow(size);
}

static void *move(void *pointer, size_t usable, size_t size, bool with_room)
{
    void *moved = with_room ? malloc_with_room(request_heap.main, size) : malloc_slow(size);
    if (moved == NULL) return NULL;
    memcpy(moved, pointer, size < usable ? size : usable);
    return moved;
}

static void *main_realloc(void *pointer, size_t size)
{
    void *object = context_realloc(request_heap.main, pointer, size);
    if (LIKELY(object != NULL)) return object;
    if (context_give_back_unused(request_heap.main)) object = context_realloc(request_heap.main, pointer, size);
    if (object != NULL) return object;
    if (!limit_may_pass(size)) return NULL;
    object = context_realloc(request_heap.main, pointer, size);
    if (object == NULL) limit_end_process(size);
    return object;
}

static COLD void *realloc_guarded(void *pointer, size_t size)
{
    struct hf_context *owner = context_of_block("erealloc", pointer);
    if (owner == request_heap.main) return main_realloc(pointer, size);
    void *moved = move(pointer, guard_usable_size("erealloc", pointer), size, false);
    if (moved != NULL) context_free(owner, pointer);
    return moved;
}

static NOINLINE void *realloc_slow(void *pointer, size_t size)
{
    struct hf_context *context = request_heap.main;
    if (pointer == NULL) return malloc_slow(size);
    if (is_zends(pointer)) return zend_mm_realloc(request_heap.zend, pointer, size);
    if (UNLIKELY(is_guarded(pointer))) return realloc_guarded(pointer, size);
    struct chunk *chunk = chunk_of_block("erealloc", pointer);
    struct hf_context *owner = chunk->context;
    bool alone = chunk->number == CHUNK_ALONE;
    if (owner->kind == HF_REGION && !alone) return main_realloc(pointer, size);
    size_t usable = alone ? chunk->size : dodging_usable(owner, chunk, (uintptr_t)pointer);
    if (UNLIKELY(usable == 0)) check_pointer_failed("erealloc", pointer);
    if (owner == context && (size <= usable || (!alone && size <= context->chunk_size)))
        return main_realloc(pointer, size);
    if (size <= usable) return pointer;
    void *moved = move(pointer, usable, size, size > context->chunk_size || alone);
    if (moved == NULL) return NULL;
    /* Nothing else of a region is given back. But what an object alone has outgrown is too much to keep. */
    if (owner->kind == HF_REGION) chunk_remove_alone(owner, chunk);
    else context_free(owner, pointer);
    return moved;
}

static NOINLINE void *realloc_small(void *pointer, size_t size, size_t usable)
{
    void *moved = request_heap.mode == MODE_REGION ? region_request_malloc(size) : request_malloc(size);
    if (UNLIKELY(moved == NULL)) return NULL;
    memcpy(moved, pointer, size < usable ? size : usable);
    if (request_heap.mode == MODE_REGION) return moved; /* it was of a side context, which is emptied soon */
    request_free(pointer);
    return moved;
}

static void *request_realloc(void *pointer, size_t size)
{
    struct hf_context *context = request_heap.main;
    if (UNLIKELY(is_zends(pointer))) return realloc_slow(pointer, size);
    unsigned class = context->map[(uintptr_t)pointer >> MAP_UNIT_SHIFT];
    if (UNLIKELY(class == CLASS_NONE)) return realloc_slow(pointer, size);
    size_t usable = request_heap.sizes[class];
    if (object_fits(size, usable)) return pointer;
    return realloc_small(pointer, size, usable);
}

/* ---- between requests ----------------------------------------------------------------------------------------------------------- */

static void *or_end(void *object, size_t size)
{
    if (UNLIKELY(object == NULL)) limit_end_process(size);
    return object;
}

static void *between_malloc(size_t size)
{
    return or_end(context_malloc(request_heap.sides[request_heap.side], size), size);
}

static void between_free(void *pointer)
{
    free_elsewhere(pointer);
    if (UNLIKELY(pointer == request_heap.last) && pointer != NULL) life_freed_last();
}

static void *between_realloc(void *pointer, size_t size)
{
    if (pointer == NULL) return between_malloc(size);
    if (is_zends(pointer)) return zend_mm_realloc(request_heap.zend, pointer, size);
    return or_end(context_realloc(context_of_block("erealloc", pointer), pointer, size), size);
}

/* ---- which of them ---------------------------------------------------------------------------------------------------------------- */

struct handlers handlers_request(void)
{
    return request_heap.mode == MODE_REGION
               ? (struct handlers){region_request_malloc, region_request_free, request_realloc}
               : (struct handlers){request_malloc, request_free, request_realloc};
}

struct handlers handlers_between(void)
{
    return (struct handlers){between_malloc, between_free, between_realloc};
}

static void install(struct handlers handlers)
{
    if (settings.count) handlers = counting_handlers(handlers);
    zend_mm_set_custom_handlers(request_heap.zend, handlers.malloc, handlers.free, handlers.realloc);
}

void handlers_install_request(void)
{
    install(handlers_request());
}

void handlers_install_between(void)
{
    install(handlers_between());
}

void handlers_uninstall(void)
{
    zend_mm_set_custom_handlers(request_heap.zend, NULL, NULL, NULL);
}
