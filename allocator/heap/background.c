/* Memory goes back although nobody calls: a thread of our own sees to what has become free when the program sleeps.
 *
 * All that it does is also done by the program's threads, step by step, when they come by (chores.c). So it is worth having only
 * for those who do not, and it does what is due no sooner: after the decay time.
 *
 *     started    by the call that frees, when the heap has grown large and memory is waiting to go back (is_wanted)
 *     works      over kept runs of all heaps, orphans, dirty runs; over heaps whose threads rest: see idle.c
 *     sleeps     while what is waiting is younger than the decay time
 *     ends       when there has been nothing to wait for during IDLE_MS; the next call that finds something starts it again
 *
 * It has no low priority, although it could wait: it takes locks, for as long as it takes to unlink a few runs, and who had to
 * wait for the holder of a lock who has to wait for a core that is never idle would wait for ever. So no thread starts it that
 * comes after the first one where cores are short, for the kernel may let none rise above its starter. Nor is it the thread that
 * clears memory ahead (space/zeroed.c), which works for seconds on end, so must run at idle priority, and so takes no lock.
 *
 * A process that has a second thread is not what it was: unshare and setns refuse some of their services, the C library takes
 * stdio's locks from then on and counts shared pointers by atomics, a sandbox may forbid it by death. So, unless `background:on` asks
 * for it, only a process that has threads of its own at that moment gets one; and the thread leaves when it is the last one.
 *
 * A process of many threads may forbid by death what it does not need itself: a further thread, and what that one asks the kernel.
 * So one that has put itself behind a filter gets none, and a thread that is there leaves as soon as it finds out. Unless
 * `background:on` says that the filter is known to let it be. To ask for filters a file is opened, for which a sandbox may end the
 * process too: where `memory_limit:none` forbids that, nothing is asked, and the answer is taken to be yes.
 */
#include "heap.h"

enum background_status {
    BACKGROUND_FORBIDDEN =
        0, /* too early in the life of the process to start threads; or too late, in a sandbox of its own */
    BACKGROUND_ABSENT,
    BACKGROUND_WANTED, /* the next call from which a thread can be started does so */
    BACKGROUND_PRESENT,
    BACKGROUND_LEAVING, /* somebody waits for its end */
};

_Atomic(uint32_t) heap_background_status;

static bool status_change(uint32_t from, enum background_status to)
{
    /* Sequentially consistent: see may_leave. */
    return atomic_compare_exchange_strong_explicit(&heap_background_status, &from, to, memory_order_seq_cst,
                                                   memory_order_relaxed);
}

static uint32_t setting(void)
{
    return atomic_load_explicit(&heap_settings.background, memory_order_relaxed);
}

/* Whether files may be opened. Relaxed: a setting. */
static bool may_ask(void)
{
    return atomic_load_explicit(&heap_settings.memory_limit, memory_order_relaxed) != MEMORY_LIMIT_NONE;
}

static bool is_allowed(void)
{
    return setting() == BACKGROUND_ON || (setting() == BACKGROUND_AUTO && may_ask());
}

/* ---- when it is wanted -------------------------------------------------------------------------------------------- */

/* Below this all that could go back is not worth a thread, whose stack and start cost some 50 KiB and as many microseconds; most
 * programs stay below, and those that drop rights or enter namespaces at their start, which takes one thread, do so then. */
#define GROWN_LARGE ((size_t)16 << 20)
/* In a process of one thread so much must be waiting at once: the end of a phase, not the coming and going within one. */
#define WAITING_ALONE ((size_t)16 << 20)

static bool is_wanted(void)
{
    struct space_load load = space_load();
    if (load.kept < GROWN_LARGE || load.is_locked) return false;
    if (heap_threads_now() > 1) return true;
    size_t waiting = load.dirty + thread_heap_now()->sparse_bytes / 2; /* at least so much of those is free */
    return setting() == BACKGROUND_ON && (heap_threads_are_many() || waiting >= WAITING_ALONE);
}

