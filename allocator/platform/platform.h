/* platform/: the kernel and the CPU, as the rest of the allocator wants them.
 *
 * Everything that makes a system call or knows about Linux stands behind this header. Nothing here
 * knows of spans, heaps or objects, and nothing here allocates. All functions may be called from any
 * thread at any time after the dynamic linker has relocated the library; none changes errno unless it
 * says so. Sizes are bytes, times milliseconds.
 */
#ifndef HEAPFIT_PLATFORM_H
#define HEAPFIT_PLATFORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((cold, noinline))
#define NOINLINE __attribute__((noinline))
/* Reads what another thread writes meanwhile, and says there why it may: not for ThreadSanitizer to report. */
#define READS_RACILY __attribute__((no_sanitize("thread")))
#define ALWAYS_INLINE static inline __attribute__((always_inline))
/* Everything else in the library is hidden. */
#define EXPORT __attribute__((visibility("default")))

/* Cache lines are 64 bytes on every x86-64 and on the aarch64 servers we know. A larger line would cost
 * speed only. */
#define CACHE_LINE 64

ALWAYS_INLINE bool is_power_of_two(size_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* ---- calls of the kernel (call.c) --------------------------------------------------------------- */

/* syscall(2), which sets errno, without a function that another library could stand in front of. */
long platform_call_kernel(long number, long a, long b, long c, long d, long e, long f);
#define platform_call(...) PLATFORM_CALL_OF(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define PLATFORM_CALL_OF(number, a, b, c, d, e, f, ...)                                                                \
    platform_call_kernel(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* clock_gettime(2), likewise; true: done. errno stays. */
bool platform_clock_get(int clock, struct timespec *time);

/* ---- memory (memory.c) ------------------------------------------------------------------------- */

/* The kernel's page size: 4 KiB on x86-64; 4, 16 or 64 KiB on aarch64. */
size_t platform_page_size(void);

/* Bytes of physical memory in this machine (not of this container). */
size_t platform_physical_memory(void);

/* The soft limit on address space (RLIMIT_AS); SIZE_MAX when there is none. */
size_t platform_address_space_limit(void);

/* Whether the process's mappings, or those that it may write to, are limited (RLIMIT_AS, RLIMIT_DATA). */
bool platform_mappings_are_limited(void);

/* Reserve `size` bytes of address space aligned to `alignment` (a power of two, at least a page). The
 * range is inaccessible, costs no memory and is in no core dump until it is committed. NULL when the kernel refuses. */
void *platform_reserve(size_t size, size_t alignment);

/* The same, exactly there, where nothing is mapped yet; false: something is, or the kernel refuses. */
bool platform_reserve_at(void *start, size_t size);

/* Where a range of `size` bytes can lie that is to grow: far from where the kernel puts mappings that have no address of their
 * own. Another in each process, where the kernel randomises addresses. 0: there is no such place. */
uintptr_t platform_far_place(size_t size, size_t alignment);

/* Make a reserved range readable: it reads as zeros, and still costs nothing. False when the kernel refuses. */
bool platform_make_readable(void *start, size_t size);

/* Make a reserved range readable and writable; it reads as zeros. False when the kernel refuses (memory limits, strict
 * overcommit), or when the range is larger than memory and swap, as the kernel refuses a mapping with a reserve
 * (vm.overcommit_memory is 0): it is then as before. */
bool platform_commit(void *start, size_t size);

/* Whole pages for a while, readable and writable, all zeros; `size` is rounded up. NULL when the kernel refuses. */
void *platform_borrow(size_t size);

/* Unmap whole pages; `size` is rounded up. False when the kernel refuses: it may have no room to note what is left. */
bool platform_give_back(void *start, size_t size);

/* Ask the kernel to back a range with huge pages as it is touched, or never to. Advice: a kernel without them is no
 * error. The range should consist of whole PLATFORM_HUGE_PAGE units. */
#define PLATFORM_HUGE_PAGE ((size_t)2 << 20)
void platform_advise_huge_pages(void *start, size_t size, bool wanted);

/* Huge pages of which the range has a part become small ones, if nothing of them has been purged before. Else the kernel keeps such
 * a page whole, though a part is no longer resident, until memory runs short: in a control group it counts up to the limit, where
 * the kernel may be too slow to take it. Linux 5.4, and not of pages that a forked child shares; advice. */
void platform_split_huge_pages(void *start, size_t size);

/* Microseconds of processor time that it takes to get PLATFORM_HUGE_PAGE bytes in pages of the ordinary size, here and
 * now: by taking a few and giving them back. 0 when there are none to be had. */
uint64_t platform_small_pages_cost_us(void);

/* Drop what is in whole pages of a committed range, and refuse any access to them; off the kernel's account, too. False when the
 * kernel refuses: the range is then no longer ours, and must never be touched again. */
bool platform_seal(void *start, size_t size);

/* Allow access to whole pages of such a range, or refuse it again, whatever is in them. False when the kernel refuses: it may have
 * no room to note it. */
bool platform_open(void *start, size_t size, bool open);

/* Give the pages of a committed range back: it stays accessible and reads as zeros. False when the
 * kernel refuses (locked pages): the contents are then undefined. */
bool platform_purge(void *start, size_t size);

/* Whether the kernel counts what is accessible, touched or not, against a fixed limit (vm.overcommit_memory is 2). It is asked when
 * the process starts, by platform_overcommit_learn: later a sandbox may end the process for opening the file. False before. */
void platform_overcommit_learn(void);
bool platform_overcommit_is_strict(void);

/* Mappings that a process may have (vm.max_map_count). Reads a file. */
size_t platform_mappings_max(void);

/* Write zeros over whole pages, which somebody will use later, perhaps on another core. */
void platform_clear(void *start, size_t size);

/* Have the kernel back a range that reads as zeros with memory now, instead of when it is first used. */
void platform_populate(void *start, size_t size);

/* Bytes of a mapped range that are in memory: one mincore(2) per 4 MiB of it (of 4 KiB pages), in which the kernel
 * looks at the page tables, and skips what has none. */
size_t platform_resident(const void *start, size_t size);

/* Whether the aligned word at `address` can be read: asks the kernel, which changes nothing but that the page may become
 * resident. */
bool platform_is_readable(const void *address);

/* The same of an aligned word, in less time, by the call that the locks make: Valgrind's tools report it where it cannot be read. */
bool platform_word_is_readable(const void *word);

enum platform_move {
    MOVE_DONE, /* `from` stays accessible and reads as zeros */
    MOVE_REFUSED, /* the kernel cannot: `from` is as before, `to` accessible with undefined contents */
    MOVE_TARGET_LOST, /* `from` is as before, but `to` is no longer ours and must never be touched again */
};

/* Give a committed range that has been purged back to the kernel's account, too. It reads as zeros and must be committed before it
 * is written to; what was advised about it is forgotten. If refused it is as before; if lost it is no longer ours. */
enum platform_move platform_uncommit(void *start, size_t size);

/* Put pages of the kernel's pool of huge pages (vm.nr_hugepages) behind [start, start+size), whole PLATFORM_HUGE_PAGE
 * units that are committed and hold nothing. All of them, already there and zero, so that no access fails for want of
 * one later; or MOVE_REFUSED, because there are not so many or the kernel cannot. They stay until the process ends:
 * such a range must not be purged, nor its pages moved. */
enum platform_move platform_take_huge_pages(void *start, size_t size);

/* Move the pages of [from, from+size) to [to, to+size), both committed. */
enum platform_move platform_move_pages(void *from, void *to, size_t size);

/* ---- threads, forks, locks (thread.c, lock.c) ---------------------------------------------------- */

/* Processors that this process may use, at least 1. */
unsigned platform_processors(void);

/* A lock for rare paths. Not recursive. Zero-initialised is unlocked. */
typedef struct platform_lock {
    _Atomic(uint64_t) word; /* whose it is, whether others wait, for how many forks it is held: see lock.c */
} platform_lock;

void platform_lock_acquire(platform_lock *lock);
void platform_lock_release(platform_lock *lock);
/* Acquire it if nobody has it; never waits. */
bool platform_lock_try(platform_lock *lock);

/* For locks that a fork holds: acquire it, but do not wait for a fork, which may itself wait for this thread (in another
 * library's handler, or for a lock of the C library's); nor for the calling thread, when that has it already, since it was
 * interrupted by a signal. False, with nothing acquired: do without what the lock protects. */
bool platform_lock_enter(platform_lock *lock);

bool platform_lock_is_awaited(const platform_lock *lock); /* some thread sleeps until it is released */
bool platform_lock_is_own(const platform_lock *lock); /* the calling thread has acquired it */
bool platform_lock_is_held_by_fork(const platform_lock *lock);
/* False: the fork that has it is the calling thread's own, or never ends. */
bool platform_lock_fork_passes(const platform_lock *lock);

/* Whether the calling thread has acquired a lock of this kind, or is about to: then it was interrupted by a signal, if it
 * is not itself in the code that did. */
bool platform_lock_is_any_own(void);

/* End the program with SIGABRT. Its handler may allocate, or wait for a thread that does: all locks that the calling thread
 * has are from now on as held by a fork that never ends, so that nobody waits for them, or touches what they protect. */
_Noreturn COLD void platform_abort(void);

/* Around a fork: what a lock protects is whole while the process is copied, and so it is in the child. Several forks may
 * hold a lock at once. Begin waits for another thread that has it; one that the calling thread has acquired is the fork's then. */
void platform_lock_fork_begin(platform_lock *lock);
void platform_lock_fork_end(platform_lock *lock);

/* The calling thread forks. Handlers of other libraries may come before ours in the child, and need a lock that a thread has
 * which the child does not have: then `mend` is called there, once, before the thread would wait for ever. NULL: no more. */
void platform_fork_watch(void (*mend)(void));

/* From now on `mend` is called in each copy of the process that was made by a system call alone, without fork's handlers: once, by
 * the first thread that would take a lock there; in fork's children too. Before Linux 4.14, nothing tells of a copy. */
void platform_copy_watch(void (*mend)(void));
/* Whoever waits for another thread by other means than a lock looks first whether this is a copy, which may not have it. */
void platform_copy_look(void);

/* In the child, of a lock that forks hold. If none did, since the fork could not wait, and another thread had it, then it is
 * as after platform_abort: what it protects is in the middle of something, for ever. */
void platform_lock_fork_end_in_child(platform_lock *lock);

/* In the child, of a lock that forks do not hold: nobody has it whom the child does not have. Whether somebody had: then
 * what it protects may be in the middle of something. */
bool platform_lock_mend(platform_lock *lock);

/* Name the one function that is called when a thread exits which has been armed; once per process, before any
 * arming. Where the C library has no key left for us, it is never called: what the threads held is then lost when they
 * exit. */
void platform_thread_exit_hook(void (*hook)(void *));

/* Have the hook called with `argument` when the calling thread exits. May be called again from the hook itself:
 * it is then called once more, as long as the C library goes on running thread-specific destructors. False: it will not be. */
bool platform_thread_exit_arm(void *argument);

/* Find the C library's own pthread_create, for the threads below: a program or a tool may define another, which would be called
 * from free, and told of a thread that is none of the program's. Once, early in the process; may allocate where there is
 * another. */
void platform_thread_prepare(void);

/* Start a thread of the allocator's own: detached, all signals blocked, a small stack, named for `ps` (up to 15 bytes). It takes
 * over neither the processors that the calling thread is bound to nor its real-time priority: it runs where the first thread may.
 * With `low_priority` it runs when no other thread wants the core, as far as the kernel allows; such a thread must hold
 * no lock that others wait for. Allocates: never to be called with a lock held. False when the kernel or the C library
 * refuses. A fork's child does not have it. Until `run` returns the thread counts as one of the process: where main has
 * left by pthread_exit, the process goes on. */
bool platform_thread_start(const char *name, void (*run)(void *), void *argument, bool low_priority);

/* Whether the kernel runs this thread of the process before all that have no deadline (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE). */
bool platform_thread_is_real_time(int32_t thread);

/* Call `act` while no handler of the program's signals runs in this thread: one that forks would have a child that goes on in
 * the midst of it. */
void platform_undisturbed(void (*act)(void *), void *argument);

/* In a thread that blocks all signals: let in those that were sent to it alone and that the program handles. Tools that ask every thread
 * of a process for its stack, or stop them all, wait for each. */
void platform_answer_signals(void);

/* Whether the calling thread comes after the first one where processors are short: by SCHED_IDLE or a higher nice value, which a thread
 * that it starts has, too, and may not be allowed to change. */
bool platform_thread_ranks_below_first(void);

/* Whether the calling thread has the credentials, the filters of system calls and the namespaces of the first one, as far as /proc says. */
bool platform_thread_is_like_first(void);

/* Whether the calling thread is in a sandbox (seccomp) that is not that of a container, or that cannot be told (sandbox.c). */
bool platform_is_in_own_sandbox(void);

/* The same for a thread that has a table of descriptors of its own, and looks again and again: the file stays open in there, since one
 * that enters a sandbox may be ended by it for opening another. `again` is whether there are other filters than at the beginning. */
struct platform_sandbox_watch {
    long file;
    uint64_t filters;
};
bool platform_sandbox_watch_begin(struct platform_sandbox_watch *watch);
bool platform_sandbox_watch_again(const struct platform_sandbox_watch *watch);

/* Have every thread of the process pass a full memory barrier, wherever it is, before it returns: then what each wrote before is
 * seen here, and what it reads from now on was written before. False when the kernel cannot. To be prepared once in each process. */
bool platform_barrier_prepare(void);
bool platform_barrier_everywhere(void);

/* Whether a thread of this process sleeps in a system call that it has made itself, rather than the handler of a signal that may
 * have interrupted it anywhere. `local` is a variable of it, thread-local. If it does, what it did before it fell asleep is seen
 * here; and when it wakes it sees what was done here before this call. Some system calls, that a sandbox may not know. */
enum platform_sleep {
    THREAD_SLEEPS,
    THREAD_RUNS, /* or could, or has just done so */
    THREAD_IS_ELSEWHERE, /* in a handler, or where nothing can be told (asleep.c) */
};
enum platform_sleep platform_thread_sleep(int32_t number, const void *local);

/* Whether no other thread of the process is alive: main has left by pthread_exit, and the others have ended. */
bool platform_thread_is_last(void);
/* Whether the first thread is the calling one, or has ended while others go on. */
bool platform_first_thread_leaves(void);

/* Whether code at this address is the dynamic linker's, as far as can be told; if not, yes. */
bool platform_is_in_linker(const void *address);

/* Sleep while *word is `expected`, at most so long; may return for no reason. And wake one who does, in this process. */
void platform_wait(_Atomic(uint32_t) *word, uint32_t expected, uint32_t timeout_us);
void platform_wake(_Atomic(uint32_t) *word);

/* ---- NUMA nodes (node.c) ------------------------------------------------------------------------- */

/* Nodes that have processors: one more than the highest of their numbers, which may have gaps; 1 where there is one, or
 * where the kernel does not say. Reads a file. */
unsigned platform_node_count(void);

/* The same from the kernel's list of them, as "0-3,8". */
unsigned platform_nodes_in_list(const char *list);

/* The node on which the calling thread runs, at this moment. */
unsigned platform_node(void);

/* The kernel's number of the calling thread, that of its process, and whether a thread of this process has a number. System
 * calls. */
int32_t platform_thread_number(void);
int32_t platform_process_number(void);
/* The same, but that the first processes of two namespaces differ, as far as /proc says: one may be the other's child, and share its
 * memory. */
uint64_t platform_process_identity(void);
bool platform_thread_exists(int32_t number);

/* ---- limits on memory (cgroup.c) ------------------------------------------------------------------------ */

/* Of the control groups that the process is in, the one that leaves the least room. */
struct platform_memory {
    size_t limit; /* bytes; SIZE_MAX: there is none */
    size_t
        used; /* of them, by all processes in the group, without what is the kernel's to take back: files that it keeps */
    uint64_t events; /* how often limits have been met: a number that grows, as long as the groups are the same */
    uint64_t stalled_us; /* for how long some process of the own group has waited for memory, all in all; 0: not said */
};

/* Where that is read from. */
struct platform_memory_files {
    const char *groups, *root;
};
extern const struct platform_memory_files platform_memory_files_here; /* on a real machine */

/* Some ten system calls, and more the deeper the groups are nested. What cannot be read is no limit. */
void platform_memory_read(const struct platform_memory_files *files, struct platform_memory *memory);

/* Bytes of memory that this process has to itself. */
size_t platform_resident_own(void);

/* What a service manager wants watched (systemd's MEMORY_PRESSURE_WATCH and MEMORY_PRESSURE_WRITE): whether there have been
 * stalls of so many microseconds in so many. */
struct platform_stall_watch {
    char path[256]; /* "": nothing is said */
    bool is_off; /* nothing at all is to be watched */
    bool full; /* only what stalls all processes of the group */
    uint64_t stall_us, window_us; /* 0: nothing is said */
};

void platform_stall_watch_find(struct platform_stall_watch *watch);
void platform_stall_watch_parse(const char *path, const char *encoded, struct platform_stall_watch *watch);

/* For how long, all in all; 0: it does not say. */
uint64_t platform_stalled_us(const struct platform_stall_watch *watch);

/* ---- time and chance (clock.c) ------------------------------------------------------------------ */

/* Milliseconds of a monotonic clock that is cheap to read and advances every few milliseconds. It goes on where the kernel's is set
 * back. */
uint64_t platform_clock_ms(void);
/* Microseconds of processor time that the calling thread has used: to time something that must not look dear because
 * another process had its turn meanwhile. */
uint64_t platform_clock_thread_us(void);

/* Nanoseconds of a monotonic clock, to time something short. */
uint64_t platform_clock_ns(void);

/* 64 bits that an attacker cannot guess. */
uint64_t platform_random(void);

/* The next 64 of a quick sequence, which `state` says the place in; any number to begin with. */
uint64_t chance_draw(uint64_t *state);
/* How far it is to the next point of a Poisson process, with `mean` between two on average: the whole part of a number that is
 * exponentially distributed. */
size_t chance_distance(uint64_t *state, size_t mean);

/* ---- words to the user (message.c) --------------------------------------------------------------- */

/* Write "heapfit: " and the formatted text as one line to stderr with one write(2). Understands %s (string),
 * %p (pointer), %zu and %zx (size_t) and nothing else; truncates at 500 bytes. */
void platform_message(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether writing to this pipe or file, PIPE_BUF bytes at most, will neither raise SIGPIPE nor wait, as far as can be told: a message
 * must not change how a program ends, nor whether it does. */
bool platform_takes_more(int file);

/* End the process at once, whatever state the C library is in. */
_Noreturn void platform_end(int code);

/* The same text, without "heapfit: " and the line's end, into `buffer`: cut to `capacity` with a terminating zero. */
void platform_format(char *buffer, size_t capacity, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The value of an environment variable, even before the C library has set up `environ` (a preloaded malloc is called
 * that early). Copies at most `capacity` bytes with the terminator into `buffer`. False when unset; and in a program
 * that runs with other rights than who started it (AT_SECURE: setuid and the like), whose environment must not steer
 * it. */
bool platform_environment(const char *name, char *buffer, size_t capacity);

/* The same of the environment that the process was started with, whatever has been done to it since. */
bool platform_environment_at_start(const char *name, char *buffer, size_t capacity);

/* ---- local sockets (socket.c) --------------------------------------------------------------------- */

/* Give the calling thread a table of descriptors of its own, in which at first nothing but stderr is open: the program
 * can then neither close nor see what the thread opens, no child inherits it, and the thread keeps nothing of the
 * program's open. False when the kernel cannot (before Linux 5.9). Afterwards the thread must close stderr when it
 * needs it no more. */
bool platform_descriptors_own(void);
/* The same without stderr. Messages of such a thread go to the first thread's (platform_message). errno stays. */
bool platform_descriptors_own_all(void);
extern __thread bool platform_descriptors_are_own; /* read by platform_message alone */

/* A listening stream socket of an abstract name, which is a file nowhere and ends with its process. -1 with errno set.
 */
int platform_listen(const char *name);

/* The next connection, or -1 with errno set; does not wait. Whoever connects from now on is shown the user that this
 * process has now, which may have changed since it began to listen. */
int platform_accept(int listener);

/* Connect to such a socket, without waiting. -1 with errno set. */
int platform_connect(const char *name);

/* Whether a process of this process' user, or of root, has connected. */
bool platform_peer_is_trusted(int connection);

/* Receive what is there, without waiting: its size, 0 for nothing, -1 when the other side is gone. */
ptrdiff_t platform_receive(int connection, char *bytes, size_t capacity);

/* Send all of it, within `milliseconds`. False when that fails. Never raises SIGPIPE. */
bool platform_send(int connection, const char *bytes, size_t size, uint64_t milliseconds);

/* Write all of it to any descriptor; one that does not block is waited for, a second at most. False when that fails. */
bool platform_write(int file, const char *bytes, size_t size);

#endif
