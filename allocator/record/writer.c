/* The recorder's thread, and how the program's threads meet it.
 *
 * It takes events out of the rings whenever one is half full and every flush_ms, and then brings the file up to date: blocks
 * of all threads, then a mark that says how far the file is complete. In between it answers requests (request.c). Where nothing
 * is recorded it only waits for requests.
 *
 * A program's thread that waits for this one may hold any lock there is: malloc's caller may be the dynamic linker, or another
 * allocator. So this thread takes no lock, allocates nothing, and calls nothing that might. And it may be gone (it is not copied
 * to a child that was made without fork's handlers), or stuck (a disk that does not answer): all waits end after some time, and
 * then nothing is recorded any more.
 *
 * The program must not notice: the thread takes no signal, and has a table of descriptors of its own. It must not be the last
 * of a process, which runs the exit handlers, so it ends before the last one that ever allocated.
 *
 * The two sides share six small machines, each a word or two. An arrow is taken by one side alone: P, any thread of the program
 * (of several that want the same, one is first, and the others find it done), or R, the recorder's thread.
 *
 *     the file: recording, busy                           (`recording` is all that malloc looks at)
 *
 *         idle ──R: recording_begin──► on ──R: recording_end, or the last be_whole──► ending ──R: closed──► idle
 *         0, 0                        1, 1                                             0, 1
 *                                      │  ──R: an error of the file: closed──────────────────────────────► idle
 *                                      └──P: give_up, sets `stuck`, on which R calls recording_end──► ending
 *
 *     how whole it is: wholeness                          (exec, abort, exit: what was noted is to be in the file)
 *
 *         GOING_ON ──P: make_whole, with `reason`, `final`──► WHOLE_WANTED ──R: be_whole──► WHOLE
 *             ▲                                                    │                          │  R waits
 *             └────────────────P: writer_resume, also of one who waited in vain───────────────┘
 *
 *     whether R sleeps: asleep                            0 ──R: sleep_until_flush──► 1 ──P: writer_wake, R: time──► 0
 *     whether P waits for room: ring->waiting             0 ──P: writer_wait──► 1 ──R: ring_release, P: time──► 0
 *     whether R has begun: ready                          0 ──R: say_ready──► 1
 *
 *     whether R may live: leave                           (nobody else but the main thread's remains is left)
 *
 *         STAYS ──P: writer_thread_leaves──► LEAVE_WANTED ──R: answer_leave──► LEAVES, and R ends
 *           ▲ │                                   │
 *           │ └──R: look_around──► LEAVES         │
 *           └────────R: answer_leave refuses──────┘
 *
 * In a fork's child all are as at the start (writer_fork_child), and R is another.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "record.h"

#include "platform/server.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    START_MS = 5000, /* the file may be on a disk that does not answer; the program starts all the same */
    FINISH_MS = 10000, /* so may its last blocks */
    FULL_MS = 10000, /* in which the thread takes nothing out of a full ring: it is stuck */
    FULL_CHILD_MS = 200, /* the same in a process that the thread is not of */
    LOOK_MS = 20, /* between two looks at what is not waited for by a futex of its own */
    IDLE_MS = 1000 /* between two looks at the rest of the process, and between marks when nothing happens */
};

#define STUCK "the file took nothing for 10 seconds"

_Atomic(bool) recording;

/* ---- what the threads tell each other ---------------------------------------------------------------------------------- */

/* Whose the thread is, and its number; 0: none. Written before the thread is, or by it before anybody waits for it. */
static _Atomic(int32_t) process, thread_number;

/* Becomes 1 when the thread has begun to record, or found that it cannot. */
static _Atomic(uint32_t) ready;

/* 1: it sleeps, and what it is to do does not wait. Sequentially consistent where that pairs with what it looks at before it
 * sleeps: either it sees that, or whoever did that sees that it sleeps. */
static _Atomic(uint32_t) asleep;

/* How far the file is wanted to be whole: a program's thread moves from the first to the second, the recorder's to the third, and
 * a program's back to the first. */
enum { GOING_ON, WHOLE_WANTED, WHOLE };
static _Atomic(uint32_t) wholeness;
static _Atomic(const char *) reason; /* of the end that is then written. Release with `wholeness` */
static _Atomic(bool) final; /* nobody goes on after it */

/* There is a file that is not whole. Release when it becomes false: it is. */
static _Atomic(bool) busy;
static _Atomic(bool) stuck; /* a thread has waited too long */
static _Atomic(bool) main_has_left;

/* A program's thread asks this one to leave, which does or refuses. Sequentially consistent: see `asleep`. */
enum { STAYS, LEAVE_WANTED, LEAVES };
static _Atomic(uint32_t) leave;

