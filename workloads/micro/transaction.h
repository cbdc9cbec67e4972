/* For programs that ask what a heap for objects that die together is worth: the same calls go to malloc, to one of heapfit's
 * contexts, or to none.
 *
 * The mode is a constant in each copy of a program's loop, so that none pays for another's being there. heapfit's own functions
 * are found while the program runs, in the library that is preloaded: the program needs none to be compiled.
 */
#ifndef MICRO_TRANSACTION_H
#define MICRO_TRANSACTION_H

#include "micro.h"

#include <dlfcn.h>

enum {
    MODE_MALLOC = 0, /* of whatever allocator is preloaded */
    MODE_CONTEXT = 1, /* a defrag-dodging context */
    MODE_REGION = 2,
    MODE_NONE = 3, /* addresses one after the other in a small ring: what the loop itself takes, to be subtracted */
    MODES
};

#define MODE_HELP "0: malloc, 1: context, 2: region, 3: no allocator"

/* The first members of hf_context_config, and room for those that a later version may have: zero stands for defaults. */
typedef struct {
    int kind;
    char rest[252];
} transaction_config;

static struct {
    void *context;
    void *(*create)(const transaction_config *);
    void *(*allocate)(void *, size_t);
    void (*release)(void *, void *);
    void (*free_all)(void *);
} transaction_heapfit;

/* The ring holds what a few hundred small objects need: it stays in the nearest caches. */
enum { RING_BYTES = 1 << 17 };
static _Alignas(MICRO_CACHE_LINE) char transaction_ring[2 * RING_BYTES];
static size_t transaction_ring_next;

static inline void *transaction_function(const char *name)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    if (!function) micro_fail("no %s: this mode needs heapfit preloaded", name);
    return function;
}

/* ISO C knows no conversion of an object's address to a function's; POSIX promises that the bytes are the same. */
static inline void transaction_find(void *pointer, const char *name)
{
    void *function = transaction_function(name);
    memcpy(pointer, &function, sizeof function);
}

static inline void transaction_start(uint64_t mode)
{
    micro_require(mode < MODES, "mode is " MODE_HELP);
    if (mode != MODE_CONTEXT && mode != MODE_REGION) return;
    transaction_find(&transaction_heapfit.create, "hf_context_create");
    transaction_find(&transaction_heapfit.allocate, "hf_context_malloc");
    transaction_find(&transaction_heapfit.release, "hf_context_free");
    transaction_find(&transaction_heapfit.free_all, "hf_context_free_all");
    transaction_config config = {.kind = mode == MODE_REGION};
    transaction_heapfit.context = transaction_heapfit.create(&config);
    if (!transaction_heapfit.context) micro_fail("no context");
}

__attribute__((always_inline)) static inline void *transaction_malloc(unsigned mode, size_t size)
{
    if (mode == MODE_MALLOC) return malloc(size);
    if (mode != MODE_NONE) return transaction_heapfit.allocate(transaction_heapfit.context, size);
    void *block = transaction_ring + transaction_ring_next;
    transaction_ring_next = (transaction_ring_next + ((size + 15) & ~(size_t)15)) % RING_BYTES;
    return micro_opaque(block);
}

__attribute__((always_inline)) static inline void transaction_free(unsigned mode, void *block)
{
    if (mode == MODE_MALLOC) free(block);
    else if (mode != MODE_NONE) transaction_heapfit.release(transaction_heapfit.context, block);
}

/* The end of a transaction, where there is such a thing. */
static inline void transaction_end(unsigned mode)
{
    if (mode == MODE_CONTEXT || mode == MODE_REGION) transaction_heapfit.free_all(transaction_heapfit.context);
}

/* An object is written to and read as little as can be: its first word. */
__attribute__((always_inline)) static inline void *transaction_new(unsigned mode, size_t size, uint64_t tag)
{
    void *block = transaction_malloc(mode, size);
    if (__builtin_expect(!block, 0)) micro_fail("no memory for %zu bytes", size);
    memcpy(block, &tag, sizeof tag);
    return block;
}

/* Where no allocator is, objects lie in each other's place. */
__attribute__((always_inline)) static inline uint64_t transaction_check(unsigned mode, const void *block, uint64_t tag)
{
    uint64_t found;
    memcpy(&found, block, sizeof found);
    if (__builtin_expect(mode != MODE_NONE && found != tag, 0)) micro_fail("block %p was overwritten", block);
    return tag;
}

/* Sizes of the small objects of a script's run: most below 128 bytes, a few up to 1 KiB (the paper's Table 3: 65 bytes on
 * average). Drawn before the clock starts. */
enum { TRANSACTION_DRAWN = 1 << 14 };

static uint32_t transaction_sizes[TRANSACTION_DRAWN];

static inline void transaction_draw_sizes(micro_random *random)
{
    for (size_t i = 0; i < TRANSACTION_DRAWN; i++) {
        uint64_t kind = micro_below(random, 100);
        transaction_sizes[i] = (uint32_t)(kind < 85   ? micro_between(random, 8, 96)
                                          : kind < 98 ? micro_between(random, 97, 320)
                                                      : micro_between(random, 321, 1024));
    }
}

/* Runs `loop` with its mode as a constant. */
#define TRANSACTION_RUN(loop, mode)                                                                                    \
    ((mode) == MODE_MALLOC    ? loop(MODE_MALLOC)                                                                      \
     : (mode) == MODE_CONTEXT ? loop(MODE_CONTEXT)                                                                     \
     : (mode) == MODE_REGION  ? loop(MODE_REGION)                                                                      \
                              : loop(MODE_NONE))

#endif
