/* Chains: from the return addresses of an allocation to its group.
 *
 * Two tables. `site_table` is by the first return address alone, and holds verdicts: where all objects from there go. The
 * compound table is by chains: the key of n return addresses is made of the key of the first n-1 and the nth, and its
 * value says that the chain goes on, with the rule to find the next return address by, or which group it leads to. So short
 * chains and complete ones stand in one table (section 4), and a step outwards costs a look-up and a load or two.
 *
 *     malloc's caller ─► key 1: deeper, by this rule ─► its caller ─► key 2: group 17
 *
 * Both are read without locks. One lock, `chains.lock`, is held by whoever writes to them, and while a new chain is analysed,
 * which takes microseconds and calls nothing that waits: but not while a group is made, since group.c has locks of its own,
 * which are held when it sets verdicts. The chain is *pending* meanwhile, and its objects are ordinary.
 *
 * Keys are hashes and could collide; a table could be read that has just been replaced; a return address can be found
 * among what an earlier call left on the stack: then an object is placed with others than it should be, and that is all.
 */
#include "pools.h"

#include <dlfcn.h>
#include <string.h>

/* Levels of wrappers, and of full chains: far beyond what programs have of the first (the paper's longest chain is 4), and a
 * bound for recursion in the second. */
enum { LEVELS_ADAPTIVE = 16, LEVELS_FULL = 64 };

static const uint8_t levels_most[] = {
    [POOL_CHAIN_ADAPTIVE] = LEVELS_ADAPTIVE, [POOL_CHAIN_1] = 1, [POOL_CHAIN_2] = 2, [POOL_CHAIN_3] = 3,
    [POOL_CHAIN_4] = 4, [POOL_CHAIN_FULL] = LEVELS_FULL,
};

const char *const chain_fallback_names[FALLBACKS] = {
    [FALLBACK_NO_UNWIND] = "no_unwind",
    [FALLBACK_NO_CODE] = "no_code",
    [FALLBACK_TOO_DEEP] = "too_deep",
    [FALLBACK_TOO_MANY_CHAINS] = "too_many_chains",
    [FALLBACK_TOO_MANY_GROUPS] = "too_many_groups",
    [FALLBACK_STACK] = "stack",
};

/* ---- tables ------------------------------------------------------------------------------------------------------------- */

/* A table begins with a few KiB and doubles. Its last size holds four chains for every group that there can be, and that
 * much programs that load code again and again cost in the end. */
enum { PAIRS_FIRST_LOG = 8, PAIRS_LAST_LOG = 16 };
_Static_assert((1 << PAIRS_LAST_LOG) / 2 == 4 * GROUPS_MAX, "as said above");

static struct pair first_sites[1 << PAIRS_FIRST_LOG], first_chains[1 << PAIRS_FIRST_LOG];
/* Of the pairs of the compound table: the return address that was added last to the key. */
static uint64_t first_origins[1 << PAIRS_FIRST_LOG];

static struct pair_table first_site_table = {.shift = 64 - PAIRS_FIRST_LOG, .pairs = first_sites};
static struct pair_table first_chain_table = {
    .shift = 64 - PAIRS_FIRST_LOG, .pairs = first_chains, .origins = first_origins};

_Atomic(struct pair_table *) site_table = &first_site_table;
static _Atomic(struct pair_table *) chain_table = &first_chain_table;

enum { ANALYSES_KEPT = 512 };

static struct {
    platform_lock lock;
    /* All below are under the lock, unless atomic. */
    uintptr_t sites[GROUPS_MAX]; /* of the groups whose chains are of length 1; 0 of the others */
    uint32_t pending; /* chains whose groups are being made */
    uint64_t made, addresses, decoded, analyses;
    uint32_t analysis_ns[ANALYSES_KEPT]; /* of a random choice of the analyses */
    _Atomic(bool) full;
    _Atomic(uint64_t) slow;
    _Atomic(uint64_t) fallbacks[FALLBACKS];
} chains;

static size_t pairs_in(const struct pair_table *table)
{
    return (size_t)1 << (64 - table->shift);
}

