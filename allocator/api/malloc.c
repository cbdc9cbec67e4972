/* The malloc family with the semantics of the C library, where glibc and musl differ, of that which is there: exported under
 * its names.
 *
 * All are safe to call from any thread. What they return is documented in malloc(3), posix_memalign(3),
 * malloc_usable_size(3) and, for free_sized and free_aligned_sized, in C23 7.24.3.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "api.h"
#include "platform/c_library.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

/* ---- allocating ------------------------------------------------------------------------------------------------- */

EXPORT void *malloc(size_t size)
{
    return object_malloc(size);
}

/* The same under a name that is this library's alone: api.h. */
extern __typeof__(malloc) own_malloc __attribute__((alias("malloc"), visibility("hidden"), malloc, nothrow, leaf));

static bool multiply_overflows(size_t count, size_t size, size_t *product)
{
    if (LIKELY(!__builtin_mul_overflow(count, size, product))) return false;
    errno = ENOMEM;
    return true;
}

EXPORT void *calloc(size_t count, size_t size)
{
    size_t bytes;
    return multiply_overflows(count, size, &bytes) ? NULL : object_calloc(bytes);
}

EXPORT void *realloc(void *pointer, size_t size)
{
    if (pointer == NULL) return object_malloc(size);
    if (size == 0 && C_LIBRARY_REALLOC_FREES) {
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

EXPORT int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0) return EINVAL;
    void *object = object_malloc_aligned(size, alignment);
    if (object == NULL) return ENOMEM; /* as glibc, errno says so too: POSIX leaves that open, and programs read it */
    *result = object;
    return 0;
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
    return object_malloc_aligned(size, alignment);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    if (LIKELY(is_power_of_two(alignment))) return object_malloc_aligned(size, alignment);
    if (c_library_aligns_to_any()) return memalign(alignment, size);
    errno = EINVAL;
    return NULL;
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
    check_family(pointer, FAMILY_MALLOC);
    heap_free_sized(pointer, size);
}

EXPORT void free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    check_alignment(pointer, alignment);
    check_family(pointer, FAMILY_MALLOC);
    heap_free_sized(pointer, size);
}

EXPORT size_t malloc_usable_size(void *pointer)
{
    return pointer == NULL ? 0 : heap_usable_size(pointer);
}

/* ---- second names ---------------------------------------------------------------------------------------------------- */

#ifdef __GLIBC__ /* in musl, names like these are its own allocator's, which it goes on using for itself */

/* glibc exports these too, and wrappers that were written before RTLD_NEXT was common, the run-time libraries of some
 * languages and old binaries link to them. All that allocate or free must be ours, or an object of one allocator would
 * be given to the other. cfree left glibc's headers in 2.26, not its library. What only reports or tunes, and glibc's
 * private __libc_reallocarray, no program can confuse with ours. */

#if defined(__has_attribute)
#if __has_attribute(copy)
#define SAME_AS(function) __attribute__((alias(#function), copy(function)))
#endif
#endif
#ifndef SAME_AS
#define SAME_AS(function) __attribute__((alias(#function)))
#endif

EXPORT extern __typeof__(free) cfree SAME_AS(free);
EXPORT extern __typeof__(malloc) __libc_malloc SAME_AS(malloc);
EXPORT extern __typeof__(calloc) __libc_calloc SAME_AS(calloc);
EXPORT extern __typeof__(realloc) __libc_realloc SAME_AS(realloc);
EXPORT extern __typeof__(free) __libc_free SAME_AS(free);
EXPORT extern __typeof__(free) __libc_cfree SAME_AS(free);
EXPORT extern __typeof__(memalign) __libc_memalign SAME_AS(memalign);
EXPORT extern __typeof__(valloc) __libc_valloc SAME_AS(valloc);
EXPORT extern __typeof__(pvalloc) __libc_pvalloc SAME_AS(pvalloc);
EXPORT extern __typeof__(posix_memalign) __posix_memalign SAME_AS(posix_memalign);

#endif
