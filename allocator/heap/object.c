/* What the malloc family asks for, of any size: the way from a request to a bin or a large object, and back. */
#include "fast.h"

#include <errno.h>
#include <string.h>

/* ---- allocating ---------------------------------------------------------------------------------------------------------- */

/* Inline, so that it is not there in the variants that have no quarantine, even where nothing is optimised. */
ALWAYS_INLINE void give_up_quarantines(struct heap *heap)
{
    uint32_t entered = heap_enter(heap);
    hardened_release(heap);
    heap_leave(heap, entered);
    hardened_large_release();
}

/* Memory has run out: give back what this heap holds without need, and the spans that others keep, before a second try. Before a
 * third one, what can be had of heaps whose threads sleep. False: there is nothing more to try. */
static bool make_room(struct heap *heap, unsigned tries)
{
    enum { OWN_AND_KEPT = 1, ALL_THAT_SLEEP };
    /* A shared heap is locked here, and the registry's lock, which it takes to ask others, comes before. */
    bool may_ask_others = !heap_is_shared(heap);
    if (tries == OWN_AND_KEPT) {
        if (HARDENED) give_up_quarantines(heap);
        remote_inbox_take(heap);
        heap_flush(heap);
        if (may_ask_others) heap_caches_empty();
    } else if (tries == ALL_THAT_SLEEP && may_ask_others) {
        heap_all_give_back();
    } else {
        return false;
    }
    space_purge_all();
    return true;
}

static COLD bool bin_refill_without_memory(struct heap *heap, unsigned bin)
{
    for (unsigned tries = 1; make_room(heap, tries); tries++)
        if (bin_refill(heap, bin)) return true;
    return false;
}

static COLD void *large_malloc_without_memory(struct heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    void *object = NULL;
    for (unsigned tries = 1; object == NULL && make_room(heap, tries); tries++)
        object = large_malloc(heap, size, alignment, zeroed);
    return object;
}

ALWAYS_INLINE bool filled(struct heap *heap, unsigned bin)
{
    return LIKELY(bin_refill(heap, bin)) || bin_refill_without_memory(heap, bin);
}

/* Objects that are guarded or sampled are picked where a bin has run out. */
static NOINLINE void *picked_malloc(struct heap *heap, unsigned bin, size_t size, size_t alignment)
{
    bool sampled;
    size_t bytes = bin_block_size(bin);
    void *object = bin_pick(heap, bin, bytes, size, alignment, &sampled);
    if (object != NULL || !filled(heap, bin)) return object;
    object = bin_pop(heap, bin, heap->free[bin]);
    if (sampled) sample_note(heap, object, bytes);
    return object;
}

/* From a bin that has run out. */
ALWAYS_INLINE void *refilled_malloc(struct heap *heap, unsigned bin, size_t size, size_t alignment)
{
    if (pick_is_on() && bin_may_pick(heap, bin, bin_block_size(bin))) return picked_malloc(heap, bin, size, alignment);
    return filled(heap, bin) ? bin_pop(heap, bin, heap->free[bin]) : NULL;
}

static void *small_malloc(struct heap *heap, unsigned bin, size_t size, size_t alignment)
{
    if (list_is_empty(heap->free[bin])) return refilled_malloc(heap, bin, size, alignment);
    return bin_pop(heap, bin, heap->free[bin]);
}

/* A block that need not be cleared, if there is one. */
static void *small_calloc(struct heap *heap, unsigned bin, size_t size, size_t alignment, bool *zeroed)
{
    bool sampled = false;
    if (list_is_empty(heap->free[bin])) {
        void *guarded = NULL;
        if (pick_is_on() && bin_may_pick(heap, bin, bin_block_size(bin)))
            guarded = bin_pick(heap, bin, bin_block_size(bin), size, alignment, &sampled);
        if (UNLIKELY(guarded != NULL)) return guarded; /* which reads as zeros, as is wanted */
        if (!bin_refill_zeroed(heap, bin) && !filled(heap, bin)) return NULL;
    }
    *zeroed = HARDENED || heap->bins[bin].zeros;
    void *object = bin_pop(heap, bin, heap->free[bin]);
    if (UNLIKELY(sampled)) sample_note(heap, object, bin_block_size(bin));
    return object;
}

void *heap_malloc_bin(struct heap *heap, unsigned bin, size_t size)
{
    return small_malloc(heap, bin, size, MALLOC_ALIGNMENT);
}

