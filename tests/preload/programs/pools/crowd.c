/* 1,000 threads with small stacks, all alive at once, each allocating and handing what it has made to the next. */
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 1000, OBJECTS = 300, STACK_BYTES = 64 * 1024 };

struct item {
    struct item *next;
    uint64_t number;
};

static pthread_barrier_t all_started, all_made;
static struct item *made[THREADS];

static struct item *allocate_item(uint64_t number, struct item *next)
{
    struct item *item = malloc(sizeof *item);
    if (item == NULL) abort();
    item->number = number;
    item->next = next;
    return item;
}

static void *work(void *argument)
{
    uint64_t number = (uint64_t)(uintptr_t)argument, sum = 0;
    pthread_barrier_wait(&all_started);
    for (uint64_t i = 0; i < OBJECTS; i++) made[number] = allocate_item(number * OBJECTS + i, made[number]);
    pthread_barrier_wait(&all_made);
    struct item *item = made[(number + 1) % THREADS];
    while (item != NULL) {
        struct item *next = item->next;
        sum = sum * 3 + item->number;
        free(item);
        item = next;
    }
    return (void *)(uintptr_t)sum;
}

int main(void)
{
    static pthread_t threads[THREADS];
    pthread_attr_t attributes;
    uint64_t sum = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_barrier_init(&all_started, NULL, THREADS);
    pthread_barrier_init(&all_made, NULL, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], &attributes, work, (void *)i) != 0) abort();
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum = sum * 5 + (uint64_t)(uintptr_t)result;
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
