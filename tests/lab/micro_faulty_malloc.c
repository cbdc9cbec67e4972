/* A malloc that is wrong in one way, chosen by FAULT, over the system's own: for the tests that the
 * micro-benchmarks notice. Blocks of 40 to 60000 bytes go wrong, so that the C library's own start works.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void __libc_free(void *block);

static const char *fault(void)
{
    const char *name = getenv("FAULT");
    return name ? name : "";
}

static int affected(size_t size)
{
    return size >= 40 && size <= 60000;
}

void *malloc(size_t size)
{
    static char *handed_out; /* to be handed out a second time */
    if (!affected(size)) return __libc_malloc(size);
    if (strcmp(fault(), "no-memory") == 0) return NULL;
    if (strcmp(fault(), "misaligned") == 0) return (char *)__libc_malloc(size + 16) + 4;
    int overlapping = strcmp(fault(), "overlapping-blocks") == 0;
    if (!overlapping && strcmp(fault(), "same-block-twice") != 0) return __libc_malloc(size);
    char *block = handed_out ? handed_out + (overlapping ? 16 : 0) : __libc_malloc(1 << 17);
    handed_out = handed_out ? NULL : block;
    return block;
}

void *calloc(size_t count, size_t size)
{
    void *block = __libc_calloc(count, size);
    if (block && affected(count * size) && strcmp(fault(), "dirty-calloc") == 0) memset(block, 1, count * size);
    return block;
}

void *realloc(void *block, size_t size)
{
    void *grown = __libc_realloc(block, size);
    if (grown && block && affected(size) && strcmp(fault(), "forgetful-realloc") == 0) memset(grown, 0, size);
    return grown;
}

/* Blocks that went wrong cannot be freed; these programs are short. */
void free(void *block)
{
    if (strcmp(fault(), "") == 0) __libc_free(block);
}
