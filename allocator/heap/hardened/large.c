/* Objects above BLOCK_MAX in the library that is hardened: as in large.c runs of whole spans, but between inaccessible pages, and
 * inaccessible themselves for a while once they are freed (hardened.h).
 *
 * A run is accessible as a whole, and holds nothing that was anybody's, whenever it changes hands with the space layer, which knows
 * nothing of this. No heap keeps such runs: what is freed has no pages any more, so that there is nothing to be kept for.
 *
 * Inaccessible pages take mappings, of which a process has a limited number, and needs some of for its own: threads, libraries,
 * files. So only as many objects as take a part of them stand between such pages.
 *
 * Pages of the kernel's pool of huge pages can neither be made inaccessible nor be given back one by one: there, objects are only
 * cleared. So they are where the process's mappings are limited: the kernel counts what is made accessible again against
 * RLIMIT_DATA, and would refuse it at the limit, just when the memory is wanted back.
 */
#include "../heap.h"

#include <string.h>

/* ---- where an object stands --------------------------------------------------------------------------------------------------- */

static bool is_of_pool(void)
{
    return space_settings.huge_pages == HUGE_PAGES_HUGETLB;
}

static bool has_guards(void)
{
    /* Relaxed: every thread finds the same. What a process limits later does not count: its runs may be inaccessible by then. */
    static _Atomic(signed char) known; /* 0 until asked, then 1 or -1 */
    signed char has = atomic_load_explicit(&known, memory_order_relaxed);
    if (UNLIKELY(has == 0)) {
        has = is_of_pool() || platform_mappings_are_limited() ? -1 : 1;
        atomic_store_explicit(&known, has, memory_order_relaxed);
    }
    return has > 0;
}

static size_t whole_pages(size_t size)
{
    size_t page = platform_page_size();
    return size == 0 ? page : (size + page - 1) & ~(page - 1);
}

/* Bytes before an object, at most: its address must lie in the first span, and be aligned. So there are none where that takes all of
 * it. */
static uint32_t front_max(size_t alignment)
{
    size_t step = alignment > platform_page_size() ? alignment : platform_page_size();
    return step < SPAN_SIZE ? (uint32_t)(SPAN_SIZE - step) : 0;
}

/* So many as cannot be guessed. */
static uint32_t front_for(size_t alignment)
{
    uint32_t most = front_max(alignment), step = (uint32_t)SPAN_SIZE - most;
    return most == 0 ? 0 : step * (1 + (uint32_t)(hardened_draw() % (most / step)));
}

static uint32_t spans_for(size_t bytes)
{
    size_t spans = (bytes + SPAN_SIZE - 1) >> SPAN_SHIFT;
    return spans > UINT32_MAX ? UINT32_MAX : (uint32_t)spans;
}

static uint32_t spans_of_object(uint32_t front, size_t usable)
{
    return spans_for(front + usable + platform_page_size());
}

static uint32_t spans_of_alignment(size_t alignment)
{
    return alignment <= SPAN_SIZE ? 1 : spans_for(alignment);
}

static uintptr_t run_end(const struct span *span)
{
    return span_start(span) + (size_t)span->run_spans * SPAN_SIZE;
}

static uintptr_t object_end(const struct span *span)
{
    return hardened_large_start(span) + span->free;
}

/* ---- what may be accessed ------------------------------------------------------------------------------------------------------- */

static bool allow(uintptr_t from, uintptr_t to, bool access)
{
    return from == to || platform_open((void *)from, to - from, access);
}

/* Among accessible memory an object takes four mappings more, beside another one two. So all of them take half of what a process may
 * have at worst, and commonly a quarter.
 *
 * In a fork's child the kernel gives each mapping that it inherits a place of its own to note pages in, so that no two become one
 * again. So what stood between inaccessible pages then keeps its share there, whatever becomes of it, and so do that child's
 * children: else each generation would split what the one before has left in pieces, until there are no mappings any more. */
