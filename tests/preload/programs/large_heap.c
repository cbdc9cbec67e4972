/* Holds more than 8 GiB in objects of all sizes at once, of most of which only the ends are touched, and checks and frees them
 * all: large_heap GIB. Prints a sum that is the same whatever malloc is used. */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 2, LARGE_EACH = 8 };

/* Objects of a page and more are sparse: with two pages each touched, they hold far less memory than they have. */
static const size_t sizes[] = {48, 3000, 20000, 70000, 300000, 3000000, 50000000};
/* Of a GiB of address space per thread, how much goes to objects of each size, in percent. */
static const unsigned shares[] = {1, 1, 3, 15, 20, 30, 30};
enum { KINDS = sizeof sizes / sizeof *sizes };

struct part {
    size_t bytes;
    unsigned char **objects[KINDS];
    size_t counts[KINDS];
    unsigned char *huge[LARGE_EACH];
    uint64_t sum;
};

static void mark(unsigned char *object, size_t size, size_t number)
{
    if (object == NULL) {
        perror("malloc");
        exit(1);
    }
    object[0] = (unsigned char)number;
    object[size - 1] = (unsigned char)(number * 7);
}

static void check(struct part *part, unsigned char *object, size_t size, size_t number)
{
    unsigned char first = object[0], last = object[size - 1];
    if (first != (unsigned char)number || last != (unsigned char)(number * 7) || malloc_usable_size(object) < size)
        exit(3);
    part->sum = part->sum * 31 + first + last;
    free(object);
}

static void *make(void *argument)
{
    struct part *part = argument;
    for (int kind = 0; kind < KINDS; kind++) {
        part->counts[kind] = part->bytes / 100 * shares[kind] / sizes[kind];
        part->objects[kind] = malloc(part->counts[kind] * sizeof *part->objects[kind]);
        for (size_t i = 0; i < part->counts[kind]; i++) {
            part->objects[kind][i] = malloc(sizes[kind]);
            mark(part->objects[kind][i], sizes[kind], i);
        }
    }
    for (size_t i = 0; i < LARGE_EACH; i++) {
        part->huge[i] = malloc(part->bytes / LARGE_EACH);
        mark(part->huge[i], part->bytes / LARGE_EACH, i);
    }
    return NULL;
}

static void *drop(void *argument)
{
    struct part *part = argument;
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < part->counts[kind]; i++) check(part, part->objects[kind][i], sizes[kind], i);
        free(part->objects[kind]);
    }
    for (size_t i = 0; i < LARGE_EACH; i++) check(part, part->huge[i], part->bytes / LARGE_EACH, i);
    return NULL;
}

static void on_threads(void *(*act)(void *), struct part *parts)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, act, &parts[i]) != 0) exit(1);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(int count, char **words)
{
    static struct part parts[THREADS];
    size_t gibibytes = count == 2 ? (size_t)atol(words[1]) : 0;
    if (gibibytes == 0) return 2;
    for (int round = 0; round < 2; round++) {
        /* Half of it in objects of all sizes, half in few huge ones. */
        for (int i = 0; i < THREADS; i++) parts[i] = (struct part){.bytes = (gibibytes << 30) / (2 * THREADS)};
        on_threads(make, parts);
        struct part first = parts[0];
        parts[0] = parts[1]; /* each is freed by the other thread */
        parts[1] = first;
        on_threads(drop, parts);
        printf("%016llx %016llx\n", (unsigned long long)parts[0].sum, (unsigned long long)parts[1].sum);
    }
    return 0;
}
