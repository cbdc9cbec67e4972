/* Canaries, clear blocks, the quarantine, and random order: see hardened.h. */
#include "../fast.h"

#include <string.h>

/* ---- secrets -------------------------------------------------------------------------------------------------------------------- */

/* Of a class the quarantine holds so many bytes at most, but four blocks at least; and not more blocks than so many, which are
 * enough that it cannot be told when a block comes back. Half of them in places chosen at random, half in order. */
enum { QUARANTINE_BYTES = 16 << 10, QUARANTINE_BLOCKS = 128, QUARANTINE_BLOCKS_MIN = 4 };

struct secrets {
    uint64_t key, factor; /* of canaries */
    uint16_t places
        [BIN_COUNT]; /* of the class in a quarantine: so many at random, from the first on; then as many in order */
    uint16_t first[BIN_COUNT];
    uint32_t all; /* places */
};

/* In a page of their own, which can be read only once they are drawn. Where pages are small most of this is never touched. */
enum { PAGE_MAX = 1 << 16 };
static unsigned char secret_pages[2 * PAGE_MAX];

ALWAYS_INLINE struct secrets *secrets(void)
{
    return (struct secrets *)(((uintptr_t)secret_pages + PAGE_MAX - 1) & ~(uintptr_t)(PAGE_MAX - 1));
}

/* Of what is nobody's alone. */
static _Atomic(uint64_t) sequence;

uint64_t hardened_draw(void)
{
    /* Relaxed: each draws another one. The steps are chance_draw's own. */
    uint64_t place = atomic_fetch_add_explicit(&sequence, UINT64_C(0x9E3779B97F4A7C15), memory_order_relaxed);
    return chance_draw(&place);
}

static uint16_t places_for(uint32_t block_size)
{
    uint16_t places = QUARANTINE_BLOCKS / 2;
    while (places > QUARANTINE_BLOCKS_MIN / 2 && 2u * places * block_size > QUARANTINE_BYTES) places /= 2;
    return places;
}

static void draw_secrets(struct secrets *secret)
{
    secret->key = platform_random();
    secret->factor = platform_random() | 1;
    secret->all = 0;
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        secret->first[bin] = (uint16_t)secret->all;
        secret->places[bin] = places_for(size_class_bytes(bin));
        secret->all += 2u * secret->places[bin];
    }
    atomic_store_explicit(&sequence, platform_random(), memory_order_relaxed);
}

/* Again in a fork's child whose parent's other thread was here: it had drawn them if they can only be read. */
void hardened_start(void)
{
    static _Atomic(bool) drawn;
    if (!atomic_load_explicit(&drawn, memory_order_relaxed)) draw_secrets(secrets());
    atomic_store_explicit(&drawn, true, memory_order_release);
    platform_make_readable(secrets(), platform_page_size());
}

void hardened_heap_start(struct heap *heap)
{
    heap->hardened = (struct hardened_heap){.random = platform_random()};
}

void hardened_fork_child(struct heap *heap)
{
    if (heap->size != 0) heap->hardened.random ^= platform_random(); /* not heap_none or heap_sharing */
    atomic_fetch_xor_explicit(&sequence, platform_random(), memory_order_relaxed);
    hardened_large_fork_child();
}

/* ---- canaries ------------------------------------------------------------------------------------------------------------------- */

__extension__ typedef unsigned __int128 product;

/* Its first byte is 0: a string that is not ended ends there, and what reads it on, or copies it, does not get what stands behind. */
enum { CANARY_ZEROS = 8 };
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lowest byte is the first");

/* From canaries that have been read, the key does not follow by linear equations: both halves of a product are mixed. */
ALWAYS_INLINE uint64_t canary_of(uintptr_t block)
{
    const struct secrets *secret = secrets();
    product mixed = (product)(block ^ secret->key) * secret->factor;
    return ((uint64_t)mixed ^ (uint64_t)(mixed >> 64)) << CANARY_ZEROS;
}

