/* Threads that each keep some objects, and free most of what they had: an arena each. */
#include "threads.h"

enum { THREADS = 16, OBJECTS = 30000 };

static void *work(void *unused)
{
    static __thread char *objects[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) objects[i] = memset(malloc(500), 'x', 500);
    for (int i = 0; i < OBJECTS; i++)
        if (i % 10) free(objects[i]);
    stay();
    return unused;
}

int main(void)
{
    run_threads(THREADS, work);
}
