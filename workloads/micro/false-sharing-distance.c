/* What does it cost when two threads write to one cache line, and who keeps their objects apart?
 *
 * Two threads read and write a word each, again and again. With --apart the words lie so many bytes apart in one array: from the
 * size of a cache line on, the threads no longer disturb each other. With --apart 0 they are two objects of --size bytes that one
 * thread has allocated back to back: how far apart they lie is the allocator's choice. Reddy, Iyer and Chakravarthi, "How
 * to Tune Malloc to Optimize Serving Side Applications", section 4.2; false-sharing.c has objects of one thread each.
 */
#include "micro.h"

#include <sched.h>

static uint64_t writes = 200000000, apart = 8, size = 16;

enum { APART_MAX = 4096 };

static _Alignas(APART_MAX) char array[2 * APART_MAX];
static pthread_barrier_t both_here;

static void *work(void *argument)
{
    micro_worker *worker = argument;
    volatile uint64_t *word = worker->own;
    uint64_t first = micro_mix(micro_seed + worker->index);
    *word = first;
    pthread_barrier_wait(&both_here);
    for (uint64_t written = 0; written < writes; written++) *word += 1;
    if (*word != first + writes) micro_fail("another thread wrote to %p", worker->own);
    worker->digest = *word;
    worker->operations = writes;
    return NULL;
}

static void require_two_cores(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) < 2)
        micro_fail("two threads disturb each other on two cores only, and this process may use one");
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does it cost when two threads write to one cache line?",
                (micro_option[]){{"writes", &writes, true, "of each thread"},
                                 {"apart", &apart, false, "bytes between their words, at most 4096; 0: two objects"},
                                 {"size", &size, false, "of each object, in bytes"},
                                 {0}});
    micro_require(apart <= APART_MAX && apart % sizeof(uint64_t) == 0, "--apart is a multiple of 8, at most 4096");
    micro_require(size >= 8, "size is at least 8");
    require_two_cores();
    for (uint64_t i = 0; i < 2; i++)
        micro_workers[i].own = apart != 0 ? array + i * apart : block_accept(malloc(size), size);
    pthread_barrier_init(&both_here, NULL, 2);
    double start = micro_now();
    micro_run(2, work);
    double seconds = micro_now() - start;
    uint64_t one = (uint64_t)(uintptr_t)micro_workers[0].own, other = (uint64_t)(uintptr_t)micro_workers[1].own;
    fprintf(stderr, "bytes_apart: %" PRIu64 "\n", one < other ? other - one : one - other);
    return micro_report_workers(2, seconds);
}
