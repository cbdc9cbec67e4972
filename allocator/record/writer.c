/* R, the recorder's thread: its beginning, and what it does all day. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "writer.h"

#include "platform/server.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

/*     number, ready:    none, 0 ──P: writer_start, R: run──► R's, 0 ──R: say_ready──► R's, 1 ──R: run──► R's, over
 */
static struct {
    _Atomic(uint64_t) process; /* whose R is, platform_process_identity; 0: nobody's. Written before R is */
    _Atomic(int32_t) number; /* R's; 0: none. Written before P goes on from writer_start */
    _Atomic(uint32_t) ready; /* 1: R has begun to record, or found that it cannot */
    _Atomic(bool) over; /* R does nothing more, and is about to end */
    _Atomic(const char *) why; /* R is to end; told with leave_now */
} thread;

/* R has it as long as it lives: when it ends without a word, as a filter may end a single thread, the kernel says so in it. */
static pthread_mutex_t alive;

static void alive_begin(void)
{
    pthread_mutexattr_t robust;
    if (pthread_mutexattr_init(&robust) != 0) return; /* there are no threads, so no R either: see platform/compat.c */
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&alive, &robust);
    pthread_mutexattr_destroy(&robust);
}

/* glibc's word is read, and the lock not tried: nobody else ever has it, and a thread in the middle of anything may ask. */
static bool has_died(void)
{
    return (__atomic_load_n(&alive.__data.__lock, __ATOMIC_RELAXED) & FUTEX_OWNER_DIED) != 0;
}

/* ---- R -------------------------------------------------------------------------------------------------------------------- */

static struct server server;

static void go_on(void)
{
    file_reopen();
    streams_take();
    recording_answer();
    if (platform_clock_ms() < recording_flush_ms()) return;
    recording_flush();
    server_serve(&server, 0);
    leave_look_around();
}

static void record(void)
{
    sleep_until(whole_is_held() ? platform_clock_ms() + IDLE_MS : recording_flush_ms());
    leave_answer();
    whole_look();
    if (whole_is_held()) whole_be();
    else go_on();
    recording_look();
}

static void rest(void)
{
    leave_answer();
    if (server.listener >= 0) server_serve(&server, IDLE_MS);
    else poll(NULL, 0, IDLE_MS);
    leave_look_around();
}

void writer_socket_name(char name[SOCKET_NAME_BYTES])
{
    platform_format(name, SOCKET_NAME_BYTES, "heapfit-record/%zu", (size_t)getpid());
}

/* Says on stderr, which is open until then, what fails. */
static bool prepare(void)
{
    char name[SOCKET_NAME_BYTES];
    writer_socket_name(name);
    facts_prepare();
    server = (struct server){.listener = platform_listen(name), .answer = record_answer};
    if (server.listener < 0 && !record_settings.quiet)
        platform_message("no control of the recording: the socket @%s cannot be made", name);
    return file_prepare();
}

static void record_at_once(void)
{
    const char *wrong = recording_begin();
    if (wrong != NULL) record_file.error = wrong;
    if (wrong != NULL && !record_settings.quiet) platform_message("no recording: %s: %s", record_file.path, wrong);
}

/* Its number stays taken, by what cannot be written, lest a message goes into a file of ours. */
static void leave_stderr(void)
{
    int none = open("/", O_PATH | O_CLOEXEC);
    if (none < 0 || dup2(none, STDERR_FILENO) < 0) close(STDERR_FILENO);
    if (none >= 0) close(none);
}

static void say_ready(void)
{
    /* Release: what the program finds has been done. */
    atomic_store_explicit(&thread.ready, 1, memory_order_release);
    platform_wake(&thread.ready);
}

