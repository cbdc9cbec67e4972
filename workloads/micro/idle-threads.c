/* What do threads hold on to that have nothing to do?
 *
 * A pool of threads has a burst of work, in which each allocates `each` bytes of mixed blocks and frees
 * them all, one of them in 64 through its neighbour. Then all of them wait for the next work, as the
 * threads of a server do at night, and call nothing. What is resident beyond what the same threads had
 * before the burst is printed at once, after 1, 2 and 4 s: nothing of it is in use.
 */
#include "micro.h"

static uint64_t threads = 400, each = 2 << 20;

enum { BATCH = 256, NEIGHBOUR_SHARE = 64 };

/* Who passes waits for all others: before the burst, in the middle of it, and after it. */
static pthread_barrier_t barrier;
static uint64_t *digests;
static void ***given; /* to each thread by its neighbour */

static uint64_t burst(uint64_t index, void **batch)
{
    micro_random random = micro_random_start(index);
    void **neighbours = given[(index + 1) % threads];
    uint64_t digest = 0, bytes = 0, gifts = 0;
    while (bytes < each) {
        size_t count = 0;
        for (; count < BATCH && bytes < each; count++) {
            size_t size = micro_log_uniform(&random, 4, 13);
            batch[count] = tagged_new(size, &random);
            bytes += size;
        }
        for (size_t i = 0; i < count; i++) {
            if (micro_below(&random, NEIGHBOUR_SHARE) == 0 && gifts < BATCH) neighbours[gifts++] = batch[i];
            else digest += tagged_free(batch[i]);
        }
    }
    return digest;
}

static void *work(void *argument)
{
    uint64_t index = ((micro_worker *)argument)->index;
    void *batch[BATCH];
    pthread_barrier_wait(&barrier); /* 1: all have begun */
    pthread_barrier_wait(&barrier); /* 2: memory has been looked at */
    digests[index] = burst(index, batch);
    pthread_barrier_wait(&barrier); /* 3: all is given */
    for (size_t i = 0; i < BATCH; i++) digests[index] += tagged_free(given[index][i]);
    pthread_barrier_wait(&barrier); /* 4: all is freed */
    pthread_barrier_wait(&barrier); /* 5: memory has been looked at */
    return NULL;
}

static void *watch(void *argument)
{
    static const struct {
        double seconds;
        const char *name;
    } moments[] = {{0, "0"}, {1, "1000"}, {2, "2000"}, {4, "4000"}};
    (void)argument;
    pthread_barrier_wait(&barrier);
    uint64_t before = micro_resident();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    double start = micro_now();
    for (size_t i = 0; i < MICRO_COUNT(moments); i++) {
        while (micro_now() < start + moments[i].seconds)
            nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
        uint64_t now = micro_resident();
        printf("held_bytes_after_%s_ms: %" PRIu64 "\n", moments[i].name, now > before ? now - before : 0);
    }
    pthread_barrier_wait(&barrier);
    return NULL;
}

/* The last of the workers watches the others. */
static void *work_or_watch(void *argument)
{
    return ((micro_worker *)argument)->index == threads ? watch(argument) : work(argument);
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what do threads hold on to that have nothing to do?",
                (micro_option[]){{"threads", &threads, true, "that have a burst of work, then wait"},
                                 {"each", &each, false, "bytes that each allocates and frees"},
                                 {0}});
    micro_require(threads >= 1 && threads < MICRO_MAX_THREADS, "1 to 1023 threads");
    setvbuf(stdout, NULL, _IONBF, 0); /* its buffer would come from the allocator */
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    digests = micro_map(threads * sizeof *digests);
    given = micro_map(threads * sizeof *given);
    for (uint64_t i = 0; i < threads; i++) given[i] = micro_map(BATCH * sizeof **given);
    for (uint64_t i = 0; i < threads; i++) memset(given[i], 0, BATCH * sizeof **given); /* resident before */
    double start = micro_now();
    micro_run(threads + 1, work_or_watch);
    uint64_t digest = 0;
    for (uint64_t i = 0; i < threads; i++) digest += digests[i];
    return micro_report(threads, micro_now() - start, digest);
}
