/* Asks for memory before main, in threads and in large pieces, as long as a preloaded library that makes up the time lets it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OBJECTS = 20000, ROUNDS = 10 };

static void *work(void *argument)
{
    void **objects = calloc(OBJECTS, sizeof *objects);
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < OBJECTS; i++) objects[i] = memset(malloc(16 + (i * 37 + round) % 2000), 1, 16);
        for (size_t i = 0; i < OBJECTS; i++) free(objects[i]);
        time(NULL);
    }
    free(objects);
    return argument;
}

int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    free(memset(malloc(300 << 20), 1, 300 << 20));
    puts("done");
    return 0;
}
