/* Fuzz target: the input configures a context and is a program of calls on it. Each live object carries a pattern that is
 * checked before it is resized or freed, and the context's figures are compared with a sum of what lives. Built with the
 * checks of debug builds, which know of every object's start.
 *
 * The first four bytes are the configuration; then an instruction is four bytes:
 *
 *     byte 0   what to do (low 3 bits), and the kind of size (high bits)
 *     byte 1   which object
 *     byte 2-3 the size within its kind, or the alignment
 */
#include "context/context.h"
#include "pattern.h"

enum {
    SLOTS = 256,
    CONFIGURATION_BYTES = 4,
    INSTRUCTION_BYTES = 4,
    LIMIT = 4 << 20,
    CHUNK_SPANS_MAX = 8,
};

struct slot {
    unsigned char *object;
    size_t size;
    unsigned char pattern;
};

static struct slot slots[SLOTS];
static hf_context *context;
static bool region;
static size_t alignment_least;
static unsigned char next_pattern;

/* Refusals are the limit's. */
static void slot_set(struct slot *slot, unsigned char *object, size_t size, size_t alignment)
{
    slot->object = object;
    if (object == NULL) return;
    require((uintptr_t)object % alignment == 0, "not aligned");
    require(hf_context_owns(context, object), "not the context's");
    require(region || heap_usable_size(object) >= size, "too small");
    *slot = (struct slot){.object = object, .size = size, .pattern = ++next_pattern};
    pattern_fill(object, size, slot->pattern);
}

static void slot_free(struct slot *slot, bool by_address)
{
    if (slot->object == NULL) return;
    pattern_check(slot->object, slot->size, slot->size, slot->pattern);
    if (by_address) heap_free(slot->object);
    else hf_context_free(context, slot->object);
    slot->object = NULL;
}

static void free_all(void)
{
    for (struct slot *slot = slots; slot < slots + SLOTS; slot++) {
        if (slot->object != NULL) pattern_check(slot->object, slot->size, slot->size, slot->pattern);
        slot->object = NULL;
    }
    hf_context_free_all(context);
}

static void check_figures(void)
{
    hf_context_stats stats;
    size_t live = 0;
    hf_context_stats_get(context, &stats, sizeof stats);
    for (const struct slot *slot = slots; slot < slots + SLOTS; slot++)
        if (slot->object != NULL) live += region ? slot->size : heap_usable_size(slot->object);
    require(region ? stats.live_bytes >= live : stats.live_bytes == live, "live_bytes is not what lives");
    require(stats.used_bytes >= stats.live_bytes && stats.peak_bytes >= stats.used_bytes, "used_bytes");
    require(stats.footprint >= stats.used_bytes && stats.footprint <= LIMIT, "footprint");
}

static size_t decode_size(unsigned kind, unsigned value)
{
    size_t segment = (size_t)1 << context->segment_shift;
    switch (kind % 8) {
    case 0:
        return value % 64;
    case 1:
        return value % (TABLE_MAX + 32);
    case 2:
        return region ? value : context->sizes[1 + value % context->classes] - 1 + (value >> 8) % 3;
    case 3:
        return value;
    case 4:
        return segment * (value % 64 + 1) - 1 + (value >> 8) % 3;
    case 5:
        return context->chunk_size / 64 * (value % 100) + (value >> 8) % 3;
    case 6:
        return (size_t)value * 16;
    default:
        return value % 300;
    }
}

static void run_calloc(struct slot *slot, size_t size)
{
    unsigned char *object = hf_context_calloc(context, 1, size);
    if (object != NULL) pattern_check(object, size, size, 0);
    slot_set(slot, object, size, alignment_least);
}

static void run_realloc(struct slot *slot, size_t size)
{
    if (slot->object == NULL || size == 0) return;
    pattern_check(slot->object, slot->size, slot->size, slot->pattern);
    unsigned char *object =
        next_pattern % 2 == 0 ? heap_realloc(slot->object, size) : hf_context_realloc(context, slot->object, size);
    if (object == NULL) return; /* at the limit: it stays */
    pattern_check(object, slot->size, slot->size < size ? slot->size : size, slot->pattern);
    slot_set(slot, object, size, alignment_least);
}

static void run_switched(struct slot *slot, size_t size)
{
    hf_context *before = hf_context_switch(context);
    unsigned char *object = heap_malloc(size);
    hf_context_switch(before);
    slot_set(slot, object, size, MALLOC_ALIGNMENT);
}

static void run_instruction(const uint8_t *bytes)
{
    unsigned value = bytes[2] | (unsigned)bytes[3] << 8;
    struct slot *slot = &slots[bytes[1] % SLOTS];
    size_t size = decode_size(bytes[0] >> 3, value);
    size_t alignment = (size_t)1 << (bytes[0] >> 3) % 24; /* up to 8 MiB */
    unsigned what = bytes[0] & 7;
    if (what <= 3) slot_free(slot, value % 2 == 0);
    switch (what) {
    case 0:
        slot_set(slot, hf_context_malloc(context, size), size, alignment_least);
        break;
    case 1:
        run_switched(slot, size);
        break;
    case 2:
        run_calloc(slot, size);
        break;
    case 3:
        slot_set(slot, hf_context_aligned_alloc(context, alignment, value), value, alignment);
        break;
    case 4:
        run_realloc(slot, size);
        break;
    case 5:
        if (value % 16 == 0) free_all();
        else check_figures();
        break;
    default:
        slot_free(slot, value % 2 == 0);
        break;
    }
}

/* Any, allowed or not. */
static hf_context_config configuration(const uint8_t *bytes)
{
    static uint32_t sizes[3];
    for (size_t i = 0; i < 3; i++) sizes[i] = (uint32_t)(bytes[3] % 32 + 1) * (i == 2 ? 256 : 8) * (uint32_t)(i + 1);
    return (hf_context_config){
        .kind = bytes[0] % 2,
        .alignment = (size_t)(bytes[0] >> 1) % 3 * 8,
        .chunk_size = (size_t)(bytes[1] % CHUNK_SPANS_MAX + 1) * SPAN_SIZE,
        .segment_size = bytes[2] % 8 == 0 ? 0 : (size_t)4096 << (bytes[2] % 8),
        .sizes = bytes[3] % 4 == 0 ? sizes : NULL,
        .sizes_count = bytes[3] % 4 == 0 ? 1 + bytes[3] / 4 % 3 : 0,
        .limit = LIMIT,
        .retain = (size_t)(bytes[0] >> 3) * SPAN_SIZE,
    };
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < CONFIGURATION_BYTES) return 0;
    hf_context_config config = configuration(data);
    context = hf_context_create(&config);
    if (context == NULL) return 0;
    region = config.kind == HF_REGION;
    alignment_least = config.alignment == 8 ? 8 : MALLOC_ALIGNMENT;
    data += CONFIGURATION_BYTES;
    size -= CONFIGURATION_BYTES;
    for (; size >= INSTRUCTION_BYTES; data += INSTRUCTION_BYTES, size -= INSTRUCTION_BYTES) run_instruction(data);
    check_figures();
    free_all();
    hf_context_destroy(context);
    heap_trim(); /* each input starts from an empty heap */
    return 0;
}
