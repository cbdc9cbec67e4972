/* What a plan is made with: which blocks live where (blocks.c), and the slots that they have (slots.c). */
#ifndef HEAPFIT_PLAN_PARTS_H
#define HEAPFIT_PLAN_PARTS_H

#include "plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_NO_SLOT UINT32_MAX

/* ---- live blocks by their address: a hash table with open addressing ------------------------------------------------ */

struct block {
    uint64_t address; /* 0: the place is empty */
    uint64_t size;
    uint32_t slot;
    uint8_t kind; /* enum plan_kind of the operation that made it */
    uint8_t alignment;
};

struct blocks {
    struct block *table; /* of `mask` + 1 places, a power of two */
    size_t mask, count;
    unsigned shift; /* 64 less the binary logarithm of the places */
};

/* NULL: there is none. Pointers hold until the next call that adds or takes. */
struct block *blocks_find(const struct blocks *blocks, uint64_t address);
bool blocks_add(struct blocks *blocks, struct block block); /* its address is new, and not 0; false: no memory */
void blocks_take(struct blocks *blocks, struct block *found); /* takes it out */
void blocks_foresee(const struct blocks *blocks, uint64_t address); /* that it will be looked up: has it fetched */
void blocks_free(struct blocks *blocks);

/* ---- slots ------------------------------------------------------------------------------------------------------------ *
 *
 * Which slot a new block gets decides who waits for whom in the replay: a slot that another thread emptied a moment ago
 * would make this thread wait for that one, though in the program neither knew of the other. So a thread keeps the slots
 * that it empties for itself, up to a few; the rest go through a queue, where they grow so old that their last free is
 * long done whenever the replay gets there. Nothing else bounds how many slots there are, and nothing else has to. */

enum {
    SLOTS_KEPT = 512, /* of a thread: 8 KiB of the replayer's memory, which stay in its first cache */
    SLOTS_RUN = 16, /* new ones come in runs, so that two threads' new slots are not in one cache line */
    /* Events after which an emptied slot is anybody's: no thread is so far behind. */
    SLOTS_AGE = PLAN_DRIFT_MAX + PLAN_STEP,
};

struct slot_state {
    uint32_t turn; /* of the next operation on it */
    uint32_t next; /* in the queue, or among those kept */
    uint64_t emptied; /* how many events had been then */
};

struct slots {
    struct slot_state *states;
    uint32_t count, room;
    uint32_t oldest, newest; /* of the queue */
};

struct thread_slots {
    uint32_t kept; /* the one emptied last; PLAN_NO_SLOT: none */
    uint32_t kept_count;
    uint32_t fresh, fresh_left; /* the rest of a run */
};

void slots_init(struct slots *slots);
void thread_slots_init(struct thread_slots *own);
uint32_t slot_take(struct slots *slots, struct thread_slots *own, uint64_t now); /* PLAN_NO_SLOT: no memory */
void slot_give(struct slots *slots, struct thread_slots *own, uint32_t slot, uint64_t now);

#endif
