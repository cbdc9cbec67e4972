/* How whole the file is: what was noted is to be in it, and its end, before a program gives its place to another, or ends without
 * a destructor, or by one. R then waits, since an exec may fail. */
#include "writer.h"

/*     GOING_ON ──P: make_whole──► WHOLE_WANTED ──R: whole_be──► WHOLE, in which R waits
 *         ▲                             │                         │
 *         └───────P: writer_resume, also of one who waited in vain┘
 */
enum { GOING_ON, WHOLE_WANTED, WHOLE };

static struct {
    _Atomic(uint32_t) now;
    _Atomic(const char *) reason; /* of the end that is then written. Before `now` becomes WHOLE_WANTED */
    _Atomic(bool) final; /* nobody goes on after it. Before, too */
} whole;

/* ---- R -------------------------------------------------------------------------------------------------------------------- */

bool whole_is_wanted(void)
{
    /* Sequentially consistent: see sleep.c. And an acquire: pairs with make_whole, so that the reason is there. */
    return atomic_load_explicit(&whole.now, memory_order_seq_cst) == WHOLE_WANTED;
}

void whole_be(void)
{
    /* Relaxed, both: see whole_is_wanted. */
    if (atomic_load_explicit(&whole.final, memory_order_relaxed)) recording_stop_noting();
    recording_write_end(atomic_load_explicit(&whole.reason, memory_order_relaxed));
    /* Release: pairs with the acquire in make_whole: the file is whole. */
    atomic_store_explicit(&whole.now, WHOLE, memory_order_release);
    platform_wake(&whole.now);
    /* Acquire: pairs with nothing that is read; R only goes on. */
    while (atomic_load_explicit(&whole.now, memory_order_acquire) == WHOLE && !leave_is_decided()) {
        platform_wait(&whole.now, WHOLE, IDLE_MS * 1000);
        leave_answer();
    }
    file_reopen();
}

/* ---- P -------------------------------------------------------------------------------------------------------------------- */

/* Another thread may be first; then its reason or ours is written. */
static void make_whole(const char *why)
{
    uint32_t expected = GOING_ON;
    /* Release: pairs with whole_is_wanted. */
    atomic_store_explicit(&whole.reason, why, memory_order_release);
    /* Sequentially consistent: see sleep.c. */
    atomic_compare_exchange_strong_explicit(&whole.now, &expected, WHOLE_WANTED, memory_order_seq_cst,
                                            memory_order_relaxed);
    writer_wake();
    for (uint64_t end = platform_clock_ms() + FINISH_MS; !is_over(end);) {
        if (recording_is_stuck()) return; /* that was long enough */
        uint32_t now = atomic_load_explicit(&whole.now, memory_order_acquire); /* see whole_be */
        if (now != WHOLE_WANTED || !recording_is_busy() || !writer_thread_exists()) return;
        platform_wait(&whole.now, now, LOOK_MS * 1000);
    }
}

void writer_pause(const char *why)
{
    if (writer_is_ours() && recording_is_busy()) make_whole(why);
}

void writer_resume(void)
{
    /* Relaxed: who has ended the recording is this thread, or does not wait for us. */
    if (!writer_is_ours() || atomic_load_explicit(&whole.final, memory_order_relaxed)) return;
    /* Release: nothing is told; R only goes on. */
    if (atomic_exchange_explicit(&whole.now, GOING_ON, memory_order_release) != GOING_ON) platform_wake(&whole.now);
}

void writer_finish(const char *why)
{
    if (!writer_is_ours()) return; /* a child of vfork, say */
    atomic_store_explicit(&whole.final, true, memory_order_relaxed); /* told with the rest by make_whole */
    if (recording_is_busy()) make_whole(why);
    recording_complain();
}

void whole_fork_child(void)
{
    atomic_store_explicit(&whole.now, GOING_ON, memory_order_relaxed);
    atomic_store_explicit(&whole.final, false, memory_order_relaxed);
}
