/* Groups and their verdicts. Everything that is learnt about groups is under one lock, for which no allocation ever
 * waits: a thread that finds it taken goes on, and its object is not seen. So a thread that is interrupted in here by a
 * signal whose handler allocates cannot come to a standstill, and threads that all build the same structure do not
 * queue.
 */
#include "group.h"

struct group groups[GROUPS_MAX];

/* Three quarters of a group's objects decide which size class it is of. */
enum { MOST = WHOLE * 3 / 4 };

static _Atomic(uint32_t) count;
static platform_lock lock;

/* ---- verdicts --------------------------------------------------------------------------------------------------- */

struct verdict group_verdict(uint32_t group)
{
    /* Acquire: pairs with the release in group_decide, so that the pool is there for whoever is sent to it. */
    return verdict_of_word(atomic_load_explicit(&groups[group].verdict, memory_order_acquire));
}

/* One more than the first group of each pool; 0: none. */
static uint16_t pool_groups[POOL_BINS];

uint32_t group_of_pool(uint32_t pool)
{
    return pool < POOL_BINS && pool_groups[pool] != 0 ? pool_groups[pool] - 1u : GROUP_NONE;
}

void group_decide(uint32_t group, enum group_state state, enum reason reason, uint32_t pool)
{
    struct verdict verdict = {.kind = VERDICT_ORDINARY, .pool = POOL_NONE};
    groups[group].state = (uint8_t)state;
    groups[group].reason = (uint8_t)reason;
    groups[group].pool = pool;
    if (pool < POOL_BINS) {
        verdict = place_verdict(pool);
        if (group_of_pool(pool) == GROUP_NONE) pool_groups[pool] = (uint16_t)(group + 1);
    }
    /* Release: see group_verdict. */
    atomic_store_explicit(&groups[group].verdict, verdict_word(verdict), memory_order_release);
    chain_ask_again(group);
}

/* ---- groups ----------------------------------------------------------------------------------------------------- */

uint32_t group_count(void)
{
    /* Acquire: pairs with the release in group_new; what that wrote can be read. */
    return atomic_load_explicit(&count, memory_order_acquire);
}

uint32_t group_new(const uintptr_t *chain, unsigned length, bool complete)
{
    /* Relaxed: only the caller's lock lets anybody write it. */
    uint32_t number = atomic_load_explicit(&count, memory_order_relaxed);
    if (number == GROUPS_MAX) return GROUP_NONE;
    struct group *group = &groups[number];
    unsigned kept = length < CHAIN_KEPT ? length : CHAIN_KEPT;
    memcpy(group->chain, chain, kept * sizeof *chain);
    group->length = (uint16_t)(length < UINT16_MAX ? length : UINT16_MAX);
    group->complete = complete;
    group->merged_into = GROUP_NONE;
    group->pool = POOL_NONE;
    group->next_look = pool_settings.min_objects > 0 ? pool_settings.min_objects : 1;
    atomic_store_explicit(&count, number + 1, memory_order_release);
    return number;
}

uint32_t group_root(uint32_t group)
{
    while (groups[group].merged_into != GROUP_NONE) group = groups[group].merged_into;
    return group;
}

/* Not size_class: the heap's classes are others where blocks are to fill cache lines. Whoever is in here has just
 * allocated from a heap of its own. */
static unsigned class_of(uint32_t size)
{
    return heap_size_class(size);
}

uint32_t group_block_size(uint32_t group)
{
    const struct group_size *sizes = groups[group].sizes;
    for (unsigned i = 0; i < SIZES_KEPT && sizes[i].objects != 0; i++) {
        if (sizes[i].size > SMALL_MAX) continue;
        unsigned class = class_of(sizes[i].size);
        uint64_t objects = 0;
        for (unsigned j = 0; j < SIZES_KEPT; j++)
            if (sizes[j].size <= SMALL_MAX && class_of(sizes[j].size) == class) objects += sizes[j].objects;
        if (share_of(objects, groups[group].objects) >= MOST) return size_class_bytes(class);
    }
    return 0;
}

/* ---- watching --------------------------------------------------------------------------------------------------- */

static void count_size(struct group *group, size_t size)
{
    for (unsigned i = 0; i < SIZES_KEPT; i++) {
        struct group_size *known = &group->sizes[i];
        if (known->objects == 0) known->size = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
        if (known->size != size) continue;
        known->objects++;
        return;
    }
}

static void watch(uint32_t number, uintptr_t object, size_t size)
{
    struct group *group = &groups[number];
    if (group->state != GROUP_WATCHED) return; /* decided a moment ago */
    group->objects++;
    group->bytes += size;
    if (size > pool_settings.max_size) group->objects_large++;
    count_size(group, size);
    if (size <= OBSERVED_MAX) {
        group->newest = log_add(object, number, size, group->newest);
        group->logged++;
    }
    if (group->objects >= group->next_look) judge_look(number);
}

void group_watch(uint32_t group, void *object, size_t size)
{
    if (!platform_lock_try(&lock)) return;
    watch(group, (uintptr_t)object, size);
    platform_lock_release(&lock);
}

/* ---- the lock --------------------------------------------------------------------------------------------------- */

void group_lock(void)
{
    platform_lock_acquire(&lock);
}

void group_unlock(void)
{
    platform_lock_release(&lock);
}

void group_fork_child(void)
{
    platform_lock_mend(&lock);
}
