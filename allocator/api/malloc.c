/* The malloc family with glibc's semantics, extensions included: exported under the C library's names.
 *
 * All are safe to call from any thread. What they return is documented in malloc(3), posix_memalign(3),
 * malloc_usable_size(3) and, for free_sized and free_aligned_sized, in C23 7.24.3.
 */
#define _GNU_SOURCE
#include "../heap/fast.h"
#include "api.h"

#include <errno.h>

/* ---- allocating ------------------------------------------------------------------------------------------------- */

EXPORT void *malloc(size_t size)
{
    return heap_malloc(size);
}

static bool multiply_overflows(size_t count, size_t size, size_t *product)
{
    if (LIKELY(!__builtin_mul_overflow(count, size, product))) return false;
    errno = ENOMEM;
    return true;
}

EXPORT void *calloc(size_t count, size_t size)
{
    size_t bytes;
    return multiply_overflows(count, size, &bytes) ? NULL : heap_calloc(bytes);
}

EXPORT void *realloc(void *pointer, size_t size)
{
    if (pointer == NULL) return heap_malloc(size);
    if (size == 0) { /* as glibc */
        heap_free(pointer);
        return NULL;
    }
    return heap_realloc(pointer, size);
}

EXPORT void *reallocarray(void *pointer, size_t count, size_t size)
{
    size_t bytes;
    return multiply_overflows(count, size, &bytes) ? NULL : realloc(pointer, bytes);
}

/* ---- aligned ------------------------------------------------------------------------------------------------------ */

static bool is_power_of_two(size_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

EXPORT int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0) return EINVAL;
    int saved = errno; /* POSIX: the error is returned, errno stays */
    void *object = heap_malloc_aligned(size, alignment);
    errno = saved;
    if (object == NULL) return ENOMEM;
    *result = object;
    return 0;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    if (!is_power_of_two(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    return heap_malloc_aligned(size, alignment);
}

/* Any alignment is rounded up to a power of two, as glibc does. */
EXPORT void *memalign(size_t alignment, size_t size)
{
    if (alignment > SIZE_MAX / 2 + 1) {
        errno = EINVAL;
        return NULL;
    }
    if (!is_power_of_two(alignment)) {
        size_t power = MALLOC_ALIGNMENT;
        while (power < alignment) power *= 2;
        alignment = power;
    }
    return heap_malloc_aligned(size, alignment);
}

EXPORT void *valloc(size_t size)
{
    return heap_malloc_aligned(size, platform_page_size());
}

EXPORT void *pvalloc(size_t size)
{
    size_t page = platform_page_size();
    size_t rounded = (size + page - 1) & ~(page - 1);
    if (rounded < size) {
        errno = ENOMEM;
        return NULL;
    }
    return heap_malloc_aligned(rounded, page);
}

/* ---- freeing -------------------------------------------------------------------------------------------------------- */

EXPORT void free(void *pointer)
{
    heap_free(pointer);
}

EXPORT void free_sized(void *pointer, size_t size)
{
    api_free_sized(pointer, size);
}

EXPORT void free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    (void)alignment;
    api_free_sized(pointer, size);
}

EXPORT size_t malloc_usable_size(void *pointer)
{
    return pointer == NULL ? 0 : heap_usable_size(pointer);
}
