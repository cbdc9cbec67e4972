/* Where memory ends, and where it goes when it is not used: beside musl as anywhere. */
#include "check.h"

#include <heapfit/heapfit.h>

enum { KIB = 1 << 10, MIB = 1 << 20, PATIENCE_MS = 20000 };

static void sleep_ms(long milliseconds)
{
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
}

/* A list of blocks, written to: so many bytes of them, or until there are no more. */
struct block {
    struct block *next;
    char rest[];
};

static struct block *take(size_t size, size_t bytes)
{
    struct block *first = NULL;
    for (; bytes >= size; bytes -= size) {
        struct block *block = malloc(size);
        if (block == NULL) break;
        memset(block->rest, 1, size - sizeof *block);
        block->next = first;
        first = block;
    }
    return first;
}

static size_t drop(struct block *first)
{
    size_t count = 0;
    for (struct block *next; first != NULL; first = next, count++) {
        next = first->next;
        free(first);
    }
    return count;
}

static int way_limit(void)
{
    static const size_t sizes[] = {48, 3000, 40 * KIB, 3 * MIB};
    CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){256 * MIB, 256 * MIB}) == 0);
    for (size_t round = 0; round < 2 * sizeof sizes / sizeof *sizes; round++) {
        size_t size = sizes[round % (sizeof sizes / sizeof *sizes)];
        errno = 0;
        struct block *first = take(size, SIZE_MAX);
        CHECK(errno == ENOMEM);
        size_t got = drop(first) * size;
        if (got < 32 * MIB) fprintf(stderr, "%zu bytes in blocks of %zu\n", got, size);
        CHECK(got >= 32 * MIB); /* for the second size as well as for the first */
    }
    return 0;
}

/* Links of the folder: itself, the one above, and one for each thread. */
static unsigned threads(void)
{
    struct stat tasks;
    CHECK(stat("/proc/self/task", &tasks) == 0);
    return (unsigned)tasks.st_nlink - 2;
}

/* With background:on, while the program sleeps. */
static int way_background(void)
{
    struct block *kept = take(3000, 256 * KIB), *first = take(3000, 128 * MIB);
    size_t full = resident();
    CHECK(full > 128 * MIB);
    drop(first);
    unsigned most = threads();
    int waited = 0;
    for (; waited < PATIENCE_MS && resident() > full / 4; waited += 50) {
        if (threads() > most) most = threads();
        sleep_ms(50);
    }
    CHECK(resident() <= full / 4);
    CHECK(most == 2);
    for (; waited < PATIENCE_MS && threads() > 1; waited += 50) sleep_ms(50);
    CHECK(threads() == 1); /* with nothing more to do, it ends */
    return drop(kept) > 0 ? 0 : 1;
}

/* By the program's own calls, when it decays; and at once, when it is asked for. */
static int way_decay(void)
{
    drop(take(3000, 64 * MIB));
    for (int waited = 0; waited < PATIENCE_MS && resident() > 24 * MIB; waited += 50) {
        sleep_ms(50);
        drop(take(3000, 256 * KIB));
    }
    CHECK(resident() <= 24 * MIB);
    drop(take(3000, 64 * MIB));
    hf_trim();
    CHECK(resident() <= 24 * MIB);
    return 0;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } ways[] = {{"limit", way_limit}, {"background", way_background}, {"decay", way_decay}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (count == 2 && strcmp(words[1], ways[i].name) == 0) return ways[i].run();
    fputs("usage: memory WAY\n", stderr);
    return 2;
}
