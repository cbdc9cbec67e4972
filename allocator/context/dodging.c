/* Defrag-dodging: segments of one size class, and large objects as runs of segments. */
#include "context.h"

#include <errno.h>
#include <string.h>

/* ---- sizes ---------------------------------------------------------------------------------------------------------------- */

/* The largest: sizes of classes, half a segment at most, are kept in 32 bits. */
enum { SEGMENT_DEFAULT = 32 * 1024, SEGMENT_MIN = 1 << MAP_UNIT_SHIFT, SEGMENT_MAX = 1 << 30 };

/* The paper's classes (section 3.2). */
enum { STEP_8_MAX = 128, STEP_32_MAX = 512 };

static size_t paper_size_after(size_t size)
{
    if (size < STEP_8_MAX) return size + 8;
    if (size < STEP_32_MAX) return size + 32;
    return size * 2;
}

static bool class_add(struct hf_context *context, size_t size)
{
    if (size % context->alignment != 0) return true;
    if (context->classes == CLASSES_MAX) return false;
    unsigned class = ++context->classes;
    context->sizes[class] = (uint32_t)size;
    context->reciprocal[class] = UINT64_MAX / size + 1;
    return true;
}

static bool classes_from_paper(struct hf_context *context, size_t largest)
{
    for (size_t size = 8; size <= largest; size = paper_size_after(size))
        if (!class_add(context, size)) return false;
    return true;
}

static bool classes_from_list(struct hf_context *context, const uint32_t *sizes, size_t count, size_t largest)
{
    size_t before = 0;
    if (count > SIZES_MAX) return false;
    for (size_t i = 0; i < count; before = sizes[i++])
        if (sizes[i] % GRAIN != 0 || sizes[i] <= before || sizes[i] > largest || !class_add(context, sizes[i]))
            return false;
    return before == largest || class_add(context, largest);
}

/* The first class of at least `size` bytes, or CLASS_NONE. */
static unsigned class_search(const struct hf_context *context, size_t size)
{
    unsigned low = 1, high = context->classes + 1;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (context->sizes[middle] < size) low = middle + 1;
        else high = middle;
    }
    return low <= context->classes ? low : CLASS_NONE;
}

unsigned dodging_class(const struct hf_context *context, size_t size)
{
    return size <= TABLE_MAX ? context->table[(size + GRAIN - 1) / GRAIN] : class_search(context, size);
}

bool dodging_set_up(struct hf_context *context, const hf_context_config *config)
{
    size_t segment = config->segment_size != 0 ? config->segment_size : SEGMENT_DEFAULT;
    if (!is_power_of_two(segment) || segment < SEGMENT_MIN || segment > SEGMENT_MAX || segment > context->chunk_size ||
        context->chunk_size / segment > CHUNK_SEGMENTS_MAX || context->chunk_size % segment != 0)
        return false;
    context->segment_shift = (unsigned)__builtin_ctzl(segment);
    context->segments = (unsigned)(context->chunk_size / segment);
    size_t largest = segment / 2;
    bool done = config->sizes != NULL ? classes_from_list(context, config->sizes, config->sizes_count, largest)
                                      : classes_from_paper(context, largest);
    if (!done) return false;
    for (size_t size = 0; size <= TABLE_MAX; size += GRAIN)
        context->table[size / GRAIN] = (uint8_t)class_search(context, size == 0 ? 1 : size);
    context->table_max = TABLE_MAX;
    return true;
}

/* ---- segments ---------------------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE uint64_t mask_of(unsigned count)
{
    return count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

/* The first of `count` free segments in a row that starts at a multiple of `alignment` segments; -1: there is none. */
static int chunk_find(const struct hf_context *context, const struct chunk *chunk, unsigned count, unsigned alignment)
{
    uint64_t starts = ~chunk->used & mask_of(context->segments);
    /* A bit stays while as many bits after it are set as `have` says; doubling that takes log2(count) steps. */
    for (unsigned have = 1; have < count && starts != 0;) {
        unsigned more = have <= count - have ? have : count - have;
        starts &= starts >> more;
        have += more;
    }
    for (; starts != 0; starts &= starts - 1) {
        int first = __builtin_ctzll(starts);
        uintptr_t address = chunk->start + ((uintptr_t)first << context->segment_shift);
        if ((address & (((uintptr_t)alignment << context->segment_shift) - 1)) == 0) return first;
    }
    return -1;
}

