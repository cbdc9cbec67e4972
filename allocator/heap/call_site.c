/* Chains of callers and their numbers: see call_site.h. */
#include "call_site.h"

#include <string.h>

#include "numbered.h"

enum {
    SLOTS_LOG = 16, /* twice as many as there are chains, so that a search is short and always ends */
    DEEP_MAX = CALL_SITES_MAX - CALL_SITES_MAX / 16, /* beyond, innermost callers alone */
};
_Static_assert(1 << SLOTS_LOG >= 2 * CALL_SITES_MAX, "half of the slots stay empty");

struct slots {
    _Atomic(uint32_t) numbers[1 << SLOTS_LOG]; /* 0: empty; release: the chain is there */
};

static struct numbered chains = {.each = CALL_SITES_MAX / NUMBERED_CHUNKS, .size = sizeof(struct trace)};
static _Atomic(struct slots *) all_slots;
static _Atomic(uint32_t) spare; /* the number of one that another thread had added meanwhile; 0: none */

/* ---- chains ---------------------------------------------------------------------------------------------------------------------- */

static struct trace *trace_at(uint32_t number)
{
    return numbered_at(&chains, number);
}

const struct trace *call_site_trace(uint32_t number)
{
    return trace_at(number);
}

/* The number of a chain that is yet to be written, and is the caller's alone until then; 0: there is none. */
static uint32_t number_take(uint32_t most)
{
    uint32_t number = atomic_exchange_explicit(&spare, 0, memory_order_relaxed);
    return number != 0 ? number : numbered_make(&chains, most);
}

/* One that was not needed; a second one at the same time is lost. */
static void number_give_back(uint32_t number)
{
    if (number != 0) atomic_store_explicit(&spare, number, memory_order_relaxed);
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------- */

static struct slots *slots_make(void)
{
    struct slots *new = space_metadata(sizeof *new), *none = NULL;
    if (new == NULL) return NULL;
    /* Of two that make it at the same time one stays unused: that happens once. */
    bool ours =
        atomic_compare_exchange_strong_explicit(&all_slots, &none, new, memory_order_acq_rel, memory_order_acquire);
    return ours ? new : none;
}

static struct slots *slots_find(void)
{
    /* Acquire: pairs with the release in slots_make: it reads as zeros. */
    struct slots *slots = atomic_load_explicit(&all_slots, memory_order_acquire);
    return slots != NULL ? slots : slots_make();
}

static uint64_t hash_of(const struct trace *trace)
{
    uint64_t hash = trace->count;
    for (uint32_t i = 0; i < trace->count; i++)
        hash = ((hash ^ trace->addresses[i]) + trace->modules[i]) * UINT64_C(0x9E3779B97F4A7C15); /* Knuth, 6.4 */
    return hash ^ hash >> 32;
}

static bool is_same(const struct trace *a, const struct trace *b)
{
    return a->count == b->count && memcmp(a->addresses, b->addresses, a->count * sizeof *a->addresses) == 0 &&
           memcmp(a->modules, b->modules, a->count * sizeof *a->modules) == 0;
}

static void trace_copy(struct trace *to, const struct trace *from)
{
    to->count = from->count;
    memcpy(to->addresses, from->addresses, from->count * sizeof *from->addresses);
    memcpy(to->modules, from->modules, from->count * sizeof *from->modules);
}

/* The number that the slot has at last, which may be another thread's; `*number` is ours, or 0: it is to be taken yet. */
static uint32_t slot_fill(_Atomic(uint32_t) *slot, const struct trace *trace, uint32_t most, uint32_t *number)
{
    uint32_t found = 0;
    if (*number == 0) {
        *number = number_take(most);
        if (*number == 0) return 0;
        trace_copy(trace_at(*number), trace);
    }
    /* Release: the chain is written. Acquire: so is the other's. */
    if (!atomic_compare_exchange_strong_explicit(slot, &found, *number, memory_order_acq_rel, memory_order_acquire))
        return found;
    found = *number;
    *number = 0;
    return found;
}

/* With no more than so many chains in all. */
static uint32_t intern(struct slots *slots, const struct trace *trace, uint32_t most)
{
    uint32_t number = 0, found;
    for (uint64_t place = hash_of(trace);; place++) {
        _Atomic(uint32_t) *slot = &slots->numbers[place % ((uint64_t)1 << SLOTS_LOG)];
        found = atomic_load_explicit(slot, memory_order_acquire);
        if (found == 0) found = slot_fill(slot, trace, most, &number);
        if (found == 0 || is_same(trace_at(found), trace)) break;
    }
    number_give_back(number);
    return found;
}

uint32_t call_site_of(const struct trace *trace)
{
    struct slots *slots = slots_find();
    if (slots == NULL || trace->count == 0) return CALL_SITE_NONE;
    uint32_t number = intern(slots, trace, DEEP_MAX);
    if (number != 0 || trace->count == 1) return number != 0 ? number : intern(slots, trace, CALL_SITES_MAX);
    struct trace innermost = {.count = 1, .modules = {trace->modules[0]}, .addresses = {trace->addresses[0]}};
    return intern(slots, &innermost, CALL_SITES_MAX);
}
