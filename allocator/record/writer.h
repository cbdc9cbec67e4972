/* The recorder's thread, R, and how the program's threads, P, meet it.
 *
 * R takes events out of the rings whenever one is half full and every flush_ms, and then brings the file up to date. In between it
 * answers requests (request.c). Where nothing is recorded it only waits for requests.
 *
 * A P that waits for R may hold any lock there is: malloc's caller may be the dynamic linker, or another allocator. So R takes no
 * lock, allocates nothing, and calls nothing that might. And it may be gone (it is not copied to a child that was made
 * without fork's handlers), or stuck (a disk that does not answer): all waits end after some time, and then nothing is recorded any
 * more. The program must not notice: R takes no signal, and has a table of descriptors of its own. P makes no system call, while it
 * allocates, that a program of one thread with malloc would not make: futex, clock_gettime, getpid, gettid, mmap and mprotect; and readlinkat
 * in the first process of a container, by which it is told from a copy.
 *
 * They meet in five machines of a word or two. Each has a file, a struct that is seen there alone, and its drawing beside that:
 *
 *     writer.c       whether R is there, and what it does all day
 *     recording.c    the file's life: whether anything is noted
 *     whole.c        how whole the file is: for exec, exit and other ends
 *     sleep.c        who sleeps: R with nothing to do, P with a full ring
 *     leave.c        whether R may live on: not when all others have ended
 *
 * An arrow in a drawing is a function, taken by one side alone: R, or P, any thread of the program (of several that want the same,
 * one is first, and the others find it done). In a fork's child all are as at the start (_fork_child), and R is another: nobody else is
 * there, so that the order of this does not matter.
 */
#ifndef HEAPFIT_RECORD_WRITER_H
#define HEAPFIT_RECORD_WRITER_H

#include "record.h"

enum {
    LOOK_MS = 20, /* between two looks at what is not waited for by a futex of its own */
    FINISH_MS = 10000, /* for the file's last blocks, which may be for a disk that does not answer */
    IDLE_MS = 1000, /* between two looks at the rest of the process, and between marks when nothing happens */
    SOCKET_NAME_BYTES = 40
};

/* How long somebody waits for the other side, who looks at least every LOOK_MS. By the clock, since signals make waits shorter than they
 * were asked to be. But a process that is stopped (SIGSTOP, Ctrl-Z, a debugger) or a machine that sleeps does nothing
 * meanwhile on either side: that is seen by a look that comes late, and counts little. */
struct patience {
    uint64_t left_ms, looked_ms;
};

ALWAYS_INLINE struct patience patience_of(uint64_t ms)
{
    return (struct patience){.left_ms = ms, .looked_ms = platform_clock_ms()};
}

ALWAYS_INLINE bool is_over(struct patience *patience)
{
    enum { LATE_MS = 10 * LOOK_MS }; /* a look that comes later was not only kept from a core */
    uint64_t now = platform_clock_ms(), passed = now - patience->looked_ms;
    if (passed > LATE_MS) passed = LATE_MS;
    if (passed > patience->left_ms) passed = patience->left_ms;
    *patience = (struct patience){.left_ms = patience->left_ms - passed, .looked_ms = now};
    return patience->left_ms == 0;
}

/* writer.c. P: */
bool writer_is_ours(void); /* R is of this process, not of the one that this is a copy or a child of vfork of */
/* R has not ended, as far as it has said so. To ask the kernel takes tgkill, for which a filter may end the process: that is for
 * those who wait for the thread itself to be gone. */
bool writer_works(void);
bool writer_thread_exists(void);
bool writer_listens(void); /* for who tells it what to do */
bool writer_end(const char *why); /* R ends, and with it a recording; another may be started. false: it is stuck */
void writer_socket_name(char name[SOCKET_NAME_BYTES]); /* also R */

/* recording.c. R: */
void recording_flush(void); /* everything up to now goes into the file, and a mark unless there is nothing to say */
void recording_write_end(
    const char *why); /* and nothing that was noted is missing, as far as its threads have noted it */
void recording_stop_noting(void);
void recording_look(void); /* whether it has come to its end */
void recording_answer(void); /* whoever waits in recording_note_modules */
bool recording_is_called(void); /* somebody does */
uint64_t recording_flush_ms(void); /* when it is to be flushed */
/* P: */
void recording_prepare(void); /* before R is */
bool recording_is_busy(void); /* there is a file that is not whole */
bool recording_is_stuck(void); /* it has been given up */
void recording_give_up(void); /* a thread has waited too long */
void recording_complain(void); /* says what bad has happened, once */
void recording_fork_child(void);

/* whole.c. R: */
bool whole_calls(void); /* something has changed since R last looked */
void whole_look(void);
bool whole_is_held(void); /* as of then: the file is to be whole, and to stay so */
void whole_be(void); /* makes it so, if it is not or a ring is half full */
void whole_fork_child(void);

/* sleep.c. R: */
void sleep_until(uint64_t ms); /* or until a ring is half full, or R is wanted otherwise */
void sleep_fork_child(void);

/* leave.c. R: */
bool leave_is_wanted(void);
void leave_answer(void); /* if it is wanted */
void leave_look_around(void); /* now and then, whether there is anybody left */
bool leave_is_decided(void); /* R leaves */
/* P: */
void leave_watch_main_thread(void); /* by the thread that starts R */
void leave_now(void); /* R is to leave, whoever else is there */
void leave_look_again(void);
void leave_is_over(void); /* it has */
void leave_fork_child(void);

#endif