static void *any_large_malloc(struct heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    void *object = *zeroed ? large_malloc_zeroed(size) : NULL;
    if (object != NULL) return object;
    object = large_malloc(heap, size, alignment, zeroed);
    /* A length that no memory could ever hold, read from a network perhaps, must not cost the process what it keeps. */
    if (LIKELY(object != NULL) || !large_room_can_be_made(size, alignment)) return object;
    return large_malloc_without_memory(heap, size, alignment, zeroed);
}

/* `*zeroed`: whether memory that reads as zeros is wanted; then whether the object's does. */
static void *any_malloc_of(struct heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    if (HARDENED && UNLIKELY(size == 0)) {
        void *empty = empty_malloc(alignment);
        if (LIKELY(empty != NULL)) return empty;
    }
    if (size <= BLOCK_MAX && alignment <= SMALL_MAX) {
        unsigned bin = heap_size_class(size);
        /* Blocks stand at multiples of their size from a span's start: one whose size is a multiple of the alignment is
         * aligned. */
        while (bin < BIN_COUNT && (size_class_bytes(bin) & (alignment - 1)) != 0) bin++;
        if (bin < BIN_COUNT)
            return *zeroed ? small_calloc(heap, bin, size, alignment, zeroed)
                           : small_malloc(heap, bin, size, alignment);
    }
    void *object = any_large_malloc(heap, size, alignment, zeroed);
    if (UNLIKELY(sample_is_on()) && object != NULL) sample_large(heap, object);
    return object;
}

/* From a thread that has no heap at hand. It may have slept before it got one: so it is kept as on a slow path, see lent.c. */
static NOINLINE void *any_malloc_entering(size_t size, size_t alignment, bool *zeroed)
{
    struct heap *heap = heap_thread_enter();
    if (heap == NULL) return NULL;
    uint32_t entered = heap_enter(heap);
    void *object = any_malloc_of(heap, size, alignment, zeroed);
    heap_leave(heap, entered);
    heap_thread_leave(heap);
    return object;
}

/* Any request, from a thread with or without a heap. */
static void *any_malloc(struct heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    void *object = NULL;
    if (LIKELY(size <= OBJECT_MAX)) {
        if (LIKELY(heap->size != 0)) object = any_malloc_of(heap, size, alignment, zeroed);
        else object = any_malloc_entering(size, alignment, zeroed); /* heap_none, heap_sharing or heap_lent */
    }
    if (UNLIKELY(object == NULL)) errno = ENOMEM;
    return object;
}

/* The same for a thread that may be diverted. */
static void *any_malloc_diverted(struct heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    if (LIKELY(heap != &heap_diverted)) return any_malloc(heap, size, alignment, zeroed);
    *zeroed = false;
    return heap_guest_malloc(size, alignment);
}

void *heap_malloc_own(size_t size)
{
    bool zeroed = false;
    return any_malloc(thread_heap_own(), size, MALLOC_ALIGNMENT, &zeroed);
}

static COLD void *malloc_borrowing(struct heap *heap, unsigned bin, size_t size)
{
    unsigned other = bin_to_borrow_from(heap, bin);
    void *object = small_malloc(heap, other != BIN_COUNT ? other : bin, size, MALLOC_ALIGNMENT);
    if (UNLIKELY(object == NULL)) errno = ENOMEM;
    return object;
}

static NOINLINE void *malloc_of_any_size(size_t size, struct heap *heap)
{
    bool zeroed = false;
    if (heap == &heap_diverted) return heap_guest_malloc(size, MALLOC_ALIGNMENT);
    return any_malloc(heap, size, MALLOC_ALIGNMENT, &zeroed);
}

static NOINLINE void *malloc_refilling(struct heap *heap, unsigned bin, size_t size)
{
    if (UNLIKELY(heap->bins[bin].spans == 0)) return malloc_borrowing(heap, bin, size);
    void *object = refilled_malloc(heap, bin, size, MALLOC_ALIGNMENT);
    if (UNLIKELY(object == NULL)) errno = ENOMEM;
    return object;
}

/* Most often a bin gives its last block, or has run out. */
void *heap_malloc_slow(size_t size, struct heap *heap)
{
    if (UNLIKELY(size - OBJECT_MIN > BLOCK_MAX - OBJECT_MIN || heap->fast_sizes == 0))
        return malloc_of_any_size(size, heap);
    unsigned bin = heap_size_class(size);
    uintptr_t block = heap->free[bin];
    return list_is_empty(block) ? malloc_refilling(heap, bin, size) : bin_pop(heap, bin, block);
}

void *heap_malloc_aligned(size_t size, size_t alignment)
{
    bool zeroed = false;
    if (alignment <= MALLOC_ALIGNMENT) return heap_malloc(size);
    return any_malloc_diverted(thread_heap_now(), size, alignment, &zeroed);
}

