/* Does an allocator make threads that share nothing share cache lines?
 *
 * Active: each thread allocates a small block, writes to it many times, frees it, and again. If blocks
 * of two threads lie in one line, the line travels at every write. Passive: the same, but each thread
 * first frees a block that the main thread had allocated beside the others' blocks; an allocator that
 * gives such a block to the thread that freed it keeps the line shared. Hoard's cache-thrash and
 * cache-scratch: Berger, McKinley, Blumofe and Wilson (ASPLOS 2000), section 5.
 */
#include "micro.h"

static uint64_t rounds = 10000, writes = 150000, size = 8, threads = 2, passive = 0;

static void *work(void *argument)
{
    micro_worker *worker = argument;
    micro_random random = micro_random_start(worker->index);
    if (passive) worker->digest += block_free(worker->own, size);
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t tag = micro_next(&random);
        volatile uint64_t *word = block_new(size, tag);
        for (uint64_t written = 0; written < writes; written++) *word += 1;
        if (*word != tag + writes) micro_fail("another thread wrote to block %p", (void *)word);
        worker->digest += *word;
        *word = tag;
        block_free((void *)word, size);
    }
    worker->operations = rounds;
    return NULL;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "does an allocator make threads that share nothing share cache lines?",
                (micro_option[]){{"rounds", &rounds, true, "blocks of each thread, one after the other"},
                                 {"writes", &writes, false, "to each block"},
                                 {"size", &size, false, "of each block, in bytes"},
                                 {"threads", &threads, false, "that write at the same time"},
                                 {"passive", &passive, false, "1: threads begin with a block of the main thread"},
                                 {0}});
    micro_require(size >= 8 && threads >= 1 && threads <= MICRO_MAX_THREADS, "size >= 8, and 1 to 1024 threads");
    for (uint64_t i = 0; passive && i < threads; i++) micro_workers[i].own = block_new(size, micro_mix(micro_seed + i));
    double start = micro_now();
    micro_run(threads, work);
    return micro_report_workers(threads, micro_now() - start);
}
