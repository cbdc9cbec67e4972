/* Pools, and the way of an object to one.
 *
 * A pool is a bin number that all heaps keep free for it: so a heap has it without being told, empty, and a thread's first
 * object of a pool gets it a span as in any bin. Pools are never given up, since blocks may live for as long as the process.
 */
#include "pools.h"

struct pool_settings pool_settings = {
    .chain = POOL_CHAIN_ADAPTIVE,
    .placing = POOL_PLACING_JUDGED,
    .merge = true,
    .segment_size = 4096,
    .min_objects = 100,
    .max_size = 128,
};

/* ---- pools ---------------------------------------------------------------------------------------------------------- */

_Atomic(uint8_t) heap_pool_classes[POOL_BINS];

static _Atomic(uint32_t) pools_made;
static uint8_t request_classes[POOL_BINS]; /* those of the objects; with headers, their blocks are of larger ones */

/* What headers would take, if objects had any: the alignment of what follows is kept. */
static size_t with_header(size_t size)
{
    return pool_settings.headers ? size + MALLOC_ALIGNMENT : size;
}

/* The number of a new pool whose blocks are of this class. */
static bool make(uint32_t *pool, unsigned class)
{
    /* Relaxed: the numbers differ, and what is written here is told with the verdict. */
    uint32_t made = atomic_load_explicit(&pools_made, memory_order_relaxed);
    do {
        if (made == POOL_BINS) return false;
    } while (!atomic_compare_exchange_weak_explicit(&pools_made, &made, made + 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    atomic_store_explicit(&heap_pool_classes[made], (uint8_t)class, memory_order_relaxed);
    *pool = made;
    return true;
}

bool place_pool(uint32_t *pool, uint32_t block_size)
{
    if (block_size > FAST_MAX || !make(pool, size_class(with_header(block_size)))) return false;
    request_classes[*pool] = (uint8_t)size_class(block_size);
    return true;
}

bool place_mixed(uint32_t *pool)
{
    return make(pool, CLASS_MIXED);
}

struct verdict place_verdict(uint32_t pool)
{
    if (pool_settings.placing == POOL_PLACING_NONE || pool >= POOL_BINS)
        return (struct verdict){.kind = VERDICT_ORDINARY, .pool = pool};
    unsigned bin = BIN_COUNT + pool;
    return (struct verdict){
        .kind = bin_is_mixed(bin) ? VERDICT_MIXED : VERDICT_POOL,
        .class = request_classes[pool],
        .bin = (uint8_t)bin,
        .pool = pool,
    };
}

uint32_t place_of(const struct span *span)
{
    unsigned bin = __atomic_load_n(&span->bin, __ATOMIC_RELAXED);
    bool pooled = span_kind_read(span) == SPAN_BLOCKS && bin_is_pool(bin) && bin != BIN_NONE;
    return pooled ? bin - BIN_COUNT : POOL_NONE;
}

/* ---- the site table -------------------------------------------------------------------------------------------------- */

struct site pool_sites[SITES];

_Static_assert(VERDICT_KIND_BITS + RULE_BITS <= 64, "a wrapper's word has room for its rule");

/* Sites are put in by one thread at a time, or the address of one could stay with the verdict of another. */
static platform_lock sites_lock;

void site_put(uintptr_t key, uint64_t word)
{
    if (!platform_lock_try(&sites_lock)) return;
    struct site *site = site_at(key);
    atomic_store_explicit(&site->key, 0, memory_order_relaxed);
    /* Release, both: see site_word. */
    atomic_store_explicit(&site->verdict, word, memory_order_release);
    atomic_store_explicit(&site->key, key, memory_order_release);
    platform_lock_release(&sites_lock);
}

void site_drop(uintptr_t key)
{
    /* Relaxed: what is read a moment later may as well have been read before. Should another site have come meanwhile, it comes
     * again. */
    struct site *site = site_at(key);
    if (atomic_load_explicit(&site->key, memory_order_relaxed) == key)
        atomic_store_explicit(&site->key, 0, memory_order_relaxed);
}

void sites_drop(void)
{
    for (unsigned i = 0; i < SITES; i++) {
        _Atomic(uintptr_t) *key = &pool_sites[i].key;
        /* Relaxed: as above. Not written where nothing is, so that no page becomes resident for it. */
        if (atomic_load_explicit(key, memory_order_relaxed) != 0) atomic_store_explicit(key, 0, memory_order_relaxed);
    }
}

/* Of sites that share a place, the one that is called most should have it, and lines that all threads read should hardly be
 * written to: so every so often whoever comes takes it. */
enum { TAKEN_EVERY = 64 };

void site_learn(uintptr_t key, uint64_t word)
{
    static __thread unsigned turn __attribute__((tls_model("initial-exec")));
    uintptr_t there = atomic_load_explicit(&site_at(key)->key, memory_order_relaxed);
    if (there == key) return;
    if (there == 0 || ++turn % TAKEN_EVERY == 0) site_put(key, word);
}

/* ---- heaps with nothing to gain ----------------------------------------------------------------------------------------- */

/* While no pool has been made, a heap in which nothing but ordinary objects has been seen for some thousands of objects is *quiet*:
 * who allocates is then asked only when a bin has run out of blocks. The first object there that is to be placed or watched wakes
 * it. So a program in which nothing is to be gained allocates as with the plain library. */
enum { QUIET_AFTER = 256 /* refills of a bin */ };

static void heap_wake(struct heap *heap)
{
    heap->quiet = false;
    heap->woken_at = heap->refills;
}

static void *malloc_refilling(size_t size, struct heap *heap)
{
    /* Relaxed: a hint. */
    if (heap->refills - heap->woken_at >= QUIET_AFTER && atomic_load_explicit(&pools_made, memory_order_relaxed) == 0)
        heap->quiet = true;
    return heap_malloc_slow(size, heap);
}

ALWAYS_INLINE void *malloc_ordinary(size_t size)
{
    return heap_malloc_or(size, malloc_refilling);
}

/* ---- wrappers with nothing to gain -------------------------------------------------------------------------------------- */

/* All that is allocated through a wrapper walks its chain, though all of it may be ordinary. When some thousands of objects in
 * a row are, the wrapper's site is *tired*: the fast path takes it for ordinary. It goes on being asked whenever a bin has run
 * out of blocks, and the first object there that is to be placed or watched wakes it. So a program pays for chains where it
 * gains by them, and a new phase of it is noticed within some dozens of objects. */
enum {
    COUNTED_TOGETHER = 64, /* objects: a thread counts them by itself */
    TIRED_AFTER = 64, /* of these */
    TIRED_COUNTERS = 256,
};

static _Atomic(uint32_t) ordinary_in_a_row[TIRED_COUNTERS]; /* of sites; those that share one keep each other awake */

static _Atomic(uint32_t) *in_a_row(uintptr_t return_address)
{
    return &ordinary_in_a_row[return_address / sizeof(struct site) % TIRED_COUNTERS];
}

/* Relaxed, in both: hints, of which some may get lost. */
static void site_wake(uintptr_t return_address)
{
    atomic_store_explicit(in_a_row(return_address), 0, memory_order_relaxed);
    struct verdict verdict = verdict_of_word(site_word(return_address));
    if (verdict.kind == VERDICT_ORDINARY && verdict.tired) site_drop(return_address);
}

static void site_tire(uintptr_t return_address)
{
    uint32_t count = atomic_load_explicit(in_a_row(return_address), memory_order_relaxed) + 1;
    atomic_store_explicit(in_a_row(return_address), count, memory_order_relaxed);
    struct verdict tired = {.kind = VERDICT_ORDINARY, .tired = true};
    if (count >= TIRED_AFTER) site_put(return_address, verdict_word(tired));
}

/* Where pools are made and not used, a site does not tire that else would not. */
ALWAYS_INLINE bool is_plain(struct verdict verdict)
{
    return verdict.kind == VERDICT_ORDINARY && verdict.pool == POOL_NONE;
}

/* Whether an object of a wrapper's with this verdict has a bearing on the wrapper: one in so many, or the first that is not plain. */
ALWAYS_INLINE bool weighs(uintptr_t return_address, struct verdict verdict)
{
    static __thread unsigned turn __attribute__((tls_model("initial-exec")));
    if (LIKELY(is_plain(verdict))) return ++turn % COUNTED_TOGETHER == 0;
    return atomic_load_explicit(in_a_row(return_address), memory_order_relaxed) != 0;
}

static COLD void weigh(uintptr_t return_address, struct verdict verdict)
{
    if (is_plain(verdict)) site_tire(return_address);
    else site_wake(return_address);
}

/* An object of a wrapper's has this verdict. */
ALWAYS_INLINE void site_weigh(uintptr_t return_address, struct verdict verdict)
{
    if (UNLIKELY(weighs(return_address, verdict))) weigh(return_address, verdict);
}

/* ---- objects -------------------------------------------------------------------------------------------------------- */

/* A page is the least that a pool costs each thread that uses it. A thread's first objects of a pool, half a page of them, are
 * ordinary: so threads that allocate little do not cost a page for each pool. */
enum { OPENED_BYTES = 2048 };

static bool is_open(struct heap *heap, unsigned bin, size_t size)
{
    struct bin *its = &heap->bins[bin];
    if (LIKELY(its->spans != 0 || its->borrowed >= OPENED_BYTES)) return true;
    its->borrowed = (its->borrowed + (size < MALLOC_ALIGNMENT ? MALLOC_ALIGNMENT : size)) & BORROWED_MAX;
    return false;
}

static void *place(size_t size, struct heap *heap, struct verdict verdict)
{
    void *object = NULL;
    if (verdict.kind == VERDICT_ORDINARY) return malloc_ordinary(size);
    if (UNLIKELY(heap->quiet)) heap_wake(heap);
    bool is_of_size = verdict.kind == VERDICT_POOL && heap_size_class(size) == verdict.class;
    if ((is_of_size || verdict.kind == VERDICT_MIXED) && is_open(heap, verdict.bin, size))
        object =
            is_of_size ? heap_malloc_bin(heap, verdict.bin, size) : mixed_malloc(heap, verdict.bin, with_header(size));
    return LIKELY(object != NULL) ? object : heap_malloc(size);
}

static void *watch(size_t size, struct heap *heap, uint32_t group)
{
    void *object = heap_malloc(size);
    heap_wake(heap);
    if (LIKELY(object != NULL)) group_watch(group, object, size);
    return object;
}

/* There is no group: by the site alone, or further out. */
static COLD void *place_without_group(size_t size, uintptr_t return_address)
{
    struct verdict verdict = {.kind = VERDICT_ORDINARY, .pool = POOL_NONE};
    bool always = pool_settings.placing == POOL_PLACING_OFF || site_verdict(return_address).kind == VERDICT_ORDINARY;
    if (always) site_learn(return_address, verdict_word(verdict));
    else site_weigh(return_address, verdict);
    return malloc_ordinary(size);
}

/* Of a caller that the site table does not say it all of, or not yet. */
static NOINLINE void *place_by_chain(size_t size, struct heap *heap, uintptr_t return_address, uintptr_t stack,
                                     uintptr_t base)
{
    struct frame caller = {.return_address = return_address, .stack = stack, .base = base};
    uint32_t group = LIKELY(pool_settings.placing != POOL_PLACING_OFF) ? chain_group(&caller) : GROUP_NONE;
    if (UNLIKELY(group == GROUP_NONE)) return place_without_group(size, return_address);
    struct verdict verdict = group_verdict(group);
    uintptr_t key = chain_site(group);
    if (verdict.kind != VERDICT_SLOW) site_learn(key, verdict_word(verdict));
    if (key != return_address) site_weigh(return_address, verdict);
    return verdict.kind == VERDICT_SLOW ? watch(size, heap, group) : place(size, heap, verdict);
}

static COLD void *weigh_and_place(size_t size, struct heap *heap, uintptr_t return_address, struct verdict verdict)
{
    weigh(return_address, verdict);
    return place(size, heap, verdict);
}

/* The word on the chain behind several wrappers, as far as the site table has it. */
static uint64_t word_behind(uint64_t word, struct frame at)
{
    uint64_t key = chain_key(0, at.return_address);
    do {
        struct frame_rule rule = rule_unpacked(word >> VERDICT_KIND_BITS);
        if (!frame_step(&rule, &at)) return VERDICT_SLOW;
        key = chain_key(key, at.return_address);
        word = site_word((uintptr_t)key);
    } while ((uint8_t)word == VERDICT_DEEPER); /* ends: only chains that were walked are there, and each is finite */
    return word;
}

static NOINLINE void *place_behind(size_t size, struct heap *heap, uintptr_t return_address, uintptr_t stack,
                                   uintptr_t base)
{
    struct frame at = {.return_address = return_address, .stack = stack, .base = base};
    uint64_t word = word_behind(site_word(return_address), at);
    struct verdict verdict = verdict_of_word(word);
    if (verdict.kind == VERDICT_SLOW) return place_by_chain(size, heap, return_address, stack, base);
    site_weigh(return_address, verdict);
    return place(size, heap, verdict);
}

/* The word on the chain behind one wrapper, as most are: its frame is left from the stack pointer. The rule has led out of it
 * before, by the same distance, so that nothing of it is left to be checked. If it is another site's, the key that comes of it is
 * no chain's, and what is read for it is readable. SLOW: there is more to it. */
ALWAYS_INLINE uint64_t word_behind_one(uint64_t word, uintptr_t return_address, uintptr_t stack)
{
    uint64_t rule = word >> VERDICT_KIND_BITS;
    uintptr_t slot = stack + (uintptr_t)(rule >> RULE_RETURN_SHIFT) * RULE_WORD;
    if (UNLIKELY((rule & RULE_FROM_BASE) != 0 || !stack_has_been_readable(stack, slot + RULE_WORD)))
        return VERDICT_SLOW;
    return site_word((uintptr_t)chain_key(chain_key(0, return_address), stack_word(slot)));
}

/* Nothing is called here but to end with, so that there is nothing to be saved on the stack. */
void *pools_malloc_from(size_t size, struct heap *heap, uintptr_t return_address, uintptr_t stack, uintptr_t base)
{
    /* No heap yet, or none of its own, or one that is gone, or a context in its place: there are no pools in those. */
    if (UNLIKELY(size > FAST_MAX || heap->size == 0)) return heap_malloc_slow(size, heap);
    uint64_t word = site_word(return_address);
    struct verdict verdict = verdict_of_word(word);
    if (verdict.kind == VERDICT_DEEPER) {
        verdict = verdict_of_word(word_behind_one(word, return_address, stack));
        if (UNLIKELY(verdict.kind == VERDICT_SLOW || verdict.kind == VERDICT_DEEPER))
            return place_behind(size, heap, return_address, stack, base);
        if (UNLIKELY(weighs(return_address, verdict))) return weigh_and_place(size, heap, return_address, verdict);
    } else if (UNLIKELY(verdict.kind == VERDICT_SLOW || verdict.tired)) {
        return place_by_chain(size, heap, return_address, stack, base);
    }
    return LIKELY(verdict.kind == VERDICT_ORDINARY) ? malloc_ordinary(size) : place(size, heap, verdict);
}

NOINLINE void *pools_malloc_slow(size_t size, struct heap *heap)
{
    return pools_malloc_slow_here(size, heap);
}

/* ---- figures -------------------------------------------------------------------------------------------------------- */

/* As in statistics: descriptors are read while their owners go on. */
READS_RACILY static void add_span(const struct span *span, void *argument)
{
    uint32_t pool = place_of(span);
    if (pool >= POOL_BINS) return; /* POOL_NONE too */
    struct place_figures *figures = (struct place_figures *)argument + pool;
    size_t live = span_live(span);
    struct mixed_figures mixed = {0};
    if (figures->mixed) mixed = mixed_figures(span);
    figures->footprint += SPAN_SIZE;
    figures->objects += figures->mixed ? mixed.objects : live;
    figures->bytes += figures->mixed ? mixed.bytes : live * figures->block_size;
}

uint32_t place_figures(struct place_figures *figures)
{
    uint32_t made = atomic_load_explicit(&pools_made, memory_order_relaxed);
    memset(figures, 0, POOL_BINS * sizeof *figures);
    for (uint32_t pool = 0; pool < made; pool++) {
        figures[pool].mixed = bin_is_mixed(BIN_COUNT + pool);
        figures[pool].block_size = figures[pool].mixed ? 0 : bin_block_size(BIN_COUNT + pool);
    }
    if (made != 0) space_visit(add_span, figures);
    return made;
}

/* ---- forks ---------------------------------------------------------------------------------------------------------- */

void pools_fork_child(void)
{
    group_fork_child();
    chain_fork_child();
    platform_lock_mend(&sites_lock);
}