enum { MAPPINGS_EACH = 4, MAPPINGS_SHARE = 2 };
static _Atomic(size_t) guarded; /* objects; and freed ones that were; and what is inherited of these */

static size_t guarded_max(void)
{
    /* Relaxed: every thread finds the same. */
    static _Atomic(size_t) known; /* 0 until asked */
    size_t max = atomic_load_explicit(&known, memory_order_relaxed);
    if (UNLIKELY(max == 0)) {
        max = platform_mappings_max() / MAPPINGS_EACH / MAPPINGS_SHARE + 1;
        atomic_store_explicit(&known, max, memory_order_relaxed);
    }
    return max;
}

void hardened_large_prepare(void)
{
    guarded_max();
}

/* Whether the run's object stands between inaccessible pages: in a field that only blocks have a use for, the process that has put it
 * there, by its number among those that were forked one from the other. 0: none. */
static bool is_guarded(const struct span *span)
{
    return span->held_back != 0;
}

static uint16_t own_mark(void)
{
    return (uint16_t)(heap_forks() % UINT16_MAX + 1);
}

/* Relaxed: a count, by which nothing else is read. */
static void count_guarded(struct span *span)
{
    bool has_share = has_guards() && atomic_load_explicit(&guarded, memory_order_relaxed) < guarded_max();
    span->held_back = has_share ? own_mark() : 0;
    if (has_share) atomic_fetch_add_explicit(&guarded, 1, memory_order_relaxed);
}

static void uncount_guarded(struct span *span)
{
    if (span->held_back == own_mark()) atomic_fetch_sub_explicit(&guarded, 1, memory_order_relaxed);
    span->held_back = 0;
}

/* The kernel may have no room to note it: then an object does without. */
static void set_guards(const struct span *span)
{
    if (!is_guarded(span)) return;
    allow(span_start(span), hardened_large_start(span), false);
    allow(object_end(span), run_end(span), false);
}

/* Mappings become one again only if their pages are noted in the same place, which the kernel makes when the first of them is
 * touched: so one is, while the run is one mapping with what is beside it. Else each object that has been would stay a mapping of
 * its own. */
static void touch(const struct span *span)
{
    *(volatile char *)hardened_large_start(span) = 0;
}

/* Whole pages read as zeros again. */
static void clear(uintptr_t from, uintptr_t to)
{
    if (from == to) return;
    if (is_of_pool() || !platform_purge((void *)from, to - from)) memset((void *)from, 0, to - from);
}

/* ---- allocating ------------------------------------------------------------------------------------------------------------------- */

bool large_room_can_be_made(size_t size, size_t alignment)
{
    return space_room_can_be_made(spans_of_object(front_max(alignment), whole_pages(size)),
                                  spans_of_alignment(alignment));
}

static void *object_of(struct span *span, uint32_t front, size_t usable)
{
    span->block_size = front;
    span->free = usable;
    span->carved = FAMILY_MALLOC;
    span->uncarved = 0;
    large_count(span, 1);
    count_guarded(span);
    if (is_guarded(span)) touch(span);
    set_guards(span);
    hardened_watch_faults();
    return (void *)hardened_large_start(span);
}

void *large_malloc(struct heap *heap, size_t size, size_t alignment, bool *zeroed)
{
    uint32_t front = front_for(alignment);
    size_t usable = whole_pages(size);
    if (UNLIKELY(remote_inbox_is_filled(heap))) remote_inbox_take(heap);
    heap_inherit_pass();
    bool zeros = false;
    struct span *span =
        space_acquire(spans_of_object(front, usable), spans_of_alignment(alignment), SPAN_LARGE, &zeros);
    if (UNLIKELY(heap_is_asked_to_trim(heap)) && heap->size != 0) heap_give_back(heap);
    if (span == NULL) return NULL;
    heap_pressure_grown(usable, usable);
    if (!zeros) clear(span_start(span), run_end(span));
    if (zeroed != NULL) *zeroed = true;
    return object_of(span, front, usable);
}

