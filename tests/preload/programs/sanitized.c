/* A program that is compiled with a sanitizer: it works with several threads, and then makes the mistake that its argument
 * names, which only the sanitizer's own malloc lets the sanitizer see. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, ROUNDS = 10000, LARGEST = 500 };

static void *work(void *argument)
{
    for (int i = 0; i < ROUNDS; i++) {
        size_t size = (size_t)(i % LARGEST + 1);
        char *object = malloc(size);
        memset(object, 1, size);
        free(object);
    }
    return argument;
}

int main(int count, char **words)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    char *volatile object = malloc(100);
    object[50] = 'x';
    free(object);
    printf("worked\n");
    fflush(stdout);
    if (count == 2 && strcmp(words[1], "read_after_free") == 0) return object[50] == 'y';
    return 0;
}
