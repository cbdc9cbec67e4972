// The C library's malloc family over an allocator that is written in Rust and knows neither threads
// nor C: the catalogue's recipes compile it together with one of the .rs files beside it, which
// defines the five functions named rust_*.
//
// One lock is held around each of them, as those allocators were made for one thread. It is taken
// before a fork and given back on both sides, so that a child finds the heap whole.

#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The build hides all names; these are what a preloaded library is for.
#define EXPORT __attribute__((visibility("default")))

// What malloc promises for any type.
enum { NATURAL_ALIGNMENT = 16 };

// `alignment` is a power of two, NATURAL_ALIGNMENT or more; NULL when there is no memory.
void *rust_allocate(size_t size, size_t alignment);
// As realloc of a block that is not NULL to a size that is not 0: keeps NATURAL_ALIGNMENT.
void *rust_resize(void *block, size_t size);
void rust_release(void *block);
size_t rust_usable_size(void *block);
// Gives free memory but `keep` bytes back to the kernel; tells whether it gave any.
bool rust_trim(size_t keep);

// ---------------------------------------------------------------------- lock

static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_heap(void)
{
    pthread_mutex_lock(&heap_lock);
}

static void unlock_heap(void)
{
    pthread_mutex_unlock(&heap_lock);
}

__attribute__((constructor)) static void survive_forks(void)
{
    pthread_atfork(lock_heap, unlock_heap, unlock_heap);
}

// ------------------------------------------------------------------- helpers

// Sizes above PTRDIFF_MAX are no objects, in C as in Rust.
static bool is_possible(size_t size)
{
    return size <= PTRDIFF_MAX;
}

static bool is_power_of_two(size_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

static void *allocate(size_t size, size_t alignment)
{
    if (alignment < NATURAL_ALIGNMENT) {
        alignment = NATURAL_ALIGNMENT;
    }
    void *block = NULL;
    if (is_possible(size) && is_possible(alignment)) {
        lock_heap();
        block = rust_allocate(size, alignment);
        unlock_heap();
    }
    if (block == NULL) {
        errno = ENOMEM;
    }
    return block;
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

// -------------------------------------------------------------------- malloc

EXPORT void *malloc(size_t size)
{
    return allocate(size, NATURAL_ALIGNMENT);
}

EXPORT void free(void *block)
{
    if (block == NULL) {
        return;
    }
    int saved = errno;  // giving memory back may fail, which is nothing to the caller
    lock_heap();
    rust_release(block);
    unlock_heap();
    errno = saved;
}

EXPORT void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    void *block = allocate(bytes, NATURAL_ALIGNMENT);
    return block == NULL ? NULL : memset(block, 0, bytes);
}

EXPORT void *realloc(void *block, size_t size)
{
    if (block == NULL) {
        return malloc(size);
    }
    if (size == 0) {
        free(block);
        return NULL;
    }
    void *resized = NULL;
    if (is_possible(size)) {
        lock_heap();
        resized = rust_resize(block, size);
        unlock_heap();
    }
    if (resized == NULL) {
        errno = ENOMEM;
    }
    return resized;
}

EXPORT void *reallocarray(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, bytes);
}

// ----------------------------------------------------------------- alignment

EXPORT int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0) {
        return EINVAL;
    }
    int saved = errno;  // the answer is the error; errno stays the caller's
    void *block = allocate(size, alignment);
    errno = saved;
    if (block == NULL) {
        return ENOMEM;
    }
    *result = block;
    return 0;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    if (!is_power_of_two(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    return allocate(size, alignment);
}

EXPORT void *memalign(size_t alignment, size_t size)
{
    size_t power = NATURAL_ALIGNMENT;
    while (power < alignment && power <= PTRDIFF_MAX / 2) {
        power *= 2;  // the C library's memalign rounds up
    }
    if (power < alignment) {
        errno = EINVAL;
        return NULL;
    }
    return allocate(size, power);
}

EXPORT void *valloc(size_t size)
{
    return allocate(size, page_size());
}

EXPORT void *pvalloc(size_t size)
{
    size_t page = page_size();
    if (!is_possible(size)) {
        errno = ENOMEM;
        return NULL;
    }
    return allocate((size + page - 1) & ~(page - 1), page);
}

// ------------------------------------------------------------------- enquiry

EXPORT size_t malloc_usable_size(void *block)
{
    // A block's size changes only through its owner, who is the one that asks.
    return block == NULL ? 0 : rust_usable_size(block);
}

EXPORT int malloc_trim(size_t keep)
{
    lock_heap();
    bool gave_back = rust_trim(keep);
    unlock_heap();
    return gave_back;
}
