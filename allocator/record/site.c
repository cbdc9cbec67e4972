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
 * Rules and chains are read without locks. A key stays where it is and its value is replaced whole; a table that is half full is
 * copied to a larger one. The old one's pages are given back at once: who still reads it finds nothing there, and so comes to the
 * lock, under which all is written and the tree is read too. Who waits for it is in no handler of a signal, since those are not
 * noted. Keys of chains are hashes of 64 bits, of which two may be equal: then an event has another's site.
 *
 * Where a frame cannot be left by a rule (signal handlers, hand-written assembly, code without unwind information), and where
 * the wanted number of addresses is reached, the walk ends.
 *
 * Chains have no end: where a recursion goes deeper than is followed, most allocations have one of their own, of as many new
 * sites as addresses. So there is a limit, of about 60 MiB for all tables together. Past it a new chain's site is its innermost
 * address alone, of which a program has few, and for which a part of the room is kept; and past that, none. Neither takes the
 * lock. The file says from where on that is so (sites_limit).
 *
 * Where the thread runs a Python program, its lines stand in the place of the interpreter's loop (python.h): each is a place, with an
 * address that no code has. Another table knows them, by code object and instruction; what they are is told when one is first met, since
 * code objects die.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "note.h"
#include "python.h"

#include <dlfcn.h>
#include <string.h>

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

/* Under the lock alone. A site is told by itself, so its number is all that is kept. */
struct tree {
    size_t capacity; /* a power of two, at least twice as many as there are sites */
    uint32_t numbers[]; /* of sites, by a hash of caller and address; 0: free */
};

struct table_place {
    _Atomic(struct table *) now;
    unsigned most_log; /* binary logarithm of the pairs that it may have */
};

/* At first all are this one, which nobody writes. The first of their own is 16 KiB. */
enum { PAIRS_FIRST_LOG = 10 };
static struct pair no_pairs[2];
static struct table empty = {.shift = 63, .pairs = no_pairs};

/* 16 MiB of sites, of which those are touched that there are; as many chains, 32 MiB; of rules, for return addresses of which
 * nobody has so many unless code is made at run time, 4 MiB; and 8 MiB for the tree. A sixteenth is for innermost addresses. */
enum {
    SITES_MAX_LOG = 20,
    SITES_MAX = 1 << SITES_MAX_LOG,
    SITES_LEAST = 1 << 12,
    SITES_ALONE_SHARE = 16,
    RULE_PAIRS_MAX_LOG = 18
};

static struct {
    platform_lock lock; /* of whoever writes anything below */
    struct table_place rules, chains;
    struct record_site *all; /* reserved; the first `committed` can be written */
    size_t reserved, committed;
    _Atomic(size_t) count; /* sites; the first is element 1. Release: they are written */
    _Atomic(enum sites_limit) limit; /* only grows. Relaxed: who reads it late takes the lock once more */
    _Atomic(struct tree *) tree; /* release: a fork's child finds it as it was, or whole. NULL: none yet */
} sites = {
    .rules = {&empty, RULE_PAIRS_MAX_LOG},
    .chains = {&empty, SITES_MAX_LOG + 1},
};

/* Lines of Python: a program of a million of them has some ten thousand that allocate. */
enum { PLACES_MAX_LOG = 17, PLACES_TEXT_MAX = 64 << 20, PLACES_TEXT_LEAST = 1 << 20, PLACE_TEXT_MAX = 3 << 10 };

static struct {
    struct table_place known; /* by a frame's key, and by a hash of what is told of it */
    char *text; /* reserved: lines as in TRACE_MODULES; the first `committed` bytes can be written */
    size_t reserved, committed;
    uint64_t count;
    _Atomic(size_t) told; /* bytes of text. Release: they are written */
} places = {.known = {&empty, PLACES_MAX_LOG + 2}};

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