void *large_malloc_zeroed(size_t size)
{
    uint32_t front = front_for(MALLOC_ALIGNMENT);
    size_t usable = whole_pages(size);
    struct span *span = space_acquire_zeroed(spans_of_object(front, usable), SPAN_LARGE);
    return span == NULL ? NULL : object_of(span, front, usable);
}

/* ---- freeing ------------------------------------------------------------------------------------------------------------------------ */

/* So many runs are inaccessible after they were freed, half of them in places chosen at random, half in order. The first span's index
 * plus 1; 0: none. */
enum { KEPT_PLACES = 32 };
static _Atomic(uint32_t) at_random[KEPT_PLACES], in_order[KEPT_PLACES];
static _Atomic(uint32_t) next_in_order;

/* Larger runs are not kept: all of them take a sixteenth of the addresses that we may have, and less where the kernel counts against
 * a limit what has been accessible. */
#define KEPT_RUN_MIN ((size_t)32 << 20)
enum { KEPT_RUN_SHARE = 16 * 2 * KEPT_PLACES };

/* Those that had no share in the mappings take none to speak of, unless it was inherited time and again. Relaxed: as in
 * count_guarded, which leaves the count below. */
static bool is_worth_keeping(const struct span *span)
{
    size_t size = (size_t)span->run_spans * SPAN_SIZE, most = guarded_max() + 2 * (size_t)(2 * KEPT_PLACES);
    return has_guards() && (is_guarded(span) || atomic_load_explicit(&guarded, memory_order_relaxed) < most) &&
           (size <= KEPT_RUN_MIN || (size <= space.window / KEPT_RUN_SHARE && !platform_overcommit_is_strict()));
}

/* Acquire and release: whoever takes a run out sees what was written of it. */
static uint32_t swap(_Atomic(uint32_t) *place, uint32_t run)
{
    return atomic_exchange_explicit(place, run, memory_order_acq_rel);
}

/* Runs that the kernel had no room to note as accessible: by `next`, as the places above, until there is room. Taken as a whole, so
 * that nobody takes one out that comes again meanwhile. */
static _Atomic(uint32_t) refused;

static void refuse(uint32_t run)
{
    uint32_t before = atomic_load_explicit(&refused, memory_order_relaxed);
    /* Release: pairs with the acquire in release_refused. */
    do span_at(run - 1)->next = before;
    while (!atomic_compare_exchange_weak_explicit(&refused, &before, run, memory_order_release, memory_order_relaxed));
}

static bool try_release(uint32_t run)
{
    struct span *span = span_at(run - 1);
    if (has_guards() && !allow(span_start(span), run_end(span), true)) return false;
    uncount_guarded(span);
    space_release(span);
    return true;
}

static void release(uint32_t run)
{
    if (run != 0 && !try_release(run)) refuse(run);
}

/* Once the kernel refuses one, the others wait on. */
static void release_refused(void)
{
    if (LIKELY(atomic_load_explicit(&refused, memory_order_relaxed) == 0)) return;
    uint32_t run = swap(&refused, 0);
    for (bool has_room = true; run != 0;) {
        uint32_t next = span_at(run - 1)->next;
        has_room = has_room && try_release(run);
        if (!has_room) refuse(run);
        run = next;
    }
}

static void keep(uint32_t run)
{
    run = swap(&at_random[hardened_draw() % KEPT_PLACES], run);
    if (run == 0) return;
    uint32_t next = atomic_fetch_add_explicit(&next_in_order, 1, memory_order_relaxed);
    release(swap(&in_order[next % KEPT_PLACES], run));
}

void hardened_large_release(void)
{
    for (unsigned i = 0; i < KEPT_PLACES; i++) {
        release(swap(&at_random[i], 0));
        release(swap(&in_order[i], 0));
    }
    release_refused();
}