/* For statistics: which callocs had to clear memory, and which were spared it. */
static void count_calloc(struct heap *heap, bool zeroed)
{
    size_t *counter = zeroed ? &heap->zeroed_hits : &heap->zeroed_misses;
    /* Relaxed: a figure, which only the owner writes. */
    if (heap->size != 0) __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED); /* it has an owner */
}

void *heap_calloc(size_t size)
{
    if (!HARDENED && size <= FAST_MAX) {
        void *object = heap_malloc(size);
        return object == NULL ? NULL : memset(object, 0, size);
    }
    struct heap *heap = thread_heap_now();
    bool zeroed = true;
    void *object = any_malloc_diverted(heap, size, MALLOC_ALIGNMENT, &zeroed);
    if (UNLIKELY(object == NULL)) return NULL;
    if (!zeroed) memset(object, 0, size);
    if (heap == &heap_diverted) return object; /* nor start a thread, part of which would lie where the object does */
    count_calloc(thread_heap_now(), zeroed);
    space_zeroed_start();
    return object;
}

/* ---- looking up ------------------------------------------------------------------------------------------------------------- */

/* Where an object is. The kind is read once: another thread may free the object meanwhile, and what was a large one is then taken
 * for nothing else, so that the second free is told. */
struct place {
    struct span *span;
    enum span_kind kind;
};

/* The place of a live object's address; anything else ends the program, naming `function`. In a guest's span the guest knows, and
 * of slots guard.c. */
ALWAYS_INLINE struct place place_of_object(const char *function, const void *pointer)
{
    size_t offset = space_offset(pointer);
    if (UNLIKELY(space_offset_is_foreign(offset))) check_pointer_failed(function, pointer);
    struct span *span = span_of_offset(offset);
    enum span_kind kind = span_kind_read(span);
    bool live = kind == SPAN_BLOCKS  ? block_is_at_start(span, (uintptr_t)pointer)
                : kind == SPAN_LARGE ? (uintptr_t)pointer == large_start(span)
                                     : kind == SPAN_GUEST || kind == SPAN_GUARD;
    if (UNLIKELY(!live)) check_pointer_failed(function, pointer);
    return (struct place){span, kind};
}

static size_t place_usable_size(const char *function, struct place place, const void *pointer)
{
    const struct span *span = place.span;
    if (place.kind == SPAN_LARGE) return large_told_size(span);
    if (HARDENED && place.kind == SPAN_GUARD && empty_is_one(pointer)) return empty_usable_size(function, pointer);
    if (UNLIKELY(place.kind == SPAN_GUARD)) return guard_usable_size(function, pointer);
    if (POOLS_EXIST && bin_is_mixed(span->bin)) return mixed_usable_size(function, span, pointer);
    return span->block_size - OBJECT_TAIL;
}

size_t heap_usable_size(const void *pointer)
{
    static const char function[] = "malloc_usable_size";
    if (HARDENED) hardened_check(function, pointer, FAMILY_ANY);
    struct place place = place_of_object(function, pointer);
    return place.kind == SPAN_GUEST ? heap_guest_usable_size(function, place.span, pointer)
                                    : place_usable_size(function, place, pointer);
}

size_t heap_good_size(size_t size)
{
    size_t unit = HARDENED ? platform_page_size() : LARGE_SPARE;
    if (size > BLOCK_MAX) return (size + unit - 1) & ~(unit - 1);
    if (HARDENED && size == 0) return 0;
    unsigned bin = size_class(size + OBJECT_TAIL);
    if (HARDENED && bin == 0) bin = CLASS_MIN;
    return size_class_bytes(heap_settings.cache_line_align ? size_class_of_lines(bin, CACHE_LINE) : bin) - OBJECT_TAIL;
}

/* ---- freeing ------------------------------------------------------------------------------------------------------------------ */

/* A block of this heap's own that is resized looks free: end the program if it is, as far as this heap can tell. */
static COLD void check_own_suspect(struct heap *heap, const struct span *span, const void *pointer)
{
    uint32_t entered = heap_enter(heap);
    check_suspicious_free(heap, span, (uintptr_t)pointer);
    remote_inbox_take(heap); /* perhaps another thread freed it */
    if (span->kind != SPAN_BLOCKS) check_double_free(pointer);
    check_suspicious_free(heap, span, (uintptr_t)pointer);
    heap_leave(heap, entered);
}

