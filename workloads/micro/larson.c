/* Does an allocator stay fast and small in a server whose threads free what others allocated?
 *
 * Each of `threads` chains of threads owns an array of blocks of random sizes. A thread replaces
 * random blocks, most of them left by its predecessor, then starts a successor, hands it the array and
 * ends. Follows Larson and Krishnan, "Memory allocation for long-running server applications"
 * (ISMM 1998).
 */
#include "micro.h"

static uint64_t threads = 2, generations = 100, operations = 100000, blocks = 5000, smallest = 16, largest = 1024;

/* What a chain of threads hands on. */
typedef struct {
    micro_worker *worker; /* where the chain adds up */
    micro_random random;
    micro_slot *slots;
    uint64_t generations_left;
} chain;

static chain chains[MICRO_MAX_THREADS];
static pthread_mutex_t ended_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended_changed = PTHREAD_COND_INITIALIZER;
static uint64_t ended; /* chains at their end; under ended_lock */
static pthread_attr_t detached;

static void end_chain(chain *own)
{
    own->worker->digest += slots_clear(own->slots, blocks);
    pthread_mutex_lock(&ended_lock);
    ended++;
    pthread_cond_signal(&ended_changed);
    pthread_mutex_unlock(&ended_lock);
}

static void *serve(void *argument)
{
    chain *own = argument;
    for (uint64_t i = 0; i < operations; i++) {
        micro_slot *slot = &own->slots[micro_below(&own->random, blocks)];
        own->worker->digest += slot_clear(slot);
        uint64_t tag = micro_next(&own->random);
        slot_fill(slot, micro_between(&own->random, smallest, largest), tag);
    }
    own->worker->operations += operations;
    if (--own->generations_left) micro_spawn(serve, own, &detached);
    else end_chain(own);
    return NULL;
}

static void start_chain(uint64_t index)
{
    micro_worker *worker = &micro_workers[index];
    chain *own = &chains[index];
    *own = (chain){worker, micro_random_start(index), micro_map(blocks * sizeof(micro_slot)), generations};
    for (uint64_t i = 0; i < blocks; i++) { /* by the main thread, as in the paper */
        uint64_t tag = micro_next(&own->random);
        slot_fill(&own->slots[i], micro_between(&own->random, smallest, largest), tag);
    }
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "does an allocator stay fast and small in a server that frees what others allocated?",
                (micro_option[]){{"threads", &threads, false, "alive at a time"},
                                 {"generations", &generations, true, "of threads, one after the other"},
                                 {"operations", &operations, false, "blocks that a thread replaces"},
                                 {"blocks", &blocks, false, "handed on from thread to thread"},
                                 {"smallest", &smallest, false, "size, in bytes"},
                                 {"largest", &largest, false, "size, in bytes"},
                                 {0}});
    micro_require(smallest >= 8 && smallest <= largest && threads >= 1 && threads <= MICRO_MAX_THREADS && blocks > 0,
                  "8 <= smallest <= largest, 1 to 1024 threads, and a block at least");
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (uint64_t i = 0; i < threads; i++) start_chain(i);
    double start = micro_now();
    for (uint64_t i = 0; i < threads; i++) micro_spawn(serve, &chains[i], &detached);
    pthread_mutex_lock(&ended_lock);
    while (ended < threads) pthread_cond_wait(&ended_changed, &ended_lock);
    pthread_mutex_unlock(&ended_lock);
    return micro_report_workers(threads, micro_now() - start);
}
