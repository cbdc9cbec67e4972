/* Counts the sizes that a program asks malloc for, and writes them when the program ends.
 *
 *   TRADING_SIZES=FOLDER LD_PRELOAD=.../sizes.so PROGRAM
 *
 * writes FOLDER/PROGRAM-PID.txt: a line `SIZE COUNT` for each size that was asked for, smallest first,
 * and `larger COUNT` for what is above the table. It counts the calls that the program makes by the
 * names below; the C library's allocator serves them. Calls that the C library makes to itself do not
 * come by here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LARGEST = 64 * 1024 };

/* One counter for each size; the last is for all larger ones. Threads add without any order: nobody
 * reads before the end. */
static atomic_ulong counts[LARGEST + 2];

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void count(size_t size)
{
    atomic_fetch_add_explicit(&counts[size > LARGEST ? LARGEST + 1 : size], 1, memory_order_relaxed);
}

void *malloc(size_t size)
{
    count(size);
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    count(number * size);
    return __libc_calloc(number, size);
}

void *realloc(void *block, size_t size)
{
    count(size);
    return __libc_realloc(block, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    count(size);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    count(size);
    *block = __libc_memalign(alignment, size);
    return *block == NULL ? ENOMEM : 0;
}

__attribute__((destructor)) static void write_counts(void)
{
    const char *folder = getenv("TRADING_SIZES");
    if (folder == NULL) {
        return;
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%d.txt", folder, program_invocation_short_name, (int)getpid());
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        perror(path);
        return;
    }
    for (size_t size = 0; size <= LARGEST; size++) {
        unsigned long seen = atomic_load_explicit(&counts[size], memory_order_relaxed);
        if (seen > 0) {
            fprintf(file, "%zu %lu\n", size, seen);
        }
    }
    fprintf(file, "larger %lu\n", atomic_load_explicit(&counts[LARGEST + 1], memory_order_relaxed));
    fclose(file);
}
