/* Holds at most the same amount of memory all the time, in objects of another size in each phase, made by a thread of its own
 * that ends, and freed by the main one: phases MIB. A further thread sleeps meanwhile. After each round, all that is free is asked
 * back, and at the end no memory is left. */
#include "system.h"

enum { PHASES = 9, MIB = 1024 * 1024 };

/* From many to a page up to several huge pages. */
static const size_t sizes[PHASES] = {24, 200, 1500, 4096, 9000, 70000, 300000, 2500000, 9000000};

struct phase {
    size_t size, count;
    char **objects;
    pthread_t thread;
};

static void *make(void *argument)
{
    struct phase *phase = argument;
    for (size_t i = 0; i < phase->count; i++) {
        phase->objects[i] = malloc(phase->size);
        if (phase->objects[i] == NULL) abort();
        memset(phase->objects[i], (int)(i % 255 + 1), phase->size);
    }
    return NULL;
}

/* Returns what must be the same whatever malloc is used. */
static size_t drop(struct phase *phase)
{
    size_t sum = 0;
    for (size_t i = 0; i < phase->count; i++) {
        sum = sum * 31 + (unsigned char)phase->objects[i][phase->size - 1];
        free(phase->objects[i]);
    }
    free(phase->objects);
    return sum;
}

static pthread_mutex_t asleep = PTHREAD_MUTEX_INITIALIZER;

static void *sleep_on(void *argument)
{
    free(malloc(100));
    pthread_mutex_lock(&asleep);
    pthread_mutex_unlock(&asleep);
    return argument;
}

/* As where the address space is limited, unless it is already: not everyone may raise a limit. */
static void use_up_memory(size_t step)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0) abort();
    if (limit.rlim_cur > (rlim_t)1 << 30) limit.rlim_cur = (rlim_t)1 << 30;
    if (setrlimit(RLIMIT_AS, &limit) != 0) abort();
    void **taken = NULL, **next;
    while ((next = malloc(step)) != NULL) {
        *next = taken;
        taken = next;
    }
    while (taken != NULL) {
        next = *taken;
        free(taken);
        taken = next;
    }
}

int main(int count, char **words)
{
    pthread_t sleeper;
    pthread_mutex_lock(&asleep);
    if (pthread_create(&sleeper, NULL, sleep_on, NULL) != 0) abort();

    static struct phase phases[PHASES];
    size_t live = count == 2 ? (size_t)atol(words[1]) * MIB : 0;
    if (live == 0) return 2;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PHASES; i++) {
            struct phase *phase = &phases[i];
            *phase = (struct phase){.size = sizes[i], .count = live / sizes[i]};
            phase->objects = calloc(phase->count, sizeof *phase->objects);
            if (phase->objects == NULL) abort();
            if (pthread_create(&phase->thread, NULL, make, phase) != 0) abort();
            pthread_join(phase->thread, NULL);
            printf("%zu %zx\n", phase->size, drop(phase));
        }
        malloc_trim(0);
    }
    use_up_memory(10 * MIB);
    pthread_mutex_unlock(&asleep);
    pthread_join(sleeper, NULL);
    return 0;
}
