/* Whether R may live on. It must not be the last thread of a process, which runs the exit handlers: it ends before the last one that
 * ever allocated, or when nobody but the main thread's remains is left. */
#include "writer.h"

#include <pthread.h>
#include <unistd.h>

/*     STAYS ──P: writer_thread_leaves──► LEAVE_WANTED ──R: leave_answer──► LEAVES, and R ends
 *       ▲ │                                   │
 *       │ └──R: leave_look_around──► LEAVES   │
 *       └────────R: leave_answer refuses──────┘
 */
enum { STAYS, LEAVE_WANTED, LEAVES };

static struct {
    _Atomic(uint32_t) now;
    _Atomic(bool) main_has_left; /* P, the main thread's */
    uint64_t looked_ms; /* R's own: when it last looked around */
} leave;

/* ---- R -------------------------------------------------------------------------------------------------------------------- */

bool leave_is_wanted(void)
{
    return atomic_load_explicit(&leave.now, memory_order_seq_cst) == LEAVE_WANTED; /* see sleep.c */
}

bool leave_is_decided(void)
{
    return atomic_load_explicit(&leave.now, memory_order_relaxed) == LEAVES; /* R's own doing */
}

/* Relaxed: nothing goes with it, since P looks for the thread's end. */
static void do_leave(void)
{
    atomic_store_explicit(&leave.now, LEAVES, memory_order_relaxed);
}

/* Of the process, as far as they are known: this one, the main thread's remains, and those that are about to end. */
static size_t threads_that_end(void)
{
    size_t count = 2;
    /* Acquire: pairs with the release of the thread that has made the ring. */
    struct record_ring *ring = atomic_load_explicit(&record_rings, memory_order_acquire);
    for (; ring != NULL; ring = ring->next) {
        int32_t tid = atomic_load_explicit(&ring->tid, memory_order_relaxed); /* the kernel is asked about it */
        count += tid != 0 && tid != getpid() && platform_thread_exists(tid);
    }
    return count;
}

/* Not while there are threads that have not allocated so far. They are counted last: one that ends meanwhile does not look like
 * one of them. */
void leave_answer(void)
{
    if (!leave_is_wanted()) return;
    size_t known = threads_that_end() + facts_threads_of_heapfit();
    if (facts_threads() <= known) {
        do_leave();
        return;
    }
    atomic_store_explicit(&leave.now, STAYS, memory_order_relaxed); /* as do_leave */
    platform_wake(&leave.now);
}

/* Threads that end without a word, and so nobody says that this one is the last, are rare. */
void leave_look_around(void)
{
    uint64_t now = platform_clock_ms();
    if (now - leave.looked_ms < IDLE_MS) return;
    leave.looked_ms = now;
    if (facts_main_has_left() && facts_threads() <= 2 + facts_threads_of_heapfit()) do_leave();
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

void writer_thread_leaves(void)
{
    char name[SOCKET_NAME_BYTES];
    if (!writer_is_ours() || !is_last() || !writer_thread_exists()) return;
    atomic_store_explicit(&leave.now, LEAVE_WANTED, memory_order_seq_cst); /* see sleep.c */
    writer_socket_name(name);
    int wake = platform_connect(name); /* for when it waits for requests alone */
    writer_wake();
    for (uint64_t end = platform_clock_ms() + FINISH_MS; !is_over(end) && writer_thread_exists();) {
        if (atomic_load_explicit(&leave.now, memory_order_relaxed) == STAYS) break;
        platform_wait(&leave.now, LEAVE_WANTED, 1000); /* nothing tells of the thread's end: it is looked for */
    }
    if (wake >= 0) close(wake);
}

static void main_thread_leaves(void *argument)
{
    (void)argument;
    atomic_store_explicit(&leave.main_has_left, true, memory_order_seq_cst); /* see is_last */
    writer_thread_leaves();
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
}
