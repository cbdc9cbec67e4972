/* A load whose free memory waits: threads go through phases of different sizes in step, and of each phase a little lives on, spread
 * so that it holds much of what the phase had. An allocator that gives back what is free stays near what is live; one that keeps
 * it for the next of the same size needs the next phase's memory on top.
 *
 *     container_load [MIB [ROUNDS]]     so much is live at most at a time, but for a sixteenth more (default 265, 2)
 *
 * Prints the peak of the resident set in MiB, when it is done.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, MIB = 1 << 20, PAGE = 4096, KEPT_SHARE = 16 };

/* Small, then larger, and back: what one phase leaves free is of no use to the next but as pages. */
static const size_t sizes[] = {64, 1000, 5000, 200, 40000, 300000, 48, 3000000, 600};
enum { PHASES = sizeof sizes / sizeof *sizes };

static size_t bytes_of_thread;
static int rounds = 2;
static pthread_barrier_t step;

/* The objects are linked through their first words, so that the program has no table beside them. */
static void *allocate(size_t size)
{
    void *first = NULL;
    for (size_t done = 0; done < bytes_of_thread; done += size) {
        void **object = malloc(size);
        if (object == NULL) abort();
        memset(object, 1, size);
        *object = first;
        first = object;
    }
    return first;
}

/* Free all but every sixteenth group of objects, each of a page's worth; returns those that stay. */
static void *thin(void *first, size_t size)
{
    size_t group = size < PAGE ? PAGE / size : 1;
    void *kept = NULL;
    for (size_t number = 0; first != NULL; number++) {
        void *next = *(void **)first;
        if (number / group % KEPT_SHARE == 0) {
            *(void **)first = kept;
            kept = first;
        } else {
            free(first);
        }
        first = next;
    }
    return kept;
}

static void free_all(void *first)
{
    while (first != NULL) {
        void *next = *(void **)first;
        free(first);
        first = next;
    }
}

static void *run(void *unused)
{
    void *before = NULL;
    (void)unused;
    for (int phase = 0; phase < rounds * PHASES; phase++) {
        size_t size = sizes[phase % PHASES];
        pthread_barrier_wait(&step);
        void *objects = allocate(size);
        free_all(before);
        before = thin(objects, size);
    }
    free_all(before);
    return NULL;
}

static long peak_mib(void)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL) abort();
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    fclose(file);
    return kib / 1024;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    bytes_of_thread = (size_t)(argc > 1 ? atoi(argv[1]) : 265) * MIB / THREADS;
    if (argc > 2) rounds = atoi(argv[2]);
    pthread_barrier_init(&step, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, NULL) != 0) abort();
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", peak_mib());
    return 0;
}
