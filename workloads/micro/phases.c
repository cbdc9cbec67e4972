/* Can memory that one phase of a program has used serve the next phase, which asks for other sizes?
 *
 * The live heap grows to a peak with blocks of one range of sizes, shrinks to a small part of it by
 * random deaths, then grows again with blocks of another range. A heap that keeps what it has for the
 * sizes it was cut into holds the sum of the phases. Follows the ramps, peaks and plateaus of Wilson,
 * Johnstone, Neely and Boles, "Dynamic storage allocation: a survey and critical review" (IWMM 1995).
 */
#include "micro.h"

static uint64_t phases = 8, peak = 128 << 20, remain = 5;

static const struct {
    size_t smallest, largest;
} ranges[] = {{16, 128}, {512, 4096}, {64, 512}, {2048, 16384}};

/* The first `count` entries are live blocks, in no order. */
static void **blocks;
static size_t count;
static uint64_t live, digest, operations;

static void grow(micro_random *random, size_t smallest, size_t largest)
{
    while (live < peak) {
        size_t size = micro_between(random, smallest, largest);
        blocks[count++] = tagged_new(size, random);
        live += size;
        operations++;
    }
}

static void shrink(micro_random *random)
{
    while (live > peak / 100 * remain) {
        void **dying = &blocks[micro_below(random, count)];
        live -= tagged_size(*dying);
        digest += tagged_free(*dying);
        *dying = blocks[--count];
    }
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "can memory of one phase of a program serve the next?",
                (micro_option[]){{"phases", &phases, true, "of growing and shrinking"},
                                 {"peak", &peak, false, "live bytes at which a phase shrinks"},
                                 {"remain", &remain, false, "percentage of the peak that outlives a phase"},
                                 {0}});
    micro_require(peak > 0 && remain < 100, "a peak, and less than 100 percent remain");
    blocks = micro_map((peak / ranges[0].smallest + 1) * sizeof *blocks); /* its unused part is never touched */
    micro_random random = micro_random_start(0);
    double start = micro_now();
    for (uint64_t i = 0; i < phases; i++) {
        grow(&random, ranges[i % MICRO_COUNT(ranges)].smallest, ranges[i % MICRO_COUNT(ranges)].largest);
        shrink(&random);
    }
    while (count) digest += tagged_free(blocks[--count]);
    return micro_report(operations, micro_now() - start, digest);
}
