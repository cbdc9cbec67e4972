/* Threads that each keep some objects, and free most of what they had: an arena each. */
#include "ready.h"

enum { THREADS = 16, OBJECTS = 30000 };
static pthread_barrier_t all;

static void *work(void *unused)
{
    static __thread char *objects[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) objects[i] = memset(malloc(500), 'x', 500);
    for (int i = 0; i < OBJECTS; i++)
        if (i % 10) free(objects[i]);
    pthread_barrier_wait(&all);
    pause();
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&all, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&all);
    ready();
}