bool hardened_large_is_kept(const struct span *span)
{
    uint32_t run = span_index(span) + 1;
    for (unsigned i = 0; i < KEPT_PLACES; i++)
        if (atomic_load_explicit(&at_random[i], memory_order_relaxed) == run ||
            atomic_load_explicit(&in_order[i], memory_order_relaxed) == run)
            return true;
    return false;
}

static void count_kept(uint32_t run)
{
    if (run == 0 || is_guarded(span_at(run - 1))) return;
    atomic_fetch_add_explicit(&guarded, 1, memory_order_relaxed); /* nobody else is there; and see above */
}

/* Those that have no share are mappings of their own from now on, too. */
void hardened_large_fork_child(void)
{
    for (unsigned i = 0; i < KEPT_PLACES; i++) {
        count_kept(atomic_load_explicit(&at_random[i], memory_order_relaxed));
        count_kept(atomic_load_explicit(&in_order[i], memory_order_relaxed));
    }
}

/* Of two threads that free the same object one is told. Relaxed: what else they see of each other is the program's. */
static void stop_being_an_object(struct span *span)
{
    uint8_t large = SPAN_LARGE;
    if (UNLIKELY(!__atomic_compare_exchange_n(&span->kind, &large, SPAN_METADATA, false, __ATOMIC_RELAXED,
                                              __ATOMIC_RELAXED)))
        check_double_free((const void *)hardened_large_start(span));
}

void large_free(struct heap *heap, struct span *span)
{
    uint32_t run = span_index(span) + 1;
    stop_being_an_object(span);
    clear(hardened_large_start(span), object_end(span));
    large_count(span, -1);
    if (is_worth_keeping(span) && allow(span_start(span), run_end(span), false)) keep(run);
    else release(run);
    release_refused();
    if (UNLIKELY(heap->size == 0)) { /* of a thread that has none of its own, now or ever */
        heap_chores_expect_own();
        return;
    }
    uint32_t entered = heap_enter(heap);
    if (UNLIKELY(!heap->chores)) heap_chores_expect(heap);
    heap_background_expect();
    heap_pause(heap);
    heap_leave(heap, entered);
}

/* ---- resizing ----------------------------------------------------------------------------------------------------------------------- */

/* Has the run the length that the object shall have? What comes to it may hold what was somebody's. */
static bool resize_run(struct span *span, uint32_t spans)
{
    if (spans == span->run_spans) return true;
    uintptr_t end = run_end(span);
    if (is_guarded(span) && !allow(object_end(span), end, true)) return false;
    bool done = large_set_spans(span, spans, false);
    if (done && run_end(span) > end) clear(end, run_end(span));
    return done;
}

/* To more bytes or fewer; where that fails the object is as it was, and between the same pages. */
static bool resize_in_place(struct span *span, size_t usable)
{
    size_t before = span->free;
    uint32_t spans = span->run_spans;
    uintptr_t start = hardened_large_start(span);
    if (usable < before) clear(start + usable, start + before);
    bool done = resize_run(span, spans_of_object(span->block_size, usable)) || usable < before;
    if (done && usable > before && is_guarded(span)) done = allow(start + before, start + usable, true);
    if (!done) large_set_spans(span, spans, false);
    else span->free = usable;
    set_guards(span);
    if (done && usable > before) heap_pressure_grown(usable - before, usable - before);
    return done;
}

static void *move_to_another(struct heap *heap, struct span *span, size_t size)
{
    char *to = large_malloc(heap, size, MALLOC_ALIGNMENT, NULL);
    if (to == NULL) return NULL;
    size_t usable = whole_pages(size);
    if (!space_move(to, (void *)hardened_large_start(span), span->free < usable ? span->free : usable)) {
        span_kind_write(span_of_offset(space_offset(to)), SPAN_METADATA);
        return NULL;
    }
    large_free(heap, span);
    return to;
}

void *large_realloc(struct heap *heap, struct span *span, size_t size)
{
    size_t usable = whole_pages(size);
    if (usable == span->free || resize_in_place(span, usable)) return (void *)hardened_large_start(span);
    return move_to_another(heap, span, size);
}