/* When no thread could be had: a limit may have been met for a moment, but a sandbox refuses each time, and may say so in a log.
 * When the thread that would have started it was not the right one: another may come by soon. */
enum { REFUSED_REST_MS = 60000, WRONG_STARTER_REST_MS = 100, SENT_AWAY_REST_MS = 1000 };

static _Atomic(uint64_t) not_before_ms; /* relaxed: a number */

static void put_off(uint64_t rest_ms)
{
    atomic_store_explicit(&not_before_ms, platform_clock_ms() + rest_ms, memory_order_relaxed);
}

bool heap_background_is_put_off(void)
{
    return platform_clock_ms() < atomic_load_explicit(&not_before_ms, memory_order_relaxed);
}

bool heap_background_is_possible(void)
{
    /* Relaxed: a hint. */
    return is_allowed() && atomic_load_explicit(&heap_background_status, memory_order_relaxed) != BACKGROUND_FORBIDDEN;
}

void heap_background_consider(void)
{
    if (!is_allowed() || atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed) == DECAY_NEVER) return;
    if (is_wanted() && !heap_background_is_put_off()) status_change(BACKGROUND_ABSENT, BACKGROUND_WANTED);
}

/* ---- what it does ------------------------------------------------------------------------------------------------- */

/* One step of all that is due. */
static enum chores_left step(enum resting resting)
{
    uint32_t decay = atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed);
    if (setting() == BACKGROUND_OFF) heap_caches_empty(); /* it has just been set */
    if (decay == DECAY_NEVER || setting() == BACKGROUND_OFF) return CHORES_NONE;
    heap_pressure_pass(platform_clock_ms());
    uint32_t age = decay == AT_ONCE ? AT_ONCE + 1 : decay;
    enum chores_left left = heap_all_release_old(platform_clock_ms(), age, resting);
    left = chores_more_urgent(left, shared_step(platform_clock_ms(), age));
    left = chores_more_urgent(left, heap_locked_step(&heap_orphans));
    return chores_more_urgent(left, (enum chores_left)space_purge_old());
}

/* ---- where it must not be ----------------------------------------------------------------------------------------- */

static bool has_entered_sandbox(void)
{
    return setting() != BACKGROUND_ON && (!may_ask() || platform_is_in_own_sandbox());
}

bool heap_background_may_interrupt_others(void)
{
    return !has_entered_sandbox() && platform_barrier_prepare();
}

/* ---- its life ----------------------------------------------------------------------------------------------------- */

enum { IDLE_MS = 1000, SLEEP_MIN_MS = 20, SLEEP_MAX_MS = 1000 };

static uint32_t sleep_ms(void)
{
    uint32_t half = atomic_load_explicit(&space_settings.decay_ms, memory_order_relaxed) / 2;
    return half < SLEEP_MIN_MS ? SLEEP_MIN_MS : half > SLEEP_MAX_MS ? SLEEP_MAX_MS : half;
}

/* False when something has come at the last moment. Sequentially consistent: who brings it changes what step looks at and then
 * looks at the status; so either it finds us gone, or we find it. */
static bool may_leave(enum resting resting)
{
    if (!status_change(BACKGROUND_PRESENT, BACKGROUND_ABSENT))
        return false; /* it is to leave at once: see background_run */
    return step(resting) == CHORES_NONE || !status_change(BACKGROUND_ABSENT, BACKGROUND_PRESENT);
}

/* Its number; 0: not known yet. Relaxed: only to know whether it still exists. */
static _Atomic(int32_t) thread_number;

/* What to do about heaps whose threads rest. Where the kernel has no barrier they are left to their owners. To have those of
 * sleeping threads whole must be asked for: of a few strange programs it is wrongly told that a thread sleeps outside malloc
 * (platform/asleep.c). */
static enum resting resting_heaps(bool has_barrier)
{
    if (!has_barrier) return RESTING_LEFT;
    return setting() == BACKGROUND_ON ? RESTING_LENT : RESTING_CLAIMED;
}

/* With a table of descriptors of its own, so that no file that it opens takes a number that the program expects to get, and what the
 * program closes is closed. Where the kernel has no such table (before Linux 5.9) it opens files in the program's. */