/* Write a key's value into a table that has room. */
static void table_put(struct pair_table *table, uint64_t key, uint64_t origin, uint64_t value)
{
    struct pair *pair = pair_find(table, key);
    /* Relaxed: readers get it by the key, or, of a key that was there, may as well get the former. */
    atomic_store_explicit(&pair->value, value, memory_order_relaxed);
    if (table->origins != NULL) table->origins[pair - table->pairs] = origin;
    if (atomic_load_explicit(&pair->key, memory_order_relaxed) == key) return;
    table->used++;
    /* Release: see pair_find. */
    atomic_store_explicit(&pair->key, key, memory_order_release);
}

static void table_copy(struct pair_table *to, const struct pair_table *from)
{
    for (size_t i = 0; i < pairs_in(from); i++) {
        /* Relaxed: all who write hold the lock, as we do. */
        uint64_t value = atomic_load_explicit(&from->pairs[i].value, memory_order_relaxed);
        uint64_t key = atomic_load_explicit(&from->pairs[i].key, memory_order_relaxed);
        if (value != 0) table_put(to, key, from->origins != NULL ? from->origins[i] : 0, value);
    }
}

/* The old table is never given back: others may be reading it. All old ones together are no larger than the new one. */
static struct pair_table *table_grow(_Atomic(struct pair_table *) *place, const struct pair_table *old)
{
    if (old->shift == 64 - PAIRS_LAST_LOG) return NULL;
    size_t pairs = 2 * pairs_in(old), origins = old->origins != NULL ? pairs : 0;
    struct pair_table *table = space_metadata(sizeof *table);
    struct pair *memory = space_metadata(pairs * sizeof *memory + origins * sizeof *table->origins);
    if (table == NULL || memory == NULL) return NULL;
    table->shift = old->shift - 1;
    table->pairs = memory;
    table->origins = origins != 0 ? (uint64_t *)(memory + pairs) : NULL;
    table_copy(table, old);
    /* Release: see pair_value. */
    atomic_store_explicit(place, table, memory_order_release);
    return table;
}

/* Write a key's value; false: there is no room for a new key. */
static bool table_set(_Atomic(struct pair_table *) *place, uint64_t key, uint64_t origin, uint64_t value)
{
    struct pair_table *table = atomic_load_explicit(place, memory_order_relaxed); /* we hold the lock */
    bool is_new = atomic_load_explicit(&pair_find(table, key)->key, memory_order_relaxed) == 0;
    if (is_new && 2 * (table->used + 1) > pairs_in(table)) table = table_grow(place, table);
    if (table == NULL || key == 0) return false;
    table_put(table, key, origin, value);
    return true;
}

static void site_set(uintptr_t return_address, struct verdict verdict)
{
    uint64_t word;
    memcpy(&word, &verdict, sizeof word);
    table_set(&site_table, return_address, 0, word); /* without a verdict, chain_group goes on being asked */
}

/* ---- values of the compound table ----------------------------------------------------------------------------------------- */

enum value_kind {
    VALUE_UNKNOWN, /* the word is 0 */
    VALUE_DEEPER, /* with a rule */
    VALUE_GROUP, /* with its number */
    VALUE_ORDINARY, /* no group */
    VALUE_PENDING, /* no group yet */
};

/* From the lowest bit: the kind, the rule's register, its distances in words. Those are at most 2^17, see frame.c. */
enum { KIND_BITS = 3, DISTANCE_BITS = 18, WORD = sizeof(uintptr_t) };
enum { BASE_SHIFT = KIND_BITS, CFA_SHIFT, RETURN_SHIFT = CFA_SHIFT + DISTANCE_BITS, SAVED_SHIFT = RETURN_SHIFT + DISTANCE_BITS };
enum { GROUP_SHIFT = 32 };

static enum value_kind kind_of(uint64_t value)
{
    return (enum value_kind)(value & ((1U << KIND_BITS) - 1));
}

static uint64_t value_of_group(uint32_t group)
{
    return group == GROUP_NONE ? VALUE_ORDINARY : (uint64_t)group << GROUP_SHIFT | VALUE_GROUP;
}

