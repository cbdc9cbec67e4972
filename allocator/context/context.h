/* context/: heaps for objects that die together. heapfit.h says what a program sees of them.
 *
 * A context takes address space by the *chunk* and cuts it into *segments*, each of objects of one size:
 *
 *     context.free[class] ─► object ─► object          LIFO, through the objects' first words; no counts, no headers
 *     context.bump[class] ─► next object never used    of the class's newest segment
 *     segment_map[address >> 13]                        a byte for each 8 KiB: the class, 0: none
 *
 * malloc takes the first of its class's free objects, or else the next unused one, or else a new segment; free finds
 * the class in the map and pushes. No segment is ever looked at again before free_all, which forgets all lists and
 * marks all segments as unused: it touches no object. This is DDmalloc (Inoue, Komatsu, Nakatani, PLDI 2009, section
 * 3.2). Where the paper keeps the count of a segment's unused objects in the first of them, we keep their address
 * in the context, so that an object is not touched before it is used. The map is one for all contexts, indexed by
 * address, so that free needs to know nothing of chunks.
 *
 * Which file does what: context.h the paths that most calls take; dodging.c segments and large objects; region.c the other
 * kind of context; chunk.c address space and the map; context.c birth, free_all, death, owners, and what is the same for
 * both kinds; object.c the malloc family on top; check.c, in builds for debugging, what the program did wrong.
 */
#ifndef HEAPFIT_CONTEXT_H
#define HEAPFIT_CONTEXT_H

#include "../heap/fast.h"
#include "heapfit/heapfit.h"

/* ---- sizes ---------------------------------------------------------------------------------------------------------- */

enum {
    SIZES_MAX = 120, /* sizes that a program may name */
    CLASSES_MAX = SIZES_MAX + 1, /* size classes that a context may have: these, and the largest */
    CLASS_NONE = 0, /* so the first class is 1 */
    TABLE_MAX = 1024, /* up to here the class of a size is one look-up away */
    GRAIN = 8, /* objects are multiples of this */
    CHUNK_SEGMENTS_MAX = 64, /* a bit for each in a word */
};

/* The map's unit, and so the smallest segment. */
enum { MAP_UNIT_SHIFT = 13 };

/* ---- chunks ---------------------------------------------------------------------------------------------------------- */

/* A run of spans lent by the space layer. The descriptors of its spans point to it. */
struct chunk {
    struct hf_context *context;
    struct chunk *next; /* in the context's list: in order of `number`, or of large objects */
    struct chunk *previous; /* large objects only */
    struct span *first;
    uintptr_t start;
    size_t size;
    uint32_t number; /* how many chunks the context had before; CHUNK_ALONE: one large object fills it */
    uint64_t used; /* dodging: a bit per segment */
    uint8_t run[CHUNK_SEGMENTS_MAX]; /* dodging: the segments of a large object, at its first; else 0 */
};

#define CHUNK_ALONE UINT32_MAX

/* ---- contexts --------------------------------------------------------------------------------------------------------- */

struct hf_context {
    /* What each malloc and free of the owner's touches. */
    uintptr_t free[CLASSES_MAX + 1]; /* first: its address needs no offset */
    const uint8_t *map; /* segment_map, to be indexed by an address without subtracting the base */
    size_t table_max; /* requests up to this have their class in `table`: TABLE_MAX; 0 for a region */
    int kind;
    unsigned segment_shift;
    size_t alignment;
    uintptr_t region_next, region_end; /* region: the next object, and the end of the chunk */
    uintptr_t region_last; /* region: the newest object, which can still change its size */
    size_t used, used_peak; /* bytes in segments and large objects */
    uint8_t table[TABLE_MAX / GRAIN + 1]; /* class of a size, by grain, rounded up */

    uintptr_t bump[CLASSES_MAX + 1]; /* the next object never used, and where such end */
    uintptr_t bump_end[CLASSES_MAX + 1];
    uint32_t sizes[CLASSES_MAX + 1];
    uint64_t reciprocal[CLASSES_MAX + 1]; /* 2^64 / size rounded up, to recognise where an object starts */
    unsigned classes; /* the last class */
    unsigned segments; /* in a chunk */

    struct chunk *chunks, *chunks_last; /* in order of their number */
    struct chunk *open; /* no earlier one has a segment left */
    struct chunk *alone; /* large objects that fill a chunk */
    uint32_t chunks_count;
    uint32_t chunks_needed; /* so many, from the first on, have had objects since the last free_all */

    struct chunk *region_chunk;

    size_t chunk_size;
    size_t limit, footprint, footprint_peak; /* bytes of address space */
    size_t retain; /* bytes of chunks that free_all keeps; 0: by recent need */
    size_t recent; /* decaying average of the chunks that a transaction needs, times RECENT_ONE (context.c) */
    size_t free_alls;
    bool huge_pages;
    void *memory; /* that this struct lies in, at a varying offset */
    struct picker guard; /* dodging: objects that are guarded are chosen as segments are used up */
    bool has_guarded; /* there may be some */