ALWAYS_INLINE uint64_t *canary_at(uintptr_t block, uint32_t block_size)
{
    return (uint64_t *)(block + block_size - OBJECT_TAIL);
}

/* Relaxed, both: a thread that frees the block behind may read it at the same moment, and finds it whole or clear. */
ALWAYS_INLINE uint64_t canary_read(uintptr_t block, uint32_t block_size)
{
    return __atomic_load_n(canary_at(block, block_size), __ATOMIC_RELAXED);
}

ALWAYS_INLINE void canary_write(uintptr_t block, uint32_t block_size, uint64_t canary)
{
    __atomic_store_n(canary_at(block, block_size), canary, __ATOMIC_RELAXED);
}

/* The block's last word becomes clear, in one step: of two threads that free a block, one finds its canary. Relaxed: what else they
 * see of each other is the program's. */
ALWAYS_INLINE uint64_t canary_take(uintptr_t block, uint32_t block_size)
{
    return __atomic_exchange_n(canary_at(block, block_size), 0, __ATOMIC_RELAXED);
}

/* ---- clear blocks --------------------------------------------------------------------------------------------------------------- */

typedef uint64_t two_words __attribute__((vector_size(16), may_alias));

ALWAYS_INLINE bool is_clear(uintptr_t block, uint32_t block_size)
{
    const two_words *word = (const two_words *)block, *end = (const two_words *)(block + block_size);
    two_words any = {0, 0};
    for (; end - word >= 4; word += 4) any |= word[0] | word[1] | word[2] | word[3];
    for (; word < end; word++) any |= word[0];
    return (any[0] | any[1]) == 0;
}

static COLD void check_was_written(uintptr_t block, uint32_t block_size)
{
    uintptr_t at = block;
    while (at < block + block_size - 1 && *(const uint8_t *)at == 0) at++;
    platform_message("use after free: the free block at %p of %zu bytes was written to at %p", (const void *)block,
                     (size_t)block_size, (const void *)at);
    platform_abort();
}

/* More than a page may have pages that were never touched, and a look at them would make them resident. */
void hardened_hand_out(uintptr_t block, uint32_t block_size, bool is_new)
{
    if ((block_size < CARVE_UNIT || !is_new) && UNLIKELY(!is_clear(block, block_size)))
        check_was_written(block, block_size);
    canary_write(block, block_size, canary_of(block));
}

/* ---- carving -------------------------------------------------------------------------------------------------------------------- */

/* A number below `count`, which is small: nobody gains by what 2^32 leaves over. */
ALWAYS_INLINE uint32_t draw_below(uint64_t *random, uint32_t count)
{
    return (uint32_t)((chance_draw(random) >> 32) * count >> 32);
}

uint32_t hardened_choose_units(struct heap *heap, uint32_t units, uint32_t count)
{
    uint32_t chosen = 0, left = (uint32_t)__builtin_popcount(units);
    if (count >= left) return units;
    for (; count > 0; count--, left--) {
        uint32_t rest = units & ~chosen;
        for (uint32_t skipped = draw_below(&heap->hardened.random, left); skipped > 0; skipped--) rest &= rest - 1;
        chosen |= rest & -rest;
    }
    return chosen;
}

/* So many blocks are put in random order at a time: all that a span has of 128 bytes and more. Their numbers lie on the stack, of
 * which a thread may have no more than PTHREAD_STACK_MIN. */
enum {
    SHUFFLED_MAX = 512,
    UNIT_BLOCKS_MAX = CARVE_UNIT / MALLOC_ALIGNMENT,
    UNITS_SHUFFLED = SHUFFLED_MAX / UNIT_BLOCKS_MAX
};

static uint32_t numbers_of(const struct span *span, uint32_t units, uint16_t numbers[SHUFFLED_MAX])
{
    uint32_t count = 0;
    for (; units != 0; units &= units - 1) {
        uint32_t number;
        uint32_t end = span_unit_blocks(span, (uint32_t)__builtin_ctz(units), &number);
        for (; number < end; number++) numbers[count++] = (uint16_t)number;
    }
    return count;
}

