/* For the programs beside it: GoogleTest is C++, for which Debian has no run-time library of musl's. */
#ifndef HEAPFIT_MUSL_CHECK_H
#define HEAPFIT_MUSL_CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The value of a line of /proc/self/status, in bytes. */
static inline size_t status_bytes(const char *format)
{
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (kib == 0 && fgets(line, sizeof line, file) != NULL) sscanf(line, format, &kib);
    fclose(file);
    return (size_t)kib << 10;
}

static inline size_t resident(void)
{
    return status_bytes("VmRSS: %lu");
}

static inline pthread_t thread_of(size_t stack_size, void *(*run)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    if (stack_size != 0) CHECK(pthread_attr_setstacksize(&attributes, stack_size) == 0);
    CHECK(pthread_create(&thread, &attributes, run, argument) == 0);
    pthread_attr_destroy(&attributes);
    return thread;
}

#endif
