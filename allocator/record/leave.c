/* Whether R may live on. It must not be the last thread of a process, which runs the exit handlers, and those need the program's
 * descriptors: it ends before the last one that ever allocated, or when nobody but the main thread's remains is left.
 *
 * Threads that have noted nothing end without a word: there was no recording, say. So from when the main thread leaves there is one
 * more, which has the program's descriptors and does nothing but end after R: L.
 */
#include "writer.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

/*     STAYS ──P, L: ask──► WANTED ──R: leave_answer──► LOOKING ──R: leave_answer──► LEAVES, and R ends
 *      ▲ │                   ▲                          │  │                          ▲
 *      │ │                   └──P: ask, as R may not ◄──┘  │                          │
 *      │ │                      have seen it               │                          │
 *      │ └──R: leave_look_around, P: end_writer────────────│──────────────────────────┘
 *      └──R: leave_answer refuses──────────────────────────┘
 */
enum { STAYS, WANTED, LOOKING, LEAVES };

static struct {
    _Atomic(uint32_t) now;
    _Atomic(bool) main_has_left; /* P, the main thread's */
    _Atomic(int32_t) last; /* L's number; 0: none. L's own. Relaxed: the kernel is asked about it */
    uint64_t looked_ms; /* R's own: when it last looked around */
} leave;

/* ---- R -------------------------------------------------------------------------------------------------------------------- */

bool leave_is_wanted(void)
{
    return atomic_load_explicit(&leave.now, memory_order_seq_cst) == WANTED; /* see sleep.c */
}

bool leave_is_decided(void)
{
    return atomic_load_explicit(&leave.now, memory_order_acquire) == LEAVES; /* pairs with do_leave */
}

/* Release: why it leaves goes with it (writer_end). */
static void do_leave(void)
{
    atomic_store_explicit(&leave.now, LEAVES, memory_order_release);
    platform_wake(&leave.now);
}

static bool last_exists(void)
{
    int32_t number = atomic_load_explicit(&leave.last, memory_order_relaxed);
    return number != 0 && platform_thread_exists(number);
}

/* Of the process, without looking at names, for which a file has to be opened each: R, the main thread's remains, and L. */
static size_t threads_of_ours(void)
{
    return 2 + last_exists();
}

static size_t threads_of_heapfit(void)
{
    return facts_threads_of_heapfit(atomic_load_explicit(&leave.last, memory_order_relaxed));
}

/* Of the process, as far as they are known: these, and those that are about to end. */
static size_t threads_that_end(void)
{
    size_t count = threads_of_ours();
    /* Acquire: pairs with the release of the thread that has made the ring. */
    struct record_ring *ring = atomic_load_explicit(&record_rings, memory_order_acquire);
    for (; ring != NULL; ring = ring->next) {
        int32_t tid = atomic_load_explicit(&ring->tid, memory_order_relaxed); /* the kernel is asked about it */
        /* Sequentially consistent: see is_last. */
        bool left = atomic_load_explicit(&ring->left, memory_order_seq_cst);
        count += tid != 0 && left && tid != getpid() && platform_thread_exists(tid);
    }
    return count;
}

/* Not while there are threads that have not allocated so far. They are counted last: one that ends meanwhile does not look like
 * one of them. A thread that asks while we look may have got its ring after we looked for it: it must not be refused with others. */
void leave_answer(void)
{
    while (leave_is_wanted()) {
        uint32_t looking = LOOKING;
        /* Acquire: pairs with `ask`, so that we see the ring of who has asked. */
        atomic_exchange_explicit(&leave.now, LOOKING, memory_order_acq_rel);
        size_t known = threads_that_end() + threads_of_heapfit();
        if (facts_threads() <= known) do_leave();
        else
            atomic_compare_exchange_strong_explicit(&leave.now, &looking, STAYS, memory_order_relaxed,
                                                    memory_order_relaxed);
    }
}

/* Threads that end without a word, and so nobody says that this one is the last, are rare. */
void leave_look_around(void)
{
    uint64_t now = platform_clock_ms();
    if (now - leave.looked_ms < IDLE_MS) return;
    leave.looked_ms = now;
    if (facts_main_has_left() && facts_threads() <= threads_of_ours() + threads_of_heapfit()) do_leave();
}

