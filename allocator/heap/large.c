/* Objects above SMALL_MAX: runs of whole spans. Pages that the program never touches cost nothing, so that rounding up
 * to 64 KiB costs address space only. */
#include "heap.h"

#include <string.h>

/* From here on moving page tables is cheaper than copying. Each move may split a kernel mapping in two, whose number is
 * limited (vm.max_map_count), so it must pay well. */
#define MOVE_PAGES_MIN ((size_t)4 << 20)

static uint32_t spans_for(size_t size)
{
    size_t spans = (size + SPAN_SIZE - 1) >> SPAN_SHIFT;
    return spans > UINT32_MAX ? UINT32_MAX : (uint32_t)spans;
}

void *large_malloc(size_t size, size_t alignment, bool *zeroed)
{
    uint32_t spans = size == 0 ? 1 : spans_for(size);
    uint32_t alignment_spans = alignment <= SPAN_SIZE ? 1 : spans_for(alignment);
    struct span *span = space_acquire(spans, alignment_spans, SPAN_LARGE, zeroed);
    return span == NULL ? NULL : (void *)span_start(span);
}

void *large_malloc_zeroed(size_t size)
{
    struct span *span = space_acquire_zeroed(spans_for(size), SPAN_LARGE);
    return span == NULL ? NULL : (void *)span_start(span);
}

void large_free(struct span *span)
{
    space_release(span);
}

/* The contents of one run to another; false when the target has become unusable. */
static bool large_copy(void *to, void *from, size_t bytes)
{
    enum platform_move move = bytes < MOVE_PAGES_MIN ? MOVE_REFUSED : platform_move_pages(from, to, bytes);
    if (move == MOVE_REFUSED) memcpy(to, from, bytes);
    return move != MOVE_TARGET_LOST;
}

static void *large_move(struct span *span, size_t size)
{
    char *to = large_malloc(size, SPAN_SIZE, NULL);
    if (to == NULL) return NULL;
    void *from = (void *)span_start(span);
    size_t bytes = large_usable_size(span);
    if (bytes > size) bytes = size;
    if (!large_copy(to, from, bytes)) { /* its run is never released, so that nobody gets it again */
        span_kind_write(span_of_offset(space_offset(to)), SPAN_METADATA);
        return NULL;
    }
    large_free(span);
    return to;
}

void *large_realloc(struct span *span, size_t size)
{
    uint32_t spans = spans_for(size);
    if (spans == span->run_spans || space_resize(span, spans)) return (void *)span_start(span);
    return large_move(span, size);
}
