/* Sites: who called, as return addresses from the caller of the malloc family outwards.
 *
 * Of the addresses that a walk finds, the outermost is a site, the one that it called is another that names the first as its
 * caller, and so on: all sites are a tree, which only grows, and an event names the innermost. A program has far fewer of
 * them than allocations, so three tables know what has been found out before:
 *
 *     rules: return address          ─► how its frame is left (platform/frame.h)
 *     chains: all addresses of a walk ─► site
 *     tree:  caller's site, address   ─► site
 *
 * They are read without locks. A key stays where it is and its value is replaced whole; a table that is half full is copied to
 * a larger one, and stays for those who still read it. Whoever writes holds one lock; who waits for it is in no handler
 * of a signal, since those are not noted. Keys of chains and of the tree are hashes of 64 bits, of which two may be equal: then
 * an event has another's site.
 *
 * Where a frame cannot be left by a rule (signal handlers, hand-written assembly, code without unwind information), and where
 * the wanted number of addresses is reached, the walk ends.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "note.h"

#include <dlfcn.h>

/* Two to the 64, divided by the golden ratio: products of neighbouring numbers are far apart (Knuth, 6.4). */
#define SCATTER UINT64_C(0x9E3779B97F4A7C15)

/* ---- tables ------------------------------------------------------------------------------------------------------------------ */

struct pair {
    _Atomic(uint64_t) key; /* 0: free */
    _Atomic(uint64_t) value; /* 0: nothing is known */
};

struct table {
    unsigned shift; /* of a scattered key, to an index */
    size_t used; /* keys, at most half of the pairs: a search always ends. Under the lock */
    struct pair *pairs;
};

typedef _Atomic(struct table *) table_place;

/* At first all are this one, which nobody writes. The first of their own is 16 KiB. */
enum { PAIRS_FIRST_LOG = 10 };
static struct pair no_pairs[2];
static struct table empty = {.shift = 63, .pairs = no_pairs};

static struct {
    platform_lock lock; /* of whoever writes anything below */
    table_place rules, chains, tree;
    struct record_site *all; /* reserved; the first `committed` can be written */
    size_t reserved, committed;
    _Atomic(size_t) count; /* sites; the first is element 1. Release: they are written */
} sites = {.rules = &empty, .chains = &empty, .tree = &empty};

static size_t pairs_in(const struct table *table)
{
    return (size_t)1 << (64 - table->shift);
}

/* The pair of a key, or the free one where it would be. */
ALWAYS_INLINE struct pair *pair_find(struct table *table, uint64_t key)
{
    for (size_t index = key * SCATTER >> table->shift;; index = (index + 1) & (UINT64_MAX >> table->shift)) {
        struct pair *pair = &table->pairs[index];
        /* Acquire: pairs with the release in table_write, so that the key's value is there. */
        uint64_t found = atomic_load_explicit(&pair->key, memory_order_acquire);
        if (LIKELY(found == key) || found == 0) return pair;
    }
}

ALWAYS_INLINE uint64_t table_find(const table_place *place, uint64_t key)
{
    /* Acquire: pairs with the release in table_grow, so that what it points to is there. */
    const struct pair *pair = pair_find(atomic_load_explicit(place, memory_order_acquire), key);
    /* Acquire: pairs with the release in table_write, so that a site that it names is there. */
    return atomic_load_explicit(&pair->value, memory_order_acquire);
}

/* Into a table that has room: under the lock, or where nobody else knows the table. */
static void table_write(struct table *table, uint64_t key, uint64_t value)
{
    struct pair *pair = pair_find(table, key);
    atomic_store_explicit(&pair->value, value, memory_order_release); /* see table_find */
    if (atomic_load_explicit(&pair->key, memory_order_relaxed) == key) return; /* only we write */
    table->used++;
    atomic_store_explicit(&pair->key, key, memory_order_release); /* see pair_find */
}

static struct table *table_make(unsigned shift)
{
    size_t page = platform_page_size();
    size_t size = sizeof(struct table) + ((size_t)1 << (64 - shift)) * sizeof(struct pair);
    size = (size + page - 1) & ~(page - 1);
    struct table *table = platform_reserve(size, page);
    if (table == NULL || !platform_commit(table, size)) return NULL;
    table->shift = shift;
    table->pairs = (struct pair *)(table + 1);
    return table;
}

/* The old table is never given back, since others may be reading it. All old ones together are no larger than the new one.
 * NULL: there is no memory. */
static struct table *table_grow(table_place *place)
{
    struct table *old = atomic_load_explicit(place, memory_order_relaxed); /* only we write */
    struct table *new = table_make(old == &empty ? 64 - PAIRS_FIRST_LOG : old->shift - 1);
    if (new == NULL) return NULL;
    for (size_t i = 0; i < pairs_in(old); i++) {
        /* Relaxed, both: only we write. */
        uint64_t value = atomic_load_explicit(&old->pairs[i].value, memory_order_relaxed);
        uint64_t key = atomic_load_explicit(&old->pairs[i].key, memory_order_relaxed);
        if (value != 0) table_write(new, key, value);
    }
    atomic_store_explicit(place, new, memory_order_release); /* see table_find */
    return new;
}