ALWAYS_INLINE uint64_t table_find(const struct table_place *place, uint64_t key)
{
    /* Acquire: pairs with the release in table_grow, so that what it points to is there. */
    const struct pair *pair = pair_find(atomic_load_explicit(&place->now, memory_order_acquire), key);
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

/* Whole pages that read as zeros; NULL: there is no memory. */
static void *pages_make(size_t size)
{
    size_t page = platform_page_size();
    size = (size + page - 1) & ~(page - 1);
    void *pages = platform_reserve(size, page);
    return pages != NULL && platform_commit(pages, size) ? pages : NULL;
}

/* The memory of what lies there is given back, but for the first page; the addresses stay taken. */
static void pages_give_back(void *start, size_t size)
{
    size_t page = platform_page_size();
    if (size > page) platform_purge((char *)start + page, ((size + page - 1) & ~(page - 1)) - page);
}

static size_t table_size(unsigned shift)
{
    return sizeof(struct table) + ((size_t)1 << (64 - shift)) * sizeof(struct pair);
}

static struct table *table_make(unsigned shift)
{
    struct table *table = pages_make(table_size(shift));
    if (table == NULL) return NULL;
    table->shift = shift;
    table->pairs = (struct pair *)(table + 1);
    return table;
}

static bool is_half_full(const struct table *table)
{
    return 2 * (table->used + 1) > pairs_in(table);
}

/* The old table's first page stays: it says where the pairs are, to those who still read it (see above). NULL: there is no
 * memory, or it may not be larger and is full of what is known. */
static struct table *table_grow(struct table_place *place)
{
    struct table *old = atomic_load_explicit(&place->now, memory_order_relaxed); /* only we write */
    unsigned least = 64 - place->most_log;
    struct table *new = table_make(old == &empty ? 64 - PAIRS_FIRST_LOG : old->shift > least ? old->shift - 1 : least);
    if (new == NULL) return NULL;
    for (size_t i = 0; i < pairs_in(old); i++) {
        /* Relaxed, both: only we write. */
        uint64_t value = atomic_load_explicit(&old->pairs[i].value, memory_order_relaxed);
        uint64_t key = atomic_load_explicit(&old->pairs[i].key, memory_order_relaxed);
        if (value != 0) table_write(new, key, value);
    }
    atomic_store_explicit(&place->now, new, memory_order_release); /* see table_find */
    if (old != &empty) pages_give_back(old, table_size(old->shift));
    return is_half_full(new) ? NULL : new;
}

/* Under the lock. false: there is no room, and it has to be found out again the next time. */
static bool table_put(struct table_place *place, uint64_t key, uint64_t value)
{
    struct table *table = atomic_load_explicit(&place->now, memory_order_relaxed); /* only we write */
    if (key == 0) return true; /* one in 2 to the 64 is never known */
    if (table == &empty || is_half_full(table)) table = table_grow(place);
    if (table == NULL) return false;
    table_write(table, key, value);
    return true;
}

/* Under the lock. Keys keep their places, since searches for others go past them; the next table is without them. Relaxed: who
 * still reads a former value does what it did before. */
static void table_forget(const struct table_place *place)
{
    struct table *table = atomic_load_explicit(&place->now, memory_order_relaxed); /* only we write */
    if (table == &empty) return;
    for (size_t i = 0; i < pairs_in(table); i++) atomic_store_explicit(&table->pairs[i].value, 0, memory_order_relaxed);
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

/* Once there is no room for another, which is so where code is made at run time without end, each new one is found out anew, at no
 * other's cost. */
static NOINLINE uint64_t rule_learn(uintptr_t address)
{
    static _Atomic(bool) full;
    struct frame_rule rule = frame_rule_find(address, NULL, NULL);
    uint64_t value = rule_value(&rule);
    if (atomic_load_explicit(&full, memory_order_relaxed)) return value;
    platform_lock_acquire(&sites.lock);
    if (!table_put(&sites.rules, address, value)) atomic_store_explicit(&full, true, memory_order_relaxed);
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

/* ---- places in Python programs ------------------------------------------------------------------------------------------------------- */

static bool places_have_room(size_t size)
{
    enum { TOGETHER = 64 << 10 };
    for (size_t most = PLACES_TEXT_MAX; places.text == NULL && most >= PLACES_TEXT_LEAST; most /= 2) {
        places.text = platform_reserve(most, PLATFORM_HUGE_PAGE);
        places.reserved = most;
    }
    size_t told = atomic_load_explicit(&places.told, memory_order_relaxed); /* only we write */
    if (told + size <= places.committed) return true;
    if (places.text == NULL || places.committed + TOGETHER > places.reserved) return false;
    if (!platform_commit(places.text + places.committed, TOGETHER)) return false;
    places.committed += TOGETHER;
    return true;
}

/* The address of the place of which `text` tells; 0: there is no room for it. */
static uintptr_t place_of(const char *text, size_t length)
{
    uint64_t key = 0;
    for (size_t i = 0; i < length; i++) key = ((key << 8 | key >> 56) ^ (uint8_t)text[i]) * SCATTER;
    uintptr_t known = table_find(&places.known, key);
    if (known != 0) return known;
    enum { ADDRESSES_BYTES = 2 * 17 };
    if (places.count >> PLACES_MAX_LOG != 0 || !places_have_room(ADDRESSES_BYTES + length + 2)) return 0;
    uintptr_t address = TRACE_PLACES + places.count + 1;
    if (!table_put(&places.known, key, address)) return 0;
    size_t told = atomic_load_explicit(&places.told, memory_order_relaxed); /* only we write */
    char *out = places.text + told;
    platform_format(out, ADDRESSES_BYTES + 1, "%zx %zx ", address - 1, address);
    size_t addresses = strlen(out);
    memcpy(out + addresses, text, length);
    out[addresses + length] = '\n';
    places.count++;
    atomic_store_explicit(&places.told, told + addresses + length + 1, memory_order_release); /* see places_told */
    return address;
}

static NOINLINE uintptr_t place_learn(const struct python_frame *frame)
{
    static char text[PLACE_TEXT_MAX]; /* under the lock */
    platform_lock_acquire(&sites.lock);
    size_t length = python_describe(frame, text, sizeof text);
    uintptr_t place = length == 0 ? 0 : place_of(text, length);
    if (place != 0) table_put(&places.known, frame->key, place);
    platform_lock_release(&sites.lock);
    return place;
}

/* Its address; 0: it cannot be told. */
static uintptr_t place_find(const struct python_frame *frame)
{
    uintptr_t place = table_find(&places.known, frame->key);
    return LIKELY(place != 0) ? place : place_learn(frame);
}

size_t places_told(const char **text)
{
    /* Acquire: pairs with the release in place_of, so that they are written, and that there is a text. */
    size_t told = atomic_load_explicit(&places.told, memory_order_acquire);
    *text = places.text;
    return told;
}

/* ---- the tree: under the lock --------------------------------------------------------------------------------------------------------- */

enum { COMMITTED_TOGETHER = 1 << 12, TREE_LEAST = 1 << 12 };

static struct tree *tree_now(void)
{
    return atomic_load_explicit(&sites.tree, memory_order_relaxed); /* only we write */
}

static bool is_site(uint32_t number, uint32_t caller, uintptr_t address)
{
    const struct record_site *site = &sites.all[number];
    return site->address == address && site->caller == caller && !site->forgotten;
}

/* Where the number of this site stands, or belongs. One that is forgotten keeps its place, and is no more found. */
static uint32_t *tree_place(struct tree *tree, uint32_t caller, uintptr_t address)
{
    for (size_t at = (((caller * SCATTER) ^ address) * SCATTER) >> 32;; at++) {
        uint32_t *place = &tree->numbers[at & (tree->capacity - 1)];
        if (*place == 0 || is_site(*place, caller, address)) return place;
    }
}

static size_t tree_size(size_t capacity)
{
    return sizeof(struct tree) + capacity * sizeof(uint32_t);
}

static bool tree_grow(void)
{
    struct tree *old = tree_now();
    size_t capacity = old == NULL ? TREE_LEAST : 2 * old->capacity;
    struct tree *new = pages_make(tree_size(capacity));
    if (new == NULL) return false;
    new->capacity = capacity;
    size_t count = atomic_load_explicit(&sites.count, memory_order_relaxed); /* only we write */
    for (size_t number = 1; number <= count; number++) {
        const struct record_site *site = &sites.all[number];
        if (!site->forgotten) *tree_place(new, site->caller, site->address) = (uint32_t)number;
    }
    atomic_store_explicit(&sites.tree, new, memory_order_release); /* see there */
    if (old != NULL) pages_give_back(old, tree_size(old->capacity));
    return true;
}

/* Fewer where address space is limited. */
static bool sites_reserve(void)
{
    for (size_t count = SITES_MAX; sites.all == NULL && count >= SITES_LEAST; count /= 2) {
        sites.all = platform_reserve(count * sizeof *sites.all, PLATFORM_HUGE_PAGE);
        sites.reserved = count;
    }
    return sites.all != NULL;
}

/* For a site of this number, and in the tree. */
static bool site_has_room(size_t number)
{
    if ((tree_now() == NULL || 2 * number > tree_now()->capacity) && !tree_grow()) return false;
    if (LIKELY(number < sites.committed)) return true;
    if (sites.all == NULL && !sites_reserve()) return false;
    if (sites.committed + COMMITTED_TOGETHER > sites.reserved ||
        !platform_commit(sites.all + sites.committed, COMMITTED_TOGETHER * sizeof *sites.all))
        return false;
    sites.committed += COMMITTED_TOGETHER;
    return true;
}

/* The site of this return address under this caller; 0: there is no room for it among the first `most`. */
static uint32_t site_of(uint32_t caller, uintptr_t address, size_t most)
{
    uint32_t known = tree_now() == NULL ? 0 : *tree_place(tree_now(), caller, address);
    if (known != 0) return known;
    size_t number = atomic_load_explicit(&sites.count, memory_order_relaxed) + 1; /* only we write */
    if (number >= most || !site_has_room(number)) return 0;
    sites.all[number] = (struct record_site){.caller = caller, .address = address};
    atomic_store_explicit(&sites.count, number, memory_order_release); /* see sites_published */
    *tree_place(tree_now(), caller, address) = (uint32_t)number;
    return (uint32_t)number;
}

size_t sites_published(const struct record_site **all)
{
    /* Acquire: pairs with the release in site_of, so that they are written, and that there are `all`. */
    size_t count = atomic_load_explicit(&sites.count, memory_order_acquire);
    *all = sites.all;
    return count;
}

enum sites_limit sites_limit(void)
{
    return atomic_load_explicit(&sites.limit, memory_order_relaxed); /* see there */
}

/* ---- walking outwards -------------------------------------------------------------------------------------------------------------- */

enum { SITES_DEEPEST = 64 };

struct chain {
    uint64_t key;
    unsigned length;
    uintptr_t addresses[SITES_DEEPEST]; /* the innermost first */
};

ALWAYS_INLINE uint64_t chain_key(uint64_t key, uintptr_t address)
{
    return ((key << 32 | key >> 32) ^ address) * SCATTER;
}

ALWAYS_INLINE void walk(struct frame at, struct chain *chain)
{
    unsigned most = record_settings.sites < SITES_DEEPEST ? record_settings.sites : SITES_DEEPEST;
    uint64_t key = 0;
    unsigned length = 0;
    do {
        chain->addresses[length++] = at.return_address;
        key = chain_key(key, at.return_address);
    } while (length < most && leave(&at));
    chain->key = key;
    chain->length = length;
}

/* A Python program's chain has as many of its lines as are followed, and what is between them and within the innermost; nothing outwards
 * of the outermost, which is the interpreter's beginning. */
struct python_walk {
    size_t count, next; /* frames, and how many are in the chain */
    struct python_frame frames[PYTHON_FRAMES_MAX];
};

/* Whether the function that a return address is in is the loop that runs the next frame: what the loop has on the stack is between
 * its own frame and its caller's. */
static bool is_loop_of_next(const struct python_walk *python, const struct frame *frame, const struct frame *caller)
{
    uintptr_t loop = python->frames[python->next].loop;
    return loop == 0 ? python_is_loop(frame->return_address) : loop >= frame->stack && loop < caller->stack;
}

static void chain_add(struct chain *chain, uintptr_t address)
{
    if (address == 0 || chain->length == SITES_DEEPEST) return;
    chain->addresses[chain->length++] = address;
    chain->key = chain_key(chain->key, address);
}

/* All frames of the loop of the next. */
static void chain_add_loop(struct chain *chain, struct python_walk *python)
{
    uintptr_t loop = python->frames[python->next].loop;
    while (python->next < python->count && python->frames[python->next].loop == loop)
        chain_add(chain, place_find(&python->frames[python->next++]));
}

/* false: none of this thread's lines is in the chain, which is to be made otherwise. */
static NOINLINE bool walk_python(struct frame at, struct chain *chain)
{
    struct python_walk python;
    python.next = 0;
    python.count = python_frames(python.frames, record_settings.sites);
    chain->length = 0;
    chain->key = 0;
    for (bool left = true; left && python.next < python.count && chain->length < SITES_DEEPEST;) {
        struct frame before = at;
        left = leave(&at);
        if (is_loop_of_next(&python, &before, left ? &at : &before)) chain_add_loop(chain, &python);
        else chain_add(chain, before.return_address);
    }
    return python.next != 0 && chain->length != 0; /* there may be no room for its lines */
}

/* Under the lock. */
static uint32_t chain_put(const struct chain *chain)
{
    size_t most = sites.all == NULL ? SITES_MAX : sites.reserved;
    if (chain->length > 1) most -= most / SITES_ALONE_SHARE;
    uint32_t site = 0;
    for (unsigned i = chain->length; i-- > 0;) {
        site = site_of(site, chain->addresses[i], most);
        if (site == 0) return 0;
    }
    return table_put(&sites.chains, chain->key, site) ? site : 0;
}

/* 0: there is no room, nor will there be for another of its kind. */
static COLD uint32_t chain_learn(const struct chain *chain)
{
    enum sites_limit reached = chain->length > 1 ? SITES_ALONE : SITES_NO_MORE;
    platform_lock_acquire(&sites.lock);
    uint32_t site = chain_put(chain);
    if (site == 0 && sites_limit() < reached) atomic_store_explicit(&sites.limit, reached, memory_order_relaxed);
    platform_lock_release(&sites.lock);
    return site;
}

/* The site of a chain's innermost address alone. */
static COLD uint32_t site_alone(uintptr_t address)
{
    struct chain alone = {.key = chain_key(0, address), .length = 1, .addresses = {address}};
    uint64_t site = table_find(&sites.chains, alone.key);
    if (site != 0 || sites_limit() == SITES_NO_MORE) return (uint32_t)site;
    return chain_learn(&alone);
}

static COLD uint32_t site_learn(const struct chain *chain)
{
    uint32_t site = sites_limit() == SITES_ALL ? chain_learn(chain) : 0;
    return site != 0 ? site : site_alone(chain->addresses[0]);
}

uint32_t site_find(const struct frame *frame)
{
    struct chain chain;
    if (LIKELY(!python_is_here()) || !walk_python(*frame, &chain)) walk(*frame, &chain);
    uint64_t site = table_find(&sites.chains, chain.key);
    return LIKELY(site != 0) ? (uint32_t)site : site_learn(&chain);
}

/* ---- unmapped code -------------------------------------------------------------------------------------------------------------------- */

#pragma weak _dl_find_object /* as in platform/frame.c: without it no rule is known either */

static bool is_of_unmapped_code(const struct record_site *site)
{
    struct dl_find_object object;
    if (site->address >= TRACE_PLACES) return false;
    return _dl_find_object != NULL && _dl_find_object((void *)(site->address - 1), &object) != 0;
}

/* Other code may be mapped at the same addresses. It must not be walked by the rules of what was there, which would lead
 * astray for good, and shall not be taken for it: its sites are new ones, whose addresses have another meaning in the file
 * from then on. What is still there is walked by new rules, soon learnt, and has its sites as before. */
static void forget(void)
{
    /* Asked under no lock, since an older C library's answer may have to wait (platform/compat.c). Acquire: pairs with the store
     * after a site was written. */
    size_t count = atomic_load_explicit(&sites.count, memory_order_acquire);
    for (size_t number = 1; number <= count; number++) {
        struct record_site *site = &sites.all[number];
        if (!is_of_unmapped_code(site)) continue;
        platform_lock_acquire(&sites.lock);
        site->forgotten = true;
        platform_lock_release(&sites.lock);
    }
    platform_lock_acquire(&sites.lock);
    table_forget(&sites.chains);
    table_forget(&sites.rules);
    platform_lock_release(&sites.lock);
}

/* Inside, as all that take the lock are: a signal's handler that allocates would else wait for the lock of the very thread that it
 * has interrupted. */
void sites_forget(void)
{
    bool was_inside = record_thread.inside;
    thread_enter();
    forget();
    if (!was_inside) thread_leave();
}

/* ---- fork -------------------------------------------------------------------------------------------------------------------------------- */

/* Another thread of the parent may have been writing. What it wrote last is not seen, since nothing named it: a site beyond
 * the count, a value without a key. */
void sites_fork_child(void)
{
    platform_lock_mend(&sites.lock);
}
