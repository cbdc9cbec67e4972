/* Fuzz target: the input is a program of calls to the allocator. Each live block carries a pattern that is checked before
 * it is resized or freed, so that a wrong result is found even where no sanitizer can look: inside our own reservation.
 *
 * Links the layers below api/, because the sanitizers' runtime needs malloc for itself. An instruction is four bytes:
 *
 *     byte 0   what to do (low 3 bits), and the kind of size (high bits)
 *     byte 1   which block
 *     byte 2-3 the size within its kind, or the alignment
 */
#include "heap/fast.h"
#include "pattern.h"

enum {
    SLOTS = 256,
    INSTRUCTION_BYTES = 4,
    LIVE_MAX = 64 << 20,
};

struct slot {
    unsigned char *block;
    size_t size;
    unsigned char pattern;
};

static struct slot slots[SLOTS];
static size_t live_bytes;
static unsigned char next_pattern;

static void slot_set(struct slot *slot, unsigned char *block, size_t size, size_t alignment)
{
    require(block != NULL, "refused although memory is left");
    require((uintptr_t)block % alignment == 0, "not aligned");
    require(heap_usable_size(block) >= size, "too small");
    *slot = (struct slot){.block = block, .size = size, .pattern = ++next_pattern};
    pattern_fill(block, size, slot->pattern);
    live_bytes += size;
}

static void slot_free(struct slot *slot)
{
    if (slot->block == NULL) return;
    pattern_check(slot->block, slot->size, slot->size, slot->pattern);
    heap_free(slot->block);
    live_bytes -= slot->size;
    slot->block = NULL;
}

static size_t decode_size(unsigned kind, unsigned value)
{
    switch (kind % 8) {
    case 0:
        return value % 64;
    case 1:
        return value % (FAST_MAX + 32);
    case 2:
        return size_class_bytes(value % BIN_COUNT) - 1 + (value >> 8) % 3;
    case 3:
        return value % (2 * SMALL_MAX);
    case 4:
        return (size_t)(value % 32 + 1) * SPAN_SIZE - 1 + (value >> 8) % 3;
    case 5:
        return (size_t)value * 16;
    case 6:
        return (size_t)value * 128;
    default:
        return value % 300;
    }
}

static void run_calloc(struct slot *slot, size_t size)
{
    unsigned char *block = heap_calloc(size);
    require(block != NULL, "refused although memory is left");
    pattern_check(block, size, size, 0);
    slot_set(slot, block, size, MALLOC_ALIGNMENT);
}

static void run_realloc(struct slot *slot, size_t size)
{
    if (slot->block == NULL || size == 0) return;
    pattern_check(slot->block, slot->size, slot->size, slot->pattern);
    unsigned char *block = heap_realloc(slot->block, size);
    require(block != NULL, "refused although memory is left");
    size_t kept = slot->size < size ? slot->size : size;
    pattern_check(block, slot->size, kept, slot->pattern);
    live_bytes -= slot->size;
    slot_set(slot, block, size, MALLOC_ALIGNMENT);
}

static void run_instruction(const uint8_t *bytes)
{
    unsigned value = bytes[2] | (unsigned)bytes[3] << 8;
    struct slot *slot = &slots[bytes[1] % SLOTS];
    size_t size = decode_size(bytes[0] >> 3, value);
    size_t alignment = (size_t)MALLOC_ALIGNMENT << (bytes[0] >> 3) % 16; /* up to 512 KiB */
    unsigned what = bytes[0] & 7;
    bool allocates = what <= 3;
    if (allocates) {
        slot_free(slot);
        if (live_bytes + size > LIVE_MAX) return;
    }
    switch (what) {
    case 0:
    case 1:
        slot_set(slot, heap_malloc(size), size, MALLOC_ALIGNMENT);
        break;
    case 2:
        run_calloc(slot, size);
        break;
    case 3:
        slot_set(slot, heap_malloc_aligned(value, alignment), value, alignment);
        break;
    case 4:
        run_realloc(slot, size);
        break;
    case 5:
        heap_trim();
        break;
    default:
        slot_free(slot);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Either chores are done at every chance, so that an input finds what would take half a second otherwise, or never. */
    uint32_t decay_ms = size > 0 && (data[size - 1] & 1) != 0 ? 0 : INT32_MAX;
    atomic_store_explicit(&space_settings.decay_ms, decay_ms, memory_order_relaxed);
    for (; size >= INSTRUCTION_BYTES; data += INSTRUCTION_BYTES, size -= INSTRUCTION_BYTES) run_instruction(data);
    for (struct slot *slot = slots; slot < slots + SLOTS; slot++) slot_free(slot);
    heap_trim(); /* each input starts from an empty heap */
    require(thread_heap == &heap_none || heap_spans(thread_heap) == 0, "spans with no live block in them");
    return 0;
}
