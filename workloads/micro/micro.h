/* What the micro-benchmark programs share: command line, random numbers, checked blocks, threads, report.
 *
 * Every program does a fixed amount of work for given arguments, so that two allocators are compared
 * on the same calls. None of the bookkeeping here or in the programs goes through malloc: it lives in
 * static arrays, on stacks and in mapped memory, so that what is measured is what the pattern asks for.
 *
 * Every block carries a random tag at its start and a word derived from it at its end. Both are checked
 * when the block dies, and the tags of all dead blocks are summed. The sum ("digest") does not depend
 * on addresses nor on the order in which threads ran: it is equal under every correct allocator.
 *
 * Standard output holds only what must be equal under every allocator; times go to standard error.
 */
#ifndef MICRO_H
#define MICRO_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MICRO_CACHE_LINE = 64, MICRO_PAGE = 4096 };
enum { MICRO_EXIT_FAILED = 1, MICRO_EXIT_USAGE = 2 };

#define MICRO_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ------------------------------------------------------------------ failing */

__attribute__((noreturn, cold, format(printf, 1, 2))) static inline void micro_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("check failed: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(MICRO_EXIT_FAILED);
}

/* -------------------------------------------------------------- command line */

/* An option takes a number; k, m and g multiply by 2^10, 2^20 and 2^30. The options that say how much
 * is done (`work`) are multiplied by --scale, a percentage, so that a test can run a shorter version. */
typedef struct {
    const char *name;
    uint64_t *value;
    bool work;
    const char *help;
} micro_option;

static uint64_t micro_seed = 1;
static uint64_t micro_scale = 100;

static inline void micro_usage(const char *program, const char *question, const micro_option *options)
{
    printf("%s: %s\n\nusage: %s [--NAME NUMBER]...\n", program, question, program);
    for (const micro_option *option = options; option->name; option++)
        printf("  --%-14s %s (%" PRIu64 ")\n", option->name, option->help, *option->value);
    printf("  --%-14s %s (%" PRIu64 ")\n", "seed", "of the random numbers", micro_seed);
    printf("  --%-14s %s (%" PRIu64 ")\n", "scale", "percentage of the work to do", micro_scale);
}

static inline bool micro_number(const char *text, uint64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    *value = strtoull(text, &end, 10);
    switch (*end) {
    case 'g':
        *value <<= 10; /* fall through */
    case 'm':
        *value <<= 10; /* fall through */
    case 'k':
        *value <<= 10;
        end++; /* fall through */
    default:
        return *end == '\0';
    }
}

static inline uint64_t *micro_find_option(const micro_option *options, const char *argument)
{
    if (strncmp(argument, "--", 2) != 0) return NULL;
    for (const micro_option *option = options; option->name; option++)
        if (strcmp(argument + 2, option->name) == 0) return option->value;
    if (strcmp(argument, "--seed") == 0) return &micro_seed;
    return strcmp(argument, "--scale") == 0 ? &micro_scale : NULL;
}

/* `options` ends with an entry without a name. */
static inline void micro_parse(int argc, char **argv, const char *question, const micro_option *options)
{
    for (int i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--help") == 0) {
            micro_usage(argv[0], question, options);
            exit(EXIT_SUCCESS);
        }
        uint64_t *value = micro_find_option(options, argv[i]);
        if (!value || i + 1 == argc || !micro_number(argv[i + 1], value)) {
            fprintf(stderr, "%s: %s is not an option with a number; see --help\n", argv[0], argv[i]);
            exit(MICRO_EXIT_USAGE);
        }
    }
    for (const micro_option *option = options; option->name; option++)
        if (option->work && *option->value)
            *option->value = *option->value * micro_scale / 100 ? *option->value * micro_scale / 100 : 1;
}

/* Refuses arguments that a program cannot work with. */
static inline void micro_require(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "the arguments do not fit: %s\n", what);
    exit(MICRO_EXIT_USAGE);
}

/* ------------------------------------------------------------ random numbers */

/* xorshift64* (Vigna 2016): one multiplication, no table, good high bits. */
typedef struct {
    uint64_t state;
} micro_random;

static inline uint64_t micro_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u; /* the finaliser of splitmix64 (Steele et al. 2014) */
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Every thread has its own `stream` of numbers. */
static inline micro_random micro_random_start(uint64_t stream)
{
    uint64_t state = micro_mix(micro_mix(micro_seed) + stream * 0x9e3779b97f4a7c15u);
    return (micro_random){state ? state : 1};
}