static bool has_entered_sandbox_since(bool apart, const struct platform_sandbox_watch *watch)
{
    if (!apart) return has_entered_sandbox();
    return setting() != BACKGROUND_ON && platform_sandbox_watch_again(watch);
}

/* Until there may be something to do, or somebody wakes it. */
static void rest(void)
{
    enum { ANSWER_MS = 100 };
    for (uint32_t left = sleep_ms(); left > 0;) {
        uint32_t now = left < ANSWER_MS ? left : ANSWER_MS;
        platform_wait(&heap_background_status, BACKGROUND_PRESENT, now * 1000);
        platform_answer_signals();
        /* Relaxed: a hint. */
        if (atomic_load_explicit(&heap_background_status, memory_order_relaxed) != BACKGROUND_PRESENT) return;
        left -= now;
    }
}

/* 1 once the thread has made the calls of its start. A program may enter a sandbox that kills for opening files as soon as `free` has
 * returned: so the starter waits, some tenths of a millisecond. */
static _Atomic(uint32_t) settled;

static void settle(void)
{
    /* Release: in await_settled the starter sees that the calls have been made. */
    atomic_store_explicit(&settled, 1, memory_order_release);
    platform_wake(&settled);
}

/* Not for ever: a sandbox that another thread has just entered may have ended the thread. Nor does one with a deadline wait for one
 * that has none. */
static void await_settled(void)
{
    enum { SLICES = 10, SLICE_US = 10000 };
    if (platform_thread_is_real_time(0)) return;
    for (int i = 0; i < SLICES && atomic_load_explicit(&settled, memory_order_acquire) == 0; i++)
        platform_wait(&settled, 0, SLICE_US);
}

static void background_run(void *unused)
{
    (void)unused;
    struct platform_sandbox_watch watch = {.file = -1};
    atomic_store_explicit(&thread_number, platform_thread_number(), memory_order_relaxed);
    bool apart = platform_descriptors_own_all();
    /* It has what its starter had, which may be less than others have, or another network; whoever looks for a thread of it must not
     * find this one. Here and not before, for the sake of the files that are read. */
    bool is_like_first = platform_thread_is_like_first();
    bool is_confined = is_like_first && apart && platform_sandbox_watch_begin(&watch) && setting() != BACKGROUND_ON;
    bool has_barrier = is_like_first && !is_confined && platform_barrier_prepare();
    settle(); /* before the status changes: the next thread has a start of its own */
    if (!is_like_first) {
        put_off(SENT_AWAY_REST_MS);
        status_change(BACKGROUND_PRESENT, BACKGROUND_ABSENT);
        status_change(BACKGROUND_LEAVING, BACKGROUND_ABSENT);
        return;
    }
    if (is_confined) {
        atomic_store_explicit(&heap_background_status, BACKGROUND_FORBIDDEN, memory_order_relaxed);
        return;
    }
    uint64_t busy_at = platform_clock_ms();
    for (;;) {
        enum resting resting = resting_heaps(has_barrier);
        enum chores_left left = step(resting);
        uint64_t now = platform_clock_ms();
        if (status_change(BACKGROUND_LEAVING, BACKGROUND_ABSENT)) return;
        if (left != CHORES_NONE) busy_at = now;
        if (left == CHORES_NOW) continue;
        if (platform_thread_is_last()) {
            status_change(BACKGROUND_PRESENT, BACKGROUND_ABSENT);
            return;
        }
        if (now - busy_at >= IDLE_MS && may_leave(resting)) return;
        rest();
        if (has_entered_sandbox_since(apart, &watch)) {
            atomic_store_explicit(&heap_background_status, BACKGROUND_FORBIDDEN, memory_order_relaxed);
            return;
        }
    }
}

/* The process that the thread is of, or will be. Relaxed: written where there is no other thread. A child that shares the memory
 * without being of it (vfork, clone) starts none: the thread would end with the child, and the status would say that it is
 * there. */
static _Atomic(uint64_t) process;

