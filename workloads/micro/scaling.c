/* Does the time of malloc and free grow with the live heap, or with the number of threads?
 *
 * Heap: the live heap doubles from step to step, in blocks of 64 to 1024 bytes. At each step
 * three times are taken: of a pair (malloc, then free of the same block), of a replacement (free of a
 * random live block, then malloc), and of a mere touch of random live blocks, which tells how much of a
 * replacement is the cache misses on the blocks themselves.
 * Threads: each of 1 to 256 threads replaces random blocks of its own; the time is processor time per
 * thread, so that more threads than cores do not count as slowness.
 *
 * Scalability in both is the claim of most allocators since Berger et al., "Hoard" (ASPLOS 2000); the
 * live heap as a factor of its own is in Hunter, Kennelly, Turner, Gove, Moseley and Ranganathan,
 * "Beyond malloc efficiency to fleet efficiency" (OSDI 2021). The defaults stay at 1 GiB.
 */
#include "micro.h"

static uint64_t heap_first = 1 << 20, heap_limit = 1 << 30, thread_limit = 256;
static uint64_t samples = 200000, thread_operations = 2000000;

enum { SMALLEST = 64, LARGEST = 1024, HELD_PER_THREAD = 200 };
enum { REPEATS = 5 }; /* the least of them counts: what disturbs a sample only ever adds */

static uint64_t digest, operations;

/* Growth of a time from the first step of a series to its worst one. */
typedef struct {
    double first, worst;
} series;

static void series_add(series *own, double value)
{
    own->first = own->first > 0 ? own->first : value;
    own->worst = value > own->worst ? value : own->worst;
}

/* ---------------------------------------------------------------------- heap */

/* The live heap: its blocks' sizes come from their places, to need no table. */
static void **live;
static size_t live_count;

static size_t size_at(size_t place)
{
    return SMALLEST + micro_mix(place) % (LARGEST - SMALLEST + 1);
}

static void grow_heap(uint64_t *bytes, uint64_t goal, micro_random *random)
{
    for (; *bytes < goal; live_count++) {
        live[live_count] = block_new(size_at(live_count), micro_next(random));
        *bytes += size_at(live_count);
    }
}

static void pairs(micro_random *random)
{
    for (uint64_t i = 0; i < samples; i++) {
        size_t size = micro_between(random, SMALLEST, LARGEST);
        uint64_t tag = micro_next(random);
        digest += block_free(block_new(size, tag), size);
    }
}

static void replacements(micro_random *random)
{
    for (uint64_t i = 0; i < samples; i++) {
        size_t place = micro_below(random, live_count), size = size_at(place);
        digest += block_free(live[place], size);
        live[place] = block_new(size, micro_next(random));
    }
}

/* What `replacements` does to memory, without the allocator. */
static void touches(micro_random *random)
{
    for (uint64_t i = 0; i < samples; i++) {
        size_t place = micro_below(random, live_count), size = size_at(place);
        uint64_t tag = block_check(live[place], size);
        block_write(live[place], size, tag);
    }
}

static double least_ns(void (*body)(micro_random *), micro_random *random)
{
    double least = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        double start = micro_now();
        body(random);
        double each = (micro_now() - start) / (double)samples * 1e9;
        least = each < least ? each : least;
    }
    return least;
}

static void scale_heap(void)
{
    micro_random random = micro_random_start(0);
    uint64_t bytes = 0;
    series pair_times = {0}, replace_over_touch = {0};
    live = micro_map((heap_limit / SMALLEST + 1) * sizeof *live); /* its unused part is never touched */
    for (uint64_t goal = heap_first; goal <= heap_limit; goal *= 2) {
        grow_heap(&bytes, goal, &random);
        double pair = least_ns(pairs, &random), replace = least_ns(replacements, &random);
        double touch = least_ns(touches, &random);
        printf("heap_mib: %" PRIu64 " pair_ns: %.2f replace_ns: %.2f touch_ns: %.2f\n", goal >> 20, pair, replace,
               touch);
        series_add(&pair_times, pair);
        series_add(&replace_over_touch, replace / touch);
        operations += 2 * REPEATS * samples;
    }
    printf("heap_pair_growth: %.3f\n", pair_times.worst / pair_times.first);
    printf("heap_replace_growth_beyond_touch: %.3f\n", replace_over_touch.worst / replace_over_touch.first);
    for (size_t i = 0; i < live_count; i++) digest += block_free(live[i], size_at(i));
}

/* ------------------------------------------------------------------- threads */

static double thread_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double thread_times[MICRO_MAX_THREADS];
static uint64_t thread_share; /* operations of each thread at this step */

static void *replace_own(void *argument)
{
    micro_worker *worker = argument;
    micro_random random = micro_random_start(worker->index);
    micro_slot held[HELD_PER_THREAD] = {0};
    for (size_t i = 0; i < HELD_PER_THREAD; i++) /* a thread's set-up is not what is timed */
        slot_fill(&held[i], micro_between(&random, SMALLEST, LARGEST), micro_next(&random));
    double start = thread_seconds();
    for (uint64_t i = 0; i < thread_share; i++) {
        micro_slot *slot = &held[micro_below(&random, HELD_PER_THREAD)];
        worker->digest += slot_clear(slot);
        slot_fill(slot, micro_between(&random, SMALLEST, LARGEST), micro_next(&random));
    }
    thread_times[worker->index] = thread_seconds() - start;
    worker->operations += thread_share;
    worker->digest += slots_clear(held, HELD_PER_THREAD);
    return NULL;
}

/* Processor time of a replacement over all threads; the least of the repeats. */
static double thread_pair_ns(uint64_t threads)
{
    double least = 1e9;
    thread_share = thread_operations / threads;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double sum = 0;
        micro_run(threads, replace_own);
        for (uint64_t i = 0; i < threads; i++) sum += thread_times[i];
        double each = sum / (double)(threads * thread_share) * 1e9;
        least = each < least ? each : least;
    }
    return least;
}

static void scale_threads(void)
{
    series times = {0};
    for (uint64_t threads = 1; threads <= thread_limit; threads *= 2) {
        double each = thread_pair_ns(threads);
        printf("threads: %" PRIu64 " replace_ns: %.2f\n", threads, each);
        series_add(&times, each);
    }
    printf("thread_growth: %.3f\n", times.worst / times.first);
    for (uint64_t i = 0; i < thread_limit; i++) {
        operations += micro_workers[i].operations;
        digest += micro_workers[i].digest;
    }
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "does the time of malloc and free grow with the heap, or with the threads?",
                (micro_option[]){{"heap-first", &heap_first, false, "live bytes at the first step"},
                                 {"heap-limit", &heap_limit, false, "live bytes at the last step; 0: no such steps"},
                                 {"thread-limit", &thread_limit, false, "at the last step; 0: no such steps"},
                                 {"samples", &samples, true, "operations per time taken of the heap"},
                                 {"thread-operations", &thread_operations, true, "of all threads at a step"},
                                 {0}});
    micro_require(thread_limit <= MICRO_MAX_THREADS && heap_first > 0, "1024 threads at most");
    micro_require(thread_operations >= thread_limit, "an operation at least for each thread");
    double start = micro_now();
    if (heap_limit) scale_heap();
    if (thread_limit) scale_threads();
    return micro_report(operations, micro_now() - start, digest);
}