/* ---- P -------------------------------------------------------------------------------------------------------------------- */

/* Sequentially consistent, here and where a thread marks its ring: of the last two to leave, one at least sees that the other has
 * begun to. */
static bool is_last(void)
{
    if (!atomic_load_explicit(&leave.main_has_left, memory_order_seq_cst)) return false;
    /* Acquire: see threads_that_end. */
    struct record_ring *ring = atomic_load_explicit(&record_rings, memory_order_acquire);
    for (; ring != NULL; ring = ring->next)
        if (atomic_load_explicit(&ring->tid, memory_order_relaxed) != 0 &&
            !atomic_load_explicit(&ring->left, memory_order_seq_cst))
            return false;
    return true;
}

/* Nothing tells of a thread's end. */
void leave_look_again(void)
{
    poll(NULL, 0, 1);
}

static void wake_writer(void)
{
    char name[SOCKET_NAME_BYTES];
    writer_socket_name(name);
    int wake = platform_connect(name); /* for when it waits for requests alone */
    if (wake >= 0) close(wake);
    writer_wake();
}

void leave_now(void)
{
    do_leave();
    wake_writer();
}

void leave_is_over(void)
{
    atomic_store_explicit(&leave.now, STAYS, memory_order_relaxed); /* the next R is not there so far */
}

static void ask(void)
{
    uint32_t now = STAYS;
    /* Sequentially consistent: see sleep.c. And a release: see leave_answer. */
    while (now != LEAVES &&
           !atomic_compare_exchange_weak_explicit(&leave.now, &now, WANTED, memory_order_seq_cst, memory_order_relaxed))
        continue;
    wake_writer();
}

/* Until R and L have ended: then we are the last, and run the exit handlers, which others would not have as large a stack for. */
void writer_thread_leaves(void)
{
    if (!writer_is_ours() || !is_last() || !writer_thread_exists()) return;
    ask();
    for (struct patience patience = patience_of(FINISH_MS);
         !is_over(&patience) && (writer_thread_exists() || last_exists());) {
        if (atomic_load_explicit(&leave.now, memory_order_relaxed) == STAYS) break;
        leave_look_again();
    }
}

static void stay_last(void *unused)
{
    (void)unused;
    record_ignore_thread();
    atomic_store_explicit(&leave.last, platform_thread_number(), memory_order_relaxed);
    ask();
    while (writer_thread_exists()) {
        uint32_t now = atomic_load_explicit(&leave.now, memory_order_relaxed);
        if (now == LEAVES) leave_look_again();
        else platform_wait(&leave.now, now, IDLE_MS * 1000);
    }
}

/* There can be no L: what the others do is not recorded, but what they leave in buffers is written. */
static void end_writer(void)
{
    do_leave();
    writer_wake();
    for (struct patience patience = patience_of(FINISH_MS); !is_over(&patience) && writer_thread_exists();)
        leave_look_again();
}

static void main_thread_leaves(void *argument)
{
    (void)argument;
    atomic_store_explicit(&leave.main_has_left, true, memory_order_seq_cst); /* see is_last */
    if (!writer_is_ours() || !writer_thread_exists()) return;
    if (!platform_thread_start("heapfit-last", stay_last, NULL, false)) end_writer();
}

/* Only in the main thread itself can it be told that it leaves. It is the one that loads the library, and that a child
 * has. */
void leave_watch_main_thread(void)
{
    static pthread_key_t key;
    static bool key_made;
    if (platform_thread_number() != getpid()) return;
    if (!key_made) key_made = pthread_key_create(&key, main_thread_leaves) == 0;
    if (key_made) pthread_setspecific(key, &key); /* anything but NULL */
}

void leave_fork_child(void)
{
    atomic_store_explicit(&leave.now, STAYS, memory_order_relaxed);
    atomic_store_explicit(&leave.main_has_left, false, memory_order_relaxed);
    atomic_store_explicit(&leave.last, 0, memory_order_relaxed);
}
