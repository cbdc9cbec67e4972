/* heapfit-attach: brings the recorder into a process that was not prepared for it.
 *
 *     heapfit-attach PID LIBRARY OPTIONS FILE
 *
 * Prints a line of JSON, and exits with 0; or says on stderr in one line why not, and exits with 1: then the process is as before.
 *
 * No thread of the program calls anything for us: in the midst of whatever it is, it may hold any lock, or be in malloc. One of them is
 * stopped for a moment, and made to start a thread by a bare system call (stub.h). That one asks the C library for a thread like
 * the program's own, and this loads the library, waiting for malloc's or the dynamic linker's locks as every thread does. So there
 * is no moment that would be wrong, but one: glibc's malloc takes no lock in a process of one thread. That one must be outside of
 * the C library, or asleep in a system call, and not in a signal's handler (thread.c).
 *
 * What is stopped is let go at once, and never by us alone: a tracer that dies leaves its threads running.
 *
 * process.c  what /proc says, and why a process is refused; image.c  its libraries, as they lie in its memory; thread.c  a thread
 * is stopped and sent away with stub.c's code; attach.c  the rest.
 */
#ifndef HEAPFIT_ATTACH_H
#define HEAPFIT_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

_Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
void process_is_there(pid_t pid);
uint64_t clock_ns(void);
void pause_us(unsigned microseconds);

/* ---- process.c ------------------------------------------------------------------------------------------------------- */

struct mapping {
    uint64_t start, end, offset;
    char permissions[5];
    uint64_t inode;
    char path[512]; /* "": none. Cut when it is longer */
};

struct mappings {
    struct mapping *all;
    size_t count, room;
};

/* Refuses a process that cannot be attached to, as far as that is known without stopping it. */
void process_check(pid_t pid, const char *library, const char *file);
_Noreturn void process_refuses_trace(pid_t pid, int error);
bool process_mappings(pid_t pid, struct mappings *found);
const struct mapping *mapping_of(const struct mappings *mappings, uint64_t address);
bool is_named(const struct mapping *mapping, const char *name); /* "libc.so.6", or the older "libc-2.31.so" */
char process_state(pid_t pid, pid_t thread); /* as the kernel has it; 0: it has ended */
bool process_has_pending(pid_t pid, pid_t thread, uint64_t mask); /* a signal that this mask lets through */
bool process_has_one_thread(pid_t pid); /* of the program's */
struct call {
    long number;
    uint64_t arguments[6];
    uint64_t from; /* the instruction behind it */
};
bool process_call(pid_t pid, pid_t thread, struct call *call); /* that it sleeps in; false: none */
/* How many there are, the main one first. Where threads end meanwhile, the kernel may leave others out. */
size_t process_threads(pid_t pid, pid_t *threads, size_t room);
/* Our number of the thread that the process itself knows by `own`; 0: not found. */
pid_t process_find_thread(pid_t pid, pid_t own);

/* ---- image.c --------------------------------------------------------------------------------------------------------- */

struct image {
    int memory; /* /proc/PID/mem */
    struct mappings mappings;
    uint64_t libc; /* where it begins */
    uint64_t dlopen, dlsym, dlerror, pthread_create, pthread_detach;
    uint64_t single; /* where it says whether there is a single thread; 0: nowhere (before 2.32) */
    uint64_t environment; /* its variable */
    uint64_t room; /* where stub.c's code finds place */
    bool own_malloc; /* the C library's is the program's */
};

bool memory_read(const struct image *image, uint64_t from, void *to, size_t size);
bool memory_write(const struct image *image, uint64_t to, const void *from, size_t size);
void image_open(struct image *image, pid_t pid);
bool image_is_the_same(const struct image *image, pid_t pid); /* no other program has taken its place */
uint64_t image_find_gap(const struct image *image, uint64_t size);

/* Whether it has been started, up to the first constructors. */
bool image_is_ready(const struct image *image);
/* Whether the C library takes the process for one of a single thread, as far as it tells. */
bool image_knows_one_thread(const struct image *image);

/* The thread-local variables of a thread that is none of the C library's: how much they take below and above the thread pointer, and
 * where its number stands above. */
struct local {
    uint64_t below, above, number_at;
};
bool local_measure(const struct image *image, struct local *local);
/* Writes them, as a new thread's are, but for the number; `like` is another's thread pointer. */
bool local_write(const struct image *image, const struct local *local, uint64_t pointer, uint64_t like);
/* Tells the only thread so far that there are several. */
bool local_tell(const struct image *image, uint64_t pointer);

/* ---- thread.c -------------------------------------------------------------------------------------------------------- */

struct sending {
    uint64_t mapping, mapping_size, stack, thread_pointer, number_at;
    uint64_t like; /* found: the thread pointer of the thread that was sent */
    pid_t thread; /* found: which one it was */
    bool is_alone; /* found: it is the only one, and waits until there is another */
    uint64_t sent_ns; /* found: when */
    long failed, error; /* found: the system call in which it has failed, and why */
    uint64_t still_ns, stops; /* found: how long threads stood still, and how often */
};

/* Sends a thread to the room in the image. False: there is none at a moment that is right, so far. */
bool thread_send(pid_t pid, const struct image *image, struct sending *sending);
/* Whether it says now that a call has failed. */
bool thread_has_failed(pid_t pid, const struct image *image, struct sending *sending);
/* Takes away code that one of us has left at `room`; false: a thread may be in it. */
bool thread_clears_room(pid_t pid, const struct image *image, uint64_t room);
/* Takes the code back, unless the thread is still in it; those that it has started must not be. */
void thread_take_back(pid_t pid, const struct image *image, struct sending *sending);

#endif
