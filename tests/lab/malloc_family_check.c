// Checks what programs rely on of a preloaded malloc family: alignment, sizes, contents, errors, and
// a fork among threads that allocate. Prints what is wrong and ends with 1, or prints "good".

#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 60000, SLOTS = 512, FORKS = 20, LARGEST = 3 << 20 };

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                    \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (false)

// Sizes that the compiler cannot see, so that it neither warns nor folds.
static volatile size_t too_much = SIZE_MAX / 2 + 2;

static void check_alignment(void)
{
    void *blocks[64];
    for (size_t alignment = 8, n = 0; alignment <= (1 << 22); alignment *= 2, n = 0) {
        for (size_t size = 0; size < 4000; size += 97) {
            void *block = NULL;
            CHECK(posix_memalign(&block, alignment, size) == 0);
            CHECK((uintptr_t)block % alignment == 0);
            CHECK(malloc_usable_size(block) >= size);
            memset(block, (int)n, malloc_usable_size(block));
            blocks[n++] = block;
        }
        for (size_t i = 0; i < n; i++) {
            size_t usable = malloc_usable_size(blocks[i]);
            for (size_t at = 0; at < usable; at++) {
                CHECK(((unsigned char *)blocks[i])[at] == i);
            }
            // From any alignment to any size, contents kept.
            unsigned char *resized = realloc(blocks[i], 2 * usable + 5000);
            CHECK(resized != NULL && (uintptr_t)resized % 16 == 0);
            CHECK(usable == 0 || (resized[0] == i && resized[usable - 1] == i));
            free(resized);
        }
    }
    void *block = aligned_alloc(64, 100);
    CHECK(block != NULL && (uintptr_t)block % 64 == 0);
    free(block);
    block = memalign(4096, 1);
    CHECK(block != NULL && (uintptr_t)block % 4096 == 0);
    free(block);
    block = valloc(1);
    CHECK(block != NULL && (uintptr_t)block % (size_t)sysconf(_SC_PAGESIZE) == 0);
    free(block);
    block = pvalloc(1);
    CHECK(block != NULL && malloc_usable_size(block) >= (size_t)sysconf(_SC_PAGESIZE));
    free(block);
}

static void check_errors(void)
{
    void *block = &block;
    errno = 0;
    CHECK(malloc(too_much) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(too_much, 2) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(NULL, too_much, 2) == NULL && errno == ENOMEM);
    CHECK(posix_memalign(&block, 3, 8) == EINVAL);
    CHECK(posix_memalign(&block, 16, too_much) == ENOMEM);
    CHECK(block == (void *)&block);
    void *kept = malloc(10);
    memcpy(kept, "something", 10);
    errno = 0;
    void *larger = realloc(kept, too_much);
    CHECK(larger == NULL && errno == ENOMEM);
    CHECK(memcmp(kept, "something", 10) == 0);
    errno = 17;
    free(kept);
    free(NULL);
    CHECK(errno == 17);
}

static void check_ends(void)
{
    void *one = malloc(0);
    void *other = malloc(0);
    CHECK(one != NULL && other != NULL && one != other);
    free(other);
    CHECK(realloc(one, 0) == NULL);
    CHECK(malloc_usable_size(NULL) == 0);
    for (size_t size = 1; size <= LARGEST; size = size * 3 + 1) {
        unsigned char *dirty = malloc(size);
        memset(dirty, 0xAA, size);
        free(dirty);
        unsigned char *zeroed = calloc(1, size);
        for (size_t at = 0; at < size; at++) {
            CHECK(zeroed[at] == 0);
        }
        free(zeroed);
    }
    malloc_trim(0);
}

// ------------------------------------------------------------------- threads

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void fill(unsigned char *block, size_t size)
{
    block[0] = (unsigned char)size;
    block[size - 1] = (unsigned char)size;
}

static void *_Atomic exchange[SLOTS];

// Blocks pass between the threads, so most are freed by another than the one that made them.
static void *work(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    for (int round = 0; round < ROUNDS; round++) {
        size_t size = next_random(&state) % (round % 100 == 0 ? 200000 : 600) + sizeof(size_t) + 2;
        unsigned char *block = malloc(size);
        CHECK(block != NULL);
        if (next_random(&state) % 4 == 0) {
            size *= 2;
            block = realloc(block, size);
            CHECK(block != NULL);
        }
        memcpy(block + 1, &size, sizeof(size));
        fill(block, size);
        unsigned char *other = atomic_exchange(&exchange[next_random(&state) % SLOTS], block);
        if (other != NULL) {
            memcpy(&size, other + 1, sizeof(size));
            CHECK(other[0] == (unsigned char)size && other[size - 1] == (unsigned char)size);
            free(other);
        }
    }
    return NULL;
}

static void check_forks_among_threads(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    }
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20);  // a lock that nobody holds any more would be waited for in vain
            free(malloc(1000));
            free(malloc(100000));
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(void)
{
    check_alignment();
    check_errors();
    check_ends();
    check_forks_among_threads();
    puts("good");
    return 0;
}