/* For the program's threads to say. NULL: nothing bad has happened, or it has been said. */
static _Atomic(const char *) complaint;

static bool is_our_process(void)
{
    return atomic_load_explicit(&process, memory_order_relaxed) == getpid();
}

static bool thread_exists(void)
{
    int32_t number = atomic_load_explicit(&thread_number, memory_order_relaxed);
    return number != 0 && platform_thread_exists(number);
}

void writer_wake(void)
{
    atomic_thread_fence(memory_order_seq_cst); /* see `asleep` */
    if (atomic_load_explicit(&asleep, memory_order_relaxed) == 0) return;
    if (atomic_exchange_explicit(&asleep, 0, memory_order_relaxed) != 0) platform_wake(&asleep);
}

/* ---- the thread: marks and modules -------------------------------------------------------------------------------------- */

/* All below is the recorder's thread's own. */
static struct {
    uint64_t start_tick, start_ns; /* the clocks when the thread was asked for */
    uint64_t begun_ms, flush_ms, marked_ms, looked_ms; /* when the file was begun; is to be flushed; was marked; ... */
    uint64_t modules_ms; /* when they were last read */
    uint64_t marked_events;
    uint32_t modules_checksum;
    char text[TRACE_RAW_MAX];
} writer;

/* Between an event's stamp and its way into the ring its thread may lose the core: so long, mostly. */
enum { SLACK_US = 10000 };

/* Ticks in SLACK_US, by what has passed so far. */
static uint64_t slack_ticks(uint64_t tick)
{
    uint64_t us = (platform_clock_ns() - writer.start_ns) / 1000;
    uint64_t ticks = tick > writer.start_tick ? tick - writer.start_tick : 0; /* another core's clock may be behind */
    return us <= SLACK_US ? ticks : (uint64_t)((double)ticks / (double)us * SLACK_US);
}

static void mark(uint64_t complete)
{
    struct trace_mark mark = {.tick = record_ticks(), .monotonic_ns = platform_clock_ns(), .complete_tick = complete};
    facts_memory(&mark.resident, &mark.resident_anonymous);
    mark.lost = file_lost();
    file_block(TRACE_MARK, 0, &mark, sizeof mark);
    writer.marked_ms = platform_clock_ms();
    writer.marked_events = record_file.events;
}

static void modules(void)
{
    size_t size = facts_modules(writer.text);
    writer.modules_ms = platform_clock_ms();
    uint32_t checksum = trace_crc(0, writer.text, size);
    if (size == 0 || checksum == writer.modules_checksum) return;
    writer.modules_checksum = checksum;
    file_block(TRACE_MODULES, 0, writer.text, size);
}

/* ---- the thread: one file ------------------------------------------------------------------------------------------------ */

/* The file is closed, by an error or by us. */
static void closed(void)
{
    atomic_store_explicit(&recording, false, memory_order_relaxed);
    if (record_file.error != NULL) atomic_store_explicit(&complaint, record_file.error, memory_order_relaxed);
    atomic_store_explicit(&busy, false, memory_order_release);
    streams_wake();
}

/* Everything up to now goes into the file, and a mark unless there is nothing to say. */
static void flush(void)
{
    uint64_t now = platform_clock_ms(), tick = record_ticks();
    uint64_t complete = tick - slack_ticks(tick);
    uint64_t until = streams_take();
    streams_flush();
    if (now - writer.modules_ms >= IDLE_MS && streams_strange()) modules();
    if (record_file.events != writer.marked_events || now - writer.marked_ms >= IDLE_MS)
        mark(until < complete ? until : complete);
    file_flush();
    writer.flush_ms = now + record_settings.flush_ms;
}

/* Nothing that was noted is missing, as far as its threads have noted it. */
static void end(const char *why)
{
    uint64_t tick = record_ticks();
    streams_take();
    streams_flush();
    modules();
    mark(tick);
    file_end(why);
}

const char *recording_begin(void)
{
    if (record_file.open) return NULL;
    if (!sample_begin()) return "there is no memory for it";
    streams_begin();
    uint64_t tick = record_ticks();
    if (!file_open()) return record_file.error;
    size_t size = facts_info(writer.text, writer.start_tick, writer.start_ns);
    file_block(TRACE_INFO, 0, writer.text, size);
    writer.modules_checksum = 0;
    writer.begun_ms = platform_clock_ms();
    writer.flush_ms = writer.begun_ms + record_settings.flush_ms;
    mark(tick);
    modules();
    if (!file_flush()) return record_file.error;
    atomic_store_explicit(&stuck, false, memory_order_relaxed);
    atomic_store_explicit(&busy, true, memory_order_relaxed);
    atomic_store_explicit(&recording, true, memory_order_relaxed);
    return NULL;
}