static inline uint64_t micro_next(micro_random *random)
{
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return random->state * 0x2545f4914f6cdd1du;
}

/* Uniform in [0, bound), bound below 2^32. */
static inline uint64_t micro_below(micro_random *random, uint64_t bound)
{
    return ((micro_next(random) >> 32) * bound) >> 32;
}

/* Uniform in [low, high]. */
static inline uint64_t micro_between(micro_random *random, uint64_t low, uint64_t high)
{
    return low + micro_below(random, high - low + 1);
}

/* Uniform in (0, 1]. */
static inline double micro_unit(micro_random *random)
{
    return (double)((micro_next(random) >> 11) + 1) * 0x1p-53;
}

/* Every power of two is as likely as the next, and uniform in between: without libm, and enough to
 * spread sizes evenly over their orders of magnitude. In [2^low, 2^high). */
static inline uint64_t micro_log_uniform(micro_random *random, unsigned low, unsigned high)
{
    uint64_t power = (uint64_t)1 << micro_between(random, low, high - 1);
    return power + micro_below(random, power);
}

/* -------------------------------------------------------------------- blocks */

static const uint64_t MICRO_END_MARK = 0x5bd1e9955bd1e995u;

static inline uint64_t micro_end_word(uint64_t tag, size_t size)
{
    return (tag ^ MICRO_END_MARK) + size;
}

/* Keeps the compiler from removing an allocation whose block it can see to be unused. */
static inline void *micro_opaque(void *block)
{
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

/* Writes the tag, then a word in every cache line of the first page and in every page after it, as a
 * program that fills what it asked for would, then the end word. A block shorter than two words has
 * only its tag. */
static inline void block_write(void *block, size_t size, uint64_t tag)
{
    char *bytes = block;
    if (size >= 2 * sizeof tag) {
        uint64_t end = micro_end_word(tag, size);
        size_t lines = size < MICRO_PAGE ? size : MICRO_PAGE;
        for (size_t at = MICRO_CACHE_LINE; at + sizeof tag <= lines; at += MICRO_CACHE_LINE)
            memcpy(bytes + at, &tag, sizeof tag);
        for (size_t at = MICRO_PAGE; at + sizeof tag <= size; at += MICRO_PAGE) memcpy(bytes + at, &tag, sizeof tag);
        memcpy(bytes + size - sizeof end, &end, sizeof end);
    }
    memcpy(bytes, &tag, sizeof tag);
}

/* Returns the tag of a block that is whole; ends the program otherwise. */
static inline uint64_t block_check(const void *block, size_t size)
{
    uint64_t tag, end;
    memcpy(&tag, block, sizeof tag);
    if (size >= 2 * sizeof tag) {
        memcpy(&end, (const char *)block + size - sizeof end, sizeof end);
        if (__builtin_expect(end != micro_end_word(tag, size), 0))
            micro_fail("block %p of %zu bytes was overwritten", block, size);
    }
    return tag;
}

/* C asks for the alignment of any object that fits: 16 from 16 bytes on, 8 below. */
static inline void *block_accept(void *block, size_t size)
{
    uintptr_t alignment = size >= 16 ? 16 : 8;
    if (__builtin_expect(!block, 0)) micro_fail("no memory for %zu bytes", size);
    if (__builtin_expect(((uintptr_t)block & (alignment - 1)) != 0, 0))
        micro_fail("block %p of %zu bytes is misaligned", block, size);
    return micro_opaque(block);
}

/* An object or an array, from the place where this stands: a function for it would be the one place that all are from. */
#define BLOCK_OF(type) ((type *)block_accept(malloc(sizeof(type)), sizeof(type)))
#define BLOCK_ARRAY(type, count) ((type *)block_accept(malloc((count) * sizeof(type)), (count) * sizeof(type)))

/* Sizes are at least 8 bytes everywhere: the tag must fit. */
static inline void *block_new(size_t size, uint64_t tag)
{
    void *block = block_accept(malloc(size), size);
    block_write(block, size, tag);
    return block;
}

static inline uint64_t block_free(void *block, size_t size)
{
    uint64_t tag = block_check(block, size);
    free(block);
    return tag;
}

/* A block that a program holds on to. */
typedef struct {
    void *block;
    size_t size;
} micro_slot;

static inline void slot_fill(micro_slot *slot, size_t size, uint64_t tag)
{
    *slot = (micro_slot){block_new(size, tag), size};
}

/* Returns what its block adds to the digest; an empty slot adds nothing. */
static inline uint64_t slot_clear(micro_slot *slot)
{
    if (!slot->block) return 0;
    uint64_t tag = block_free(slot->block, slot->size);
    slot->block = NULL;
    return tag;
}

static inline uint64_t slots_clear(micro_slot *slots, size_t count)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < count; i++) digest += slot_clear(&slots[i]);
    return digest;
}

