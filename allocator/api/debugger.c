/* What a debugger needs to read the heap of a process, or of a core file, without this library's debug information: where
 * things are, by name. gdb/heapfit.py reads it. Nothing in the process does.
 */
#include "api.h"

#include "../heap/heap.h"

#include <stddef.h>

struct entry {
    char name[24]; /* empty: the last */
    uint64_t value; /* an address, an offset, a size or a number */
};

#define ADDRESS(name, object) {name, (uint64_t)(uintptr_t)(object)}
#define FIELD(structure, member) {#structure "." #member, offsetof(struct structure, member)}
#define NUMBER(name) {#name, name}

/* The names are an interface to scripts of other versions: one whose meaning changes gets another name. */
EXPORT const struct entry hf_debug_layout[] = {
    ADDRESS("version", HEAPFIT_VERSION),
    ADDRESS("space", &space),
    FIELD(space, base),
    FIELD(space, size),
    FIELD(space, link_key),
    {"span", sizeof(struct span)},
    FIELD(span, owner),
    FIELD(span, free),
    FIELD(span, countdown),
    FIELD(span, held_back),
    FIELD(span, block_size),
    FIELD(span, carved),
    FIELD(span, uncarved),
    FIELD(span, bin),
    FIELD(span, kind),
    FIELD(span, pool),
    FIELD(span, run_spans),
    NUMBER(SPAN_SHIFT),
    NUMBER(SPAN_FREE),
    NUMBER(SPAN_BLOCKS),
    NUMBER(SPAN_LARGE),
    NUMBER(SPAN_TAIL),
    NUMBER(SPAN_METADATA),
    NUMBER(SPAN_GUEST),
    NUMBER(SPAN_GUARD),
    NUMBER(RUN_ON_ITS_WAY),
    NUMBER(RUN_OF_TABLES),
    NUMBER(HARDENED),
    NUMBER(LARGE_SPARE),
    NUMBER(CARVE_UNIT_LOG2),
    NUMBER(LIST_END),
    NUMBER(LINK_MAX),
    ADDRESS("orphans", &heap_orphans),
    ADDRESS("youngest", &heap_list_at), /* the address of the address of the first */
    FIELD(heap, free),
    FIELD(heap, number),
    FIELD(heap, thread),
    FIELD(heap, made_before),
    FIELD(heap, hands),
    {"hand", sizeof(struct hand)},
    FIELD(hand, count),
    FIELD(hand, blocks),
    NUMBER(BIN_COUNT),
    NUMBER(HAND_BIN_MIN),
    NUMBER(HAND_BINS),
    NUMBER(HAND_BLOCKS),
    ADDRESS("guard", &guard),
    FIELD(guard, start),
    FIELD(guard, page),
    FIELD(guard, slots),
    FIELD(guard, records),
    {"guard_slot", sizeof(struct guard_slot)},
    FIELD(guard_slot, state),
    FIELD(guard_slot, object),
    FIELD(guard_slot, size),
    NUMBER(GUARD_LIVE),
    NUMBER(GUARD_FREED),
#ifdef HEAPFIT_POOLS
    ADDRESS("pool_classes", heap_pool_classes),
    NUMBER(CLASS_MIXED),
#endif
    {"", 0},
};
