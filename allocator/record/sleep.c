/* Who sleeps: R until there is something to do, P until there is room in its ring.
 *
 *     asleep           0 ──R: sleep_until──► 1 ──P: writer_wake, R: time──► 0
 *     ring->waiting    0 ──P: writer_wait──► 1 ──R: ring_release in stream.c, P: time──► 0
 *
 * Each side says that it sleeps and then looks once more whether it must not; the other does what ends the sleep and then looks
 * whether it sleeps. All four are sequentially consistent: either the one sees what was done, or the other that it sleeps.
 */
#include "writer.h"

static struct {
    _Atomic(uint32_t) asleep; /* 1: R sleeps */
} sleep_state;

/* ---- R -------------------------------------------------------------------------------------------------------------------- */

void sleep_until(uint64_t ms)
{
    uint64_t now = platform_clock_ms();
    if (now >= ms) return;
    atomic_store_explicit(&sleep_state.asleep, 1, memory_order_seq_cst);
    bool called = streams_call() || leave_is_wanted() || whole_calls() || recording_is_called();
    if (!called) platform_wait(&sleep_state.asleep, 1, (uint32_t)(ms - now) * 1000);
    /* Relaxed: a P that still sees the 1 wakes nobody. */
    atomic_store_explicit(&sleep_state.asleep, 0, memory_order_relaxed);
}

/* ---- P -------------------------------------------------------------------------------------------------------------------- */

void writer_wake(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&sleep_state.asleep, memory_order_relaxed) == 0) return;
    /* Relaxed: of several, one wakes it. */
    if (atomic_exchange_explicit(&sleep_state.asleep, 0, memory_order_relaxed) != 0) platform_wake(&sleep_state.asleep);
}

static bool has_room(const struct record_ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_seq_cst);
    /* Relaxed: only this thread writes it. */
    return atomic_load_explicit(&ring->head, memory_order_relaxed) - tail < RECORD_RING_EVENTS;
}

enum {
    FULL_MS = 10000, /* in which R takes nothing out of a full ring: it is stuck */
    FULL_CHILD_MS = 200 /* the same in a process that R is not of */
};

/* In a child that was made without fork's handlers, memory is a copy and nobody takes anything; in one of vfork it is the parent's,
 * and all goes on. */
void writer_wait(struct record_ring *ring)
{
    bool ours = writer_is_ours();
    struct patience patience = patience_of(ours ? FULL_MS : FULL_CHILD_MS);
    while (!is_over(&patience)) {
        if (!atomic_load_explicit(&recording, memory_order_relaxed)) return; /* see there */
        atomic_store_explicit(&ring->waiting, 1, memory_order_seq_cst);
        if (has_room(ring)) break;
        writer_wake();
        platform_wait(&ring->waiting, 1, LOOK_MS * 1000);
        if (has_room(ring)) break;
        if (ours && !writer_works()) break;
    }
    atomic_store_explicit(&ring->waiting, 0, memory_order_relaxed); /* who still sees the 1 wakes nobody */
    if (!has_room(ring)) recording_give_up();
}

void sleep_fork_child(void)
{
    atomic_store_explicit(&sleep_state.asleep, 0, memory_order_relaxed);
}