    /* Written by other threads: a line of their own. */
    _Atomic(uint64_t) owner __attribute__((aligned(CACHE_LINE))); /* a thread's number; 0: none */
    _Atomic(uintptr_t) remote; /* objects freed by other threads, linked by their first words */
};

/* ---- the paths that most calls take -------------------------------------------------------------------------------------- */

/* What is rare, and all of a region. NULL with errno ENOMEM: out of memory, or at the limit. */
void *context_malloc_slow(struct hf_context *context, size_t size);
/* Of a class that has neither a free object nor one never used. */
void *context_malloc_segment(struct hf_context *context, unsigned class);
/* An object that the map does not know: large, of a region, or none. */
void context_free_slow(struct hf_context *context, void *pointer);

#if !defined(NDEBUG)
#define CONTEXT_CHECKS 1
#else
#define CONTEXT_CHECKS 0
#endif

/* check.c, where CONTEXT_CHECKS is set. */
void check_context_malloc(struct hf_context *context, const void *object, size_t usable);
void check_context_free(struct hf_context *context, void *object, size_t usable);
bool check_context_chunk_new(const struct chunk *chunk); /* false: out of memory */
void check_context_chunk_empty(const struct chunk *chunk); /* by free_all */
void check_context_has(const struct hf_context *context, const void *object);
void check_context_live(const char *what, const void *object);
void check_context_unused(uintptr_t start, uintptr_t end); /* cut off an object */
void check_context_owner(const struct hf_context *context);

/* Take the first free object of a class that has one. */
ALWAYS_INLINE void *context_pop(struct hf_context *context, unsigned class)
{
    uintptr_t object = context->free[class];
    context->free[class] = *block_words(object);
    if (CONTEXT_CHECKS) check_context_malloc(context, (void *)object, context->sizes[class]);
    return (void *)object;
}

/* Each class carves memory of its own, and there are more classes than streams that a processor follows: it is told what will
 * be written to next, so many bytes ahead. May lie beyond the segment. */
enum { PREFETCH_AHEAD = 256 };

/* The first free object of a class, or else the next that was never used. Which of the two is the program's whim, and a
 * processor that guesses wrong loses more time than all of this takes: so there is no branch, but a mask, which
 * compilers do not turn into one (check with objdump). Where there is no free object, the list's next head is read from free[CLASS_NONE],
 * which is always empty. NULL: a segment is needed. */
ALWAYS_INLINE void *context_take(struct hf_context *context, unsigned class)
{
    uintptr_t freed = context->free[class];
    uintptr_t unused = context->bump[class];
    uintptr_t none = -(uintptr_t)(freed == 0); /* all bits set where there is no free object, which is 0 then */
    uintptr_t object = freed | (unused & none);
    uintptr_t next = freed | ((uintptr_t)&context->free[CLASS_NONE] & none);
    size_t step = context->sizes[class] & none;
    /* A free object may lie there too, at the start of another segment: then the detour costs time only. */
    if (UNLIKELY(object == context->bump_end[class])) return NULL;
    context->free[class] = *block_words(next);
    context->bump[class] = unused + step;
    __builtin_prefetch((const void *)(unused + PREFETCH_AHEAD), 1);
    if (CONTEXT_CHECKS) check_context_malloc(context, (void *)object, context->sizes[class]);
    return (void *)object;
}

ALWAYS_INLINE void *context_malloc_class(struct hf_context *context, unsigned class)
{
    void *object = context_take(context, class);
    return LIKELY(object != NULL) ? object : context_malloc_segment(context, class);
}

ALWAYS_INLINE void *context_malloc(struct hf_context *context, size_t size)
{
    if (CONTEXT_CHECKS) check_context_owner(context);
    if (UNLIKELY(size > context->table_max)) return context_malloc_slow(context, size);
    unsigned class = context->table[(size + GRAIN - 1) / GRAIN];
    return context_malloc_class(context, class);
}

ALWAYS_INLINE void context_push(struct hf_context *context, unsigned class, uintptr_t object)
{
    if (CONTEXT_CHECKS) check_context_free(context, (void *)object, context->sizes[class]);
    *block_words(object) = context->free[class];
    context->free[class] = object;
}

ALWAYS_INLINE void context_free(struct hf_context *context, void *pointer)
{
    if (CONTEXT_CHECKS) check_context_owner(context);
    if (UNLIKELY(pointer == NULL)) return;
    if (CONTEXT_CHECKS) check_context_has(context, pointer);
    unsigned class = context->map[(uintptr_t)pointer >> MAP_UNIT_SHIFT];
    if (UNLIKELY(class == CLASS_NONE)) context_free_slow(context, pointer);
    else context_push(context, class, (uintptr_t)pointer);
}

/* ---- context.c -------------------------------------------------------------------------------------------------------------- */

/* A number for the calling thread that no other has ever had; NUMBER_NONE until it first enters a context. */
#define NUMBER_NONE UINT64_MAX
extern __thread uint64_t context_thread_number;

