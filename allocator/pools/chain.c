/* Chains: from the return addresses of an allocation to its group.
 *
 * The compound table holds all chains, short ones and complete ones (section 4). The key of n return addresses is made of the
 * key of the first n-1 and the nth; its value says that the chain goes on, with the rule to find the next return address by,
 * or which group it leads to. So a step outwards costs a look-up and a load or two:
 *
 *     malloc's caller ─► key of 1: deeper, by this rule ─► its caller ─► key of 2: group 17
 *
 * The table is read without locks. A key stays where it is and its value is replaced whole; a table that is half full is
 * copied to a larger one, and stays for those who still read it. One lock is held by whoever writes, and while a new chain is
 * analysed. No allocation waits for it: while another thread is learning a chain, a new one is not told. So a handler of a
 * signal that came in the midst of learning may allocate, and threads that all begin with the same code do not queue.
 *
 * What is read may be a little old, keys are hashes and could collide, and a return address can be found among what an
 * earlier call left on the stack: then an object is placed with others than it should be, and that is all.
 */
#include "pools.h"

#include <dlfcn.h>
#include <string.h>

/* Levels of wrappers, and of full chains: far beyond what programs have of the first (the paper's longest chain is 4), and a
 * bound for recursion in the second. */
enum { LEVELS_ADAPTIVE = 16, LEVELS_FULL = 64 };

static const uint8_t levels_most[] = {
    [POOL_CHAIN_ADAPTIVE] = LEVELS_ADAPTIVE,
    [POOL_CHAIN_1] = 1,
    [POOL_CHAIN_2] = 2,
    [POOL_CHAIN_3] = 3,
    [POOL_CHAIN_4] = 4,
    [POOL_CHAIN_FULL] = LEVELS_FULL,
};

const char *const chain_fallback_names[FALLBACKS] = {
    [FALLBACK_NO_UNWIND] = "no_unwind",
    [FALLBACK_NO_CODE] = "no_code",
    [FALLBACK_TOO_DEEP] = "too_deep",
    [FALLBACK_TOO_MANY_CHAINS] = "too_many_chains",
    [FALLBACK_TOO_MANY_GROUPS] = "too_many_groups",
    [FALLBACK_STACK] = "stack",
    [FALLBACK_BUSY] = "busy",
};

/* ---- the compound table --------------------------------------------------------------------------------------------------- */

struct pair {
    _Atomic(uint64_t) key; /* 0: free */
    _Atomic(uint64_t) value; /* 0: nothing is known */
};

struct table {
    unsigned shift; /* of a key's hash, to an index */
    uint32_t used; /* keys, at most half of the pairs: a search always ends */
    struct pair *pairs;
    uintptr_t *last; /* of each pair, the return address that was added last to its key */
};

/* It begins with a few KiB and doubles. The last size holds four chains for every group that there can be; more than that are
 * made by programs that load code again and again. */
enum { PAIRS_FIRST_LOG = 8, PAIRS_LAST_LOG = 16 };
_Static_assert((1 << PAIRS_LAST_LOG) / 2 == 4 * GROUPS_MAX, "as said above");

static struct pair first_pairs[1 << PAIRS_FIRST_LOG];
static uintptr_t first_last[1 << PAIRS_FIRST_LOG];
static struct table first_table = {.shift = 64 - PAIRS_FIRST_LOG, .pairs = first_pairs, .last = first_last};

static _Atomic(struct table *) table = &first_table;

static size_t pairs_in(const struct table *of)
{
    return (size_t)1 << (64 - of->shift);
}

/* The pair of a key, or the free one where it would be. A key is scattered already. */
ALWAYS_INLINE struct pair *pair_find(const struct table *in, uint64_t key)
{
    for (size_t index = key >> in->shift;; index = (index + 1) & (UINT64_MAX >> in->shift)) {
        struct pair *pair = &in->pairs[index];
        /* Acquire: pairs with the release in table_put, so that the key's value is there. */
        uint64_t found = atomic_load_explicit(&pair->key, memory_order_acquire);
        if (LIKELY(found == key) || found == 0) return pair;
    }
}

