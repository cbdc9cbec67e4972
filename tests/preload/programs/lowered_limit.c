/* A program that once needed much, and goes on with little, while its limit is lowered: takes and frees so many MiB, says so, and
 * works until its input ends. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, OBJECT = 64 << 10, LIVE = 1000 };

static void take_and_free(size_t bytes)
{
    size_t count = bytes / OBJECT;
    void **objects = malloc(count * sizeof *objects);
    if (objects == NULL) abort();
    for (size_t i = 0; i < count; i++) {
        objects[i] = malloc(OBJECT);
        if (objects[i] == NULL) abort();
        memset(objects[i], 1, OBJECT);
    }
    for (size_t i = 0; i < count; i++) free(objects[i]);
    free(objects);
}

int main(int argc, char **argv)
{
    static void *live[LIVE];
    struct pollfd input = {.fd = 0, .events = POLLIN};
    take_and_free((size_t)(argc > 1 ? atoi(argv[1]) : 300) * MIB);
    puts("ready");
    fflush(stdout);
    for (size_t i = 0; poll(&input, 1, 1) == 0; i++) {
        for (size_t j = 0; j < 100; j++) {
            void **object = &live[(i * 100 + j) % LIVE];
            free(*object);
            *object = malloc(100 + (i + j) % 1000);
            if (*object == NULL) abort();
        }
    }
    for (size_t i = 0; i < LIVE; i++) free(live[i]);
    puts("done");
    return 0;
}