/* Free a block from a thread that has no heap to collect it in. */
static NOINLINE void remote_free_alone(struct span *span, uintptr_t block)
{
    struct heap *owner = atomic_load_explicit(&span->owner, memory_order_relaxed);
    if (owner != NULL && heap_is_shared(owner) && shared_free(owner, span, block)) return;
    remote_free(&heap_none, span, block);
}

/* The same for a thread that may get one, with which each block costs less: not for a single one. */
static COLD void remote_free_entering(struct span *span, uintptr_t block)
{
    struct heap *heap = heap_thread_is_late() ? NULL : heap_thread_enter();
    bool own = heap != NULL && !heap_is_shared(heap);
    if (own) {
        uint32_t entered = heap_enter(heap); /* as in any_malloc_entering */
        remote_free(heap, span, block);
        heap_leave(heap, entered);
    }
    if (heap != NULL) heap_thread_leave(heap);
    if (!own) remote_free_alone(span, block);
}

static __attribute__((noinline)) void free_any(void *pointer, struct heap *heap)
{
    if (pointer == NULL) return;
    struct place place = place_of_object("free", pointer);
    struct span *span = place.span;
    if (place.kind == SPAN_LARGE) {
        if (UNLIKELY(span->sampled)) sample_forget_all_of(span);
        large_free(heap, span);
        heap_background_pass(__builtin_return_address(0)); /* those who called it have left by jumps */
    } else if (place.kind == SPAN_GUEST) {
        heap_guest_free(span, pointer);
    } else if (HARDENED && place.kind == SPAN_GUARD && empty_is_one(pointer)) {
        empty_free("free", pointer);
    } else if (UNLIKELY(place.kind == SPAN_GUARD)) {
        guard_free("free", pointer);
    } else if (atomic_load_explicit(&span->owner, memory_order_relaxed) != heap) {
        if (heap == &heap_sharing) {
            remote_free_alone(span, (uintptr_t)pointer);
            heap_background_pass(__builtin_return_address(0)); /* as above */
        } else if (LIKELY(heap != &heap_none)) {
            heap_see_space(heap); /* as below */
            remote_free(heap, span, (uintptr_t)pointer);
        } else {
            remote_free_entering(span, (uintptr_t)pointer);
        }
    } else if (UNLIKELY(block_looks_free((uintptr_t)pointer))) {
        remote_free_own_suspect(heap, (uintptr_t)pointer);
    } else {
        heap_see_space(heap); /* it may have been behind, and brought the call here */
        block_free_local(heap, span, (uintptr_t)pointer);
    }
}

static NOINLINE void free_any_own(void *pointer)
{
    free_any(pointer, thread_heap_own());
}

/* Another heap's block is what comes here most often, or a guest's object. A thread without a heap must not look at the space
 * before it knows that the pointer is not NULL: another may be starting it. Where the thread has no heap at hand, no span is found. */
void heap_free_slow(void *pointer, struct heap *heap)
{
    uintptr_t block = (uintptr_t)pointer;
    struct span *span;
    if (UNLIKELY(heap == &heap_none)) {
        free_any(pointer, heap);
        return;
    }
    if (UNLIKELY(!heap_find_span(heap, block, &span))) {
        size_t offset = space_offset(pointer);
        span = space_offset_is_foreign(offset) ? NULL : span_of_offset(offset);
    } else if (LIKELY(span->kind == SPAN_BLOCKS && block_is_at_start(span, block) &&
                      atomic_load_explicit(&span->owner, memory_order_relaxed) != heap)) {
        remote_free(heap, span, block);
        return;
    }
    if (span != NULL && span->kind == SPAN_GUEST) heap_guest_free(span, pointer);
    else free_any_own(pointer);
}

void heap_free_sized_slow(void *pointer, size_t size, struct heap *heap)
{
    if (pointer == NULL) return;
    struct place place = place_of_object("free", pointer);
    size_t usable = place.kind == SPAN_GUEST ? SIZE_MAX : place_usable_size("free", place, pointer);
    if (size > usable) check_size_failed(pointer, size, usable);
    if (HARDENED) hardened_free(pointer, FAMILY_ANY);
    else heap_free_slow(pointer, heap);
}

/* ---- resizing ------------------------------------------------------------------------------------------------------------------- */

/* Whether a block of this thread's, free of errors, stays where it is: what most calls come to. */
static bool own_block_stays(const struct heap *heap, const void *pointer, size_t size)
{
    struct span *span;
    return heap_find_span(heap, (uintptr_t)pointer, &span) && span_is_of(span, heap) &&
           block_is_at_start(span, (uintptr_t)pointer) && !block_is_marked(heap, (uintptr_t)pointer) &&
           object_fits(size, span->block_size - OBJECT_TAIL);
}

