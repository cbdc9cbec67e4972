/* The functions of heapfit.h that allocate, free and give back. */
#include "api.h"

#include <errno.h>

EXPORT void *hf_malloc(size_t size)
{
    return object_malloc(size);
}

EXPORT void *hf_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (LIKELY(!__builtin_mul_overflow(count, size, &bytes))) return object_calloc(bytes);
    errno = ENOMEM;
    return NULL;
}

EXPORT void *hf_realloc(void *pointer, size_t size)
{
    if (pointer == NULL) return object_malloc(size);
    if (size != 0) return heap_realloc(pointer, size);
    heap_free(pointer);
    return NULL;
}

EXPORT void *hf_aligned_alloc(size_t alignment, size_t size)
{
    if (LIKELY(is_power_of_two(alignment))) return object_malloc_aligned(size, alignment);
    errno = EINVAL;
    return NULL;
}

EXPORT void hf_free(void *pointer)
{
    heap_free(pointer);
}

EXPORT void hf_free_sized(void *pointer, size_t size)
{
    heap_free_sized(pointer, size);
}

EXPORT size_t hf_usable_size(const void *pointer)
{
    return pointer == NULL ? 0 : heap_usable_size(pointer);
}

EXPORT size_t hf_good_size(size_t size)
{
    return size > OBJECT_MAX ? 0 : heap_good_size(size);
}

EXPORT int hf_is_ours(const void *pointer)
{
    return !space_offset_is_foreign(space_offset(pointer));
}

/* Returns the bytes that `trim` gives back, touched or not; others may do so at the same time. */
static size_t given_back_by(void (*trim)(void))
{
    struct space_figures before, after;
    if (!heap_is_started()) return 0;
    space_figures(&before);
    trim();
    space_figures(&after);
    return after.purged - before.purged;
}

EXPORT size_t hf_trim(void)
{
    return given_back_by(heap_trim);
}

size_t trim_everywhere(void)
{
    return given_back_by(heap_trim_everywhere);
}

EXPORT size_t hf_footprint_shrink(void)
{
    options_shrink(true);
    return trim_everywhere();
}

EXPORT void hf_footprint_restore(void)
{
    options_shrink(false);
}