ALWAYS_INLINE uint64_t value_find(uint64_t key)
{
    /* Acquire: pairs with the release in table_grow, so that what it points to is there. */
    const struct pair *pair = pair_find(atomic_load_explicit(&table, memory_order_acquire), key);
    /* Acquire: pairs with the release in table_put, so that the group is there. */
    return atomic_load_explicit(&pair->value, memory_order_acquire);
}

/* Write a key's value into a table that has room: under the lock, or where nobody else knows the table. */
static void table_put(struct table *in, uint64_t key, uintptr_t last, uint64_t value)
{
    struct pair *pair = pair_find(in, key);
    in->last[pair - in->pairs] = last;
    /* Release: see value_find. */
    atomic_store_explicit(&pair->value, value, memory_order_release);
    if (atomic_load_explicit(&pair->key, memory_order_relaxed) == key) return; /* only we write */
    in->used++;
    /* Release: see pair_find. */
    atomic_store_explicit(&pair->key, key, memory_order_release);
}

static void table_copy(struct table *to, const struct table *from)
{
    for (size_t i = 0; i < pairs_in(from); i++) {
        /* Relaxed, both: only we write. */
        uint64_t value = atomic_load_explicit(&from->pairs[i].value, memory_order_relaxed);
        uint64_t key = atomic_load_explicit(&from->pairs[i].key, memory_order_relaxed);
        if (value != 0) table_put(to, key, from->last[i], value);
    }
}

/* The old table is never given back, since others may be reading it. All old ones together are no larger than the new one. */
static struct table *table_grow(struct table *old)
{
    if (old->shift == 64 - PAIRS_LAST_LOG) return NULL;
    size_t pairs = 2 * pairs_in(old);
    struct table *new = space_metadata(sizeof *new);
    struct pair *memory = space_metadata(pairs * (sizeof *memory + sizeof *new->last));
    if (new == NULL || memory == NULL) return NULL;
    new->shift = old->shift - 1;
    new->pairs = memory;
    new->last = (uintptr_t *)(memory + pairs);
    table_copy(new, old);
    /* Release: see value_find. */
    atomic_store_explicit(&table, new, memory_order_release);
    return new;
}

/* Write a new key's value; false: there is no room. */
static bool table_add(uint64_t key, uintptr_t last, uint64_t value)
{
    struct table *in = atomic_load_explicit(&table, memory_order_relaxed); /* only we write */
    bool forgotten = atomic_load_explicit(&pair_find(in, key)->key, memory_order_relaxed) != 0;
    if (!forgotten && 2 * ((size_t)in->used + 1) > pairs_in(in)) in = table_grow(in);
    if (in == NULL || key == 0) return false;
    table_put(in, key, last, value);
    return true;
}

/* ---- its values ---------------------------------------------------------------------------------------------------------- */

enum value_kind {
    VALUE_UNKNOWN, /* the word is 0 */
    VALUE_DEEPER, /* with a rule */
    VALUE_GROUP, /* with its number */
    VALUE_ORDINARY, /* no group */
};

/* From the lowest bit: the kind; the rule, packed; how the function passes the object on, plus 1. */
enum { KIND_BITS = 2, PASSING_SHIFT = KIND_BITS + RULE_BITS, GROUP_SHIFT = 32 };

static enum value_kind kind_of(uint64_t value)
{
    return (enum value_kind)(value & ((1U << KIND_BITS) - 1));
}

static uint32_t group_of(uint64_t value)
{
    return kind_of(value) == VALUE_GROUP ? (uint32_t)(value >> GROUP_SHIFT) : GROUP_NONE;
}

static uint64_t value_of_group(uint32_t group)
{
    return group == GROUP_NONE ? VALUE_ORDINARY : (uint64_t)group << GROUP_SHIFT | VALUE_GROUP;
}

static uint64_t value_of_rule(const struct frame_rule *rule, int passing)
{
    return VALUE_DEEPER | rule_packed(rule) << KIND_BITS | (uint64_t)(passing + 1) << PASSING_SHIFT;
}

