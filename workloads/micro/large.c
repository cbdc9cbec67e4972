/* What do large blocks of many sizes cost, in time and in memory held?
 *
 * Each thread holds a few blocks of 32 KiB to 8 MiB, evenly spread over the powers of two, and replaces a random
 * one at each step; every page is touched. An allocator that returns each block to the kernel pays for
 * its pages again, one that keeps them all holds memory, and one that keeps them for everybody makes the
 * threads wait for each other: buffers of image, video and network programs.
 * Large objects are a class of their own since Knuth, The Art of Computer Programming 1 (1968), 2.5, and
 * in Berger, Zorn and McKinley, "Reconsidering custom memory allocation" (OOPSLA 2002).
 */
#include "micro.h"

static uint64_t operations = 30000, slots = 64, smallest = 15, largest = 23, threads = 1;

static void *work(void *argument)
{
    micro_worker *worker = argument;
    micro_slot *held = micro_map(slots * sizeof *held);
    micro_random random = micro_random_start(worker->index);
    for (uint64_t i = 0; i < operations; i++) {
        micro_slot *slot = &held[micro_below(&random, slots)];
        worker->digest += slot_clear(slot);
        slot_fill(slot, micro_log_uniform(&random, (unsigned)smallest, (unsigned)largest), micro_next(&random));
    }
    worker->digest += slots_clear(held, slots);
    worker->operations = operations;
    return NULL;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what do large blocks of many sizes cost?",
                (micro_option[]){{"operations", &operations, true, "blocks allocated per thread"},
                                 {"slots", &slots, false, "blocks that live per thread"},
                                 {"smallest", &smallest, false, "size, as a power of two"},
                                 {"largest", &largest, false, "size, as a power of two"},
                                 {"threads", &threads, false, "that do so, each on its own"},
                                 {0}});
    micro_require(slots > 0 && smallest >= 4 && smallest < largest && largest <= 31, "4 <= smallest < largest <= 31");
    double start = micro_now();
    micro_run(threads, work);
    return micro_report_workers(threads, micro_now() - start);
}