static bool is_own_process(void)
{
    return platform_process_identity() == atomic_load_explicit(&process, memory_order_relaxed);
}

static void process_begins(void)
{
    atomic_store_explicit(&process, platform_process_identity(), memory_order_relaxed);
}

void heap_background_allow(void)
{
    process_begins();
    status_change(BACKGROUND_FORBIDDEN, BACKGROUND_ABSENT);
}

/* Undisturbed: the child of a handler that forks in between would be without the thread, but say that it is there, or go on to
 * start it having said that it is not. */
static void start_undisturbed(void *unused)
{
    (void)unused;
    if (!status_change(BACKGROUND_WANTED, BACKGROUND_PRESENT)) return;
    if (platform_thread_ranks_below_first()) { /* so would the new thread, for good, and with it whoever waits for it */
        put_off(WRONG_STARTER_REST_MS);
        status_change(BACKGROUND_PRESENT, BACKGROUND_ABSENT);
        return;
    }
    heap_watch_copies(); /* first: one that is made when the thread is there finds what it had in hand */
    atomic_store_explicit(&thread_number, 0, memory_order_relaxed);
    atomic_store_explicit(&settled, 0, memory_order_relaxed); /* starting a thread orders it */
    bool diverted = thread_heap == &heap_diverted;
    heap_divert(false); /* what the C library allocates for the thread lives as long as that one */
    bool started = platform_thread_start("heapfit-reclaim", background_run, NULL, false);
    heap_divert(diverted);
    if (started) {
        await_settled();
        return;
    }
    put_off(REFUSED_REST_MS);
    status_change(BACKGROUND_PRESENT, BACKGROUND_ABSENT);
}

/* The C library frees the memory of dead threads' thread-local variables while it holds the lock without which no thread can be
 * started. That is done by the dynamic linker's functions, which is where such a call of free comes from. */
void heap_background_start(const void *caller)
{
    platform_copy_look();
    if (platform_is_in_linker(caller) || !is_own_process()) return;
    /* First: a sandbox may forbid by death to block signals. */
    if (has_entered_sandbox()) status_change(BACKGROUND_WANTED, BACKGROUND_FORBIDDEN);
    else platform_undisturbed(start_undisturbed, NULL);
}

void heap_background_fork_child(void)
{
    process_begins();
    atomic_store_explicit(&thread_number, 0, memory_order_relaxed);
    /* Relaxed: nobody else is there. */
    if (atomic_load_explicit(&heap_background_status, memory_order_relaxed) != BACKGROUND_FORBIDDEN)
        atomic_store_explicit(&heap_background_status, BACKGROUND_ABSENT, memory_order_relaxed);
}

/* A step takes some milliseconds at most; should it not get a processor, the caller finds the process as it is. */
enum { FAREWELL_MS = 1000 };

static bool is_there(void)
{
    int32_t number = atomic_load_explicit(&thread_number, memory_order_relaxed);
    /* Acquire: who started it has forgotten the number of the one before. */
    uint32_t status = atomic_load_explicit(&heap_background_status, memory_order_acquire);
    return number != 0 ? platform_thread_exists(number) : status == BACKGROUND_LEAVING;
}

void heap_background_leave(void)
{
    static _Atomic(uint32_t) never;
    platform_copy_look();
    if (heap_threads_now() > 1 || !is_own_process()) return;
    put_off(SENT_AWAY_REST_MS);
    if (status_change(BACKGROUND_PRESENT, BACKGROUND_LEAVING)) platform_wake(&heap_background_status);
    for (int waited = 0; is_there() && waited < FAREWELL_MS; waited++) platform_wait(&never, 0, 1000);
    atomic_store_explicit(&thread_number, 0, memory_order_relaxed);
}

void heap_background_thread_leaves(void)
{
    /* Relaxed: a hint. */
    if (LIKELY(atomic_load_explicit(&heap_background_status, memory_order_relaxed) != BACKGROUND_PRESENT)) return;
    if (heap_threads_now() == 0 && platform_first_thread_leaves()) heap_background_leave();
}