void recording_end(const char *why)
{
    if (!record_file.open) return;
    atomic_store_explicit(&recording, false, memory_order_relaxed);
    end(why);
    file_close();
    closed();
}

/* ---- the thread: what it does all day --------------------------------------------------------------------------------------- */

static struct server server;

static bool is_asked_to_leave(void)
{
    return atomic_load_explicit(&leave, memory_order_seq_cst) == LEAVE_WANTED;
}

static void do_leave(void)
{
    atomic_store_explicit(&leave, LEAVES, memory_order_relaxed);
}

/* Of the process, as far as they are known: this one, the main thread's remains, and those that are about to end. */
static size_t threads_that_end(void)
{
    size_t count = 2;
    struct record_ring *ring = atomic_load_explicit(&record_rings, memory_order_acquire);
    for (; ring != NULL; ring = ring->next) {
        int32_t tid = atomic_load_explicit(&ring->tid, memory_order_relaxed);
        count += tid != 0 && tid != getpid() && platform_thread_exists(tid);
    }
    return count;
}

/* Not while there are threads that have not allocated so far. They are counted last: one that ends meanwhile does not look like
 * one of them. */
static void answer_leave(void)
{
    if (!is_asked_to_leave()) return;
    size_t known = threads_that_end() + facts_threads_of_heapfit();
    if (facts_threads() <= known) {
        do_leave();
        return;
    }
    atomic_store_explicit(&leave, STAYS, memory_order_relaxed);
    platform_wake(&leave);
}

static bool is_leaving(void)
{
    return atomic_load_explicit(&leave, memory_order_relaxed) == LEAVES;
}

/* Until it is time to flush, or a ring is half full, or the file is wanted whole. */
static void sleep_until_flush(void)
{
    uint64_t now = platform_clock_ms();
    if (now >= writer.flush_ms) return;
    atomic_store_explicit(&asleep, 1, memory_order_seq_cst);
    bool called =
        streams_call() || is_asked_to_leave() || atomic_load_explicit(&wholeness, memory_order_seq_cst) != GOING_ON;
    if (!called) platform_wait(&asleep, 1, (uint32_t)(writer.flush_ms - now) * 1000);
    atomic_store_explicit(&asleep, 0, memory_order_relaxed);
}

/* The file becomes whole, and nothing happens until it need not be any more. */
static void be_whole(void)
{
    bool for_good = atomic_load_explicit(&final, memory_order_relaxed);
    /* Acquire: pairs with the release in make_whole. */
    const char *why = atomic_load_explicit(&reason, memory_order_acquire);
    if (for_good) atomic_store_explicit(&recording, false, memory_order_relaxed);
    end(why);
    if (!record_file.open) closed();
    /* Release: the file is whole. */
    atomic_store_explicit(&wholeness, WHOLE, memory_order_release);
    platform_wake(&wholeness);
    while (atomic_load_explicit(&wholeness, memory_order_acquire) == WHOLE && !is_leaving()) {
        platform_wait(&wholeness, WHOLE, IDLE_MS * 1000);
        answer_leave();
    }
    file_reopen();
}

/* Threads that end without a word, and so nobody says that this one is the last, are rare: it is looked for now and then. */
static void look_around(void)
{
    uint64_t now = platform_clock_ms();
    if (now - writer.looked_ms < IDLE_MS) return;
    writer.looked_ms = now;
    if (facts_main_has_left() && facts_threads() <= 2 + facts_threads_of_heapfit()) do_leave();
}

static void record(void)
{
    sleep_until_flush();
    answer_leave();
    if (atomic_load_explicit(&wholeness, memory_order_seq_cst) == WHOLE_WANTED) {
        be_whole();
        return;
    }
    streams_take();
    uint64_t now = platform_clock_ms();
    if (now >= writer.flush_ms) {
        flush();
        server_serve(&server, 0);
        look_around();
    }
    if (!record_file.open) closed();
    else if (atomic_load_explicit(&stuck, memory_order_relaxed)) recording_end(STUCK);
    else if (record_settings.seconds != 0 && now - writer.begun_ms >= record_settings.seconds * UINT64_C(1000))
        recording_end("the time is over");
}

static void rest(void)
{
    answer_leave();
    if (server.listener >= 0) server_serve(&server, IDLE_MS);
    else poll(NULL, 0, IDLE_MS);
    look_around();
}

enum { NAME_MAX_BYTES = 40 };

