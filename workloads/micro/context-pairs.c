/* What does a malloc and a free cost, in a heap that never tidies?
 *
 * Among `live` objects of mixed sizes, a random one is freed and another allocated, again and again; objects are hardly touched,
 * so that the calls are most of the work. With malloc (mode 0) it is any allocator's question; in a context of heapfit's
 * (mode 1) it is that of Inoue, Komatsu and Nakatani, "A Study of Memory Management for Web-based Applications on Multicore
 * Processors" (PLDI 2009), section 3.1. Mode 3 tells what the loop takes without an allocator.
 */
#include "transaction.h"

static uint64_t operations = 50000000, live = 512, mode = MODE_MALLOC;

enum { LIVE_MAX = 1 << 16 };
static void *objects[LIVE_MAX];
static uint64_t tags[LIVE_MAX];
static uint16_t order[TRANSACTION_DRAWN];

__attribute__((always_inline)) static inline uint64_t loop(unsigned constant_mode)
{
    uint64_t digest = 0;
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t place = order[i % TRANSACTION_DRAWN];
        if (objects[place]) {
            digest += transaction_check(constant_mode, objects[place], tags[place]);
            transaction_free(constant_mode, objects[place]);
        }
        tags[place] = i * 2 + 1;
        objects[place] = transaction_new(constant_mode, transaction_sizes[i % TRANSACTION_DRAWN], tags[place]);
    }
    return digest;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does a malloc and a free cost?",
                (micro_option[]){{"operations", &operations, true, "pairs of malloc and free"},
                                 {"live", &live, false, "objects at a time"},
                                 {"mode", &mode, false, MODE_HELP},
                                 {0}});
    micro_require(live > 0 && live <= LIVE_MAX, "live is from 1 to 65536");
    transaction_start(mode);
    micro_random random = micro_random_start(0);
    transaction_draw_sizes(&random);
    for (size_t i = 0; i < TRANSACTION_DRAWN; i++) order[i] = (uint16_t)micro_below(&random, live);
    double start = micro_now();
    uint64_t digest = TRANSACTION_RUN(loop, mode);
    return micro_report(operations, micro_now() - start, digest + micro_next(&random));
}
