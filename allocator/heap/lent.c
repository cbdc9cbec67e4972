/* Heaps whose threads sleep: another thread has the whole heap, and does in it what its owner would.
 *
 * A claim (idle.c) keeps the owner out of its slow paths, not out of the fast ones, which ask nobody: so what these touch, the blocks
 * that the bins hand out next and those collected for other heaps, is out of a claim's reach; and it keeps the pages around them
 * from going back. But every call begins by loading the thread's `thread_heap`. So under a claim another heap is put there, by
 * compare-and-swap: heap_lent, which is as empty as that of a thread that has none. Who comes after that finds no block there and
 * takes the slow path, fetches its heap (heap_fetch) and has to wait for the claim. The fast paths have no test for it.
 *
 *     claimer:   claimed = CLAIMED; barrier; is the owner inside? then give up
 *                thread_heap of the owner = heap_lent; does it sleep? if not, thread_heap = its heap, and give up
 *                works as the owner does ... claimed = CLAIM_LENT
 *     owner:     loads thread_heap; finds heap_lent empty; inside = 1; is it claimed? then wait
 *                thread_heap = its heap; claimed = CLAIM_NONE; inside = 0
 *
 * What is left are calls that had loaded the old value and are not done with it: at most one, in the middle of some twenty
 * instructions, wherever its thread was when it lost its processor. Whether there is one the kernel knows (platform/asleep.c): a
 * thread that sleeps in a system call that it made itself, outside any signal's handler, is in no fast path, for these make none;
 * nor does it enter one with the old value when it wakes. A thread that does not run but could, was stopped, or waits for a page
 * does not count as asleep.
 *
 * That it sleeps in a system call of ours, on a slow path, is known as well: where these wait for a lock or ask the kernel with
 * something of the heap in hand, they are inside; and who comes inside has its heap back, whichever way it came. What they have in
 * hand when they come out and are not yet done, the first block of a bin's list say, they use before the next system call. So
 * this holds, and a change must keep it: between leaving a heap and the last use of what was read from it by the same call, there
 * is no system call.
 *
 * Once lent, a heap stays so when the claim ends, until its owner comes inside: another claim finds it so, and need not ask the
 * kernel.
 *
 * Only to a thread that will tell of its end, since its thread-local memory is written to, and that is there. One that ends by a
 * bare system call after it was found asleep, and whose stack is unmapped within the microseconds that follow, would not be noticed. Nor would a
 * call of malloc whose signal handler has left the stack it ran on by swapcontext, which no handler may do; one whose handler has sent
 * the thread elsewhere by changing its saved context; nor one by a child that has the thread's thread-local memory, unless the thread
 * is known to wait for a child.
 *
 * In the library with pools heaps are never lent: there the way to a block is long, and waits for locks of the pools.
 */
#include "heap.h"

static void set_lent(struct heap *heap, bool is_lent)
{
    atomic_store_explicit(&heap->is_lent, is_lent, memory_order_relaxed); /* see heap_is_lent */
}

/* True when it was there. Sequentially consistent: before we ask the kernel whether the thread sleeps. */
static bool place_change(struct heap *heap, struct heap *from, struct heap *to)
{
    return __atomic_compare_exchange_n(heap->place, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

enum platform_sleep heap_sleep(const struct heap *heap)
{
    /* Acquire: pairs with the release in registry.c. */
    if (POOLS_EXIST || __atomic_load_n(&heap->place, __ATOMIC_ACQUIRE) == NULL) return THREAD_IS_ELSEWHERE;
    if (heap_is_lent(heap)) return THREAD_SLEEPS; /* or has not come inside since it did */
    /* Relaxed: written under the registry's lock. */
    return platform_thread_sleep(atomic_load_explicit(&heap->thread, memory_order_relaxed), (void *)heap->place);
}

enum platform_sleep heap_lend(struct heap *heap)
{
    if (heap_is_lent(heap)) return THREAD_SLEEPS; /* since an earlier claim */
    if (!place_change(heap, heap, &heap_lent)) return THREAD_IS_ELSEWHERE; /* it is diverted, or exits */
    int32_t thread = atomic_load_explicit(&heap->thread, memory_order_relaxed); /* as above */
    enum platform_sleep sleep = platform_thread_sleep(thread, (void *)heap->place);
    /* Relaxed: if it has been changed, then before the thread fell asleep. */
    if (sleep == THREAD_SLEEPS && __atomic_load_n(heap->place, __ATOMIC_RELAXED) == &heap_lent) {
        set_lent(heap, true);
        return sleep;
    }
    place_change(heap, &heap_lent, heap); /* it may have come to fetch it, and waits */
    return sleep == THREAD_SLEEPS ? THREAD_IS_ELSEWHERE : sleep;
}

void heap_take_back(struct heap *heap)
{
    if (thread_heap_lent != heap) return;
    /* Relaxed, both: before the release with which the slow path ends, and no claim comes further before that. */
    set_lent(heap, false);
    if (thread_heap_now() == &heap_lent) __atomic_store_n(&thread_heap, heap, __ATOMIC_RELAXED);
}

struct heap *heap_fetch(void)
{
    struct heap *heap = thread_heap_lent;
    uint32_t entered = heap_enter(heap);
    heap_take_back(heap); /* in a copy of the process nothing may say that it is lent */
    heap_leave(heap, entered);
    return heap;
}

/* ---- what its owner would do --------------------------------------------------------------------------------------- */

/* Spans whose pages are looked at, and purged, before we look whether the owner waits: a tenth of a millisecond. */
enum { SPANS_STEP = 4 };

static bool give_back_pages(struct heap *heap, bool (*is_awaited)(const struct heap *heap))
{
    /* Each comes last in its chain when it is done. */
    for (uint32_t left = heap_spans(heap); left > 0;) {
        uint32_t step = left < SPANS_STEP ? left : SPANS_STEP;
        if (is_awaited(heap)) return false;
        heap_purge_pages(heap, step);
        left -= step;
    }
    return true;
}

bool heap_lent_give_back(struct heap *heap, bool (*is_awaited)(const struct heap *heap))
{
    __atomic_store_n(&heap->chores, true, __ATOMIC_RELAXED); /* no need to be told of what becomes free now */
    remote_lent_flush(heap);
    bool whole = remote_lent_take_in(heap, is_awaited);
    for (unsigned bin = 0; whole && bin < BIN_COUNT; bin++) {
        heap->spans_given_back = 0; /* nor to rest for it */
        heap_return_bin(heap, bin);
        whole = !is_awaited(heap);
    }
    if (!whole) return false;
    heap_give_back_empty(heap);
    cache_release(cache_detach(heap, SPAN_NONE));
    return give_back_pages(heap, is_awaited);
}
