/* Live blocks by their address, while a plan is made. Linear probing without marks for what was taken out: what stands
 * behind a gap moves up, so that a program that has allocated and freed for hours leaves no trace in the table. */
#include "parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_PLACES_LOG = 10, HUGE_PAGE = 2 << 20 };

/* The product's highest bits, to which all of the address contributes. */
static size_t home_of(const struct blocks *blocks, uint64_t address)
{
    return (size_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> blocks->shift);
}

void blocks_foresee(const struct blocks *blocks, uint64_t address)
{
    if (blocks->table != NULL) __builtin_prefetch(&blocks->table[home_of(blocks, address)]);
}

struct block *blocks_find(const struct blocks *blocks, uint64_t address)
{
    if (blocks->table == NULL || address == 0) return NULL;
    for (size_t at = home_of(blocks, address);; at = (at + 1) & blocks->mask) {
        struct block *block = &blocks->table[at];
        if (block->address == address) return block;
        if (block->address == 0) return NULL;
    }
}

static void put(struct blocks *blocks, struct block block)
{
    size_t at = home_of(blocks, block.address);
    while (blocks->table[at].address != 0) at = (at + 1) & blocks->mask;
    blocks->table[at] = block;
}

/* Zeroed. A large table is read all over: on huge pages it needs no walk through page tables for each place. */
static struct block *make_table(size_t places)
{
    size_t size = places * sizeof(struct block);
    if (size < HUGE_PAGE) return calloc(places, sizeof(struct block));
    size = (size + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    struct block *table = aligned_alloc(HUGE_PAGE, size);
    if (table == NULL) return NULL;
    madvise(table, size, MADV_HUGEPAGE);
    return memset(table, 0, size);
}

static bool grow(struct blocks *blocks)
{
    unsigned log = blocks->table == NULL ? FIRST_PLACES_LOG : 64 - blocks->shift + 1;
    size_t places = (size_t)1 << log;
    struct blocks larger = {.table = make_table(places), .shift = 64 - log, .mask = places - 1, .count = blocks->count};
    if (larger.table == NULL) return false;
    for (size_t i = 0; blocks->table != NULL && i <= blocks->mask; i++) {
        if (blocks->table[i].address != 0) put(&larger, blocks->table[i]);
    }
    free(blocks->table);
    *blocks = larger;
    return true;
}

bool blocks_add(struct blocks *blocks, struct block block)
{
    bool full = blocks->table == NULL || blocks->count >= (blocks->mask + 1) / 3 * 2;
    if (full && !grow(blocks)) return false;
    put(blocks, block);
    blocks->count++;
    return true;
}

void blocks_take(struct blocks *blocks, struct block *found)
{
    size_t gap = (size_t)(found - blocks->table);
    for (size_t at = (gap + 1) & blocks->mask; blocks->table[at].address != 0; at = (at + 1) & blocks->mask) {
        /* It may move into the gap unless its home is behind that. */
        size_t from_home = (at - home_of(blocks, blocks->table[at].address)) & blocks->mask;
        if (from_home >= ((at - gap) & blocks->mask)) {
            blocks->table[gap] = blocks->table[at];
            gap = at;
        }
    }
    blocks->table[gap].address = 0;
    blocks->count--;
}

void blocks_free(struct blocks *blocks)
{
    free(blocks->table);
    *blocks = (struct blocks){0};
}