/* Take `count` segments in a row. 0 when out of memory. */
static uintptr_t segments_get(struct hf_context *context, unsigned count, unsigned alignment, uint8_t run)
{
    int first = -1;
    struct chunk *chunk = context->open;
    for (; chunk != NULL; chunk = chunk->next) {
        first = chunk_find(context, chunk, count, alignment);
        if (first >= 0) break;
        if (chunk == context->open && chunk->used == mask_of(context->segments)) context->open = chunk->next;
    }
    if (chunk == NULL) {
        chunk = chunk_add(context);
        if (chunk == NULL) return 0;
        if (context->open == NULL) context->open = chunk;
        first = 0; /* as well aligned as any */
    }
    chunk->used |= mask_of(count) << first;
    chunk->run[first] = run;
    context_need(context, chunk);
    context_use(context, (size_t)count << context->segment_shift);
    return chunk->start + ((uintptr_t)first << context->segment_shift);
}

/* Make the class's newest segment a new one. */
static bool segment_add(struct hf_context *context, unsigned class)
{
    uintptr_t start = segments_get(context, 1, 1, 0);
    if (UNLIKELY(start == 0)) return false;
    size_t segment = (size_t)1 << context->segment_shift;
    size_t size = context->sizes[class];
    chunk_map_set(start, segment, (uint8_t)class);
    context->bump[class] = start;
    context->bump_end[class] = start + segment / size * size;
    return true;
}

/* Where the last object of the class's newest segment ends; 0: it has none. */
static uintptr_t segment_end(const struct hf_context *context, unsigned class)
{
    size_t segment = (size_t)1 << context->segment_shift;
    uintptr_t end = context->bump_end[class];
    return end == 0 ? 0 : ((end - 1) & ~(segment - 1)) + segment / context->sizes[class] * context->sizes[class];
}

/* Have the segment end, for now, before the next object that is to be guarded. */
static void segment_cut(struct hf_context *context, unsigned class)
{
    size_t size = context->sizes[class];
    size_t count = (context->bump_end[class] - context->bump[class]) / size;
    context->bump_end[class] = context->bump[class] + guard_cut(&context->guard, class, size, count) * size;
}

/* Go on with a segment that was cut, or a new one. */
static bool segment_go_on(struct hf_context *context, unsigned class)
{
    uintptr_t end = segment_end(context, class);
    if (LIKELY(end == context->bump_end[class])) {
        if (!segment_add(context, class)) return false;
    } else {
        context->bump_end[class] = end;
    }
    if (guard_is_on()) segment_cut(context, class);
    return true;
}

/* NULL: the next object is none that is to be guarded. */
static COLD void *segment_guarded(struct hf_context *context, unsigned class)
{
    size_t size = context->sizes[class];
    if (!guard_falls(&context->guard, class, size)) return NULL;
    context->has_guarded = true; /* before there is one */
    return guard_allocate(size, context->alignment, context, chance_draw(&context->guard.random));
}

void *context_malloc_segment(struct hf_context *context, unsigned class)
{
    if (UNLIKELY(class == CLASS_NONE)) return context_malloc_slow(context, 1); /* no bytes, of a region */
    context_take_remote(context);
    if (context->free[class] != 0) return context_pop(context, class);
    void *guarded = guard_is_on() ? segment_guarded(context, class) : NULL;
    if (UNLIKELY(guarded != NULL)) return guarded;
    if (LIKELY(segment_go_on(context, class))) return context_malloc_class(context, class);
    errno = ENOMEM;
    return NULL;
}

/* ---- large objects -------------------------------------------------------------------------------------------------------------- */

/* At most as many as a chunk has: `size` is not above it. */
static unsigned segments_for(const struct hf_context *context, size_t size)
{
    size_t segment = (size_t)1 << context->segment_shift;
    return (unsigned)((size + segment - 1) >> context->segment_shift);
}

static unsigned segment_index(const struct hf_context *context, const struct chunk *chunk, uintptr_t address)
{
    return (unsigned)((address - chunk->start) >> context->segment_shift);
}

void *dodging_large_malloc(struct hf_context *context, size_t size, size_t alignment)
{
    context_take_remote(context);
    if (size == 0) size = 1;
    void *object;
    if (size > context->chunk_size || alignment > chunk_alignment(context)) {
        const struct chunk *chunk = chunk_add_alone(context, size, alignment);
        object = chunk == NULL ? NULL : (void *)chunk->start;
        if (object != NULL && CONTEXT_CHECKS) check_context_malloc(context, object, chunk->size);
        return object;
    }
    unsigned count = segments_for(context, size);
    size_t segment = (size_t)1 << context->segment_shift;
    object = (void *)segments_get(context, count, alignment <= segment ? 1 : (unsigned)(alignment / segment),
                                  (uint8_t)count);
    if (object != NULL && CONTEXT_CHECKS) check_context_malloc(context, object, (size_t)count * segment);
    return object;
}