/* The rule in it, packed. */
static uint64_t rule_of(uint64_t value)
{
    return value >> KIND_BITS & ((UINT64_C(1) << RULE_BITS) - 1);
}

static int passing_of(uint64_t value)
{
    return (int)(value >> PASSING_SHIFT) - 1;
}

/* ---- walking outwards ------------------------------------------------------------------------------------------------------ */

struct walk {
    struct frame at;
    uint64_t key;
    unsigned length;
};

/* The next return address joins the chain. */
static void walk_add(struct walk *walk)
{
    walk->key = chain_key(walk->key, walk->at.return_address);
    walk->length++;
}

static bool walk_step(struct walk *walk, uint64_t value)
{
    struct frame_rule rule = rule_unpacked(rule_of(value));
    return frame_step(&rule, &walk->at);
}

static uintptr_t walk_place(const struct walk *walk)
{
    return chain_place(walk->key, walk->length, walk->at.return_address);
}

/* ---- learning a new chain: under the lock -------------------------------------------------------------------------------------- */

enum { ANALYSES_KEPT = 512 };

static struct {
    platform_lock lock;
    /* Under the lock, unless atomic. */
    uint64_t made, addresses, decoded, analyses;
    uint32_t analysis_ns[ANALYSES_KEPT]; /* of a random choice of the analyses */
    _Atomic(bool) full;
    _Atomic(uint64_t) slow;
    _Atomic(uint64_t) fallbacks[FALLBACKS];
    _Atomic(uintptr_t) places[GROUPS_MAX]; /* of groups' chains */
} chains;

struct lesson {
    struct walk walk;
    uintptr_t chain[CHAIN_KEPT];
    int passing; /* how the last function but one passes objects on; see follow_pointer */
    bool complete; /* the chain ends for a reason of its own, not for one of ours */
    bool analysed;
};

static uint64_t fall_back(enum chain_fallback why, uint64_t value)
{
    atomic_fetch_add_explicit(&chains.fallbacks[why], 1, memory_order_relaxed); /* a number, read at the end */
    return value;
}

/* The chain ends here: its group. */
static uint64_t end_here(struct lesson *lesson, bool complete)
{
    const struct walk *walk = &lesson->walk;
    uint32_t group = group_new(lesson->chain, walk->length, complete);
    if (group == GROUP_NONE) return fall_back(FALLBACK_TOO_MANY_GROUPS, VALUE_ORDINARY);
    chains.made++;
    chains.addresses += walk->length;
    /* Relaxed: who finds it a moment later has been told of no verdict yet. */
    atomic_store_explicit(&chains.places[group], walk_place(walk), memory_order_relaxed);
    return value_of_group(group);
}

/* The chain should go on, by the rule of its last return address. */
static uint64_t go_on(struct lesson *lesson, const struct frame_rule *rule)
{
    if (rule->known == FRAME_OUTERMOST) return end_here(lesson, true);
    if (rule->known == FRAME_UNKNOWN) return fall_back(FALLBACK_NO_UNWIND, VALUE_ORDINARY);
    if (lesson->walk.length < levels_most[pool_settings.chain]) return value_of_rule(rule, lesson->passing);
    fall_back(FALLBACK_TOO_DEEP, 0);
    return end_here(lesson, false);
}

/* As far as functions pass objects on (3.1). */
static uint64_t analyse_adaptive(struct lesson *lesson)
{
    uintptr_t start, end, address = lesson->walk.at.return_address;
    struct frame_rule rule = frame_rule_find(address, &start, &end);
    if (start == 0) return fall_back(FALLBACK_NO_UNWIND, VALUE_ORDINARY);
    unsigned decoded = 0;
    enum follow follow = follow_pointer(address, start, end, &lesson->passing, &decoded);
    chains.decoded += decoded;
    if (follow == FOLLOW_PASSED_ON) return go_on(lesson, &rule);
    if (follow == FOLLOW_UNKNOWN) fall_back(FALLBACK_NO_CODE, 0);
    return end_here(lesson, follow == FOLLOW_USED);
}

