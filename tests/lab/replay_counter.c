/* A malloc family to preload, for tests of the replay: it counts the calls by kind and passes them on to libc. The counts go
 * to standard error when the process ends: a line `NAME CALLS BYTES` each. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t), __libc_free(void *);

enum { MALLOC, CALLOC, REALLOC, ALIGNED, FREE, NEW, NEW_ALIGNED, DELETE, KINDS };
static const char *const names[] = {"malloc", "calloc", "realloc", "aligned", "free", "new", "new_aligned", "delete"};
static _Atomic(size_t) calls[KINDS], bytes[KINDS];

static void count(int kind, size_t size)
{
    atomic_fetch_add_explicit(&calls[kind], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&bytes[kind], size, memory_order_relaxed);
}

void *malloc(size_t size)
{
    count(MALLOC, size);
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    count(CALLOC, number * size);
    return __libc_calloc(number, size);
}

void *realloc(void *block, size_t size)
{
    count(REALLOC, size);
    return __libc_realloc(block, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    count(ALIGNED, size);
    *block = __libc_memalign(alignment, size);
    return *block == NULL;
}

void free(void *block)
{
    if (block != NULL) count(FREE, 0);
    __libc_free(block);
}

/* C++'s operators, by the names that they have for the linker. */
void *_Znwm(size_t size)
{
    count(NEW, size);
    return __libc_malloc(size);
}

void *_ZnwmSt11align_val_t(size_t size, size_t alignment)
{
    count(NEW_ALIGNED, size);
    return __libc_memalign(alignment, size);
}

void _ZdlPv(void *block)
{
    count(DELETE, 0);
    __libc_free(block);
}

void _ZdlPvSt11align_val_t(void *block, size_t alignment)
{
    (void)alignment;
    _ZdlPv(block);
}

/* Not of children: the one that plays without calls ends by _exit. */
__attribute__((destructor)) static void tell(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        dprintf(STDERR_FILENO, "%s %zu %zu\n", names[kind], calls[kind], bytes[kind]);
}