/* Under the lock. Where there is no memory it is found out again the next time. */
static void table_put(table_place *place, uint64_t key, uint64_t value)
{
    struct table *table = atomic_load_explicit(place, memory_order_relaxed); /* only we write */
    if (key == 0) return;
    if (table == &empty || 2 * (table->used + 1) > pairs_in(table)) table = table_grow(place);
    if (table != NULL) table_write(table, key, value);
}

/* Under the lock. Keys keep their places, since searches for others go past them; the next larger table is without them. */
static void table_forget(const table_place *place, bool (*is_wrong)(uint64_t value))
{
    struct table *table = atomic_load_explicit(place, memory_order_relaxed); /* only we write */
    for (size_t i = 0; i < pairs_in(table); i++) {
        _Atomic(uint64_t) *value = &table->pairs[i].value;
        /* Relaxed, both: who still reads the former value does what it did before. */
        uint64_t known = atomic_load_explicit(value, memory_order_relaxed);
        if (known != 0 && is_wrong(known)) atomic_store_explicit(value, 0, memory_order_relaxed);
    }
}

/* ---- rules ---------------------------------------------------------------------------------------------------------------------- */

/* The value of a return address: one kind, and the rule. Most are counted from the stack pointer, and read nothing but what they
 * leave behind: then all bounds of frame_step hold, and what is wanted are the distances from there. */
enum { RULE_NONE = 1, RULE_FROM_STACK, RULE_OTHER, RULE_KIND_BITS = 2 };

/* From the stack pointer upwards, in words: the caller's, where the return address lies, where the caller's frame pointer does
 * (0: it is in its register; else one more). */
enum {
    CALLER_SHIFT = RULE_KIND_BITS,
    BASE_SHIFT = CALLER_SHIFT + RULE_DISTANCE_BITS,
    RETURN_SHIFT = BASE_SHIFT + RULE_DISTANCE_BITS,
};

static uint64_t rule_value(const struct frame_rule *rule)
{
    if (rule->known != FRAME_KNOWN) return RULE_NONE;
    if (rule->from_base || rule->cfa_offset < -rule->base_offset)
        return rule_packed(rule) << RULE_KIND_BITS | RULE_OTHER;
    int32_t base = rule->base_offset == 0 ? 0 : (rule->cfa_offset + rule->base_offset) / RULE_WORD + 1;
    return RULE_FROM_STACK | (uint64_t)(rule->cfa_offset / RULE_WORD) << CALLER_SHIFT | (uint64_t)base << BASE_SHIFT |
           (uint64_t)((rule->cfa_offset + rule->return_offset) / RULE_WORD) << RETURN_SHIFT;
}

static NOINLINE uint64_t rule_learn(uintptr_t address)
{
    struct frame_rule rule = frame_rule_find(address, NULL, NULL);
    uint64_t value = rule_value(&rule);
    platform_lock_acquire(&sites.lock);
    table_put(&sites.rules, address, value);
    platform_lock_release(&sites.lock);
    return value;
}

ALWAYS_INLINE bool leave_from_stack(uint64_t value, struct frame *frame)
{
    uintptr_t stack = frame->stack, caller = stack + (uintptr_t)rule_distance(value, CALLER_SHIFT);
    if (UNLIKELY(!stack_has_been_readable(stack, caller)) && !stack_look(stack, caller)) return false;
    frame->return_address = stack_word(stack + (uintptr_t)rule_distance(value, RETURN_SHIFT));
    uintptr_t base = (uintptr_t)rule_distance(value, BASE_SHIFT);
    if (base != 0) frame->base = stack_word(stack + base - RULE_WORD);
    frame->stack = caller;
    return true;
}

static NOINLINE bool leave_otherwise(uint64_t value, struct frame *frame)
{
    if (value == RULE_NONE) return false;
    struct frame_rule rule = rule_unpacked(value >> RULE_KIND_BITS);
    return frame_step(&rule, frame);
}

/* Go on to the caller's frame, if there is one. */
ALWAYS_INLINE bool leave(struct frame *frame)
{
    uint64_t value = table_find(&sites.rules, frame->return_address);
    if (UNLIKELY(value == 0)) value = rule_learn(frame->return_address);
    bool left = (value & ((1U << RULE_KIND_BITS) - 1)) == RULE_FROM_STACK ? leave_from_stack(value, frame)
                                                                          : leave_otherwise(value, frame);
    return left && frame->return_address != 0;
}

