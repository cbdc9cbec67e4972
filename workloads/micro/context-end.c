/* What does it cost to give a million objects back?
 *
 * Allocates many small objects of mixed sizes and times only how they go: with --each 1 one by one in the order of their birth, as
 * a program without a transaction heap must; with --each 0 all at once, which needs a context or a region of heapfit's.
 */
#include "transaction.h"

static uint64_t objects = 1000000, rounds = 5, each = 1, mode = MODE_MALLOC;

static void **all;

__attribute__((always_inline)) static inline void fill(unsigned constant_mode)
{
    for (uint64_t i = 0; i < objects; i++)
        all[i] = transaction_new(constant_mode, transaction_sizes[i % TRANSACTION_DRAWN], i);
}

__attribute__((always_inline)) static inline void empty(unsigned constant_mode)
{
    if (each)
        for (uint64_t i = 0; i < objects; i++) transaction_free(constant_mode, all[i]);
    else transaction_end(constant_mode);
}

/* Seconds of the fastest round: the first has to get its memory first, and the clock is read but twice a round. */
__attribute__((always_inline)) static inline double loop(unsigned constant_mode)
{
    double least = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        fill(constant_mode);
        double start = micro_now();
        empty(constant_mode);
        double seconds = micro_now() - start;
        if (i == 0 || seconds < least) least = seconds;
        if (each) transaction_end(constant_mode);
    }
    return least;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does it cost to give a million objects back?",
                (micro_option[]){{"objects", &objects, true, "that are given back"},
                                 {"rounds", &rounds, false, "of which the fastest counts"},
                                 {"each", &each, false, "1: one by one, 0: all at once"},
                                 {"mode", &mode, false, MODE_HELP},
                                 {0}});
    micro_require(each || mode == MODE_CONTEXT || mode == MODE_REGION, "all at once needs mode 1 or 2");
    micro_require(rounds > 0, "there is a round");
    transaction_start(mode);
    micro_random random = micro_random_start(0);
    transaction_draw_sizes(&random);
    all = micro_map(objects * sizeof *all);
    double seconds = TRANSACTION_RUN(loop, mode);
    return micro_report(objects, seconds, micro_next(&random));
}