static void socket_name(char *name)
{
    platform_format(name, NAME_MAX_BYTES, "heapfit-record/%zu", (size_t)getpid());
}

/* Says on stderr, which is open until then, what fails. */
static bool prepare(void)
{
    char name[NAME_MAX_BYTES];
    socket_name(name);
    facts_prepare();
    server = (struct server){.listener = platform_listen(name), .answer = record_answer};
    if (server.listener < 0) platform_message("no control of the recording: the socket @%s cannot be made", name);
    return file_prepare();
}

static void record_at_once(void)
{
    const char *wrong = recording_begin();
    if (wrong != NULL) platform_message("no recording: %s: %s", record_file.path, wrong);
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
    atomic_store_explicit(&ready, 1, memory_order_release);
    platform_wake(&ready);
}

static void run(void *begin)
{
    record_ignore_thread();
    atomic_store_explicit(&thread_number, platform_thread_number(), memory_order_relaxed);
    bool apart = platform_descriptors_own();
    if (!apart)
        platform_message(
            "no recording: this kernel does not let a thread have descriptors of its own (Linux 5.9 does)");
    bool prepared = apart && prepare();
    if (prepared && begin != NULL) record_at_once();
    if (apart) leave_stderr(); /* else it would be the program's */
    say_ready();
    while (prepared && !is_leaving()) (record_file.open ? record : rest)();
    recording_end("exit");
}

/* ---- the program's threads: a full ring ------------------------------------------------------------------------------------- */

static bool has_room(const struct record_ring *ring)
{
    /* Sequentially consistent: see ring_release in stream.c. */
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_seq_cst);
    return atomic_load_explicit(&ring->head, memory_order_relaxed) - tail < RECORD_RING_EVENTS;
}

static void give_up(void)
{
    atomic_store_explicit(&recording, false, memory_order_relaxed);
    atomic_store_explicit(&stuck, true, memory_order_relaxed);
    if (is_our_process()) atomic_store_explicit(&complaint, STUCK, memory_order_relaxed);
}

/* In a child that was made without fork's handlers, memory is a copy and nobody takes anything; in one of vfork it is the parent's,
 * and all goes on. */
void writer_wait(struct record_ring *ring)
{
    bool ours = is_our_process();
    for (unsigned waited = 0; waited < (ours ? FULL_MS : FULL_CHILD_MS); waited += LOOK_MS) {
        if (!atomic_load_explicit(&recording, memory_order_relaxed)) return;
        atomic_store_explicit(&ring->waiting, 1, memory_order_seq_cst);
        if (has_room(ring)) break;
        writer_wake();
        platform_wait(&ring->waiting, 1, LOOK_MS * 1000);
        if (has_room(ring)) break;
        if (ours && !thread_exists()) break;
    }
    atomic_store_explicit(&ring->waiting, 0, memory_order_relaxed);
    if (!has_room(ring)) give_up();
}

/* ---- the program's threads: the end ------------------------------------------------------------------------------------------ */

static struct stat error_output; /* what stderr was at the start */

/* The program may have closed it, and got its number for a file of its own: that one is left alone. */
static void complain(void)
{
    struct stat now;
    const char *why = atomic_exchange_explicit(&complaint, NULL, memory_order_relaxed);
    if (why == NULL || error_output.st_ino == 0 || fstat(STDERR_FILENO, &now) != 0) return;
    if (now.st_dev == error_output.st_dev && now.st_ino == error_output.st_ino)
        platform_message("the recording ended early: %s", why);
}

static void make_whole(const char *why)
{
    uint32_t expected = GOING_ON;
    /* Release: pairs with the acquire in be_whole. */
    atomic_store_explicit(&reason, why, memory_order_release);
    /* Sequentially consistent: see `asleep`. Another thread may be first; then its reason or ours is written. */
    atomic_compare_exchange_strong_explicit(&wholeness, &expected, WHOLE_WANTED, memory_order_seq_cst,
                                            memory_order_relaxed);
    writer_wake();
    for (unsigned waited = 0; waited < FINISH_MS; waited += LOOK_MS) {
        if (atomic_load_explicit(&stuck, memory_order_relaxed)) return; /* that was long enough */
        uint32_t now = atomic_load_explicit(&wholeness, memory_order_acquire);
        if (now != WHOLE_WANTED || !atomic_load_explicit(&busy, memory_order_acquire) || !thread_exists()) return;
        platform_wait(&wholeness, now, LOOK_MS * 1000);
    }
}

void writer_pause(const char *why)
{
    if (is_our_process() && atomic_load_explicit(&busy, memory_order_relaxed)) make_whole(why);
}

