/* What does it cost to free objects that are no longer in the cache, and to allocate as many again?
 *
 * So does a garbage collector's sweep, and a request that drops everything at its end. Blocks are allocated and written,
 * their order is shuffled, and they are freed in that order without being read; then as many are allocated again, and written, as
 * a program would: an allocator that fetches a block into the cache saves the program that wait. Freeing and allocating are timed
 * apart, and of several rounds the fastest counts, since the first use of a page is another matter.
 */
#include "micro.h"

static uint64_t objects = 1000000, size = 64, rounds = 5;

static void allocate_all(void **blocks)
{
    for (uint64_t i = 0; i < objects; i++) blocks[i] = block_new(size, micro_mix(micro_seed << 32 ^ i));
}

static uint64_t check_all(void **blocks)
{
    uint64_t digest = 0;
    for (uint64_t i = 0; i < objects; i++) digest += block_check(blocks[i], size);
    return digest;
}

static void shuffle(void **blocks, micro_random *random)
{
    for (uint64_t i = objects - 1; i > 0; i--) {
        uint64_t other = micro_below(random, i + 1);
        void *block = blocks[i];
        blocks[i] = blocks[other];
        blocks[other] = block;
    }
}

static void free_all(void **blocks)
{
    for (uint64_t i = 0; i < objects; i++) free(blocks[i]);
}

/* The shorter of a time so far and one that began at `start`. */
static double shorter(double best, double start)
{
    double time = micro_now() - start;
    return time < best ? time : best;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does it cost to free objects that are no longer in the cache?",
                (micro_option[]){{"objects", &objects, true, "allocated, then freed in random order"},
                                 {"size", &size, false, "of each, in bytes"},
                                 {"rounds", &rounds, false, "of which the fastest counts"},
                                 {0}});
    micro_require(objects >= 1 && size >= 8 && rounds >= 1, "at least one object of 8 bytes and one round");
    micro_random random = micro_random_start(0);
    void **blocks = micro_map(objects * sizeof *blocks);
    double begin = micro_now(), frees = 1e9, allocations = 1e9;
    uint64_t digest = 0;
    allocate_all(blocks);
    for (uint64_t round = 0; round < rounds; round++) {
        digest += check_all(blocks);
        shuffle(blocks, &random);
        double start = micro_now();
        free_all(blocks);
        frees = shorter(frees, start);
        start = micro_now();
        allocate_all(blocks);
        allocations = shorter(allocations, start);
    }
    free_all(blocks);
    printf("free_ns: %.2f\n", frees / (double)objects * 1e9);
    printf("allocate_ns: %.2f\n", allocations / (double)objects * 1e9);
    printf("both_ns: %.2f\n", (frees + allocations) / (double)objects * 1e9);
    return micro_report((rounds + 1) * objects, micro_now() - begin, digest);
}
