/* A library for attached_scopes.c: it allocates before it is attached to, and frees afterwards. With OWN it has an allocator of its
 * own, which minds whose block it is given. */
#include <stdlib.h>
#include <string.h>

void plugin_begins(void);
void plugin_ends(void);

#ifdef OWN
static char arena[1 << 16];
static size_t used;

void *malloc(size_t size)
{
    char *block = arena + used;
    used += (size + 15) & ~(size_t)15;
    return block;
}

void free(void *block)
{
    if ((char *)block < arena || (char *)block >= arena + sizeof arena) abort();
}
#endif

static void *kept;

void plugin_begins(void)
{
    kept = malloc(100);
    memset(kept, 1, 100);
}

void plugin_ends(void)
{
    free(kept);
    kept = malloc(200);
    memset(kept, 1, 200);
    free(kept);
}
