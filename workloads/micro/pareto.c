/* How does an allocator bear sizes and lifetimes as programs have them: most small and short, some not?
 *
 * Sizes follow a Pareto distribution. Lifetimes are random: each new block replaces the one in a slot
 * drawn with a bias, so that a few slots turn over fast and most hold their block long. Follows
 * Zorn and Grunwald, "Evaluating models of memory allocation" (TOMACS 1994), on what to draw, and
 * Ignatchenko, "Testing memory allocators" (2018), on Pareto-distributed sizes.
 */
#include "micro.h"
#include <math.h>

static uint64_t operations = 12000000, slots = 1000000, smallest = 16, largest = 65535, threads = 1;

/* Of the distribution's tail: with 1.25 three blocks in five are under 32 bytes, and about half of all
 * bytes are in blocks over 256, as the size histograms of the literature have it. */
static const double PARETO_SHAPE = 1.25;
/* The inverse distribution function in equal steps, so that a draw costs no power function. */
static uint32_t sizes[1 << 16];
/* A slot's index is this power of a uniform number: an eighth of the slots takes half of the turnover. */
#define BIASED(unit) ((unit) * (unit) * (unit))

static void draw_sizes(void)
{
    for (size_t i = 0; i < MICRO_COUNT(sizes); i++) {
        double size = (double)smallest * pow((double)(i + 1) / MICRO_COUNT(sizes), -1 / PARETO_SHAPE);
        sizes[i] = size < (double)largest ? (uint32_t)size : (uint32_t)largest;
    }
}

static void *work(void *argument)
{
    micro_worker *worker = argument;
    micro_random random = micro_random_start(worker->index);
    void **held = micro_map(slots * sizeof *held);
    for (uint64_t i = 0; i < operations; i++) {
        void **slot = &held[(size_t)(BIASED(micro_unit(&random)) * (double)(slots - 1))];
        worker->digest += tagged_free(*slot);
        *slot = tagged_new(sizes[micro_below(&random, MICRO_COUNT(sizes))], &random);
    }
    for (uint64_t i = 0; i < slots; i++) worker->digest += tagged_free(held[i]);
    worker->operations = operations;
    return NULL;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "how does an allocator bear sizes and lifetimes as programs have them?",
                (micro_option[]){{"operations", &operations, true, "blocks allocated per thread"},
                                 {"slots", &slots, false, "blocks that live at most, per thread"},
                                 {"smallest", &smallest, false, "size, in bytes"},
                                 {"largest", &largest, false, "size, in bytes"},
                                 {"threads", &threads, false, "that do so, each on its own"},
                                 {0}});
    micro_require(smallest >= 8 && smallest <= largest && largest <= TAGGED_LIMIT && slots > 0,
                  "8 <= smallest <= largest < 64 KiB, and a slot at least");
    draw_sizes();
    double start = micro_now();
    micro_run(threads, work);
    return micro_report_workers(threads, micro_now() - start);
}