void dodging_large_free(struct hf_context *context, struct chunk *chunk, uintptr_t object)
{
    if (CONTEXT_CHECKS) check_context_free(context, (void *)object, dodging_usable(context, chunk, object));
    if (chunk->number == CHUNK_ALONE) {
        chunk_remove_alone(context, chunk);
        return;
    }
    unsigned first = segment_index(context, chunk, object);
    unsigned count = chunk->run[first];
    chunk->run[first] = 0;
    chunk->used &= ~(mask_of(count) << first);
    context->used -= (size_t)count << context->segment_shift;
    if (context->open == NULL || chunk->number < context->open->number) context->open = chunk;
}

bool dodging_large_resize(struct hf_context *context, struct chunk *chunk, uintptr_t object, size_t size)
{
    if (chunk->number == CHUNK_ALONE) return size <= chunk->size && size >= chunk->size / 2;
    if (size > context->chunk_size) return false;
    unsigned first = segment_index(context, chunk, object);
    unsigned count = chunk->run[first];
    unsigned wanted = segments_for(context, size);
    if (wanted == 0 || wanted > context->segments - first) return false;
    uint64_t more = wanted > count ? mask_of(wanted - count) << (first + count) : 0;
    uint64_t less = wanted < count ? mask_of(count - wanted) << (first + wanted) : 0;
    if ((chunk->used & more) != 0) return false;
    if (CONTEXT_CHECKS)
        check_context_unused(object + ((uintptr_t)wanted << context->segment_shift),
                             object + ((uintptr_t)count << context->segment_shift));
    chunk->used = (chunk->used | more) & ~less;
    chunk->run[first] = (uint8_t)wanted;
    context->used -= (size_t)count << context->segment_shift;
    context_use(context, (size_t)wanted << context->segment_shift);
    if (less != 0 && (context->open == NULL || chunk->number < context->open->number)) context->open = chunk;
    return true;
}

/* ---- looking up ------------------------------------------------------------------------------------------------------------------- */

size_t dodging_usable(const struct hf_context *context, const struct chunk *chunk, uintptr_t object)
{
    if (chunk->number == CHUNK_ALONE) return object == chunk->start ? chunk->size : 0;
    uintptr_t offset = object & (((uintptr_t)1 << context->segment_shift) - 1);
    unsigned class = context->map[object >> MAP_UNIT_SHIFT];
    if (class != CLASS_NONE) return dodging_starts(context, class, object) ? context->sizes[class] : 0;
    if (offset != 0) return 0;
    return (size_t)chunk->run[segment_index(context, chunk, object)] << context->segment_shift;
}

/* ---- all ------------------------------------------------------------------------------------------------------------------------------ */

void dodging_free_all(struct hf_context *context)
{
    size_t classes = context->classes + 1;
    memset(context->free, 0, classes * sizeof context->free[0]);
    memset(context->bump, 0, classes * sizeof context->bump[0]);
    memset(context->bump_end, 0, classes * sizeof context->bump_end[0]);
    for (struct chunk *chunk = context->chunks; chunk != NULL; chunk = chunk->next) {
        if (chunk->used == 0) continue;
        chunk->used = 0;
        memset(chunk->run, 0, context->segments);
        chunk_map_set(chunk->start, chunk->size, CLASS_NONE);
        if (CONTEXT_CHECKS) check_context_chunk_empty(chunk);
    }
    context->open = context->chunks;
}

/* Bytes that other threads have freed. Only the owner takes objects from the list, so it stays while it looks. */
static size_t remote_bytes(const struct hf_context *context)
{
    size_t bytes = 0;
    uintptr_t object = atomic_load_explicit(&context->remote, memory_order_acquire);
    for (; object != 0; object = *block_words(object))
        bytes += dodging_usable(context, chunk_of_address(object), object);
    return bytes;
}

size_t dodging_live(const struct hf_context *context)
{
    size_t live = context->used - remote_bytes(context);
    for (unsigned class = 1; class <= context->classes; class++) {
        live -= segment_end(context, class) - context->bump[class];
        for (uintptr_t object = context->free[class]; object != 0; object = *block_words(object))
            live -= context->sizes[class];
    }
    /* What remains of each segment behind its last object is in `used`, and in no object. */
    size_t segment = (size_t)1 << context->segment_shift;
    for (const struct chunk *chunk = context->chunks; chunk != NULL; chunk = chunk->next)
        for (unsigned i = 0; i < context->segments; i++) {
            unsigned class = context->map[(chunk->start + i * segment) >> MAP_UNIT_SHIFT];
            if (class != CLASS_NONE) live -= segment % context->sizes[class];
        }
    return live;
}