/* Link the blocks of these numbers in random order, in front of `list`. */
static uintptr_t link_at_random(const struct span *span, uint16_t *numbers, uint32_t count, uintptr_t list,
                                uint64_t *random)
{
    uintptr_t start = span_start(span);
    for (; count > 0; count--) {
        uint32_t chosen = draw_below(random, count);
        uintptr_t block = start + (uintptr_t)numbers[chosen] * span->block_size;
        numbers[chosen] = numbers[count - 1];
        *block_words(block) = list ^ block ^ space.link_key;
        list = block;
    }
    return list;
}

/* Units whose blocks are at most SHUFFLED_MAX: those of small blocks are few, and any of the mask. */
static uint32_t units_to_shuffle(struct heap *heap, const struct span *span, uint32_t units)
{
    bool are_few = (uint32_t)SPAN_SIZE / span->block_size <= SHUFFLED_MAX;
    return are_few ? units : hardened_choose_units(heap, units, UNITS_SHUFFLED);
}

void hardened_clear_units(const struct span *span, uint32_t units)
{
    for (; units != 0 && !span->zeros; units &= units - 1) {
        uint32_t first;
        uint32_t end = span_unit_blocks(span, (uint32_t)__builtin_ctz(units), &first);
        memset((void *)(span_start(span) + (uintptr_t)first * span->block_size), 0,
               (size_t)(end - first) * span->block_size);
    }
}

uintptr_t hardened_carve(struct heap *heap, struct span *span, uint32_t units)
{
    uint16_t numbers[SHUFFLED_MAX];
    uintptr_t list = span_list_end(span);
    while (units != 0) {
        uint32_t some = units_to_shuffle(heap, span, units);
        uint32_t count = numbers_of(span, some, numbers);
        span->carved = (uint16_t)(span->carved + count);
        list = link_at_random(span, numbers, count, list, &heap->hardened.random);
        units &= ~some;
    }
    return list;
}

uintptr_t hardened_shuffle(const struct span *span, uintptr_t list)
{
    uint16_t numbers[SHUFFLED_MAX];
    uintptr_t shuffled = span_list_end(span);
    uint64_t random = hardened_draw();
    while (!list_is_empty(list)) {
        uint32_t count = 0;
        for (; !list_is_empty(list) && count < SHUFFLED_MAX; list = list_next(list))
            numbers[count++] = (uint16_t)((list & (SPAN_SIZE - 1)) / span->block_size);
        shuffled = link_at_random(span, numbers, count, shuffled, &random);
    }
    return shuffled;
}

/* ---- checks --------------------------------------------------------------------------------------------------------------------- */

static COLD void check_canary_failed(const char *function, uintptr_t block, uint32_t block_size, uint64_t found)
{
    uint32_t words = 2 * sizeof(uint64_t);
    if (found == 0 && is_clear(block + words, block_size - words)) {
        if (strcmp(function, "free") == 0) check_double_free((const void *)block);
        platform_message("%s of %p, which is not allocated (freed before?)", function, (const void *)block);
    } else {
        platform_message("overflow: what stands behind the object at %p of %zu bytes was overwritten, found by %s",
                         (const void *)block, (size_t)block_size - OBJECT_TAIL, function);
    }
    platform_abort();
}

static COLD void check_neighbour_failed(uintptr_t block, uint32_t block_size)
{
    platform_message(
        "underflow or overflow: what stands before the object at %p of %zu bytes was overwritten, found by free",
        (const void *)block, (size_t)block_size - OBJECT_TAIL);
    platform_abort();
}

/* ---- families ------------------------------------------------------------------------------------------------------------------- */

_Atomic(bool) hardened_families;

static uint64_t canary_of_family(uintptr_t block, enum family family)
{
    return canary_of(block) ^ (secrets()->factor * (uint64_t)family << CANARY_ZEROS);
}

/* Whose canary that is; FAMILIES: nobody's. */
static COLD enum family family_of(uintptr_t block, uint64_t canary)
{
    enum family last = hardened_families_are_told() ? FAMILY_NEW_ARRAY : FAMILY_MALLOC, family = FAMILY_MALLOC;
    while (family <= last && canary != canary_of_family(block, family)) family++;
    return family <= last ? family : FAMILIES;
}

