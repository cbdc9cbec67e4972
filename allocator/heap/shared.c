/* Heaps that several threads share, each under a lock: for threads beyond `lockless_threads`, and for those of many that have not
 * allocated much yet (`share_first`).
 *
 * Such a thread has heap_sharing in the place of a heap of its own. That one is as empty as heap_none, so that the fast paths
 * find nothing in it and need not know; the slow ones work in the thread's shared heap instead, which is locked from
 * heap_thread_enter to heap_thread_leave. What becomes of a block that is freed:
 *
 *     by a thread that shares      one of a shared heap goes back at once, under that heap's lock; any other is sent alone:
 *                                  it never waits in a thread that may sleep for ever
 *     by a thread with its own     as one of another thread's: in a batch. Whoever hands that over takes it in, too
 *
 * So what lies in the inbox of a shared heap is being taken in, and none has an outbox. heap_orphans is freed to in the same
 * way.
 *
 * There are as many as processors, made when they are needed, and given to threads in turn. When no thread shares any more,
 * their spans become orphans: else nobody could use the room in them.
 *
 * Locks are taken in this order: the registry's, a shared heap's, the orphans', the space's; a thread never waits for one
 * shared heap while it holds another. Spans change hands under the locks of the shared heaps that lose and get them. A fork holds
 * the locks of all of them, for which nobody waits: see registry.c.
 */
#include "heap.h"

/* More would lie in each other's way no less, but cost memory. */
enum { SHARED_MAX = 64 };

static struct {
    /* Made one after the other, under the registry's lock. Release and acquire: whoever finds one there finds it set up. */
    _Atomic(struct heap *) heaps[SHARED_MAX];
    unsigned wanted; /* 0: not known yet */
    unsigned next; /* which one a thread is given */
} shared;

static struct heap *shared_at(unsigned number)
{
    return atomic_load_explicit(&shared.heaps[number], memory_order_acquire);
}

static unsigned shared_wanted(void)
{
    unsigned processors = platform_processors();
    return processors < SHARED_MAX ? processors : SHARED_MAX;
}

struct heap *shared_choose(void)
{
    if (shared.wanted == 0) shared.wanted = shared_wanted();
    unsigned number = shared.next++ % shared.wanted;
    struct heap *heap = shared_at(number);
    if (heap == NULL) {
        heap = heap_make(HEAP_SHARED);
        atomic_store_explicit(&shared.heaps[number], heap, memory_order_release);
    }
    return heap != NULL ? heap : shared_at(0); /* out of memory: one more on an old one */
}

/* Under the heap's lock. Relaxed: the owner is written under it, whenever it was or becomes this heap. */
static bool owns(const struct heap *heap, const struct span *span)
{
    return atomic_load_explicit(&span->owner, memory_order_relaxed) == heap;
}

bool shared_free(struct heap *heap, struct span *span, uintptr_t block)
{
    if (!platform_lock_enter(&heap->lock)) return false;
    bool ours = owns(heap, span);
    bool suspect = ours && UNLIKELY(block_looks_free(block));
    if (ours && !suspect) block_free_local(heap, span, block);
    if (heap->chores) heap_chores_look(heap); /* the orphans' nobody else does */
    platform_lock_release(&heap->lock);
    if (UNLIKELY(suspect)) remote_accuse(heap, block); /* whose inbox is settled at once */
    return ours;
}

void shared_check(struct heap *heap, const struct span *span, uintptr_t block)
{
    if (!platform_lock_enter(&heap->lock)) return;
    if (owns(heap, span)) check_suspicious_free(heap, span, block);
    platform_lock_release(&heap->lock);
}

/* When a fork has the heap, what is in its inbox was put there before we looked at the lock, both sequentially consistent; so
 * that whoever ends the fork, and then looks at the inbox, sees it. */
void shared_settle(struct heap *heap)
{
    if (!platform_lock_enter(&heap->lock)) return;
    struct remote_elsewhere elsewhere = remote_inbox_take_shared(heap);
    if (heap->chores) heap_chores_look(heap);
    platform_lock_release(&heap->lock);
    remote_send_on(elsewhere); /* without the lock: it may lead back here */
}

void shared_trim(void)
{
    for (unsigned i = 0; i < SHARED_MAX; i++)
        if (shared_at(i) != NULL) heap_locked_give_back(shared_at(i));
}

/* Whether no slow path has used it for so long, and what it holds since then has not gone back. Its lock orders nothing here:
 * the background thread alone looks, and `inside` is a hint. */
static bool is_at_rest(struct heap *heap, uint64_t now, uint32_t age_ms)
{
    uint32_t entries = atomic_load_explicit(&heap->inside, memory_order_relaxed);
    if (entries != heap->rest_entries) {
        heap->rest_entries = entries;
        heap->rest_begun = now;
        heap->rest_done = false;
    }
    return !heap->rest_done && now - heap->rest_begun >= age_ms;
}

static enum chores_left tend(struct heap *heap, uint64_t now, uint32_t age_ms)
{
    enum chores_left left = heap_locked_step(heap);
    if (is_at_rest(heap, now, age_ms)) {
        heap_locked_give_back(heap);
        heap->rest_entries = atomic_load_explicit(&heap->inside, memory_order_relaxed); /* which that has changed */
        heap->rest_done = true;
    }
    return heap->rest_done ? left : chores_more_urgent(left, CHORES_LATER);
}

enum chores_left shared_step(uint64_t now, uint32_t age_ms)
{
    enum chores_left left = CHORES_NONE;
    for (unsigned i = 0; i < SHARED_MAX; i++)
        if (shared_at(i) != NULL) left = chores_more_urgent(left, tend(shared_at(i), now, age_ms));
    return left;
}

/* While a fork has the orphans they keep their spans, until the next time. */
void shared_hand_down(void)
{
    for (unsigned i = 0; i < SHARED_MAX; i++) {
        struct heap *heap = shared_at(i);
        if (heap == NULL || !platform_lock_enter(&heap->lock)) continue;
        heap_flush(heap);
        heap_orphan_spans(heap);
        platform_lock_release(&heap->lock);
    }
}

/* ---- forks ------------------------------------------------------------------------------------------------------------------- */

/* A bit for each heap that this thread's fork holds; not for those that are made meanwhile. */
static __thread uint64_t held __attribute__((tls_model("initial-exec")));
_Static_assert(SHARED_MAX <= 64, "a bit for each");

void shared_fork_begin(void)
{
    held = 0;
    for (unsigned i = 0; i < SHARED_MAX; i++) {
        if (shared_at(i) == NULL) continue;
        platform_lock_fork_begin(&shared_at(i)->lock);
        held |= UINT64_C(1) << i;
    }
}

void shared_fork_end(void)
{
    for (unsigned i = 0; i < SHARED_MAX; i++)
        if ((held >> i & 1) != 0) platform_lock_fork_end(&shared_at(i)->lock);
}

void shared_fork_end_in_child(void)
{
    for (unsigned i = 0; i < SHARED_MAX; i++)
        if (shared_at(i) != NULL) platform_lock_fork_end_in_child(&shared_at(i)->lock);
}

/* Sequentially consistent: see shared_settle. */
static void settle_left(struct heap *heap)
{
    if ((atomic_load_explicit(&heap->inbox, memory_order_seq_cst) |
         atomic_load_explicit(&heap->suspects, memory_order_seq_cst)) != 0)
        shared_settle(heap);
}

void shared_fork_settle(void)
{
    settle_left(&heap_orphans);
    for (unsigned i = 0; i < SHARED_MAX; i++)
        if (shared_at(i) != NULL) settle_left(shared_at(i));
}
