/* How much memory does a heap of many small, long-lived objects need beyond the objects themselves?
 *
 * Builds a large population of small objects, then lets a few random ones die and others of slightly
 * different sizes take their place, round after round, as a cache or an index does. Nearly everything
 * survives, so holes are small and scattered: headers, rounding and holes decide about the memory.
 * Follows Robson, "Worst case fragmentation of first fit and best fit storage allocation strategies" (1977),
 * Johnstone and Wilson, "The memory fragmentation problem: solved?" (ISMM 1998), and Bohra and Gabber,
 * "Are mallocs free of fragmentation?" (USENIX 2001).
 */
#include "micro.h"

static uint64_t objects = 2000000, rounds = 8, deaths = 10, smallest = 16, largest = 160;

static void **slots;
static uint64_t live, live_peak, digest, operations;

static void bear(void **slot, size_t size, micro_random *random)
{
    *slot = tagged_new(size, random);
    live += size;
    live_peak = live > live_peak ? live : live_peak;
    operations++;
}

static void bury(void **slot)
{
    live -= *slot ? tagged_size(*slot) : 0;
    digest += tagged_free(*slot);
    *slot = NULL;
}

/* Deaths come before births, so that what died can serve what is born only where it fits. */
static void run_round(micro_random *random, uint64_t round)
{
    uint64_t dying = objects * deaths / 100;
    micro_random again = *random;
    for (uint64_t i = 0; i < dying; i++) bury(&slots[micro_below(random, objects)]);
    for (uint64_t i = 0; i < dying; i++) {
        void **slot = &slots[micro_below(&again, objects)];
        uint64_t drift = round * 8; /* objects of later rounds are somewhat larger */
        if (!*slot) bear(slot, micro_between(random, smallest, largest) + drift, random);
    }
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "how much memory do many small, long-lived objects need?",
                (micro_option[]){{"objects", &objects, true, "that live"},
                                 {"rounds", &rounds, false, "of deaths and births"},
                                 {"deaths", &deaths, false, "percentage of the objects that die in a round"},
                                 {"smallest", &smallest, false, "size, in bytes"},
                                 {"largest", &largest, false, "size, in bytes; 8 more each round"},
                                 {0}});
    micro_require(objects > 0 && deaths <= 100 && rounds <= 1000, "an object at least, 1000 rounds at most");
    micro_require(smallest >= 8 && smallest <= largest && largest <= 32768, "8 <= smallest <= largest <= 32 KiB");
    slots = micro_map(objects * sizeof *slots);
    micro_random random = micro_random_start(0);
    double start = micro_now();
    for (uint64_t i = 0; i < objects; i++) bear(&slots[i], micro_between(&random, smallest, largest), &random);
    for (uint64_t round = 1; round <= rounds; round++) run_round(&random, round);
    printf("live_peak_bytes: %" PRIu64 "\n", live_peak);
    for (uint64_t i = 0; i < objects; i++) digest += tagged_free(slots[i]);
    return micro_report(operations, micro_now() - start, digest);
}
