/* Free runs: found by length (segregated lists, best fit), merged with free neighbours of the same state through
 * boundary tags: the first and the last descriptor of a free run hold its length (Knuth, TAOCP vol. 1, 2.5, algorithm
 * C). Clean and dirty runs do not merge: a request prefers memory that is resident already.
 */
#include "state.h"

/* ---- lists ------------------------------------------------------------------------------------------ */

void run_lists_start(void)
{
    space_state.youngest = space_state.oldest = SPAN_NONE;
    for (int s = 0; s < STATES; s++)
        for (int i = 0; i < LENGTH_LISTS; i++) space_state.lists[s][i] = SPAN_NONE;
}

static unsigned list_of_length(uint32_t spans)
{
    if (spans <= EXACT_LENGTHS) return spans - 1;
    return EXACT_LENGTHS + (31 - (unsigned)__builtin_clz(spans)) - 5; /* 5 = log2(EXACT_LENGTHS) */
}

static void length_list_add(struct span *run)
{
    unsigned list = list_of_length(run->run_spans);
    uint32_t *head = &space_state.lists[run->dirty][list];
    run->prev = SPAN_NONE;
    run->next = *head;
    if (*head != SPAN_NONE) span_at(*head)->prev = span_index(run);
    *head = span_index(run);
    space_state.lists_filled[run->dirty] |= UINT64_C(1) << list;
}

static void length_list_remove(struct span *run)
{
    unsigned list = list_of_length(run->run_spans);
    uint32_t *head = &space_state.lists[run->dirty][list];
    if (run->next != SPAN_NONE) span_at(run->next)->prev = run->prev;
    if (run->prev != SPAN_NONE) span_at(run->prev)->next = run->next;
    else *head = run->next;
    if (*head == SPAN_NONE) space_state.lists_filled[run->dirty] &= ~(UINT64_C(1) << list);
}

/* Dirty runs stand in one list ordered by age; a run that is older than the youngest is put in its place. */
static void age_list_add(struct span *run)
{
    uint32_t after = SPAN_NONE; /* the next younger run */
    uint32_t place = space_state.youngest;
    while (place != SPAN_NONE && (int32_t)(span_at(place)->since - run->since) > 0) {
        after = place;
        place = span_at(place)->owned_next;
    }
    run->owned_prev = after;
    run->owned_next = place;
    if (after != SPAN_NONE) span_at(after)->owned_next = span_index(run);
    else space_state.youngest = span_index(run);
    if (place != SPAN_NONE) span_at(place)->owned_prev = span_index(run);
    else space_state.oldest = span_index(run);
}

static void age_list_remove(struct span *run)
{
    if (run->owned_prev != SPAN_NONE) span_at(run->owned_prev)->owned_next = run->owned_next;
    else space_state.youngest = run->owned_next;
    if (run->owned_next != SPAN_NONE) span_at(run->owned_next)->owned_prev = run->owned_prev;
    else space_state.oldest = run->owned_prev;
}

/* ---- free runs -------------------------------------------------------------------------------------- */

/* Only the ends of a free run are ever looked at. */
static void run_tag(struct span *first, uint32_t spans, bool dirty, uint32_t freed_at)
{
    struct span *last = first - (spans - 1); /* the table grows downwards */
    last->run_spans = first->run_spans = spans;
    last->dirty = first->dirty = dirty;
    first->since = freed_at;
}

static void run_insert(struct span *first)
{
    length_list_add(first);
    if (first->dirty) age_list_add(first);
    space_state.spans_free[first->dirty] += first->run_spans;
}

void run_remove(struct span *first)
{
    length_list_remove(first);
    if (first->dirty) age_list_remove(first);
    space_state.spans_free[first->dirty] -= first->run_spans;
}

static bool is_free_end(uint32_t index, bool dirty)
{
    if (index >= space_state.frontier) return false; /* also when index is -1: before span 0 */
    const struct span *span = span_at(index);
    return span_kind_read(span) == SPAN_FREE && span->dirty == dirty;
}

struct span *run_free(uint32_t index, uint32_t spans, bool dirty, uint32_t freed_at)
{
    /* Its ends may come to lie inside the merged run: a second free of the object must not find it there. */
    span_at(index)->kind = SPAN_FREE;
    span_at(index + spans - 1)->kind = SPAN_FREE;
    uint32_t largest = spans; /* the merged run is as old as its largest part: a span that comes and goes at */
    /* the edge of a large one must not keep it young for ever */
    if (is_free_end(index + spans, dirty)) {
        struct span *after = span_at(index + spans);
        run_remove(after);
        if (after->run_spans > largest) {
            largest = after->run_spans;
            freed_at = after->since;
        }
        spans += after->run_spans;
    }
    if (is_free_end(index - 1, dirty)) {
        uint32_t length = span_at(index - 1)->run_spans;
        struct span *before = span_at(index - length);
        run_remove(before);
        if (length > largest) freed_at = before->since;
        index -= length;
        spans += length;
    }
    struct span *first = span_at(index);
    run_tag(first, spans, dirty, freed_at);
    run_insert(first);
    return first;
}

struct span *run_find(uint32_t spans, bool dirty)
{
    unsigned list = list_of_length(spans);
    if (spans > EXACT_LENGTHS) { /* runs of this list may be too short: look through it */
        struct span *best = NULL;
        for (uint32_t i = space_state.lists[dirty][list]; i != SPAN_NONE; i = span_at(i)->next) {
            struct span *run = span_at(i);
            if (run->run_spans >= spans && (best == NULL || run->run_spans < best->run_spans)) best = run;
        }
        if (best != NULL) return best;
        list++;
        if (list >= LENGTH_LISTS) return NULL;
    }
    uint64_t filled = space_state.lists_filled[dirty] >> list << list;
    return filled == 0 ? NULL : span_at(space_state.lists[dirty][__builtin_ctzll(filled)]);
}

/* ---- cutting ---------------------------------------------------------------------------------------- */

void run_cut(struct span *run, uint32_t index, uint32_t wanted)
{
    uint32_t start = span_index(run);
    uint32_t spans = run->run_spans;
    bool dirty = run->dirty;
    uint32_t freed_at = run->since;
    run_remove(run);
    /* Take the middle out of the free world first, so that the parts do not merge with it again. */
    span_at(index)->kind = SPAN_METADATA;
    span_at(index + wanted - 1)->kind = SPAN_METADATA;
    if (index > start) run_free(start, index - start, dirty, freed_at);
    if (start + spans > index + wanted) run_free(index + wanted, start + spans - index - wanted, dirty, freed_at);
}