ALWAYS_INLINE bool context_is_mine(const struct hf_context *context)
{
    /* Relaxed: only this thread writes its own number, and whoever gives it up wrote 0 before. */
    return atomic_load_explicit(&context->owner, memory_order_relaxed) == context_thread_number;
}

/* Take in what other threads have freed. */
void context_take_remote(struct hf_context *context);
void context_free_remote(struct hf_context *context, void *pointer);

/* Give back the chunks that are kept for transactions that need more: those behind the last in which something is. False
 * when there are none. */
bool context_give_back_unused(struct hf_context *context);

/* How many contexts exist. */
size_t context_count(void);

/* ---- object.c: the malloc family, for the owner ------------------------------------------------------------------------------- */

void *context_malloc_aligned(struct hf_context *context, size_t size, size_t alignment);
void *context_realloc(struct hf_context *context, void *pointer, size_t size);

/* ---- dodging.c ------------------------------------------------------------------------------------------------------------------ */

/* Sizes from the configuration; false when they break a rule. */
bool dodging_set_up(struct hf_context *context, const hf_context_config *config);
unsigned dodging_class(const struct hf_context *context, size_t size); /* CLASS_NONE: it is large */
void *dodging_large_malloc(struct hf_context *context, size_t size, size_t alignment);
void dodging_large_free(struct hf_context *context, struct chunk *chunk, uintptr_t object);
bool dodging_large_resize(struct hf_context *context, struct chunk *chunk, uintptr_t object, size_t size);
/* Bytes of a live object; 0: there is none at this address, as far as can be told. */
size_t dodging_usable(const struct hf_context *context, const struct chunk *chunk, uintptr_t object);
void dodging_free_all(struct hf_context *context);
size_t dodging_live(const struct hf_context *context);

/* Whether an object of the class starts there, as block_is_at_start does. */
ALWAYS_INLINE bool dodging_starts(const struct hf_context *context, unsigned class, uintptr_t object)
{
    uint64_t offset = object & (((uintptr_t)1 << context->segment_shift) - 1);
    return offset * context->reciprocal[class] < context->reciprocal[class];
}

/* ---- region.c --------------------------------------------------------------------------------------------------------------------- */

void *region_malloc(struct hf_context *context, size_t size, size_t alignment);
void *region_realloc(struct hf_context *context, struct chunk *chunk, uintptr_t object, size_t size);
/* Bytes at an object, of it and of what follows it, that any thread may copy. */
size_t region_copyable(const struct chunk *chunk, uintptr_t object);
void region_free_all(struct hf_context *context);

/* [object, end) of the chunk is an object. The peak of what is used is looked for when that shrinks, or when somebody asks. */
ALWAYS_INLINE void region_took(struct hf_context *context, uintptr_t object, uintptr_t end)
{
    context->used += end - context->region_next;
    context->region_next = end;
    context->region_last = object;
    if (CONTEXT_CHECKS) check_context_malloc(context, (void *)object, end - object);
}

/* ---- chunk.c ------------------------------------------------------------------------------------------------------------------------ */

/* The map's address, to be indexed by addresses; NULL when out of memory. */
const uint8_t *chunk_map(void);
/* Set the class of [start, start+size), whole units of the map in a chunk. */
void chunk_map_set(uintptr_t start, size_t size, uint8_t class);
/* Where the map is, outside of the space, and how many bytes of it can have been written; 0: none. */
size_t chunk_map_bytes(uintptr_t *start);

/* What the start of a chunk is a multiple of. */
size_t chunk_alignment(const struct hf_context *context);
/* The next of the context's chunks, or one for a large object alone. NULL: out of memory, or at the limit. */
struct chunk *chunk_add(struct hf_context *context);
struct chunk *chunk_add_alone(struct hf_context *context, size_t size, size_t alignment);
void chunk_remove_alone(struct hf_context *context, struct chunk *chunk);
void chunk_remove_all_alone(struct hf_context *context);
/* Give back the chunks beyond the first `count`, in which nothing is. */
void chunk_trim(struct hf_context *context, uint32_t count);

ALWAYS_INLINE struct chunk *chunk_of(const struct span *span)
{
    return span_guest(span);
}

/* Whether an address lies in a slot of guarded objects, whose context, if they have one, is their owner: see heap/guard.h. */
ALWAYS_INLINE bool is_guarded(const void *pointer)
{
    size_t offset = space_offset(pointer);
    return !space_offset_is_foreign(offset) && span_kind_read(span_of_offset(offset)) == SPAN_GUARD;
}

/* The chunk of an address in a span that some context has. */
ALWAYS_INLINE struct chunk *chunk_of_address(uintptr_t address)
{
    return chunk_of(span_of_offset(address - space.base));
}

ALWAYS_INLINE void context_need(struct hf_context *context, const struct chunk *chunk)
{
    if (chunk->number >= context->chunks_needed) context->chunks_needed = chunk->number + 1;
}

ALWAYS_INLINE void context_use(struct hf_context *context, size_t bytes)
{
    context->used += bytes;
    if (context->used > context->used_peak) context->used_peak = context->used;
}

/* In a fork's child. */
void chunk_fork_child(void);

#endif