static void run(void *begin)
{
    record_ignore_thread();
    pthread_mutex_lock(&alive);
    atomic_store_explicit(&thread.number, platform_thread_number(), memory_order_relaxed); /* told with `ready` */
    bool apart = platform_descriptors_own();
    if (!apart) record_file.error = "this kernel does not let a thread have descriptors of its own (Linux 5.9 does)";
    if (!apart && !record_settings.quiet)
        platform_message(
            "no recording: this kernel does not let a thread have descriptors of its own (Linux 5.9 does)");
    if (apart && fcntl(STDERR_FILENO, F_GETFD) < 0) leave_stderr(); /* else a file of ours would get its number */
    bool prepared = apart && prepare();
    if (prepared && begin != NULL) record_at_once();
    if (apart) leave_stderr(); /* else it would be the program's */
    say_ready();
    while (prepared && !leave_is_decided()) (record_file.open ? record : rest)();
    const char *why = atomic_load_explicit(&thread.why, memory_order_relaxed); /* see leave_is_decided */
    recording_end(why == NULL ? "exit" : why);
    atomic_store_explicit(&thread.over, true, memory_order_relaxed); /* who waits for R looks again and again */
}

/* ---- P -------------------------------------------------------------------------------------------------------------------- */

bool writer_is_ours(void)
{
    /* Relaxed: written before any P is. */
    return atomic_load_explicit(&thread.process, memory_order_relaxed) == platform_process_identity();
}

bool writer_listens(void)
{
    return server.listener >= 0; /* told with `ready` */
}

bool writer_works(void)
{
    return atomic_load_explicit(&thread.number, memory_order_relaxed) != 0 &&
           !atomic_load_explicit(&thread.over, memory_order_relaxed) && !has_died();
}

bool writer_thread_exists(void)
{
    int32_t number = atomic_load_explicit(&thread.number, memory_order_relaxed); /* the kernel is asked about it */
    return number != 0 && platform_thread_exists(number);
}

void writer_start(bool begin)
{
    enum { START_MS = 5000 }; /* the file may be on a disk that does not answer; the program starts all the same */
    static const char at_once;
    recording_prepare();
    /* Relaxed, all: R is not there yet, and one that was has ended, perhaps by itself. */
    atomic_store_explicit(&thread.number, 0, memory_order_relaxed);
    atomic_store_explicit(&thread.ready, 0, memory_order_relaxed);
    atomic_store_explicit(&thread.over, false, memory_order_relaxed);
    alive_begin();
    atomic_store_explicit(&thread.process, platform_process_identity(), memory_order_relaxed);
    if (!platform_thread_start("heapfit-record", run, begin ? (void *)&at_once : NULL, false)) {
        if (!record_settings.quiet) platform_message("no recording: the thread for it cannot be started");
        return;
    }
    leave_watch_main_thread();
    struct patience patience = patience_of(START_MS);
    /* Acquire: pairs with say_ready. */
    while (!is_over(&patience) && atomic_load_explicit(&thread.ready, memory_order_acquire) == 0)
        platform_wait(&thread.ready, 0, LOOK_MS * 1000);
    if (atomic_load_explicit(&thread.ready, memory_order_relaxed) == 0 && !record_settings.quiet)
        platform_message(
            "the recording has not begun after 5 seconds, and the program goes on without it until it has");
}

bool writer_end(const char *why)
{
    atomic_store_explicit(&thread.why, why, memory_order_relaxed); /* told with the next */
    leave_now();
    for (struct patience patience = patience_of(FINISH_MS); writer_thread_exists();) {
        if (is_over(&patience)) return false;
        leave_look_again();
    }
    leave_is_over();
    atomic_store_explicit(&thread.why, NULL, memory_order_relaxed); /* nobody else is there */
    atomic_store_explicit(&thread.process, 0, memory_order_relaxed);
    atomic_store_explicit(&thread.number, 0, memory_order_relaxed);
    atomic_store_explicit(&thread.ready, 0, memory_order_relaxed);
    return true;
}

void writer_fork_child(bool may_allocate)
{
    bool was_recording = atomic_exchange_explicit(&recording, false, memory_order_relaxed);
    rings_fork_child();
    recording_fork_child();
    whole_fork_child();
    sleep_fork_child();
    leave_fork_child();
    atomic_store_explicit(&thread.why, NULL, memory_order_relaxed);
    atomic_store_explicit(&thread.process, 0, memory_order_relaxed);
    atomic_store_explicit(&thread.number, 0, memory_order_relaxed);
    atomic_store_explicit(&thread.ready, 0, memory_order_relaxed);
    if (record_settings_apply() && may_allocate) writer_start(was_recording);
}
