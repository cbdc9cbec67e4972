/* Checks claims of heaps and the lending of whole ones (idle.c, lent.c) against the fast paths of malloc and free (fast.h), in every
 * interleaving with a few preemptions, on the memory of memory.h: what the owner and a claimer do to the same plain memory without
 * an order between them is an error, as is a block that is handed out twice or lost.
 *
 * The sources are the real ones. What lies beneath is the least that tells whether blocks are where they should be; and the kernel,
 * which says whether a thread sleeps, by what is true of its own lock: what a thread did before it fell asleep is seen by who asks,
 * and what was done before it was asked is seen by a thread that wakes later.
 */
#include "interleave.h"
#include "memory.h"

#include "heap/heap.h"

/* A fast path is in the middle of something wherever it looks at what it has read. */
#undef UNLIKELY
#define UNLIKELY(condition) (interleave(), __builtin_expect(!!(condition), 0))
#include "heap/fast.h"
#undef UNLIKELY
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The racy looks of idle.c find nothing here: there are no sparse spans, and no empty ones. */
#undef READS_RACILY
#define READS_RACILY
/* The fence of a claim is for copies of the process, of which there are none. */
#undef atomic_thread_fence
#define atomic_thread_fence(order) ((void)0)
#include IDLE_SOURCE
#include LENT_SOURCE

/* ---- the stage: a heap with one bin of one span ------------------------------------------------------------------------ */

enum { BLOCKS = 3, BIN = 3, BLOCK_BYTES = 64, SIZE = 64 };

struct space space;
uint8_t heap_classes[FAST_MAX + 1];
struct heap heap_none, heap_diverted, heap_lent;
__thread struct heap *thread_heap, *thread_heap_kept, *thread_heap_lent;
struct heap_settings heap_settings;

static char memory[2][SPAN_SIZE] __attribute__((aligned(1 << SPAN_SHIFT))); /* the table, and a span */
static struct heap heap;
static platform_lock registry_lock;
static int collected; /* blocks for other heaps, in the owner's hand */
static bool is_done; /* the owner */
static bool slow_paths_sleep;
static enum platform_sleep owner_state;

static struct span *the_span(void)
{
    return span_at(0);
}

static uintptr_t block_at(int block)
{
    return span_start(the_span()) + (uintptr_t)block * BLOCK_BYTES;
}