static NOINLINE void *malloc_to_move(size_t size, struct heap *heap)
{
    (void)heap;
    return heap_malloc_own(size);
}

/* What is found of a guarded object is found by the function that the program has called. */
static void free_moved(const struct span *span, void *pointer)
{
    bool is_guarded = span->kind == SPAN_GUARD && !(HARDENED && empty_is_one(pointer));
    if (UNLIKELY(is_guarded)) guard_free("realloc", pointer);
    else heap_free(pointer);
}

/* Whatever the reason, to another object of the thread's own heap, also when the thread is diverted. */
static void *move(const struct span *span, void *pointer, size_t size, size_t usable)
{
    void *moved = heap_malloc_or(size, malloc_to_move);
    if (UNLIKELY(moved == NULL)) return size <= usable ? pointer : NULL; /* no program expects that shrinking fails */
    memcpy(moved, pointer, usable < size ? usable : size);
    free_moved(span, pointer);
    return moved;
}

static COLD void *realloc_too_much(void)
{
    errno = ENOMEM;
    return NULL;
}

/* It is sampled by its new size, or not, as if it were another object: so its size and who asked for it are what they say. */
static void *resize_large(struct heap *heap, struct span *span, void *pointer, size_t size)
{
    if (UNLIKELY(span->sampled)) sample_forget_all_of(span);
    void *resized = large_realloc(heap, span, size);
    if (UNLIKELY(sample_is_on())) sample_large(heap, resized != NULL ? resized : pointer);
    return resized;
}

/* No copy is worth making that would lie in a block of the same size. */
static bool block_stays(size_t size, size_t usable)
{
    return object_fits(size, usable) || (size <= usable && heap_good_size(size) == usable);
}

/* A block is resized that looks free: end the program if it is, as far as this thread can tell. */
static COLD void check_resized_suspect(struct heap *heap, struct span *span, void *pointer)
{
    struct heap *owner = atomic_load_explicit(&span->owner, memory_order_relaxed);
    if (owner == heap) check_own_suspect(heap, span, pointer);
    else if (owner != NULL && heap_is_shared(owner)) shared_check(owner, span, (uintptr_t)pointer);
}

void *heap_realloc(void *pointer, size_t size)
{
    if (HARDENED) hardened_check("realloc", pointer, FAMILY_MALLOC);
    if (own_block_stays(thread_heap_now(), pointer, size)) return pointer;
    struct heap *heap = thread_heap_own();
    struct place place = place_of_object("realloc", pointer);
    struct span *span = place.span;
    if (UNLIKELY(size > OBJECT_MAX)) return realloc_too_much();
    if (UNLIKELY(place.kind == SPAN_GUEST || (place.kind == SPAN_GUARD && guard_owner(pointer) != NULL))) {
        void *resized = heap_guest_realloc(span, pointer, size);
        return LIKELY(resized != NULL) ? resized : realloc_too_much();
    }
    size_t usable = place_usable_size("realloc", place, pointer);
    if (place.kind == SPAN_BLOCKS && block_stays(size, usable)) {
        if (UNLIKELY(block_looks_free((uintptr_t)pointer))) check_resized_suspect(heap, span, pointer);
        return pointer;
    }
    if (place.kind == SPAN_LARGE && size > BLOCK_MAX) {
        void *resized = resize_large(heap, span, pointer, size);
        if (LIKELY(resized != NULL)) return resized;
        /* Memory has run out, as far as is free: malloc has the rest given back. */
    }
    return move(span, pointer, size, usable);
}

/* ---- trimming -------------------------------------------------------------------------------------------------------------------- */

static void own_heap_give_back(void)
{
    struct heap *heap = thread_heap_own();
    if (heap->size != 0) heap_give_back(heap); /* not heap_none or heap_sharing */
    else if (HARDENED) hardened_release(&heap_none);
    if (!heap_is_started()) return;
    shared_trim();
    heap_locked_give_back(&heap_orphans);
    heap_all_give_back();
}

void heap_trim(void)
{
    own_heap_give_back();
    if (heap_is_started()) space_purge_all();
}

void heap_trim_everywhere(void)
{
    if (!heap_is_started()) return;
    /* Relaxed: see heap_chores_pass. */
    atomic_fetch_add_explicit(&heap_trims_asked, 1, memory_order_relaxed);
    own_heap_give_back();
    heap_caches_empty();
    space_zeroed_release();
    space_purge_all();
}