static uint64_t value_of_rule(const struct frame_rule *rule)
{
    return VALUE_DEEPER | (uint64_t)rule->from_base << BASE_SHIFT | (uint64_t)(rule->cfa_offset / WORD) << CFA_SHIFT |
           (uint64_t)(-rule->return_offset / WORD) << RETURN_SHIFT | (uint64_t)(-rule->base_offset / WORD) << SAVED_SHIFT;
}

static int32_t distance_at(uint64_t value, unsigned shift)
{
    return (int32_t)(value >> shift & ((1U << DISTANCE_BITS) - 1)) * WORD;
}

static struct frame_rule rule_of_value(uint64_t value)
{
    return (struct frame_rule){
        .cfa_offset = distance_at(value, CFA_SHIFT),
        .return_offset = -distance_at(value, RETURN_SHIFT),
        .base_offset = -distance_at(value, SAVED_SHIFT),
        .from_base = value >> BASE_SHIFT & 1,
        .known = FRAME_KNOWN,
    };
}

/* ---- walking outwards --------------------------------------------------------------------------------------------------------- */

struct walk {
    struct frame at;
    uint64_t key;
    unsigned length;
};

/* The next return address joins the chain. */
static void walk_add(struct walk *walk)
{
    walk->key = ((walk->key << 32 | walk->key >> 32) ^ walk->at.return_address) * PAIR_HASH;
    walk->length++;
}

static bool walk_step(struct walk *walk, uint64_t value)
{
    struct frame_rule rule = rule_of_value(value);
    return frame_step(&rule, &walk->at);
}

static void count_fallback(enum chain_fallback why)
{
    atomic_fetch_add_explicit(&chains.fallbacks[why], 1, memory_order_relaxed); /* a number, read at the end */
}

/* ---- a new chain: under the lock ------------------------------------------------------------------------------------------------- */

struct analysis {
    struct walk walk;
    uintptr_t chain[CHAIN_KEPT];
    bool complete; /* the chain ends for a reason of its own, not for one of ours */
    bool analysed;
};

static uint64_t fall_back(enum chain_fallback why, uint64_t value)
{
    count_fallback(why);
    return value;
}

static uint64_t ends_here(struct analysis *analysis)
{
    analysis->complete = true;
    return VALUE_PENDING;
}

/* The chain should go on: what to write, from the rule of its last return address. */
static uint64_t goes_on(struct analysis *analysis, const struct frame_rule *rule)
{
    if (rule->known == FRAME_OUTERMOST) return ends_here(analysis);
    if (rule->known == FRAME_UNKNOWN) return fall_back(FALLBACK_NO_UNWIND, VALUE_ORDINARY);
    if (analysis->walk.length == levels_most[pool_settings.chain]) return fall_back(FALLBACK_TOO_DEEP, VALUE_PENDING);
    return value_of_rule(rule);
}

/* As far as functions pass objects on (3.1). */
static uint64_t analyse_adaptive(struct analysis *analysis)
{
    uintptr_t start, end, address = analysis->walk.at.return_address;
    struct frame_rule rule = frame_rule_find(address, &start, &end);
    if (start == 0) return fall_back(FALLBACK_NO_UNWIND, VALUE_ORDINARY);
    unsigned decoded = 0;
    enum follow follow = follow_pointer(address, start, end, &decoded);
    chains.decoded += decoded;
    switch (follow) {
    case FOLLOW_USED: return ends_here(analysis);
    case FOLLOW_PASSED_ON: return goes_on(analysis, &rule);
    default: return fall_back(FALLBACK_NO_CODE, VALUE_PENDING);
    }
}

static uint64_t analyse_fixed(struct analysis *analysis)
{
    if (pool_settings.chain != POOL_CHAIN_FULL && analysis->walk.length == levels_most[pool_settings.chain])
        return ends_here(analysis);
    struct frame_rule rule = frame_rule_find(analysis->walk.at.return_address, NULL, NULL);
    return goes_on(analysis, &rule);
}

