/* Live blocks by their address, while a plan is made. Linear probing without marks for what was taken out: what stands
 * behind a gap moves up, so that a program that has allocated and freed for hours leaves no trace in the table. */
#include "parts.h"

#include <stdlib.h>

enum { FIRST_PLACES = 1024 };

static size_t home_of(const struct blocks *blocks, uint64_t address)
{
    return (size_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 20) & blocks->mask;
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

static bool grow(struct blocks *blocks)
{
    size_t places = blocks->table == NULL ? FIRST_PLACES : (blocks->mask + 1) * 2;
    struct block *table = calloc(places, sizeof *table);
    if (table == NULL) return false;
    struct blocks larger = {.table = table, .mask = places - 1, .count = blocks->count};
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
