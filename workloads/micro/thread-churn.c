/* What remains of a thread's heap when the thread is gone and some of its blocks live on?
 *
 * Threads are born and die one after the other in `lanes` at a time. Each allocates some blocks, frees
 * most of them, puts the rest into a queue that outlives it and frees the oldest blocks of the queue,
 * which threads long dead allocated. The blocks alive are bounded, so memory that grows with the
 * number of threads is lost. Follows the blow-up of Berger et al., "Hoard" (ASPLOS 2000), section 2, and
 * Larson and Krishnan (ISMM 1998) on threads that die; --births 100000 is the long version.
 */
#include "micro.h"

static uint64_t births = 40000, lanes = 2, blocks = 200, survivors = 20, queue = 100000, smallest = 16, largest = 512;

/* Threads of one lane follow each other, so that the lane needs no lock. */
typedef struct {
    micro_worker *worker;
    micro_random random;
    micro_slot *queue;
    uint64_t next; /* oldest place of the queue */
} lane;

static void *live_and_die(void *argument)
{
    lane *own = argument;
    micro_slot held[256];
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t tag = micro_next(&own->random);
        slot_fill(&held[i], micro_between(&own->random, smallest, largest), tag);
    }
    for (uint64_t i = 0; i < blocks; i++) {
        if (i % (blocks / survivors) != 0) {
            own->worker->digest += slot_clear(&held[i]);
            continue;
        }
        micro_slot *place = &own->queue[own->next++ % queue];
        own->worker->digest += slot_clear(place);
        *place = held[i];
    }
    own->worker->operations += blocks;
    return NULL;
}

static void *run_lane(void *argument)
{
    micro_worker *worker = argument;
    lane own = {worker, micro_random_start(worker->index), micro_map(queue * sizeof(micro_slot)), 0};
    for (uint64_t i = worker->index; i < births; i += lanes) pthread_join(micro_spawn(live_and_die, &own, NULL), NULL);
    worker->digest += slots_clear(own.queue, queue);
    return NULL;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what remains of a thread's heap when some of its blocks outlive it?",
                (micro_option[]){{"births", &births, true, "of threads, in all lanes together"},
                                 {"lanes", &lanes, false, "threads alive at a time"},
                                 {"blocks", &blocks, false, "that each allocates, at most 256"},
                                 {"survivors", &survivors, false, "blocks of each that outlive it"},
                                 {"queue", &queue, false, "such blocks alive at most, per lane"},
                                 {"smallest", &smallest, false, "size, in bytes"},
                                 {"largest", &largest, false, "size, in bytes"},
                                 {0}});
    micro_require(smallest >= 8 && smallest <= largest && blocks <= 256 && queue > 0, "8 <= smallest <= largest");
    micro_require(survivors >= 1 && survivors <= blocks, "1 <= survivors <= blocks");
    printf("live_bound_bytes: %" PRIu64 "\n", lanes * queue * (smallest + largest) / 2);
    double start = micro_now();
    micro_run(lanes, run_lane);
    return micro_report_workers(lanes, micro_now() - start);
}