/* What to write for the chain up to here, which is not in the table. VALUE_UNKNOWN: there is no room. */
static uint64_t analyse(struct analysis *analysis)
{
    analysis->analysed = true;
    uint64_t value = pool_settings.chain == POOL_CHAIN_ADAPTIVE ? analyse_adaptive(analysis) : analyse_fixed(analysis);
    uintptr_t last = analysis->walk.at.return_address;
    if (!table_set(&chain_table, analysis->walk.key, last, value)) {
        atomic_store_explicit(&chains.full, true, memory_order_relaxed); /* only saves others the way here */
        return fall_back(FALLBACK_TOO_MANY_CHAINS, VALUE_UNKNOWN);
    }
    if (value == VALUE_PENDING) chains.pending++;
    if (value == VALUE_ORDINARY && analysis->walk.length == 1) site_set(last, (struct verdict){.kind = VERDICT_ORDINARY});
    return value;
}

/* Walk to the end, where everything is now known. `*own`: it is pending for the caller to make the group. Another thread may
 * have done all or part of it before we had the lock. */
static uint64_t analyse_to_end(struct analysis *analysis, bool *own)
{
    for (;;) {
        walk_add(&analysis->walk);
        if (analysis->walk.length <= CHAIN_KEPT) analysis->chain[analysis->walk.length - 1] = analysis->walk.at.return_address;
        uint64_t value = pair_value(&chain_table, analysis->walk.key);
        bool was_unknown = value == VALUE_UNKNOWN;
        if (was_unknown) value = analyse(analysis);
        *own = was_unknown && value == VALUE_PENDING;
        if (kind_of(value) != VALUE_DEEPER) return value;
        if (!walk_step(&analysis->walk, value)) return fall_back(FALLBACK_STACK, VALUE_ORDINARY);
    }
}