static void set_up(void)
{
    memset(memory, 0, sizeof memory);
    memset(&heap, 0, sizeof heap);
    memset(&heap_lent, 0, sizeof heap_lent);
    space.base = (uintptr_t)memory[1];
    space.size = SPAN_SIZE;
    space.link_key = link_key_of(UINT64_C(0x123456789ABCDEF0));
    for (unsigned bin = 0; bin < HEAP_BINS; bin++) {
        heap.free[bin] = bin_nothing(&heap);
        heap_lent.free[bin] = heap_none.free[bin] = LIST_END;
        heap.bins[bin].listed = SPAN_NONE;
    }
    heap.owned = heap.sparse = (struct span_chain){.first = SPAN_NONE, .last = SPAN_NONE};
    heap_see_space(&heap);
    heap.link_key = space.link_key;
    heap.fast_sizes = FAST_MAX + 1;
    memset(heap_classes, BIN, sizeof heap_classes);
    struct span *span = the_span();
    span->owner = &heap;
    span->kind = SPAN_BLOCKS;
    span->bin = BIN;
    span->block_size = BLOCK_BYTES;
    span->reciprocal = UINT32_MAX / BLOCK_BYTES + 1;
    span->countdown = 1 << 20; /* its end would be a slow path like any other */
    uintptr_t list = span_list_end(span);
    for (int block = BLOCKS; block-- > 0;) {
        *block_words(block_at(block)) = list ^ block_at(block) ^ space.link_key;
        list = block_at(block);
    }
    span->free = list;
    registry_lock = (platform_lock){0};
    collected = 0;
    is_done = slow_paths_sleep = false;
    owner_state = THREAD_RUNS;
    thread_heap = thread_heap_lent = &heap;
    heap.place = &thread_heap;
    atomic_store_explicit(&heap.thread, 1, memory_order_relaxed);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------------- */

static char scheduler; /* its lock */

static UNTOLD void owner_becomes(enum platform_sleep state)
{
    memory_lock_wanted(&scheduler);
    memory_lock_taken(&scheduler);
    owner_state = state;
    memory_lock_released(&scheduler);
}

/* What a handler does that has interrupted the thread is to be taken for nothing else: so it only runs, as far as this goes. */
UNTOLD enum platform_sleep platform_thread_sleep(int32_t number, const void *local)
{
    memory_lock_wanted(&scheduler);
    memory_lock_taken(&scheduler);
    enum platform_sleep state = owner_state;
    memory_lock_released(&scheduler);
    return state;
}

/* It may wake at once. */
static void sleep_a_while(void)
{
    owner_becomes(THREAD_SLEEPS);
    interleave();
    owner_becomes(THREAD_RUNS);
}

bool platform_thread_is_real_time(int32_t thread)
{
    return thread < 0;
}

bool platform_barrier_everywhere(void)
{
    memory_barrier_everywhere();
    return true;
}

static UNTOLD bool is_changed(const void *word)
{
    return *(const _Atomic(uint32_t) *)word != CLAIMED_OWNER_WAITS;
}

/* A thread that waits for a claim sleeps in a system call, too. */
UNTOLD void platform_wait(_Atomic(uint32_t) *word, uint32_t expected, uint32_t timeout_us)
{
    owner_becomes(THREAD_SLEEPS);
    while (!is_changed((const void *)word)) interleave_wait(is_changed, (const void *)word);
    owner_becomes(THREAD_RUNS);
}

void platform_wake(_Atomic(uint32_t) *word) {}

void platform_copy_look(void) {}

uint64_t platform_clock_ns(void)
{
    return 0;
}

static UNTOLD bool lock_is_free(const void *lock)
{
    return ((const platform_lock *)lock)->word == 0;
}

static UNTOLD void registry_acquire(void)
{
    memory_lock_wanted(&registry_lock);
    while (!lock_is_free(&registry_lock)) interleave_wait(lock_is_free, &registry_lock);
    registry_lock.word = 1;
    memory_lock_taken(&registry_lock);
}

static UNTOLD void registry_release(void)
{
    registry_lock.word = 0;
    memory_lock_released(&registry_lock);
}

/* ---- what lies beneath idle.c and lent.c ------------------------------------------------------------------------------- */

bool heap_registry_is_awaited(void)
{
    return false;
}

/* As its owner: the claimer writes all that the fast paths write. */
void heap_return_bin(struct heap *its, unsigned bin)
{
    uintptr_t first = its->free[bin];
    if (list_is_empty(first)) return;
    its->free[bin] = bin_nothing(its);
    uintptr_t last = first;
    for (uintptr_t next = list_next(last); !list_is_empty(next); next = list_next(last)) last = next;
    struct span *span = span_of_offset(first - space.base);
    *block_words(last) = span->free ^ last ^ space.link_key;
    span->free = first;
}

void remote_lent_flush(struct heap *its)
{
    collected = 0;
}

bool remote_lent_take_in(struct heap *its, bool (*is_awaited_)(const struct heap *its))
{
    return !is_awaited_(its);
}

void heap_give_back_empty(struct heap *its)
{
    its->bins[BIN].given = 0;
}

uint32_t cache_detach(struct heap *its, uint32_t chain)
{
    return chain;
}

void cache_release(uint32_t chain) {}

void heap_purge_pages(struct heap *its, uint32_t spans) {}

void remote_send_hands(struct heap *its) {}

bool remote_inbox_hold(struct heap *its, bool (*is_awaited_)(const struct heap *its), uint32_t *spans)
{
    *spans = 0;
    return true;
}

bool remote_inbox_give_away(struct heap *its, uint32_t *chain)
{
    return false;
}

uintptr_t remote_inbox_put_back(struct heap *its)
{
    return 0;
}

void span_give_away(struct heap *its, struct span *span, uint32_t *chain)
{
    interleave_fail("a span is given away of which blocks live");
}

void span_purge_resting(struct heap *its, struct span *span, uintptr_t head)
{
    interleave_fail("a span is purged that is not sparse");
}

void check_link_failed(const void *block)
{
    interleave_fail("a link leads nowhere");
}

void check_bin_failed(const struct heap *its, unsigned bin)
{
    interleave_fail("the first block of a bin is not free");
}

/* ---- the slow paths, as bin.c and object.c have them ------------------------------------------------------------------- */

/* The bin gets all that is free in the span. It gets two blocks at most, so that a call finds the bin filled or not. */
static void refill(struct heap *its)
{
    uint32_t entered = heap_enter(its);
    struct span *span = the_span();
    uintptr_t first = span->free;
    if (list_is_empty(first)) interleave_fail("a block is lost");
    if (slow_paths_sleep) sleep_a_while(); /* for the lock of the space */
    uintptr_t second = list_next(first);
    if (list_is_empty(second)) {
        span->free = second;
    } else {
        span->free = list_next(second);
        *block_words(second) = span_list_end(span) ^ second ^ space.link_key;
    }
    its->free[BIN] = first;
    heap_leave(its, entered);
}

void *heap_malloc_slow(size_t size, struct heap *its)
{
    bool entering = its->size == 0;
    if (entering) its = thread_heap_own();
    uint32_t entered = entering ? heap_enter(its) : 0;
    if (list_is_empty(its->free[BIN])) {
        if (slow_paths_sleep) sleep_a_while(); /* they wait for a lock, with the heap in hand and not inside */
        refill(its);
    }
    void *block = bin_pop(its, BIN, its->free[BIN]);
    if (entering) heap_leave(its, entered);
    return block;
}

void heap_free_slow(void *pointer, struct heap *its)
{
    if (its->size == 0) its = thread_heap_own();
    if (!block_push(its, (uintptr_t)pointer, 0)) interleave_fail("a live block is not the owner's");
}

void heap_free_sized_slow(void *pointer, size_t size, struct heap *its)
{
    heap_free_slow(pointer, its);
}

void span_countdown_ended(struct span *span, struct heap *its) {}

/* What remote_free does in heap->outbox, which it reaches without being inside. */
static void collect(void)
{
    (void)thread_heap_own();
    collected++;
}

/* ---- the scenarios ----------------------------------------------------------------------------------------------------- */

static void allocates_and_frees(void)
{
    void *first = heap_malloc(SIZE);
    *(int *)first = 1;
    sleep_a_while();
    void *second = heap_malloc(SIZE);
    heap_free(first);
    sleep_a_while();
    heap_free(second);
    is_done = true;
    owner_becomes(THREAD_SLEEPS);
}

static void allocates_thrice(void)
{
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = heap_malloc(SIZE);
    sleep_a_while();
    for (int i = 0; i < BLOCKS; i++) heap_free(blocks[i]);
    is_done = true;
    owner_becomes(THREAD_SLEEPS);
}

static void allocates_with_slow_paths_that_sleep(void)
{
    slow_paths_sleep = true;
    heap_free(heap_malloc(SIZE));
    is_done = true;
    owner_becomes(THREAD_SLEEPS);
}

static void collects_for_others(void)
{
    void *block = heap_malloc(SIZE);
    collect();
    sleep_a_while();
    collect();
    heap_free(block);
    is_done = true;
    owner_becomes(THREAD_SLEEPS);
}

/* As heap_all_release_old does. */
static void claims(void)
{
    struct heap *lent = NULL;
    uint32_t chain = SPAN_NONE;
    registry_acquire();
    idle_tend(&heap, 0, AT_ONCE, &chain, &lent);
    registry_release();
    if (lent != NULL) idle_tend_lent(lent, 0);
}

static void claims_twice(void)
{
    claims();
    claims();
}

static uint32_t length_of(uintptr_t list)
{
    uint32_t length = 0;
    for (; !list_is_empty(list) && length <= BLOCKS; list = list_next(list)) length++;
    return length;
}

static UNTOLD bool is_right(void)
{
    return is_done && (heap.claimed == CLAIM_NONE || heap.claimed == CLAIM_LENT) && (heap.inside & HEAP_INSIDE) == 0 &&
           length_of(heap.free[BIN]) + length_of(the_span()->free) == BLOCKS;
}

static const struct scenario {
    const char *name;
    int deviations, threads;
    void (*thread[INTERLEAVE_THREADS_MAX])(void);
} scenarios[] = {
    {"a heap is claimed while its owner allocates, frees and sleeps", 3, 2, {allocates_and_frees, claims_twice}},
    {"a heap is claimed while its owner fills bins", 3, 2, {allocates_thrice, claims_twice}},
    {"a heap is claimed while its owner sleeps on a slow path",
     3,
     2,
     {allocates_with_slow_paths_that_sleep, claims_twice}},
    {"a heap is claimed while its owner frees others' blocks", 3, 2, {collects_for_others, claims_twice}},
    {"two claim a heap while its owner allocates, frees and sleeps", 3, 3, {allocates_and_frees, claims, claims}},
};

static bool explore(const struct scenario *scenario, int deviations)
{
    struct interleave_program program = {.threads = scenario->threads, .set_up = set_up, .is_right = is_right};
    memcpy(program.thread, scenario->thread, sizeof program.thread);
    struct interleave_result result = interleave_explore(&program, deviations);
    printf("%s: %lu executions with up to %d deviations: %s\n", scenario->name, result.executions, deviations,
           result.error == NULL ? "right" : result.error);
    fflush(stdout);
    return result.error != NULL;
}

/* Deviations beyond those of the scenarios: for a longer run. */
static int deeper(void)
{
    const char *text = getenv("HEAPFIT_TEST_DEPTH");
    return text == NULL ? 0 : atoi(text);
}

/* With --mutant the sources have an error, and finding one is what is right: few deviations first. */
int main(int count, char **arguments)
{
    bool mutant = count > 1 && strcmp(arguments[1], "--mutant") == 0, found = false;
#ifdef MUTANT_IS_STALE
    puts(MUTANT_IS_STALE);
    return EXIT_FAILURE;
#endif
    memory_watch("the table and the span", memory, sizeof memory);
    memory_watch("the heap", &heap, sizeof heap);
    memory_watch("the owner's thread_heap", &thread_heap, sizeof thread_heap);
    memory_watch("what is collected", &collected, sizeof collected);
    for (int deviations = mutant ? 0 : deeper(); deviations <= 4 && !found; deviations++) {
        for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios && !found; i++)
            found = explore(&scenarios[i], mutant ? deviations : scenarios[i].deviations + deviations);
        if (!mutant) break;
    }
    return found == mutant ? EXIT_SUCCESS : EXIT_FAILURE;
}
