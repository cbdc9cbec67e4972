/* How whole the file is: what was noted is to be in it, and its end, before a program gives its place to another, or ends without
 * a destructor, or by one.
 *
 * Several P may want that at once, each for what it has noted itself; and an exec may fail, which is no matter to those who still
 * want it. So R makes the file whole once more for each P that comes, keeps it so as long as one of them is there, also when
 * rings are half full, and goes on when none is.
 */
#include "writer.h"

/*     holders         0 ──P: make_whole──► 1 ──P: make_whole──► 2 ...
 *                     ▲                    │ ▲                  │
 *                     └──P: writer_resume──┘ └──P: writer_resume┘       who ends, or succeeds, stays one
 *
 *     served          what `now` is ◄──R: whole_be──── what it was before      P waits until it is as late as its own want
 */
enum { HOLDER = 1, WANT = 1 << 16, HOLDERS = WANT - 1 };

static struct {
    _Atomic(uint32_t) now; /* how many P have come, modulo 2^16, and how many of them are still there */
    _Atomic(uint32_t) served; /* `now` as it was before R last made the file whole */
    _Atomic(const char *) reason; /* of the end that is then written: the last one's, or another's. Before its want */
    _Atomic(bool) final; /* nobody goes on after it. Before its want, too */
    uint32_t seen; /* R's own: `now`, when R last looked */
} whole;

static bool is_served(uint32_t want)
{
    /* Acquire: pairs with the release in whole_be: the file is whole. */
    uint32_t served = atomic_load_explicit(&whole.served, memory_order_acquire);
    return (int16_t)((served >> 16) - (want >> 16)) >= 0;
}

/* ---- R -------------------------------------------------------------------------------------------------------------------- */

bool whole_calls(void)
{
    return atomic_load_explicit(&whole.now, memory_order_seq_cst) != whole.seen; /* see sleep.c */
}

void whole_look(void)
{
    /* Acquire: pairs with make_whole: the reason is there, and what that thread has noted. */
    whole.seen = atomic_load_explicit(&whole.now, memory_order_acquire);
}

bool whole_is_held(void)
{
    return (whole.seen & HOLDERS) != 0;
}

void whole_be(void)
{
    if (is_served(whole.seen) && !streams_call()) return;
    /* Relaxed, both: see whole_look. */
    if (atomic_load_explicit(&whole.final, memory_order_relaxed)) recording_stop_noting();
    recording_write_end(atomic_load_explicit(&whole.reason, memory_order_relaxed));
    atomic_store_explicit(&whole.served, whole.seen, memory_order_release); /* see is_served */
    platform_wake(&whole.served);
}

/* ---- P -------------------------------------------------------------------------------------------------------------------- */

static void make_whole(const char *why)
{
    atomic_store_explicit(&whole.reason, why, memory_order_relaxed); /* told with the want */
    /* Sequentially consistent: see sleep.c. And a release: pairs with whole_look. */
    uint32_t want = atomic_fetch_add_explicit(&whole.now, WANT + HOLDER, memory_order_seq_cst) + WANT;
    if (!recording_is_busy()) return;
    writer_wake();
    for (struct patience patience = patience_of(FINISH_MS); !is_over(&patience);) {
        if (recording_is_stuck()) return; /* that was long enough */
        uint32_t served = atomic_load_explicit(&whole.served, memory_order_relaxed); /* is_served looks again */
        if (is_served(want) || !recording_is_busy() || !writer_works()) return;
        platform_wait(&whole.served, served, LOOK_MS * 1000);
    }
}

bool writer_pause(const char *why)
{
    bool ours = writer_is_ours();
    if (ours) make_whole(why);
    return ours;
}

void writer_resume(void)
{
    /* Sequentially consistent: see sleep.c. */
    atomic_fetch_sub_explicit(&whole.now, HOLDER, memory_order_seq_cst);
    writer_wake();
}

void writer_finish(const char *why)
{
    if (!writer_is_ours()) return; /* a child of vfork, say */
    atomic_store_explicit(&whole.final, true, memory_order_relaxed); /* told with the rest by make_whole */
    make_whole(why);
    recording_complain();
}

void whole_fork_child(void)
{
    atomic_store_explicit(&whole.now, 0, memory_order_relaxed);
    atomic_store_explicit(&whole.served, 0, memory_order_relaxed);
    atomic_store_explicit(&whole.final, false, memory_order_relaxed);
    whole.seen = 0;
}
