/* steady_work: the same work at each run, for the benchmark of what measuring costs.
 *
 *   steady_work ROUNDS
 *
 * A round replaces blocks of many sizes in a heap of some 20 MiB and writes to each, so that what disturbs a cache,
 * a page table or the scheduler is felt as it is by a real program.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 10000, LARGEST = 4096, REPLACED_IN_A_ROUND = 1000 };

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

int main(int argc, char **argv)
{
    static void *blocks[BLOCKS];
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    uint32_t random = 2463534242;
    for (long left = rounds * REPLACED_IN_A_ROUND; left > 0; left--) {
        void **block = &blocks[next_random(&random) % BLOCKS];
        size_t size = 1 + next_random(&random) % LARGEST;
        free(*block);
        *block = malloc(size);
        if (*block == NULL) {
            fputs("steady_work: out of memory\n", stderr);
            return EXIT_FAILURE;
        }
        memset(*block, (int)left, size);
    }
    return EXIT_SUCCESS;
}
