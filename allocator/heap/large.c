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

void large_free(struct span *span)
{
    space_release(span);
}

static void *large_move(struct span *span, size_t size)
{
    void *to = large_malloc(size, SPAN_SIZE, NULL);
    if (to == NULL) return NULL;
    void *from = (void *)span_start(span);
    size_t bytes = large_usable_size(span);
    if (bytes > size) bytes = size;
    if (bytes < MOVE_PAGES_MIN || !platform_move_pages(from, to, bytes)) memcpy(to, from, bytes);
    large_free(span);
    return to;
}

void *large_realloc(struct span *span, size_t size)
{
    uint32_t spans = spans_for(size);
    if (spans == span->run_spans || space_resize(span, spans)) return (void *)span_start(span);
    return large_move(span, size);
}