static COLD void check_family_failed(const char *function, const void *pointer, enum family family)
{
    static const char *const makers[] = {"malloc", "operator new", "operator new[]"};
    platform_message("%s of %p, which %s returned", function, pointer, makers[family]);
    platform_abort();
}

/* The span of a block's address, or NULL. */
ALWAYS_INLINE struct span *span_of_block(uintptr_t block)
{
    size_t offset = block - space.base;
    if (UNLIKELY(offset >= space_size())) return NULL;
    struct span *span = span_of_offset(offset);
    return LIKELY(span->kind == SPAN_BLOCKS && block_is_at_start(span, block)) ? span : NULL;
}

static COLD void check_other_canary(const char *function, uintptr_t block, uint32_t block_size, uint64_t found,
                                    enum family family)
{
    enum family whose = family_of(block, found);
    if (whose == FAMILIES) check_canary_failed(function, block, block_size, found);
    if (whose != family && family != FAMILY_ANY) check_family_failed(function, (const void *)block, whose);
}

ALWAYS_INLINE void check_canary(const char *function, const struct span *span, uintptr_t block, uint64_t found,
                                enum family family)
{
    if (UNLIKELY(found != canary_of(block))) check_other_canary(function, block, span->block_size, found, family);
}

void hardened_check(const char *function, const void *pointer, enum family family)
{
    const struct span *span = pointer == NULL ? NULL : span_of_block((uintptr_t)pointer);
    uintptr_t block = (uintptr_t)pointer;
    if (span != NULL) check_canary(function, span, block, canary_read(block, span->block_size), family);
    else if (family != FAMILY_ANY && hardened_families_are_told()) hardened_check_family(pointer, family);
}

/* The span of a large object, or NULL. */
static struct span *span_of_large(const void *pointer)
{
    size_t offset = space_offset(pointer);
    if (pointer == NULL || space_offset_is_foreign(offset)) return NULL;
    struct span *span = span_of_offset(offset);
    return span_kind_read(span) == SPAN_LARGE ? span : NULL;
}

void *hardened_note_family(void *pointer, enum family family)
{
    uintptr_t block = (uintptr_t)pointer;
    const struct span *span = pointer == NULL ? NULL : span_of_block(block);
    struct span *large = span_of_large(pointer);
    if (span != NULL) canary_write(block, span->block_size, canary_of_family(block, family));
    else if (large != NULL) large->carved = (uint16_t)family;
    return pointer;
}

void hardened_check_family(const void *pointer, enum family family)
{
    static const char *const functions[] = {"free", "operator delete", "operator delete[]"};
    uintptr_t block = (uintptr_t)pointer;
    const struct span *span = pointer == NULL ? NULL : span_of_block(block), *large = span_of_large(pointer);
    enum family whose = span != NULL    ? family_of(block, canary_read(block, span->block_size))
                        : large != NULL ? hardened_large_family(large)
                                        : FAMILIES;
    if (whose != family && whose != FAMILIES && family != FAMILY_ANY)
        check_family_failed(functions[family], pointer, whose);
}

ALWAYS_INLINE bool is_carved(const struct span *span, uint32_t offset)
{
    return (span->uncarved >> (offset >> CARVE_UNIT_LOG2) & 1) == 0;
}

/* Bytes at a span's end in which no block fits. */
ALWAYS_INLINE uint32_t rest_of(const struct span *span)
{
    return SPAN_SIZE % span->block_size;
}

void hardened_cut(const struct span *span, bool zeros)
{
    if (!zeros && rest_of(span) != 0) canary_write(span_start(span), SPAN_SIZE, 0);
}

/* What stands before a span's first block is the end of the span before: the canary of its last block, or what is left over, whose
 * last word is clear. */
