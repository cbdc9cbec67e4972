/* Memory of one kind: `why_program KIND [FILE]`. Prints a line when it is there, and waits to be ended. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, SIZE = 64 * MIB, BLOCK = 1000, THREADS = 8, DEEP = 7, HUGE = 2 * MIB };

static char variables[SIZE];
static pthread_barrier_t barrier;

static void blocks(size_t size)
{
    for (size_t i = 0; i < size / BLOCK; i++) memset(malloc(BLOCK), 1, BLOCK);
}

static void *in_arena(void *unused)
{
    blocks(SIZE / THREADS);
    pthread_barrier_wait(&barrier);
    pause();
    return unused;
}

/* One block of many stays, with free memory before it and behind. */
static void *in_end(void *unused)
{
    enum { LARGE = 100000, BLOCKS = 80, STAYS = 32 };
    void *made[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) made[i] = memset(malloc(LARGE), 1, LARGE);
    for (int i = 0; i < BLOCKS; i++)
        if (i != STAYS) free(made[i]);
    pthread_barrier_wait(&barrier);
    pause();
    return unused;
}

static void deep(int calls)
{
    volatile char room[MIB];
    for (int i = 0; i < MIB; i += 4096) room[i] = 1;
    if (calls > 1) deep(calls - 1);
}

static void *in_stack(void *unused)
{
    deep(DEEP);
    pthread_barrier_wait(&barrier);
    pause();
    return unused;
}

static void threads(void *(*run)(void *))
{
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, NULL, run, NULL);
    pthread_barrier_wait(&barrier);
}

static void mapping(int file, int protection, int flags)
{
    if (file >= 0 && ftruncate(file, SIZE) != 0) exit(1);
    memset(mmap(NULL, SIZE, PROT_READ | PROT_WRITE | protection, flags, file, 0), 1, SIZE);
}

static __attribute__((noinline)) void *site_sparse(size_t size)
{
    return memset(malloc(size), 1, size);
}

static __attribute__((noinline)) void *site_dense(size_t size)
{
    return memset(malloc(size), 2, size);
}

static __attribute__((noinline)) void *site_freed(size_t size)
{
    return memset(malloc(size), 3, size);
}

/* A few objects that live hold nearly all pages of a peak; many others, side by side, hold none. */
static void pinned(void)
{
    enum { SMALL = 400, OBJECTS = SIZE / SMALL, EACH = 20, DENSE = 16 * MIB / BLOCK };
    static void *freed[OBJECTS];
    for (int i = 0; i < DENSE; i++) site_dense(BLOCK);
    for (int i = 0; i < OBJECTS; i++)
        if (i % EACH == 0) site_sparse(SMALL);
        else freed[i] = site_freed(SMALL);
    for (int i = 0; i < OBJECTS; i++) free(freed[i]);
}

/* More than a million small free blocks in a list, which glibc joins in malloc_trim or before it serves a large one. */
static void fast(void)
{
    enum { SMALL = 24, OBJECTS = 1200000, STAYS = 1000 };
    static char line[100];
    static void *made[OBJECTS];
    setvbuf(stdout, line, _IOFBF, sizeof line);
    setvbuf(stdin, NULL, _IONBF, 0);
    for (int i = 0; i < OBJECTS; i++) made[i] = memset(malloc(SMALL), 1, SMALL);
    for (int i = 0; i < OBJECTS; i++)
        if (i % STAYS) free(made[i]);
}

static void huge_pages(void)
{
    char *memory = mmap(NULL, SIZE + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, SIZE + HUGE, MADV_HUGEPAGE);
    for (int i = 0; i < SIZE; i += HUGE) memory[i + MIB] = 1;
}

static void *goes_on(void *first)
{
    pthread_join(*(pthread_t *)first, NULL);
    blocks(SIZE);
    puts("there");
    fflush(stdout);
    getchar();
    exit(0);
}

/* The first thread of the process ends, and another goes on. */
static void leave(void)
{
    static pthread_t first, other;
    first = pthread_self();
    pthread_create(&other, NULL, goes_on, &first);
    pthread_exit(NULL);
}

int main(int count, char **arguments)
{
    const char *kind = arguments[1];
    setvbuf(stdin, NULL, _IONBF, 0); // a buffer would be allocated while the heap is looked at
    if (strcmp(kind, "malloc") == 0) blocks(SIZE);
    if (strcmp(kind, "little") == 0) blocks(MIB);
    if (strcmp(kind, "mapped") == 0) memset(malloc(SIZE), 1, SIZE);
    if (strcmp(kind, "arenas") == 0) threads(in_arena);
    if (strcmp(kind, "ends") == 0 && mallopt(M_TRIM_THRESHOLD, 1 << 30)) threads(in_end);
    if (strcmp(kind, "stacks") == 0) threads(in_stack);
    if (strcmp(kind, "variables") == 0) memset(variables, 1, SIZE);
    if (strcmp(kind, "shared") == 0) mapping(memfd_create("why", 0), 0, MAP_SHARED);
    if (strcmp(kind, "shared_anonymous") == 0) mapping(-1, 0, MAP_SHARED | MAP_ANONYMOUS);
    if (strcmp(kind, "files") == 0 && count > 2) mapping(open(arguments[2], O_RDWR | O_CREAT, 0600), 0, MAP_SHARED);
    if (strcmp(kind, "jit") == 0) mapping(-1, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS);
    if (strcmp(kind, "fast") == 0) fast();
    if (strcmp(kind, "huge_pages") == 0) huge_pages();
    if (strcmp(kind, "pinned") == 0) pinned();
    if (strcmp(kind, "leaderless") == 0) leave();
    puts("there");
    fflush(stdout);
    for (int i = 0; getchar() != EOF; i++) blocks(SIZE);
    return 0;
}
