/* Threads beside musl: small stacks, many that come and go, and what runs when a thread ends. */
#include "check.h"

#include <heapfit/heapfit.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };

static uint32_t random_next(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* All sizes, so that every slow path is met: blocks, whole spans, large objects that move, a call to give memory back. */
static void *allocates_all_sizes(void *argument)
{
    for (unsigned round = 0; round < 3; round++) {
        char *blocks[64];
        for (size_t i = 0; i < 64; i++) {
            blocks[i] = calloc(1, (size_t)37 << (i % 16));
            CHECK(blocks[i] != NULL);
        }
        for (size_t i = 0; i < 64; i++) {
            blocks[i] = realloc(blocks[i], (size_t)111 << (i % 16));
            CHECK(blocks[i] != NULL);
        }
        for (size_t i = 0; i < 64; i++) free(blocks[i]);
        nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL); /* so that what is free decays on the next call */
    }
    return argument;
}

/* A stack of 16 KiB is the least that POSIX systems agree on. The first allocation of the process is made there. */
static int way_small_stacks(void)
{
    for (int i = 0; i < 4; i++) pthread_join(thread_of(16 * KIB, allocates_all_sizes, NULL), NULL);
    return 0;
}

enum { GENERATIONS = 400, PER_GENERATION = 8, LEFT = 2048 };

static _Atomic(unsigned char *) left[LEFT];

/* Takes what threads before it have left, checks and frees it, and leaves as much. */
static void *inherits(void *seed)
{
    uint32_t state = (uint32_t)(uintptr_t)seed;
    for (int i = 0; i < 200; i++) {
        size_t size = random_next(&state) % (i % 50 == 0 ? 20000 : 500) + sizeof size + 1;
        unsigned char *block = malloc(size);
        CHECK(block != NULL);
        memcpy(block, &size, sizeof size);
        block[size - 1] = (unsigned char)size;
        unsigned char *other = atomic_exchange(&left[random_next(&state) % LEFT], block);
        if (other == NULL) continue;
        memcpy(&size, other, sizeof size);
        CHECK(other[size - 1] == (unsigned char)size || size == sizeof size);
        free(other);
    }
    return NULL;
}

/* Each thread that left its heap behind for nobody would cost a span of 64 KiB at least: 200 MiB. */
static int way_churn(void)
{
    for (int generation = 0; generation < GENERATIONS; generation++) {
        pthread_t threads[PER_GENERATION];
        for (int i = 0; i < PER_GENERATION; i++) {
            uintptr_t seed = (uintptr_t)(generation * PER_GENERATION + i);
            threads[i] = thread_of(0, inherits, (void *)seed);
        }
        for (int i = 0; i < PER_GENERATION; i++) pthread_join(threads[i], NULL);
    }
    CHECK(resident() < 64 * MIB);
    /* At the end of each, not only when a later one wants it: what is left is this thread's. */
    hf_stats statistics;
    hf_stats_get(&statistics, sizeof statistics);
    CHECK(statistics.heaps > 1 && statistics.heaps_idle == statistics.heaps - 1);
    return 0;
}

static pthread_key_t key;
static atomic_uint destroyed;

/* Comes again, as often as musl lets it, with fresh blocks: before and after heapfit's own destructor. */
static void destroy(void *block)
{
    free(block);
    char *next = malloc(3000);
    CHECK(next != NULL);
    atomic_fetch_add(&destroyed, 1);
    pthread_setspecific(key, next);
}

static void *ends(void *argument)
{
    CHECK(pthread_setspecific(key, malloc(100)) == 0);
    free(malloc(1000));
    return argument;
}

static int way_destructors(void)
{
    CHECK(pthread_key_create(&key, destroy) == 0);
    ends(NULL);
    size_t before = resident();
    for (int i = 0; i < 1000; i++) pthread_join(thread_of(0, ends, NULL), NULL);
    CHECK(atomic_load(&destroyed) >= 1000);
    CHECK(resident() < before + 32 * MIB); /* what the last round of each has left, and no heap for each */
    return 0;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } ways[] = {
        {"small_stacks", way_small_stacks},
        {"churn", way_churn},
        {"destructors", way_destructors},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (count == 2 && strcmp(words[1], ways[i].name) == 0) return ways[i].run();
    fputs("usage: threads WAY\n", stderr);
    return 2;
}