static void check_span_before(const struct heap *heap, const struct span *span, uintptr_t block)
{
    if (span_index(span) == 0) return;
    const struct span *before = span_at(span_index(span) - 1);
    /* Relaxed: what this heap has it wrote there itself, and only spans of blocks have an owner. The kind of a span that is
     * another's, or free, changes meanwhile. */
    if (atomic_load_explicit(&before->owner, memory_order_relaxed) != heap) return;
    uint32_t last = (uint32_t)SPAN_SIZE - rest_of(before) - before->block_size;
    uint64_t word = canary_read(span_start(before), SPAN_SIZE);
    bool may_be_canary = rest_of(before) == 0;
    if (LIKELY(word == 0) || (may_be_canary && !is_carved(before, last))) return;
    if (!may_be_canary || family_of(span_start(before) + last, word) == FAMILIES)
        check_neighbour_failed(block, span->block_size);
}

/* The canary of the block before, or what it is when that is free. What is not carved yet has neither; nor can it be told of another
 * heap's span what is. */
ALWAYS_INLINE void check_neighbour(const struct heap *heap, const struct span *span, uintptr_t block)
{
    uint32_t offset = (uint32_t)(block & (SPAN_SIZE - 1)), block_size = span->block_size;
    if (atomic_load_explicit(&span->owner, memory_order_relaxed) != heap) return;
    if (UNLIKELY(offset == 0)) {
        check_span_before(heap, span, block);
        return;
    }
    if (!is_carved(span, offset - block_size)) return;
    uint64_t canary = canary_read(block - block_size, block_size);
    if (UNLIKELY(canary != 0 && canary != canary_of(block - block_size)) &&
        family_of(block - block_size, canary) == FAMILIES)
        check_neighbour_failed(block, block_size);
}

/* ---- the quarantine ------------------------------------------------------------------------------------------------------------- */

struct quarantine {
    uint8_t next[BIN_COUNT]; /* of the places in order: which is next */
    uintptr_t blocks[]; /* 0: none; which places are which class's, secrets says */
};

/* Put a word where another was, in one instruction: handlers of this thread's signals free blocks too, and what they put here in
 * between must neither be lost nor come out twice. Other threads have no business here, so that no bus need be locked for it. */
/* NOLINTNEXTLINE(readability-non-const-parameter): it is written to */
ALWAYS_INLINE uintptr_t swap(uintptr_t *place, uintptr_t word)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    uintptr_t before = *place;
    bool done;
    do __asm__("cmpxchgq %3, %1" : "=@ccz"(done), "+m"(*place), "+a"(before) : "r"(word));
    while (UNLIKELY(!done));
    return before;
#else
    return __atomic_exchange_n(place, word, __ATOMIC_RELAXED);
#endif
}

