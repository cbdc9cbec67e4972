/* Ages the heap before a replay: fills it and thins it out, as a process has done that has run for long.
 *
 * A fresh heap is compact, whatever the allocator; what tells them apart after a day is what becomes of the holes. Blocks of
 * the recording's own sizes are allocated until they are so many times the recording's peak, then all but a part of them are
 * freed, picked by chance; that several times over. What is left stays to the end. Sizes and picks depend on the plan alone,
 * so that each allocator is asked for the same. */
#include "replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ROUNDS = 4, /* after which holes have been filled by blocks of other sizes, and thinned out again, several times */
    KEPT_OF =
        8, /* one block in so many outlives its round: few enough for holes, too many for whole pages to come free */
    TRIES = 64, /* to come by an allocation among operations, about half of which are frees */
    LEAST_SIZE = 16,
    PAGE = 4096,
};

struct aged {
    void **blocks; /* of a mapping that is no anonymous memory to those who count */
    size_t count, room;
    uint64_t chance;
    uint64_t live; /* bytes */
    uint64_t *sizes;
    uint64_t failures;
};

/* George Marsaglia's xorshift generator. */
static uint64_t next_chance(struct aged *aged)
{
    aged->chance ^= aged->chance << 13;
    aged->chance ^= aged->chance >> 7;
    return aged->chance ^= aged->chance << 17;
}

static bool allocates(const struct plan_op *op)
{
    return op->kind != PLAN_FREE && op->kind <= PLAN_NEW_ALIGNED && op->size > 0;
}

/* Of an allocation of the recording, picked by chance; none above the peak's own size. */
static uint64_t next_size(struct aged *aged, const struct replay *replay)
{
    for (int i = 0; i < TRIES; i++) {
        const struct plan_op *op = &replay->ops[next_chance(aged) % replay->plan->ops];
        if (allocates(op) && op->size <= replay->plan->peak_bytes) return op->size;
    }
    return LEAST_SIZE;
}

static void *shared_table(size_t size)
{
    void *table = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table != MAP_FAILED) return table;
    fprintf(stderr, "no memory for the replay's tables: %s\n", strerror(errno));
    exit(EXIT_FAILURE);
}

static void fill(struct aged *aged, const struct replay *replay, uint64_t bytes)
{
    while (aged->live < bytes && aged->count < aged->room) {
        uint64_t size = next_size(aged, replay);
        char *block = malloc(size);
        if (block == NULL) {
            aged->failures++;
            return;
        }
        for (uint64_t at = 0; at < size; at += PAGE) ((volatile char *)block)[at] = 1;
        aged->blocks[aged->count] = block;
        aged->sizes[aged->count++] = size;
        aged->live += size;
    }
}

static void thin_out(struct aged *aged)
{
    size_t kept = 0;
    for (size_t i = 0; i < aged->count; i++) {
        if (next_chance(aged) % KEPT_OF == 0) {
            aged->blocks[kept] = aged->blocks[i];
            aged->sizes[kept++] = aged->sizes[i];
        } else {
            free(aged->blocks[i]);
            aged->live -= aged->sizes[i];
        }
    }
    aged->count = kept;
}

struct ageing age_heap(const struct replay *replay, double times)
{
    uint64_t bytes = (uint64_t)(times * (double)replay->plan->peak_bytes);
    if (bytes == 0 || replay->plan->allocations == 0) return (struct ageing){0};
    struct aged aged = {.room = bytes / LEAST_SIZE + 1, .chance = replay->plan->checksum | 1};
    aged.blocks = shared_table(aged.room * sizeof *aged.blocks);
    aged.sizes = shared_table(aged.room * sizeof *aged.sizes);
    for (int round = 0; round < ROUNDS; round++) {
        fill(&aged, replay, bytes);
        thin_out(&aged);
    }
    struct ageing result = {.left_bytes = aged.live, .failures = aged.failures};
    munmap(aged.blocks, aged.room * sizeof *aged.blocks);
    munmap(aged.sizes, aged.room * sizeof *aged.sizes);
    return result;
}
