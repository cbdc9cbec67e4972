/* A library whose constructor allocates before heapfit's own has run and whose destructor frees after it: to be preloaded
 * behind heapfit, on which it does not depend. */
#include <stdlib.h>
#include <string.h>

static char *kept;

__attribute__((constructor(101))) static void allocate_early(void)
{
    kept = malloc(1000);
    if (kept == NULL) abort();
    memset(kept, 1, 1000);
    free(calloc(100, 100));
}

__attribute__((destructor(101))) static void free_late(void)
{
    free(kept);
    free(malloc(100));
}
