/* Threads that do something, and then wait for ever while the program says that it is ready. */
#include "ready.h"

static pthread_barrier_t all;

/* At the end of what a thread does. */
static void stay(void)
{
    pthread_barrier_wait(&all);
    pause();
}

static void run_threads(unsigned threads, void *(*work)(void *))
{
    pthread_t thread;
    pthread_barrier_init(&all, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&all);
    ready();
}