void writer_finish(const char *why)
{
    if (!is_our_process()) return; /* a child of vfork, say */
    atomic_store_explicit(&final, true, memory_order_relaxed);
    if (atomic_load_explicit(&busy, memory_order_relaxed)) make_whole(why);
    complain();
}

void writer_resume(void)
{
    if (!is_our_process() || atomic_load_explicit(&final, memory_order_relaxed)) return;
    /* Release: nothing; the recorder's thread only goes on. */
    if (atomic_exchange_explicit(&wholeness, GOING_ON, memory_order_release) != GOING_ON) platform_wake(&wholeness);
}

/* ---- the program's threads: the last one --------------------------------------------------------------------------------------- */

/* Sequentially consistent, here and where a thread marks its ring: of the last two to leave, one at least sees that the other has
 * begun to. */
static bool is_last(void)
{
    if (!atomic_load_explicit(&main_has_left, memory_order_seq_cst)) return false;
    struct record_ring *ring = atomic_load_explicit(&record_rings, memory_order_acquire);
    for (; ring != NULL; ring = ring->next)
        if (atomic_load_explicit(&ring->tid, memory_order_relaxed) != 0 &&
            !atomic_load_explicit(&ring->left, memory_order_seq_cst))
            return false;
    return true;
}

void writer_thread_leaves(void)
{
    char name[NAME_MAX_BYTES];
    if (!is_our_process() || !is_last() || !thread_exists()) return;
    atomic_store_explicit(&leave, LEAVE_WANTED, memory_order_seq_cst);
    socket_name(name);
    int wake = platform_connect(name); /* for when it waits for requests alone */
    writer_wake();
    for (unsigned waited = 0; waited < FINISH_MS && thread_exists(); waited++) {
        if (atomic_load_explicit(&leave, memory_order_relaxed) == STAYS) break;
        platform_wait(&leave, LEAVE_WANTED, 1000); /* nothing tells of the thread's end: it is looked for */
    }
    if (wake >= 0) close(wake);
}

static pthread_key_t main_thread;
static bool main_thread_known;

static void main_thread_leaves(void *argument)
{
    (void)argument;
    atomic_store_explicit(&main_has_left, true, memory_order_seq_cst);
    writer_thread_leaves();
}

/* Only in the main thread itself can it be told that it leaves. It is the one that loads the library, and that a child
 * has. */
static void watch_main_thread(void)
{
    if (platform_thread_number() != getpid()) return;
    if (!main_thread_known) main_thread_known = pthread_key_create(&main_thread, main_thread_leaves) == 0;
    if (main_thread_known) pthread_setspecific(main_thread, &main_thread); /* anything but NULL */
}

/* ---- start, fork ----------------------------------------------------------------------------------------------------------------- */

void writer_start(bool begin)
{
    if (fstat(STDERR_FILENO, &error_output) != 0) error_output.st_ino = 0;
    writer.start_tick = record_ticks();
    writer.start_ns = platform_clock_ns();
    atomic_store_explicit(&process, getpid(), memory_order_relaxed);
    atomic_store_explicit(&ready, 0, memory_order_relaxed);
    if (!platform_thread_start("heapfit-record", run, begin ? &writer : NULL, false)) {
        platform_message("no recording: the thread for it cannot be started");
        return;
    }
    watch_main_thread();
    /* Acquire: pairs with say_ready. */
    for (unsigned waited = 0; waited < START_MS && atomic_load_explicit(&ready, memory_order_acquire) == 0;
         waited += LOOK_MS)
        platform_wait(&ready, 0, LOOK_MS * 1000);
}

/* Nobody else is there, so the order of all this does not matter. */
void writer_fork_child(void)
{
    bool was_recording = atomic_exchange_explicit(&recording, false, memory_order_relaxed);
    rings_fork_child();
    _Atomic(uint32_t) *words[] = {&ready, &asleep, &wholeness, &leave};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) atomic_store_explicit(words[i], 0, memory_order_relaxed);
    _Atomic(bool) *flags[] = {&final, &busy, &stuck, &main_has_left};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        atomic_store_explicit(flags[i], false, memory_order_relaxed);
    atomic_store_explicit(&process, 0, memory_order_relaxed);
    atomic_store_explicit(&thread_number, 0, memory_order_relaxed);
    atomic_store_explicit(&complaint, NULL, memory_order_relaxed);
    record_file = (struct record_file){0};
    record_settings.first = false;
    /* Not in a handler that has interrupted malloc: it allocates. */
    if (record_settings_apply() && !record_is_inside()) writer_start(was_recording);
}