/* ---- the tree: under the lock --------------------------------------------------------------------------------------------------------- */

/* 64 MiB of them, of which those are touched that there are. Numbers are of 32 bits. */
enum { SITES_MAX = 1 << 22, SITES_LEAST = 1 << 12, COMMITTED_TOGETHER = 1 << 12 };

/* Fewer where address space is limited. */
static bool sites_reserve(void)
{
    for (size_t count = SITES_MAX; sites.all == NULL && count >= SITES_LEAST; count /= 2) {
        sites.all = platform_reserve(count * sizeof *sites.all, PLATFORM_HUGE_PAGE);
        sites.reserved = count;
    }
    return sites.all != NULL;
}

static bool site_has_room(size_t number)
{
    if (LIKELY(number < sites.committed)) return true;
    if (sites.all == NULL && !sites_reserve()) return false;
    if (sites.committed + COMMITTED_TOGETHER > sites.reserved ||
        !platform_commit(sites.all + sites.committed, COMMITTED_TOGETHER * sizeof *sites.all))
        return false;
    sites.committed += COMMITTED_TOGETHER;
    return true;
}

/* The site of this return address under this caller; 0: there is no room. */
static uint32_t site_of(uint32_t caller, uintptr_t address)
{
    uint64_t key = (caller * SCATTER ^ address) * SCATTER;
    uint64_t known = table_find(&sites.tree, key);
    if (known != 0) return (uint32_t)known;
    size_t number = atomic_load_explicit(&sites.count, memory_order_relaxed) + 1; /* only we write */
    if (!site_has_room(number)) return 0;
    sites.all[number] = (struct record_site){.caller = caller, .address = address};
    atomic_store_explicit(&sites.count, number, memory_order_release); /* see sites_published */
    table_put(&sites.tree, key, number);
    return (uint32_t)number;
}

size_t sites_published(const struct record_site **all)
{
    /* Acquire: pairs with the release in site_of, so that they are written, and that there are `all`. */
    size_t count = atomic_load_explicit(&sites.count, memory_order_acquire);
    *all = sites.all;
    return count;
}

/* ---- walking outwards -------------------------------------------------------------------------------------------------------------- */

enum { SITES_DEEPEST = 64 };

struct chain {
    uint64_t key;
    unsigned length;
    uintptr_t addresses[SITES_DEEPEST]; /* the innermost first */
};

ALWAYS_INLINE void walk(struct frame at, struct chain *chain)
{
    unsigned most = record_settings.sites < SITES_DEEPEST ? record_settings.sites : SITES_DEEPEST;
    uint64_t key = 0;
    unsigned length = 0;
    do {
        chain->addresses[length++] = at.return_address;
        key = ((key << 32 | key >> 32) ^ at.return_address) * SCATTER;
    } while (length < most && leave(&at));
    chain->key = key;
    chain->length = length;
}

static COLD uint32_t chain_learn(const struct chain *chain)
{
    uint32_t site = 0;
    platform_lock_acquire(&sites.lock);
    for (unsigned i = chain->length; i-- > 0;) {
        site = site_of(site, chain->addresses[i]);
        if (site == 0) break;
    }
    if (site != 0) table_put(&sites.chains, chain->key, site);
    platform_lock_release(&sites.lock);
    return site;
}

uint32_t site_find(const struct frame *frame)
{
    struct chain chain;
    walk(*frame, &chain);
    uint64_t site = table_find(&sites.chains, chain.key);
    return LIKELY(site != 0) ? (uint32_t)site : chain_learn(&chain);
}

/* ---- unmapped code -------------------------------------------------------------------------------------------------------------------- */

#pragma weak _dl_find_object /* as in platform/frame.c: without it no rule is known either */

static bool is_any(uint64_t value)
{
    (void)value;
    return true;
}

static bool is_of_unmapped_code(uint64_t site)
{
    struct dl_find_object object;
    return _dl_find_object != NULL && _dl_find_object((void *)(sites.all[site].address - 1), &object) != 0;
}

/* Other code may be mapped at the same addresses. It must not be walked by the rules of what was there, which would lead
 * astray for good, and shall not be taken for it: its sites are new ones, whose addresses have another meaning in the file
 * from then on. What is still there is walked by new rules, soon learnt, and has its sites as before. */
void sites_forget(void)
{
    platform_lock_acquire(&sites.lock);
    table_forget(&sites.tree, is_of_unmapped_code);
    table_forget(&sites.chains, is_any);
    table_forget(&sites.rules, is_any);
    platform_lock_release(&sites.lock);
}

/* ---- fork -------------------------------------------------------------------------------------------------------------------------------- */

/* Another thread of the parent may have been writing. What it wrote last is not seen, since nothing named it: a site beyond
 * the count, a value without a key. */
void sites_fork_child(void)
{
    platform_lock_mend(&sites.lock);
}
