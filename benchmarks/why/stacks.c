/* Many threads, each of which was deep in a recursion once. */
#include "ready.h"

enum { THREADS = 64, DEPTH = 48 };
static pthread_barrier_t all;

static int deep(int calls)
{
    volatile char room[64 * KIB];
    memset((char *)room, calls, sizeof room);
    return calls > 1 ? deep(calls - 1) + room[5] : room[9];
}

static void *work(void *unused)
{
    deep(DEPTH);
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
