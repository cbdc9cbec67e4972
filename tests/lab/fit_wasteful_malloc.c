/* A malloc that wastes two pages with each block: an allocator that anything is better than. */
#include <stddef.h>

enum { PAGE = 4 << 10 };

void *__libc_malloc(size_t size);

void *malloc(size_t size)
{
    char *block = __libc_malloc(size + 2 * PAGE);
    if (block != NULL) block[size + PAGE] = block[size + 2 * PAGE - 1] = 1;
    return block;
}