/* A handler may have made one meanwhile: then what we find there stays. */
static COLD struct quarantine *quarantine_make(struct heap *heap)
{
    if (heap->size == 0 || heap_is_shared(heap)) return NULL;
    uint32_t entered = heap_enter(heap);
    struct quarantine *made = space_metadata(sizeof(struct quarantine) + secrets()->all * sizeof(uintptr_t)),
                      *none = NULL;
    /* Relaxed: no other thread looks. */
    __atomic_compare_exchange_n(&heap->hardened.quarantine, &none, made, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    heap_leave(heap, entered);
    return heap->hardened.quarantine;
}

/* What threads leave when they end, and what those free that have no heap of their own: blocks of any class, in places chosen at
 * random; of the larger ones in some of these only, so that all of them are little over a MiB. 0: none. Of all frees one in 64 passes a
 * block through here, so that what was left does not stay for ever. */
enum { COMMON_PLACES = 256, COMMON_PLACES_LARGER = 32, COMMON_BLOCK_MAX = 1024, COMMON_SHIFT = 64 - 6 };
static _Atomic(uintptr_t) common[COMMON_PLACES];

/* Put a block in; returns one that leaves, or 0. Acquire and release: who frees a block sees that it was cleared. */
static uintptr_t common_pass(uint32_t block_size, uintptr_t block)
{
    uint32_t places = block_size <= COMMON_BLOCK_MAX ? COMMON_PLACES : COMMON_PLACES_LARGER;
    return atomic_exchange_explicit(&common[hardened_draw() % places], block, memory_order_acq_rel);
}

/* The same of the thread's own. */
ALWAYS_INLINE uintptr_t quarantine_pass(struct heap *heap, unsigned bin, uintptr_t block)
{
    struct quarantine *quarantine = heap->hardened.quarantine;
    if (UNLIKELY(quarantine == NULL)) quarantine = quarantine_make(heap);
    if (UNLIKELY(quarantine == NULL)) return common_pass(size_class_bytes(bin), block);
    const struct secrets *secret = secrets();
    uint32_t places = secret->places[bin]; /* a power of two */
    uintptr_t *blocks = &quarantine->blocks[secret->first[bin]];
    uint64_t chance = chance_draw(&heap->hardened.random);
    block = swap(&blocks[chance & (places - 1)], block);
    if (block == 0) return 0;
    block = swap(&blocks[places + (quarantine->next[bin]++ & (places - 1))], block);
    if (LIKELY(chance >> COMMON_SHIFT != 0) || block == 0) return block;
    return common_pass(size_class_bytes(bin), block);
}

/* Its link is about to take the place of what was written to its first word; the rest is seen when it is handed out. */
ALWAYS_INLINE void check_first_word(uintptr_t block)
{
    if (UNLIKELY(*block_words(block) != 0)) check_was_written(block, span_of_block(block)->block_size);
}

static void release(struct heap *heap, uintptr_t block)
{
    if (block == 0) return;
    struct span *span = span_of_offset(block - space.base);
    check_first_word(block);
    if (atomic_load_explicit(&span->owner, memory_order_relaxed) == heap) block_free_local(heap, span, block);
    else remote_free(heap, span, block);
}

void hardened_release(struct heap *heap)
{
    struct quarantine *quarantine = heap->hardened.quarantine;
    for (uint32_t place = 0; quarantine != NULL && place < secrets()->all; place++)
        release(heap, swap(&quarantine->blocks[place], 0));
    /* Who has the lock of a shared heap must not free blocks of another, which has its own. */
    for (uint32_t place = 0; place < COMMON_PLACES && !heap_is_shared(heap); place++)
        release(heap, atomic_exchange_explicit(&common[place], 0, memory_order_acq_rel));
}

void hardened_hand_down(struct heap *heap)
{
    struct quarantine *quarantine = heap->hardened.quarantine;
    for (uint32_t place = 0; quarantine != NULL && place < secrets()->all; place++) {
        uintptr_t block = swap(&quarantine->blocks[place], 0);
        if (block != 0) release(heap, common_pass(span_of_block(block)->block_size, block));
    }
}

/* ---- freeing -------------------------------------------------------------------------------------------------------------------- */

/* As heap_free of the plain library. */
ALWAYS_INLINE void free_now(struct heap *heap, void *pointer)
{
    if (UNLIKELY(!block_push(heap, (uintptr_t)pointer, 0))) heap_free_slow(pointer, heap);
}

/* What is no block, or no error that is ours to find, goes where it goes in the plain library. */
void hardened_free(void *pointer, enum family family)
{
    uintptr_t block = (uintptr_t)pointer;
    struct heap *heap = thread_heap_now();
    if (UNLIKELY(heap->size == 0)) heap = thread_heap_own(); /* it may be lent, or diverted */
    struct span *span = UNLIKELY(pointer == NULL) ? NULL : span_of_block(block);
    if (UNLIKELY(span == NULL)) {
        if (family != FAMILY_ANY && hardened_families_are_told()) hardened_check_family(pointer, family);
        free_now(heap, pointer);
        return;
    }
    check_canary("free", span, block, canary_take(block, span->block_size), family);
    check_neighbour(heap, span, block);
    memset(pointer, 0, span->block_size - OBJECT_TAIL);
    block = quarantine_pass(heap, span->bin, block);
    if (block == 0) return;
    check_first_word(block);
    free_now(heap, (void *)block);
}