/* A block under 64 KiB whose tag tells its size: where millions are held, a table of bare pointers keeps
 * the program's own memory, which is the same under every allocator, from hiding their differences. */
enum { TAGGED_LIMIT = UINT16_MAX };

static inline void *tagged_new(size_t size, micro_random *random)
{
    return block_new(size, (micro_next(random) & ~(uint64_t)TAGGED_LIMIT) | size);
}

static inline size_t tagged_size(const void *block)
{
    uint64_t tag;
    memcpy(&tag, block, sizeof tag);
    return tag & TAGGED_LIMIT;
}

/* No block adds nothing to the digest. */
static inline uint64_t tagged_free(void *block)
{
    return block ? block_free(block, tagged_size(block)) : 0;
}

/* ------------------------------------------------------- memory of the program */

/* Zeroed memory that no allocator under test knows of. It lives until the program ends. */
static inline void *micro_map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) micro_fail("the kernel has no %zu bytes for the program's own tables", size);
    return memory;
}

/* ------------------------------------------------------------------- threads */

enum { MICRO_MAX_THREADS = 1024 };

/* What a thread works on and what it leaves. Each stands on lines of its own, so that the threads
 * share no cache line but those that the allocator makes them share. */
typedef struct {
    _Alignas(2 * MICRO_CACHE_LINE) uint64_t index;
    uint64_t operations;
    uint64_t digest;
    void *own; /* the program's own state */
} micro_worker;

static micro_worker micro_workers[MICRO_MAX_THREADS];

static inline pthread_t micro_spawn(void *(*body)(void *), void *argument, const pthread_attr_t *attributes)
{
    pthread_t thread;
    int error = pthread_create(&thread, attributes, body, argument);
    if (error) micro_fail("no new thread: %s", strerror(error));
    return thread;
}

/* Runs `body(&micro_workers[i])` on `count` threads to their end. One worker runs on the caller, as a
 * program without threads would: some allocators are faster before a second thread exists. */
static inline void micro_run(uint64_t count, void *(*body)(void *))
{
    static pthread_t threads[MICRO_MAX_THREADS];
    micro_require(count >= 1 && count <= MICRO_MAX_THREADS, "1 to 1024 threads");
    for (uint64_t i = 0; i < count; i++) micro_workers[i].index = i;
    for (uint64_t i = 1; i < count; i++) threads[i] = micro_spawn(body, &micro_workers[i], NULL);
    body(&micro_workers[0]);
    for (uint64_t i = 1; i < count; i++) pthread_join(threads[i], NULL);
}

/* -------------------------------------------------------------------- report */

static inline double micro_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A line of what the kernel says of this process's memory, in bytes. Exact: the counters in /proc/self/statm lag
 * behind. */
static inline uint64_t micro_smaps(const char *name)
{
    char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY); /* not fopen: it would allocate */
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    const char *line = strstr(text, name);
    if (!line || line == text || line[-1] != '\n') micro_fail("the kernel does not tell %s", name);
    return strtoull(line + strlen(name), NULL, 10) * 1024;
}

static inline uint64_t micro_resident(void)
{
    return micro_smaps("Rss:");
}

/* `operations` are what the program says they are; `seconds` is the time of the measured part. */
static inline int micro_report(uint64_t operations, double seconds, uint64_t digest)
{
    printf("operations: %" PRIu64 "\ndigest: %016" PRIx64 "\ncheck ok\n", operations, digest);
    fprintf(stderr, "seconds: %.6f\nops_per_s: %.0f\n", seconds, (double)operations / seconds);
    return EXIT_SUCCESS;
}

/* Sums what the first `count` workers left and reports it. */
static inline int micro_report_workers(uint64_t count, double seconds)
{
    uint64_t operations = 0, digest = 0;
    for (uint64_t i = 0; i < count; i++) {
        operations += micro_workers[i].operations;
        digest += micro_workers[i].digest;
    }
    return micro_report(operations, seconds, digest);
}

#endif
