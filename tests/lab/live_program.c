/* A program whose heap has something in every figure, for tests that watch and steer it: objects that stay, free memory
 * that has not been given back, and two threads of which one frees what the other allocates. It says "ready" when all is
 * there, goes on in small steps, and ends when its standard input does. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEPT = 20000, KEPT_SIZE = 100, FREED = 64, FREED_SIZE = 512 * 1024, STEP = 512, STEP_US = 20000 };

static void *kept[KEPT];
static _Atomic(void **) handed_over;

/* Frees what the first thread hands over. */
static void *free_of_others(void *unused)
{
    (void)unused;
    for (;; usleep(STEP_US / 4)) {
        void **blocks = atomic_exchange(&handed_over, NULL);
        if (blocks == NULL) continue;
        for (int i = 0; i < STEP; i++) free(blocks[i]);
        free(blocks);
    }
    return NULL;
}

static void *go_on(void *unused)
{
    (void)unused;
    for (;; usleep(STEP_US)) {
        free(calloc(1, 16 * 1024));
        if (atomic_load(&handed_over) != NULL) continue;
        void **blocks = malloc(STEP * sizeof *blocks);
        if (blocks == NULL) abort();
        for (int i = 0; i < STEP; i++) blocks[i] = malloc(64);
        atomic_store(&handed_over, blocks);
    }
    return NULL;
}

int main(void)
{
    void *freed[FREED];
    for (int i = 0; i < KEPT; i++) kept[i] = malloc(KEPT_SIZE);
    for (int i = 0; i < FREED; i++) {
        freed[i] = malloc(FREED_SIZE);
        if (freed[i] == NULL) return 1;
        memset(freed[i], 1, FREED_SIZE);
    }
    for (int i = 0; i < FREED; i++) free(freed[i]);

    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, free_of_others, NULL) != 0) return 1;
    if (pthread_create(&threads[1], NULL, go_on, NULL) != 0) return 1;
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return kept[0] == NULL;
}
