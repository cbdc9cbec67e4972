/* Heaps and threads: birth, death, adoption, fork.
 *
 * A heap outlives its thread. When a thread exits, its heap gives back what is empty and is *abandoned* with the blocks
 * that live on, or *idle* when there are none. The next thread that starts takes it as it is. A living thread that needs
 * another span first adopts the spans of an abandoned heap. A thread that sends blocks to a heap without a thread settles
 * it: takes it for a moment, empties its inbox, gives back what is empty.
 *
 * After fork() the child has the forking thread only. The heaps of the others may have been in the middle of anything, so
 * the child never takes them over: their blocks stay usable, and freeing them is safe, but their memory is not reused.
 */
#include "heap.h"

__thread struct heap *thread_heap __attribute__((tls_model("initial-exec"))) = &heap_none;

/* How often this thread's exit hook has run. */
static __thread unsigned thread_exits __attribute__((tls_model("initial-exec")));

/* POSIX promises that destructors run at least four times over (PTHREAD_DESTRUCTOR_ITERATIONS): a thread that allocates
 * after its heap is gone gets a new one so often, then borrows one for each call. */
enum { THREAD_EXITS_MAX = 3 };

#define FOUR(x) x, x, x, x
#define TWENTY_FOUR(x) FOUR(x), FOUR(x), FOUR(x), FOUR(x), FOUR(x), FOUR(x)
_Static_assert(BIN_COUNT == 72, "heap_none's bins are all empty");
struct heap heap_none = {.free = {TWENTY_FOUR(LIST_END), TWENTY_FOUR(LIST_END), TWENTY_FOUR(LIST_END)}};

static struct {
    platform_lock lock;
    bool started;
    struct heap *abandoned, *idle; /* doubly linked */
    size_t made;
    size_t idle_count;
    _Atomic(size_t) abandoned_count; /* also read without the lock */
} registry;

/* ---- start ---------------------------------------------------------------------------------------------------------------- */

static void thread_exit_hook(void *argument);

static bool start(void)
{
    if (LIKELY(registry.started)) return true;
    heap_configure();
    if (!space_start()) return false;
    do space.link_key = platform_random();
    while (space.link_key <= LINK_MAX); /* a zeroed word must not look like a link */
    registry.started = platform_thread_exit_hook(thread_exit_hook);
    return registry.started;
}

/* ---- lists of heaps without a thread: under the lock ------------------------------------------------------------------------ */

static void heap_list_add(struct heap *heap, enum heap_state state)
{
    struct heap **list = state == HEAP_ABANDONED ? &registry.abandoned : &registry.idle;
    heap->prev = NULL;
    heap->next = *list;
    if (*list != NULL) (*list)->prev = heap;
    *list = heap;
    if (state == HEAP_ABANDONED) atomic_fetch_add_explicit(&registry.abandoned_count, 1, memory_order_relaxed);
    else registry.idle_count++;
    /* Sequentially consistent: see hand_over in remote.c. */
    atomic_store_explicit(&heap->state, state, memory_order_seq_cst);
}

static void heap_list_remove(struct heap *heap)
{
    bool abandoned = atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_ABANDONED;
    struct heap **list = abandoned ? &registry.abandoned : &registry.idle;
    if (heap->next != NULL) heap->next->prev = heap->prev;
    if (heap->prev != NULL) heap->prev->next = heap->next;
    else *list = heap->next;
    if (abandoned) atomic_fetch_sub_explicit(&registry.abandoned_count, 1, memory_order_relaxed);
    else registry.idle_count--;
    atomic_store_explicit(&heap->state, HEAP_OWNED, memory_order_relaxed);
}

static struct heap *heap_make(void)
{
    struct heap *heap = space_metadata(sizeof *heap);
    if (heap == NULL) return NULL;
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        heap->free[bin] = LIST_END;
        heap->bins[bin].listed = SPAN_NONE;
    }
    heap->owned = SPAN_NONE;
    registry.made++;
    return heap;
}

/* A heap for this thread: one with memory to reuse before one without. */
static struct heap *heap_take(void)
{
    platform_lock_acquire(&registry.lock);
    struct heap *heap = NULL;
    if (start()) {
        heap = registry.abandoned != NULL ? registry.abandoned : registry.idle;
        if (heap != NULL) heap_list_remove(heap);
        else heap = heap_make();
    }
    platform_lock_release(&registry.lock);
    return heap;
}

/* Give up a heap that the calling thread owns. */
static void heap_retire(struct heap *heap)
{
    do {
        remote_inbox_take(heap);
        remote_outbox_flush(heap);
        heap_flush(heap);
        platform_lock_acquire(&registry.lock);
        heap_list_add(heap, heap->owned != SPAN_NONE ? HEAP_ABANDONED : HEAP_IDLE);
        bool late = atomic_load_explicit(&heap->inbox, memory_order_seq_cst) != 0; /* see hand_over */
        if (late) heap_list_remove(heap);
        platform_lock_release(&registry.lock);
        if (!late) return;
    } while (true);
}

/* ---- threads ------------------------------------------------------------------------------------------------------------------ */

static void thread_exit_hook(void *argument)
{
    struct heap *heap = argument;
    thread_exits++;
    thread_heap = &heap_none; /* what retiring frees on the way goes straight to its owners */
    heap_retire(heap);
}

struct heap *heap_thread_enter(void)
{
    struct heap *heap = heap_take();
    if (heap == NULL || thread_exits > THREAD_EXITS_MAX) return heap;
    thread_heap = heap; /* before arming, which may allocate */
    platform_thread_exit_arm(heap);
    return heap;
}

void heap_thread_leave(struct heap *heap)
{
    if (UNLIKELY(thread_heap != heap)) heap_retire(heap); /* it was only borrowed */
}

/* ---- dead threads' heaps --------------------------------------------------------------------------------------------------------- */

void heap_settle(struct heap *heap)
{
    platform_lock_acquire(&registry.lock);
    bool ours = atomic_load_explicit(&heap->state, memory_order_relaxed) != HEAP_OWNED;
    if (ours) heap_list_remove(heap);
    platform_lock_release(&registry.lock);
    /* Otherwise somebody else has taken it, after our blocks went in: they will look. */
    if (ours) heap_retire(heap);
}

bool heap_adopt(struct heap *heap)
{
    /* Relaxed: a hint; the lock decides. */
    if (LIKELY(atomic_load_explicit(&registry.abandoned_count, memory_order_relaxed) == 0)) return false;
    platform_lock_acquire(&registry.lock);
    struct heap *dead = registry.abandoned;
    if (dead != NULL) heap_list_remove(dead);
    platform_lock_release(&registry.lock);
    if (dead == NULL) return false;
    remote_inbox_take(dead); /* while it still owns the spans */
    heap_take_spans(heap, dead);
    heap_retire(dead);
    return true;
}

/* ---- fork, statistics ------------------------------------------------------------------------------------------------------------- */

void heap_fork_begin(void)
{
    platform_lock_fork_begin(&registry.lock);
    space_fork_begin();
}

void heap_fork_end(void)
{
    space_fork_end();
    platform_lock_fork_end(&registry.lock);
}

void heap_figures(struct heap_figures *figures)
{
    platform_lock_acquire(&registry.lock);
    *figures = (struct heap_figures){
        .made = registry.made,
        .abandoned = atomic_load_explicit(&registry.abandoned_count, memory_order_relaxed),
        .idle = registry.idle_count,
    };
    platform_lock_release(&registry.lock);
}
