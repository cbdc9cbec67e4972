/* Objects above SMALL_MAX: runs of whole spans. Pages that the program never touches cost nothing, so that rounding up
 * to 64 KiB costs address space only. */
#include "heap.h"

static uint32_t spans_for(size_t size)
{
    size_t spans = (size + SPAN_SIZE - 1) >> SPAN_SHIFT;
    return spans > UINT32_MAX ? UINT32_MAX : (uint32_t)spans;
}

static uint32_t spans_of_object(size_t size)
{
    return size == 0 ? 1 : spans_for(size);
}

/* Does the object leave pages at the end of its run untouched, and more than a few? */
static bool is_loose(size_t size)
{
    size_t rest = size & (SPAN_SIZE - 1);
    return rest != 0 && rest < SPAN_SIZE / 5 * 4;
}

/* The program may use whole pages only: those behind would become resident, and who counts what is usable (Redis) would count
 * memory that is not there. */
static void set_usable(struct span *span, size_t size)
{
    size_t pages = (size + (size == 0) + LARGE_SPARE - 1) / LARGE_SPARE;
    span->carved = (uint16_t)(large_usable_size(span) / LARGE_SPARE - pages);
}

/* A run that the heap keeps, as an object's. */
static struct span *take_kept(struct heap *heap, uint32_t spans, size_t size)
{
    struct span *run = cache_take_run(heap, spans);
    if (run == NULL) return NULL;
    set_usable(run, size);
    if (run->run_spans >= SPACE_BLOCK_SPANS) large_count(run, 1); /* others are counted while they are kept */
    span_kind_write(run, SPAN_LARGE);
    return run;
}

/* A run that the space layer has handed out becomes an object. */
static void begin(struct span *span, size_t size)
{
    set_usable(span, size);
    span->uncarved = is_loose(size);
    large_count(span, 1);
}

static uint32_t spans_of_alignment(size_t alignment)
{
    return alignment <= SPAN_SIZE ? 1 : spans_for(alignment);
}

bool large_room_can_be_made(size_t size, size_t alignment)
{
    return space_room_can_be_made(spans_of_object(size), spans_of_alignment(alignment));
}

void *large_malloc(struct heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    uint32_t spans = spans_of_object(size);
    uint32_t alignment_spans = spans_of_alignment(alignment);
    if (UNLIKELY(remote_inbox_is_filled(heap))) remote_inbox_take(heap); /* as below */
    struct span *span = alignment_spans == 1 ? take_kept(heap, spans, size) : NULL;
    bool zeros = false;
    if (span == NULL) {
        heap_inherit_pass();
        span = space_acquire(spans, alignment_spans, SPAN_LARGE, &zeros);
        if (LIKELY(span != NULL)) begin(span, size);
        if (zeros && LIKELY(span != NULL)) heap_pressure_grown(large_usable_size(span), large_usable_size(span));
        /* A thread that gets large objects alone fills no bin. */
        if (UNLIKELY(heap_is_asked_to_trim(heap)) && heap->size != 0) heap_give_back(heap);
    }
    if (zeroed != NULL) *zeroed = zeros;
    return span == NULL ? NULL : (void *)span_start(span);
}

void *large_malloc_zeroed(size_t size)
{
    struct span *span = space_acquire_zeroed(spans_for(size), SPAN_LARGE);
    if (span == NULL) return NULL;
    begin(span, size);
    return (void *)span_start(span);
}

/* A thread of large objects alone comes to its chores nowhere else. But they are not looked at twice in one tick of the clock. */
static bool may_go_on(const struct heap *heap)
{
    return heap->chores && heap->chores_looked == platform_clock_ms();
}

static void release_or_keep(struct heap *heap, struct span *span)
{
    if (UNLIKELY(heap->size == 0)) { /* of a thread that has none of its own, now or ever */
        large_count(span, -1);
        space_release(span);
        heap_chores_expect_own(); /* of the heap that it shares */
        return;
    }
    if (span->run_spans >= SPACE_BLOCK_SPANS) large_count(span, -1);
    span->bin = BIN_NONE;
    span_kind_write(span, SPAN_METADATA);
    bool kept = cache_put_in_front(heap, span);
    if (LIKELY(kept) && LIKELY(may_go_on(heap))) return;
    uint32_t entered = heap_enter(heap);
    kept = kept || cache_put(heap, span);
    if (UNLIKELY(!heap->chores)) heap_chores_expect(heap);
    else if (!kept) heap_background_expect();
    heap_pause(heap);
    heap_leave(heap, entered);
}

void large_free(struct heap *heap, struct span *span)
{
    space_block_end(span);
    release_or_keep(heap, span);
}

static void *large_move(struct heap *heap, struct span *span, size_t size)
{
    space_block_end(span);
    char *to = large_malloc(heap, size, SPAN_SIZE, NULL);
    if (to == NULL) return NULL;
    void *from = (void *)span_start(span);
    size_t bytes = large_usable_size(span);
    if (bytes > size) bytes = size;
    if (!space_move(to, from, bytes)) { /* its run is never released, so that nobody gets it again */
        span_kind_write(span_of_offset(space_offset(to)), SPAN_METADATA);
        return NULL;
    }
    release_or_keep(heap, span); /* its pages may be gone, which says nothing */
    return to;
}

/* Whether a run of so many spans ends in another huge page's stretch than this one. */
static bool reaches_next_unit(const struct span *span, uint32_t spans)
{
    uint32_t before = span_index(span) + span->run_spans - 1, after = span_index(span) + spans - 1;
    enum { UNIT_SPANS = PLATFORM_HUGE_PAGE / SPAN_SIZE };
    return after > before && after / UNIT_SPANS != before / UNIT_SPANS;
}

void *large_realloc(struct heap *heap, struct span *span, size_t size)
{
    uint32_t spans = spans_for(size);
    size_t before = large_usable_size(span);
    if (spans != span->run_spans) {
        bool filled = reaches_next_unit(span, spans) && space_block_is_filled(span);
        if (!large_set_spans(span, spans, filled)) return large_move(heap, span, size);
    }
    set_usable(span, size);
    size_t after = large_usable_size(span);
    if (after > before) heap_pressure_grown(after - before, after - before);
    return (void *)span_start(span);
}
