/* What does a request's memory cost, from its first object to its end?
 *
 * A request allocates many small objects of mixed sizes. Of them `freed` percent die while it runs, a little after they were
 * born; the rest when it ends: with malloc (mode 0) one by one, in a context or region of heapfit's (modes 1, 2) all at once.
 * The pattern of a PHP script's run, after Inoue, Komatsu and Nakatani, "A Study of Memory Management for Web-based
 * Applications on Multicore Processors" (PLDI 2009), section 4.2. With --freed 0 nothing can be used again: then a region, which
 * does nothing but count up, shows what the least is.
 */
#include "transaction.h"

static uint64_t requests = 1000, allocated = 30000, freed = 85, mode = MODE_MALLOC;

/* So many others are born before an object dies. */
enum { LAG = 64, PERCENT = 100 };

static bool dies_early[TRANSACTION_DRAWN];
static void **kept; /* until the end */

/* One request's objects; `first` numbers them. */
__attribute__((always_inline)) static inline uint64_t request(unsigned constant_mode, uint64_t first)
{
    void *recent[LAG] = {0};
    uint64_t digest = 0;
    size_t kept_count = 0;
    for (uint64_t i = 0; i < allocated + LAG; i++) {
        void **place = &recent[i % LAG];
        if (*place) {
            digest += transaction_check(constant_mode, *place, first + i - LAG);
            if (dies_early[i % TRANSACTION_DRAWN]) transaction_free(constant_mode, *place);
            else kept[kept_count++] = *place;
        }
        *place = i < allocated
                     ? transaction_new(constant_mode, transaction_sizes[(first + i) % TRANSACTION_DRAWN], first + i)
                     : NULL;
    }
    if (constant_mode == MODE_MALLOC)
        for (size_t i = 0; i < kept_count; i++) free(kept[i]);
    transaction_end(constant_mode);
    return digest;
}

__attribute__((always_inline)) static inline uint64_t loop(unsigned constant_mode)
{
    uint64_t digest = 0;
    for (uint64_t i = 0; i < requests; i++) digest += request(constant_mode, i * allocated + 1);
    return digest;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does a request's memory cost?",
                (micro_option[]){{"requests", &requests, true, "one after the other"},
                                 {"objects", &allocated, false, "that each allocates"},
                                 {"freed", &freed, false, "percent that die before the request ends"},
                                 {"mode", &mode, false, MODE_HELP},
                                 {0}});
    micro_require(freed <= PERCENT && allocated > 0, "freed is at most 100, and there are objects");
    transaction_start(mode);
    micro_random random = micro_random_start(0);
    transaction_draw_sizes(&random);
    for (size_t i = 0; i < TRANSACTION_DRAWN; i++) dies_early[i] = micro_below(&random, PERCENT) < freed;
    kept = micro_map(allocated * sizeof *kept);
    double start = micro_now();
    uint64_t digest = TRANSACTION_RUN(loop, mode);
    return micro_report(requests * allocated, micro_now() - start, digest + micro_next(&random));
}
