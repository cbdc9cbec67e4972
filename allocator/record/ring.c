/* Rings: where threads note events, without a lock or a system call but for the first of each thread, and when the recorder's
 * thread falls behind.
 *
 * A thread keeps its ring to its very end. What the C library calls last of a thread's are its destructors of
 * thread-specific data, ours among them, in no order that helps; and behind them it frees memory of its own. So our
 * destructor only says that the thread is about to end, and the recorder's thread takes the ring away when the kernel no longer
 * knows the owner. The program's threads do not ask the kernel: they may be behind a filter that ends the process for tgkill.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "note.h"

#include <errno.h>

__thread struct record_thread record_thread __attribute__((tls_model("initial-exec"))) = {.mean = RECORD_NOT_DRAWN};
_Atomic(struct record_ring *) record_rings;
_Atomic(bool) record_rings_many;
_Atomic(uint64_t) record_lost;

static COLD void lose(void)
{
    atomic_fetch_add_explicit(&record_lost, 1, memory_order_relaxed); /* a number */
}

static struct {
    platform_lock lock; /* of whoever looks for a ring */
    size_t count; /* under it: rings in the list */
} rings;

/* ---- whose a ring is: under the lock; only the recorder's thread makes it nobody's -------------------------------------------- */

static struct record_ring *ring_find(void)
{
    struct record_ring *ring = atomic_load_explicit(&record_rings, memory_order_relaxed); /* only we write */
    /* Acquire: pairs with the release in rings_reclaim: its events have been read. */
    while (ring != NULL && atomic_load_explicit(&ring->tid, memory_order_acquire) != 0) ring = ring->next;
    return ring;
}

static struct record_ring *ring_make(void)
{
    size_t page = platform_page_size();
    size_t size = (sizeof(struct record_ring) + page - 1) & ~(page - 1);
    struct record_ring *ring = platform_reserve(size, page);
    if (ring == NULL || !platform_commit(ring, size))
        return NULL; /* a few addresses are lost, of a program without memory */
    ring->next = atomic_load_explicit(&record_rings, memory_order_relaxed); /* only we write */
    rings.count++;
    /* Release: what is in it is written. Pairs with the acquire of the recorder's thread. */
    atomic_store_explicit(&record_rings, ring, memory_order_release);
    return ring;
}

/* From so many on each that is made is one that R might have emptied, had it come sooner: else a program that starts thousands of
 * threads between two of its looks has as many, each of 128 KiB of address space, and each start goes through all of them. */
enum { RINGS_MANY = 64 };

static void ring_call(void)
{
    if (rings.count < RINGS_MANY) return;
    atomic_store_explicit(&record_rings_many, true, memory_order_seq_cst); /* see sleep.c */
    writer_wake();
}

static struct record_ring *ring_find_or_make(void)
{
    struct record_ring *ring = ring_find();
    if (ring != NULL) return ring;
    ring_call();
    return ring_make();
}

static struct record_ring *ring_take(void)
{
    platform_lock_acquire(&rings.lock);
    struct record_ring *ring = ring_find_or_make();
    if (ring != NULL) {
        /* Relaxed, all: the ring is empty, so that the recorder's thread looks at them only behind the release of `head`. */
        ring->look_at = atomic_load_explicit(&ring->head, memory_order_relaxed);
        atomic_store_explicit(&ring->thread, RECORD_THREAD_NEW, memory_order_relaxed);
        atomic_store_explicit(&ring->left, false, memory_order_relaxed);
        atomic_store_explicit(&ring->tid, platform_thread_number(), memory_order_relaxed);
    }
    platform_lock_release(&rings.lock);
    return ring;
}

/* ---- a thread's first event, and its last -------------------------------------------------------------------------------------- */

/* Events between two attempts to get a ring where there is no memory. */
enum { RINGLESS = 1024 };

static COLD struct record_ring *ring_begin(void)
{
    struct record_ring *ring = record_thread.ringless % RINGLESS == 0 ? ring_take() : NULL;
    if (ring == NULL) {
        record_thread.ringless++;
        lose();
        return NULL;
    }
    record_thread.ring = ring;
    platform_thread_exit_arm(ring); /* may allocate, unnoted: we are inside a call */
    return ring;
}

static void ring_left(void *argument)
{
    struct record_ring *ring = argument;
    /* Sequentially consistent: of two threads that leave at the same time, one at least sees that both do (leave.c). */
    atomic_store_explicit(&ring->left, true, memory_order_seq_cst);
    writer_thread_leaves();
}

void rings_start(void)
{
    platform_thread_exit_hook(ring_left);
}

void record_ignore_thread(void)
{
    record_thread.inside = true;
}

bool record_is_inside(void)
{
    return record_thread.inside;
}

/* ---- room ------------------------------------------------------------------------------------------------------------------------ */

/* From half full on the recorder's thread is told, and again whenever an eighth more is. */
enum { HALF = RECORD_RING_EVENTS / 2, EIGHTH = RECORD_RING_EVENTS / 8 };

static bool ring_look(struct record_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed); /* only this thread writes it */
    /* Acquire: pairs with the release of the recorder's thread, which has read what we may now write over. */
    uint64_t used = head - atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (used == RECORD_RING_EVENTS) return false;
    if (used < HALF) {
        ring->look_at = head + HALF - used;
        return true;
    }
    uint64_t room = RECORD_RING_EVENTS - used;
    ring->look_at = head + (room < EIGHTH ? room : EIGHTH);
    writer_wake();
    return true;
}

struct record_ring *ring_with_room(void)
{
    int saved = errno;
    struct record_ring *ring = record_thread.ring != NULL ? record_thread.ring : ring_begin();
    if (ring != NULL && !ring_look(ring)) {
        writer_wait(ring);
        if (!ring_look(ring)) { /* nothing is recorded any more */
            lose();
            ring = NULL;
        }
    }
    errno = saved;
    return ring;
}

/* ---- fork ------------------------------------------------------------------------------------------------------------------------ */

/* All relaxed: nobody else is there. A thread that forks in a signal's handler, in the midst of noting, goes on with a ring that
 * is nobody's any more, and takes another for the next event. */
void rings_fork_child(void)
{
    platform_lock_mend(&rings.lock);
    sites_fork_child();
    for (struct record_ring *ring = atomic_load_explicit(&record_rings, memory_order_relaxed); ring != NULL;
         ring = ring->next) {
        atomic_store_explicit(&ring->tail, atomic_load_explicit(&ring->head, memory_order_relaxed),
                              memory_order_relaxed);
        atomic_store_explicit(&ring->tid, 0, memory_order_relaxed);
        atomic_store_explicit(&ring->thread, RECORD_THREAD_NEW, memory_order_relaxed);
    }
    record_thread.ring = NULL;
    record_thread.mean = RECORD_NOT_DRAWN; /* not the parent's draws again */
}