static uint64_t analyse_fixed(struct lesson *lesson)
{
    if (pool_settings.chain != POOL_CHAIN_FULL && lesson->walk.length == levels_most[pool_settings.chain])
        return end_here(lesson, true);
    struct frame_rule rule = frame_rule_find(lesson->walk.at.return_address, NULL, NULL);
    return go_on(lesson, &rule);
}

/* The value of the chain up to here, which is not in the table. */
static uint64_t analyse(struct lesson *lesson)
{
    lesson->analysed = true;
    uint64_t value = pool_settings.chain == POOL_CHAIN_ADAPTIVE ? analyse_adaptive(lesson) : analyse_fixed(lesson);
    if (table_add(lesson->walk.key, lesson->walk.at.return_address, value)) return value;
    /* Relaxed: only saves others the way here. */
    atomic_store_explicit(&chains.full, true, memory_order_relaxed);
    return fall_back(FALLBACK_TOO_MANY_CHAINS, VALUE_ORDINARY);
}

/* Walk to the end, which is then known. Another thread may have learnt all or part of it before we had the lock. */
static uint64_t learn_to_end(struct lesson *lesson)
{
    for (;;) {
        struct walk *walk = &lesson->walk;
        walk_add(walk);
        if (walk->length <= CHAIN_KEPT) lesson->chain[walk->length - 1] = walk->at.return_address;
        uint64_t value = value_find(walk->key);
        if (value == VALUE_UNKNOWN) value = analyse(lesson);
        if (kind_of(value) != VALUE_DEEPER) return value;
        lesson->passing = passing_of(value);
        if (!walk_step(walk, value)) return fall_back(FALLBACK_STACK, VALUE_ORDINARY);
    }
}

