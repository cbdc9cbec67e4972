/* What `heapfit fit` is tried on: allocates and frees for some tens of milliseconds beside 32 MiB that
 * are not malloc's. It fails where the variable that its first argument names is set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LIVE = 4096, CALLS = 1000000, ASIDE = 32 << 20 };

int main(int argc, char **argv)
{
    static char *live[LIVE];
    if (argc > 1 && getenv(argv[1]) != NULL) return 3;
    char *aside = mmap(NULL, ASIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (aside == MAP_FAILED) return 1;
    memset(aside, 1, ASIDE);
    unsigned long sum = 0, chance = 1;
    for (int call = 0; call < CALLS; call++) {
        chance = chance * 6364136223846793005UL + 1442695040888963407UL;
        size_t at = chance >> 52, size = 16 + (chance >> 40) % 500;
        free(live[at]);
        live[at] = malloc(size);
        if (live[at] == NULL) return 1;
        live[at][0] = (char)size;
        sum += size;
    }
    printf("%lu\n", sum + (unsigned long)aside[sum % ASIDE]);
    return 0;
}
