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

/* The first `count` slots hold live blocks, in no order. */
static micro_slot *slots;
static size_t count;
static uint64_t live, digest, operations;

static void grow(micro_random *random, size_t smallest, size_t largest)
{
    while (live < peak) {
        size_t size = micro_between(random, smallest, largest);
        slot_fill(&slots[count++], size, micro_next(random));
        live += size;
        operations++;
    }
}

static void shrink(micro_random *random)
{
    while (live > peak / 100 * remain) {
        micro_slot *dying = &slots[micro_below(random, count)];
        live -= dying->size;
        digest += slot_clear(dying);
        *dying = slots[--count];
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
    slots = micro_map((peak / ranges[0].smallest + 1) * sizeof *slots); /* its unused part is never touched */
    micro_random random = micro_random_start(0);
    double start = micro_now();
    for (uint64_t i = 0; i < phases; i++) {
        grow(&random, ranges[i % MICRO_COUNT(ranges)].smallest, ranges[i % MICRO_COUNT(ranges)].largest);
        shrink(&random);
    }
    digest += slots_clear(slots, count);
    return micro_report(operations, micro_now() - start, digest);
}
