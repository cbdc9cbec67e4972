/* What a program does wrong with contexts, in builds for debugging only: memory that no object has is filled with a pattern, and
 * a bit tells for each grain of a chunk whether an object starts there. So an object that is freed twice or after
 * free_all, and one that is written to then, are found: the first at once, the second when its memory is handed out again. */
#include "context.h"

#if CONTEXT_CHECKS

#include <string.h>

enum { PATTERN = 0xDD, PATTERN_NEW = 0xAA };

/* A bit for each grain of the reservation: found by address, as the map is. Reserved with the first chunk. */
static _Atomic(uintptr_t) starts_base;

static bool starts_are_reserved(void)
{
    uintptr_t none = 0;
    if (LIKELY(atomic_load_explicit(&starts_base, memory_order_relaxed) != 0)) return true;
    uintptr_t bytes = (uintptr_t)platform_reserve(space.window / GRAIN / 8, SPAN_SIZE);
    if (bytes == 0) return false;
    /* Relaxed: only the address is told. Should another thread be first, the second range, which costs nothing, is lost: no
     * lock that a fork would have to know of. */
    atomic_compare_exchange_strong_explicit(&starts_base, &none, bytes, memory_order_relaxed, memory_order_relaxed);
    return true;
}

static uint8_t *starts(void)
{
    return (uint8_t *)atomic_load_explicit(&starts_base, memory_order_relaxed);
}

static _Noreturn COLD void failed(const char *what, const void *object)
{
    platform_message("%s: %p", what, object);
    platform_abort();
}

static size_t grain_of(const void *object)
{
    return space_offset(object) / GRAIN;
}

static bool start_is_set(size_t grain)
{
    return (starts()[grain / 8] >> (grain % 8) & 1) != 0;
}

static void start_flip(size_t grain)
{
    starts()[grain / 8] ^= (uint8_t)(1u << (grain % 8));
}

static size_t first_of_chunk(const struct chunk *chunk)
{
    return grain_of((void *)chunk->start) / 8;
}

static size_t bytes_of_chunk(const struct chunk *chunk)
{
    return chunk->size / GRAIN / 8;
}

bool check_context_chunk_new(const struct chunk *chunk)
{
    if (!starts_are_reserved()) return false;
    uintptr_t page = platform_page_size();
    uintptr_t first = (uintptr_t)starts() + first_of_chunk(chunk);
    uintptr_t low = first & ~(page - 1);
    uintptr_t high = (first + bytes_of_chunk(chunk) + page - 1) & ~(page - 1);
    if (!platform_commit((void *)low, high - low)) return false;
    check_context_chunk_empty(chunk);
    return true;
}

void check_context_chunk_empty(const struct chunk *chunk)
{
    memset(starts() + first_of_chunk(chunk), 0, bytes_of_chunk(chunk));
    memset((void *)chunk->start, PATTERN, chunk->size);
}

void check_context_has(const hf_context *context, const void *object)
{
    if (!hf_context_owns(context, object)) failed("a context is given what is no object of its own", object);
}

void check_context_live(const char *what, const void *object)
{
    if (!start_is_set(grain_of(object))) failed(what, object);
}

static bool is_all_pattern(const unsigned char *bytes, size_t size)
{
    return size == 0 || (bytes[0] == PATTERN && memcmp(bytes, bytes + 1, size - 1) == 0);
}

void check_context_malloc(struct hf_context *context, const void *object, size_t usable)
{
    (void)context;
    if (start_is_set(grain_of(object))) failed("a context hands out a live object", object);
    start_flip(grain_of(object));
    /* The first word of a free object is its link. */
    if (!is_all_pattern((const unsigned char *)object + sizeof(uintptr_t), usable - sizeof(uintptr_t)))
        failed("an object of a context was written to after it was freed, or after free_all", object);
    memset((void *)(uintptr_t)object, PATTERN_NEW, usable);
}

void check_context_unused(uintptr_t start, uintptr_t end)
{
    if (start < end) memset((void *)start, PATTERN, end - start);
}

void check_context_free(struct hf_context *context, void *object, size_t usable)
{
    (void)context;
    check_context_live(
        "a context's object is freed that is not live: freed twice, or after free_all, or not where it starts", object);
    start_flip(grain_of(object));
    memset(object, PATTERN, usable);
}

void check_context_owner(const struct hf_context *context)
{
    if (!context_is_mine(context)) failed("a context is used by another thread than its owner", context);
}

#endif