/* Algorithm R (Vitter, 1985): all analyses are equally likely to be among those kept. The key serves as the random number. */
static void keep_time(uint64_t key, uint64_t ns)
{
    uint64_t place = chains.analyses++;
    if (place >= ANALYSES_KEPT) place = (key >> 32) % chains.analyses;
    if (place < ANALYSES_KEPT) chains.analysis_ns[place] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static uint64_t learn(const struct frame *frame)
{
    /* Relaxed: who sees it late only tries in vain. */
    if (atomic_load_explicit(&chains.full, memory_order_relaxed)) return VALUE_ORDINARY;
    if (!platform_lock_try(&chains.lock)) return fall_back(FALLBACK_BUSY, VALUE_ORDINARY);
    struct lesson lesson = {.walk = {.at = *frame}, .passing = PASSED_BY_RETURN};
    uint64_t start = platform_clock_ns();
    uint64_t value = learn_to_end(&lesson);
    if (lesson.analysed) keep_time(lesson.walk.key, platform_clock_ns() - start);
    platform_lock_release(&chains.lock);
    return value;
}

/* ---- the path of allocations ------------------------------------------------------------------------------------------------------- */

/* Calls are counted in the thread, and added up now and then. */
enum { COUNTED_TOGETHER = 1024 };
static __thread uint32_t slow_calls __attribute__((tls_model("initial-exec")));

static COLD void slow_calls_add(void)
{
    atomic_fetch_add_explicit(&chains.slow, COUNTED_TOGETHER, memory_order_relaxed); /* a number, read at the end */
}

static COLD uint32_t group_otherwise(const struct frame *frame, uint64_t value)
{
    if (value == VALUE_UNKNOWN) value = learn(frame);
    else if (kind_of(value) == VALUE_DEEPER) fall_back(FALLBACK_STACK, 0); /* but could not go there */
    return group_of(value);
}

/* Go on by what has been found; the next time the site table has it. */
static bool walk_on(struct walk *walk, uint64_t value)
{
    uintptr_t place = walk_place(walk);
    if (!walk_step(walk, value)) return false;
    site_learn(place, rule_of(value) << VERDICT_KIND_BITS | VERDICT_DEEPER);
    return true;
}

uint32_t chain_group(const struct frame *frame)
{
    if (UNLIKELY(++slow_calls % COUNTED_TOGETHER == 0)) slow_calls_add();
    struct walk walk = {.at = *frame};
    uint64_t value;
    do {
        walk_add(&walk);
        value = value_find(walk.key);
    } while (kind_of(value) == VALUE_DEEPER && walk_on(&walk, value));
    return LIKELY(kind_of(value) == VALUE_GROUP) ? group_of(value) : group_otherwise(frame, value);
}

struct verdict site_verdict(uintptr_t return_address)
{
    struct walk walk = {.at = {.return_address = return_address}};
    walk_add(&walk);
    uint64_t value = value_find(walk.key);
    if (kind_of(value) == VALUE_GROUP) return group_verdict(group_of(value));
    return (struct verdict){.kind = kind_of(value) == VALUE_ORDINARY ? VERDICT_ORDINARY : VERDICT_SLOW};
}

uintptr_t chain_site(uint32_t group)
{
    return atomic_load_explicit(&chains.places[group], memory_order_relaxed); /* see end_here */
}

void chain_ask_again(uint32_t group)
{
    uintptr_t site = chain_site(group);
    if (site != 0) site_drop(site);
}

/* ---- unmapped code --------------------------------------------------------------------------------------------------------------------- */

#pragma weak _dl_find_object /* as in platform/frame.c: without it, there is nothing to forget */

static bool is_in_an_object(uintptr_t return_address)
{
    struct dl_find_object object;
    return _dl_find_object == NULL || _dl_find_object((void *)(return_address - 1), &object) == 0;
}

/* Code that another thread loads at the same place before we look is taken for what was there: again a matter of placing
 * only. Keys keep their places, since searches for others go past them; the next larger table is without them. */
void chain_forget(void)
{
    platform_lock_acquire(&chains.lock);
    const struct table *in = atomic_load_explicit(&table, memory_order_relaxed); /* only we write */
    for (size_t i = 0; i < pairs_in(in); i++) {
        _Atomic(uint64_t) *value = &in->pairs[i].value;
        /* Relaxed, both: who still reads the former value places an object as before. */
        if (atomic_load_explicit(value, memory_order_relaxed) != VALUE_UNKNOWN && !is_in_an_object(in->last[i]))
            atomic_store_explicit(value, VALUE_UNKNOWN, memory_order_relaxed);
    }
    platform_lock_release(&chains.lock);
    sites_drop();
}

/* ---- fork ---------------------------------------------------------------------------------------------------------------------------------- */

/* Another thread may have been writing, as it may be at any time for those that search: a value is told after what it
 * stands for. */
void chain_fork_child(void)
{
    platform_lock_mend(&chains.lock);
}

/* ---- figures ------------------------------------------------------------------------------------------------------------------------------- */

static void sort(uint32_t *values, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        uint32_t value = values[i];
        size_t place = i;
        for (; place > 0 && values[place - 1] > value; place--) values[place] = values[place - 1];
        values[place] = value;
    }
}

void chain_figures(struct chain_figures *figures)
{
    uint32_t times[ANALYSES_KEPT];
    platform_lock_acquire(&chains.lock);
    size_t count = chains.analyses < ANALYSES_KEPT ? (size_t)chains.analyses : ANALYSES_KEPT;
    memcpy(times, chains.analysis_ns, count * sizeof *times);
    *figures = (struct chain_figures){
        .chains = chains.made,
        .chain_addresses = chains.addresses,
        .instructions_decoded = chains.decoded,
    };
    platform_lock_release(&chains.lock);
    sort(times, count);
    if (count != 0) figures->analysis_ns_median = times[count / 2];
    /* Relaxed: numbers that others go on counting. */
    figures->allocations_slow = atomic_load_explicit(&chains.slow, memory_order_relaxed);
    for (unsigned why = 0; why < FALLBACKS; why++)
        figures->fallbacks[why] = atomic_load_explicit(&chains.fallbacks[why], memory_order_relaxed);
}
