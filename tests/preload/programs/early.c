/* A function that is chosen at run time, by a resolver that allocates: before the allocator's thread-local variables are written. */
#include <stdlib.h>
#include <string.h>

static void *early[3];

static int one(void)
{
    return 1;
}

static int (*choose(void))(void)
{
    static const size_t sizes[] = {100, 5000, 1 << 20};
    for (int i = 0; i < 3; i++) {
        early[i] = malloc(sizes[i]);
        memset(early[i], 1, sizes[i]);
        free(malloc(sizes[i]));
    }
    return one;
}

static int chosen(void) __attribute__((ifunc("choose")));

int main(void)
{
    for (int i = 0; i < 3; i++) free(early[i]);
    free(malloc(100));
    return chosen() == 1 ? 0 : 1;
}