/* Algorithm R (Vitter, 1985): all analyses are equally likely to be among those kept. The key serves as the random number. */
static void keep_time(uint64_t key, uint64_t ns)
{
    uint64_t place = chains.analyses++;
    if (place >= ANALYSES_KEPT) place = (key >> 32) % chains.analyses;
    if (place < ANALYSES_KEPT) chains.analysis_ns[place] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

/* ---- making groups --------------------------------------------------------------------------------------------------------------- */

/* The group of a chain that is pending for us. */
static uint32_t make_group(const struct analysis *analysis)
{
    const struct walk *walk = &analysis->walk;
    uint32_t group = group_new(analysis->chain, walk->length, analysis->complete); /* without the lock: it has others */
    if (group == GROUP_NONE) count_fallback(FALLBACK_TOO_MANY_GROUPS);
    platform_lock_acquire(&chains.lock);
    chains.pending--;
    /* It has its place, so this does not fail. */
    table_set(&chain_table, walk->key, walk->at.return_address, value_of_group(group));
    if (group != GROUP_NONE) {
        chains.made++;
        chains.addresses += walk->length;
        chains.sites[group] = walk->length == 1 ? analysis->chain[0] : 0;
    } else if (walk->length == 1) {
        site_set(analysis->chain[0], (struct verdict){.kind = VERDICT_ORDINARY});
    }
    platform_lock_release(&chains.lock);
    return group;
}

static uint32_t learn(const struct frame *frame)
{
    /* Relaxed: whoever sees it late only tries in vain. */
    if (atomic_load_explicit(&chains.full, memory_order_relaxed)) return GROUP_NONE;
    struct analysis analysis = {.walk = {.at = *frame}};
    platform_lock_acquire(&chains.lock);
    uint64_t start = platform_clock_ns();
    bool own;
    uint64_t value = analyse_to_end(&analysis, &own);
    if (analysis.analysed) keep_time(analysis.walk.key, platform_clock_ns() - start);
    platform_lock_release(&chains.lock);
    if (own) return make_group(&analysis);
    return kind_of(value) == VALUE_GROUP ? (uint32_t)(value >> GROUP_SHIFT) : GROUP_NONE;
}

static COLD uint32_t group_otherwise(const struct frame *frame, uint64_t value)
{
    if (value == VALUE_UNKNOWN) return learn(frame);
    if (kind_of(value) == VALUE_DEEPER) count_fallback(FALLBACK_STACK); /* but could not go there */
    return GROUP_NONE;
}

/* ---- the path of all slow allocations --------------------------------------------------------------------------------------------- */

/* Calls are counted in the thread, and added up now and then. */
enum { SLOW_COUNTED_TOGETHER = 1024 };
static __thread uint32_t slow_calls __attribute__((tls_model("initial-exec")));

static COLD void slow_calls_add(void)
{
    atomic_fetch_add_explicit(&chains.slow, SLOW_COUNTED_TOGETHER, memory_order_relaxed); /* a number, read at the end */
}

uint32_t chain_group(const struct frame *frame)
{
    if (UNLIKELY(++slow_calls % SLOW_COUNTED_TOGETHER == 0)) slow_calls_add();
    struct walk walk = {.at = *frame};
    uint64_t value;
    do {
        walk_add(&walk);
        value = pair_value(&chain_table, walk.key);
    } while (kind_of(value) == VALUE_DEEPER && walk_step(&walk, value));
    if (LIKELY(kind_of(value) == VALUE_GROUP)) return (uint32_t)(value >> GROUP_SHIFT);
    return group_otherwise(frame, value);
}

void chain_set_verdict(uint32_t group, struct verdict verdict)
{
    platform_lock_acquire(&chains.lock);
    if (chains.sites[group] != 0) site_set(chains.sites[group], verdict);
    platform_lock_release(&chains.lock);
}

/* ---- unmapped code ------------------------------------------------------------------------------------------------------------------ */

#pragma weak _dl_find_object /* as in frame.c: without it, there is nothing to forget */

static bool is_in_an_object(uint64_t address)
{
    struct dl_find_object object;
    return _dl_find_object == NULL || _dl_find_object((void *)(address - 1), &object) == 0;
}

static void chains_forget(struct pair_table *table)
{
    for (size_t i = 0; i < pairs_in(table); i++) {
        struct pair *pair = &table->pairs[i];
        uint64_t value = atomic_load_explicit(&pair->value, memory_order_relaxed); /* we hold the lock */
        if (value == VALUE_UNKNOWN || is_in_an_object(table->origins[i])) continue;
        if (value == VALUE_PENDING) continue; /* its code is being run */
        if (kind_of(value) == VALUE_GROUP) chains.sites[value >> GROUP_SHIFT] = 0;
        /* Relaxed: who still reads the former value places an object as before. */
        atomic_store_explicit(&pair->value, VALUE_UNKNOWN, memory_order_relaxed);
    }
}

static void sites_forget(struct pair_table *table)
{
    for (size_t i = 0; i < pairs_in(table); i++) {
        struct pair *pair = &table->pairs[i];
        /* Relaxed, both: we hold the lock, and as above. */
        uint64_t site = atomic_load_explicit(&pair->key, memory_order_relaxed);
        if (site != 0 && !is_in_an_object(site)) atomic_store_explicit(&pair->value, 0, memory_order_relaxed);
    }
}

/* Code that another thread loads at the same place before we look is taken for what was there: again a matter of placing
 * only. Keys keep their places, since searches for others go past them; the next larger table is without them. */
void chain_forget(void)
{
    platform_lock_acquire(&chains.lock);
    chains_forget(atomic_load_explicit(&chain_table, memory_order_relaxed)); /* we hold the lock */
    sites_forget(atomic_load_explicit(&site_table, memory_order_relaxed));
    platform_lock_release(&chains.lock);
}

/* ---- fork -------------------------------------------------------------------------------------------------------------------------- */

/* Chains whose groups were being made by threads that the child does not have. */
static void pending_forget(struct pair_table *table)
{
    for (size_t i = 0; i < pairs_in(table); i++) {
        /* Relaxed: the child has this thread only. */
        if (atomic_load_explicit(&table->pairs[i].value, memory_order_relaxed) == VALUE_PENDING)
            atomic_store_explicit(&table->pairs[i].value, VALUE_UNKNOWN, memory_order_relaxed);
    }
    chains.pending = 0;
}

void pools_fork_before(void)
{
    platform_lock_fork_begin(&chains.lock);
}

void pools_fork_after(bool in_child)
{
    if (in_child && chains.pending != 0) pending_forget(atomic_load_explicit(&chain_table, memory_order_relaxed));
    platform_lock_fork_end(&chains.lock);
}

/* ---- figures ----------------------------------------------------------------------------------------------------------------------- */

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
