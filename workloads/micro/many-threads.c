/* What does a thread cost that allocates little, when there are thousands of them?
 *
 * Round after round, `threads` threads are born, allocate a few blocks each and wait until all have done
 * so; then they free their blocks and end. Caches and heaps per thread cost memory and set-up time that
 * so little work cannot earn back: servers with a thread per connection. The space cost of private
 * heaps is treated by Berger et al., "Hoard" (ASPLOS 2000), section 2, and by Larson and Krishnan (ISMM 1998).
 */
#include "micro.h"

static uint64_t threads = 2000, rounds = 6, blocks = 32, smallest = 16, largest = 512;

enum { MOST_THREADS = 16384, STACK = 64 << 10 }; /* a small stack: it is not what is measured */

static pthread_t handles[MOST_THREADS];
static uint64_t digests[MOST_THREADS];
static pthread_barrier_t all_allocated;

static void *allocate_few(void *argument)
{
    uint64_t *digest = argument;
    micro_random random = micro_random_start((uint64_t)(digest - digests));
    micro_slot held[256];
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t tag = micro_next(&random);
        slot_fill(&held[i], micro_between(&random, smallest, largest), tag);
    }
    pthread_barrier_wait(&all_allocated);
    *digest += slots_clear(held, blocks);
    return NULL;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does a thread cost that allocates little?",
                (micro_option[]){{"threads", &threads, false, "alive at a time, at most 16384"},
                                 {"rounds", &rounds, true, "of so many threads"},
                                 {"blocks", &blocks, false, "that each thread allocates, at most 256"},
                                 {"smallest", &smallest, false, "size, in bytes"},
                                 {"largest", &largest, false, "size, in bytes"},
                                 {0}});
    micro_require(threads >= 1 && threads <= MOST_THREADS && blocks <= 256, "1 to 16384 threads, 256 blocks at most");
    micro_require(smallest >= 8 && smallest <= largest, "8 <= smallest <= largest");
    pthread_attr_t small_stack;
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, STACK);
    pthread_barrier_init(&all_allocated, NULL, (unsigned)threads);
    double start = micro_now();
    for (uint64_t round = 0; round < rounds; round++) {
        for (uint64_t i = 0; i < threads; i++) handles[i] = micro_spawn(allocate_few, &digests[i], &small_stack);
        for (uint64_t i = 0; i < threads; i++) pthread_join(handles[i], NULL);
    }
    uint64_t digest = 0;
    for (uint64_t i = 0; i < threads; i++) digest += digests[i];
    return micro_report(rounds * threads * blocks, micro_now() - start, digest);
}
