/* Threads that have freed most of what they had in glibc's arenas, and go on replacing small objects. */
#include "threads.h"

enum { THREADS = 4, OBJECTS = 60000, REPLACED = 200 };

static void *work(void *unused)
{
    static __thread char *objects[OBJECTS], *replaced[REPLACED];
    for (int i = 0; i < OBJECTS; i++) objects[i] = memset(malloc(500), 'x', 500);
    for (int i = 0; i < OBJECTS; i++)
        if (i % 10) free(objects[i]);
    pthread_barrier_wait(&all);
    for (unsigned random = 1; random != 0; random = random * 1103515245 + 12345) {
        char **object = &replaced[random % REPLACED];
        if (random % 16 == 5) usleep(1000);
        free(*object);
        *object = malloc(16 + (random >> 16) % 3000);
    }
    return unused;
}

int main(void)
{
    run_threads(THREADS, work);
}
