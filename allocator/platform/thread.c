/* Processors, locks, fork, thread exit, and threads of the allocator's own. */
#define _GNU_SOURCE
#include "lines.h"
#include "platform.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- processors ---------------------------------------------------------------------------------- */

/* Linux knows no more than 8192. */
enum { PROCESSOR_WORDS = 8192 / (8 * sizeof(unsigned long)) };

struct processors {
    unsigned long words[PROCESSOR_WORDS]; /* a bit each */
};

/* Those that a thread may use; 0: the calling one. False when the kernel does not say. */
static bool processors_of(pid_t thread, struct processors *its)
{
    *its = (struct processors){{0}};
    return platform_call(SYS_sched_getaffinity, thread, sizeof its->words, its->words) > 0;
}

unsigned platform_processors(void)
{
    /* Of the first thread and of this one: either may have bound itself to some, the process is bound to all of these. */
    const pid_t threads[] = {platform_process_number(), 0};
    unsigned long processors[PROCESSOR_WORDS] = {0};
    int saved = errno;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        struct processors its;
        if (!processors_of(threads[i], &its)) continue;
        for (size_t word = 0; word < PROCESSOR_WORDS; word++) processors[word] |= its.words[word];
    }
    errno = saved;
    unsigned count = 0;
    for (size_t word = 0; word < PROCESSOR_WORDS; word++) count += (unsigned)__builtin_popcountl(processors[word]);
    return count == 0 ? 1 : count;
}

/* ---- waiting ------------------------------------------------------------------------------------- */

/* Numbers of linux/futex.h: the kernel's headers need not be there beside musl's. */
enum { FUTEX_WAIT_PRIVATE = 128 | 0, FUTEX_WAKE_PRIVATE = 128 | 1, FUTEX_CMP_REQUEUE_PRIVATE = 128 | 4 };

static void futex_wait(_Atomic(uint32_t) *word, uint32_t expected)
{
    platform_call(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

/* The kernel compares the word before it moves none of those who wait there to where they are. */
bool platform_word_is_readable(const void *word)
{
    int saved = errno;
    bool readable = platform_call(SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 0, 0L, word, 0) == 0 || errno != EFAULT;
    errno = saved;
    return readable;
}

static void futex_wake(_Atomic(uint32_t) *word, int threads)
{
    platform_call(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

static void futex_wake_one(_Atomic(uint32_t) *word)
{
    futex_wake(word, 1);
}

/* ---- copies of the process ------------------------------------------------------------------------- */

/* The system calls fork and clone copy a process without the C library's handlers, and the copy waits for ever for what a thread
 * had that it has not. So there is a mark in a page that the kernel clears in each copy, but not in a child of vfork, which has
 * the very same memory. Whoever is about to take a lock looks at it. */
enum { IS_COPY = 0, IS_BEING_MENDED, IS_ORIGINAL };

static _Atomic(uint32_t) no_mark = IS_ORIGINAL;
static _Atomic(uint32_t) *_Atomic copy_mark = &no_mark;
static void (*copy_mend)(void);
static __thread bool mends_copy __attribute__((tls_model("initial-exec")));

static COLD void copy_has_been_made(_Atomic(uint32_t) *mark)
{
    uint32_t is = IS_COPY;
    if (mends_copy) return;
    int saved = errno;
    /* Acquire: pairs with the release below, for a second thread of the copy. */
    if (atomic_compare_exchange_strong_explicit(mark, &is, IS_BEING_MENDED, memory_order_acquire,
                                                memory_order_acquire)) {
        mends_copy = true;
        copy_mend();
        mends_copy = false;
        atomic_store_explicit(mark, IS_ORIGINAL, memory_order_release);
        futex_wake(mark, INT_MAX);
    }
    while (atomic_load_explicit(mark, memory_order_acquire) == IS_BEING_MENDED) futex_wait(mark, IS_BEING_MENDED);
    errno = saved;
}

ALWAYS_INLINE void copy_look(void)
{
    /* Acquire, twice: pairs with the release in platform_copy_watch, and with that above. */
    _Atomic(uint32_t) *mark = atomic_load_explicit(&copy_mark, memory_order_acquire);
    if (UNLIKELY(atomic_load_explicit(mark, memory_order_acquire) != IS_ORIGINAL)) copy_has_been_made(mark);
}

void platform_copy_look(void)
{
    copy_look();
}

static _Atomic(uint32_t) *page_of_mark(void)
{
    size_t size = platform_page_size();
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return NULL;
    if (madvise(page, size, MADV_WIPEONFORK) == 0) return page;
    munmap(page, size);
    return NULL;
}

void platform_copy_watch(void (*mend)(void))
{
    if (atomic_load_explicit(&copy_mark, memory_order_relaxed) != &no_mark) return;
    int saved = errno;
    _Atomic(uint32_t) *mark = page_of_mark();
    errno = saved;
    if (mark == NULL) return;
    copy_mend = mend;
    atomic_store_explicit(mark, IS_ORIGINAL, memory_order_relaxed);
    /* Release: who sees the page sees what it says, and what is to be called. */
    atomic_store_explicit(&copy_mark, mark, memory_order_release);
}

/* ---- locks --------------------------------------------------------------------------------------- */

/* The word of a lock:
 *
 *     63                          16 15      1   0
 *    ┌──────────────────────────────┬─────────┬───┐
 *    │ who has it; 0: no thread     │  forks  │ w │
 *    └──────────────────────────────┴─────────┴───┘
 *
 * A thread is named by the address of a variable of its own, which is the same in a fork's child. Either a thread has the
 * lock or forks hold it, so many, of which the last number stands for one that never ends. `w`: threads sleep, waiting for
 * the one that has it. They sleep on the lower half. */
enum { WAITED = 1, FORK = 2, FORKS = 0xFFFE, LEFT = FORKS, OWNER_SHIFT = 16 };
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower half comes first");

/* Tries before sleeping. The longest critical section is a few hundred nanoseconds, unless its holder was
 * scheduled away; then spinning longer only burns its core. */
enum { LOCK_SPINS = 100 };

/* The locks that this thread has or is about to acquire; the first of them by name. So many are never nested. */
enum { NESTED_MAX = 8 };
static __thread struct {
    unsigned count;
    platform_lock *locks[NESTED_MAX];
} own __attribute__((tls_model("initial-exec")));

static uint64_t self(void)
{
    return (uint64_t)(uintptr_t)&own << OWNER_SHIFT;
}

static uint64_t owner_in(uint64_t word)
{
    return word >> OWNER_SHIFT << OWNER_SHIFT;
}

/* Before it is acquired: a signal's handler must not take a thread that has a lock for one that has none. */
static void own_add(platform_lock *lock)
{
    if (own.count < NESTED_MAX) own.locks[own.count] = lock;
    own.count++;
    atomic_signal_fence(memory_order_seq_cst);
}

static void own_remove(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    own.count--; /* they are released in the opposite order */
}

static _Atomic(uint32_t) *lower_half(platform_lock *lock)
{
    return (_Atomic(uint32_t) *)(void *)&lock->word;
}

static void lock_wake(platform_lock *lock, int threads)
{
    int saved = errno;
    futex_wake(lower_half(lock), threads);
    errno = saved;
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t word_of(const platform_lock *lock)
{
    /* Relaxed: a guess, on which a compare-and-swap decides; or about the calling thread itself. */
    return atomic_load_explicit(&lock->word, memory_order_relaxed);
}

static bool word_change(platform_lock *lock, uint64_t from, uint64_t to)
{
    /* Acquire: pairs with the releases below. */
    return atomic_compare_exchange_strong_explicit(&lock->word, &from, to, memory_order_acquire, memory_order_relaxed);
}

/* Sleep until the thread that has it lets it go, as far as can be told: then what the word is may be another. */
static void wait_for_owner(platform_lock *lock, uint64_t word)
{
    if ((word & WAITED) == 0 && !word_change(lock, word, word | WAITED)) return;
    int saved = errno;
    futex_wait(lower_half(lock), (uint32_t)(word | WAITED));
    errno = saved;
}

/* Sequentially consistent: who is refused has left work behind, before, for whoever ends the fork (shared.c). */
static uint64_t word_latest(const platform_lock *lock)
{
    return atomic_load_explicit(&lock->word, memory_order_seq_cst);
}

static bool is_refused(uint64_t word)
{
    return (word & FORKS) != 0 || owner_in(word) == self();
}

/* Of the fork that this thread has under way. */
static __thread struct {
    void (*mend)(void); /* NULL: none */
    uint64_t process; /* that forks: platform_process_identity */
} fork_watched __attribute__((tls_model("initial-exec")));

void platform_fork_watch(void (*mend)(void))
{
    fork_watched.mend = mend;
    if (mend != NULL) fork_watched.process = platform_process_identity();
}

/* Whether this is the child, in which locks have been mended now. */
static bool mended_in_child(void)
{
    void (*mend)(void) = fork_watched.mend;
    if (LIKELY(mend == NULL) || platform_process_identity() == fork_watched.process) return false;
    fork_watched.mend = NULL;
    mend();
    return true;
}

/* False: held by a fork, or by this very thread, and the caller can do without. */
static COLD bool lock_wait(platform_lock *lock, bool may_do_without)
{
    for (int spin = 0; spin < LOCK_SPINS; spin++) {
        if (may_do_without && is_refused(word_latest(lock))) return false;
        if (word_change(lock, 0, self())) return true;
        cpu_relax();
    }
    for (;;) {
        copy_look(); /* once more: a signal's handler may have made it since */
        uint64_t word = word_latest(lock);
        if (may_do_without && is_refused(word)) return false;
        /* From here on we have it as one that is waited for, so that our release wakes the next one (Drepper, "Futexes are
         * tricky", mutex 2). */
        if (owner_in(word) == 0) {
            if (word_change(lock, word, self() | WAITED)) return true;
        } else if (!mended_in_child()) {
            wait_for_owner(lock, word);
        }
    }
}

void platform_lock_acquire(platform_lock *lock)
{
    copy_look();
    own_add(lock);
    if (UNLIKELY(!word_change(lock, 0, self()))) lock_wait(lock, false);
}

bool platform_lock_enter(platform_lock *lock)
{
    copy_look();
    own_add(lock);
    if (LIKELY(word_change(lock, 0, self())) || lock_wait(lock, true)) return true;
    own_remove();
    return false;
}

bool platform_lock_try(platform_lock *lock)
{
    copy_look();
    own_add(lock);
    bool acquired = word_change(lock, 0, self());
    if (!acquired) own_remove();
    return acquired;
}

void platform_lock_release(platform_lock *lock)
{
    /* Release: what was written under the lock is seen by the next holder. */
    uint64_t word = atomic_exchange_explicit(&lock->word, 0, memory_order_release);
    own_remove();
    if (UNLIKELY((word & WAITED) != 0)) lock_wake(lock, 1);
}

bool platform_lock_is_awaited(const platform_lock *lock)
{
    return (word_of(lock) & WAITED) != 0;
}

bool platform_lock_is_own(const platform_lock *lock)
{
    return owner_in(word_of(lock)) == self();
}

bool platform_lock_is_held_by_fork(const platform_lock *lock)
{
    /* Sequentially consistent: see registry.c and space.c. */
    return (atomic_load_explicit(&lock->word, memory_order_seq_cst) & FORKS) != 0;
}

bool platform_lock_is_any_own(void)
{
    return own.count != 0;
}

void platform_abort(void)
{
    for (; own.count != 0; own_remove()) {
        platform_lock *lock = own.count <= NESTED_MAX ? own.locks[own.count - 1] : NULL;
        if (lock == NULL || !platform_lock_is_own(lock)) continue;
        atomic_store_explicit(&lock->word, LEFT, memory_order_relaxed); /* nobody is to see what was written under it */
        lock_wake(lock, INT_MAX);
    }
    abort();
}

/* ---- locks and forks -------------------------------------------------------------------------------------------- */

void platform_lock_fork_begin(platform_lock *lock)
{
    for (;;) {
        uint64_t word = word_of(lock);
        if (owner_in(word) != 0) wait_for_owner(lock, word);
        else if (word == LEFT || word_change(lock, word, word + FORK)) break;
    }
    lock_wake(lock, INT_MAX); /* whoever waited for the thread that had it shall not wait for us */
}

void platform_lock_fork_end(platform_lock *lock)
{
    uint64_t word = word_of(lock);
    /* In the child of a signal's handler that forked while this fork was under way, there is nothing left to end.
     * Sequentially consistent: whoever was refused the lock and left work for us did so before, or finds it free. */
    while (owner_in(word) == 0 && word != 0 && word != LEFT &&
           !atomic_compare_exchange_weak_explicit(&lock->word, &word, word - FORK, memory_order_seq_cst,
                                                  memory_order_relaxed))
        continue;
}

/* All relaxed, below: nobody else is there. */

void platform_lock_fork_end_in_child(platform_lock *lock)
{
    uint64_t owner = owner_in(word_of(lock));
    bool left = word_of(lock) == LEFT || (owner != 0 && owner != self());
    atomic_store_explicit(&lock->word, left ? LEFT : owner, memory_order_relaxed);
}

bool platform_lock_mend(platform_lock *lock)
{
    uint64_t owner = owner_in(word_of(lock));
    bool lost = owner != 0 && owner != self();
    atomic_store_explicit(&lock->word, lost ? 0 : owner, memory_order_relaxed);
    return lost;
}

/* ---- thread exit ---------------------------------------------------------------------------------- */

static pthread_key_t exit_key;
static bool exit_key_made;

void platform_thread_exit_hook(void (*hook)(void *))
{
    exit_key_made = pthread_key_create(&exit_key, hook) == 0;
}

bool platform_thread_exit_arm(void *argument)
{
    if (!exit_key_made) return false;
    int saved = errno;
    bool armed = pthread_setspecific(exit_key, argument) == 0;
    errno = saved;
    return armed;
}

/* ---- threads of the allocator's own ------------------------------------------------------------------ */

/* On top of what the C library needs, thread-local storage of all libraries included. Enough for exit handlers too:
 * they run here when this is the last thread of a process. */
#define STACK_SIZE ((size_t)256 << 10)

/* Lies on the starter's stack until `copied`. */
struct start {
    const char *name;
    void (*run)(void *);
    void *argument;
    bool low_priority;
    bool created;
    _Atomic(uint32_t) copied;
};

static int policy_of(pid_t thread)
{
    return (int)platform_call(SYS_sched_getscheduler, thread) & ~SCHED_RESET_ON_FORK;
}

static bool policy_set(int policy)
{
    const struct sched_param none = {0};
    return platform_call(SYS_sched_setscheduler, 0, policy, &none) == 0;
}

static bool is_real_time(int policy)
{
    enum { DEADLINE = 6 }; /* SCHED_DEADLINE, of linux/sched.h */
    return policy == SCHED_FIFO || policy == SCHED_RR || policy == DEADLINE;
}

bool platform_thread_is_real_time(int32_t thread)
{
    int saved = errno;
    bool is = is_real_time(policy_of(thread));
    errno = saved;
    return is;
}

/* What it has of the thread that started it, which may be bound to a processor and come before all others there, is not for this
 * one: it runs where the first thread may, as what has no deadline. Where the kernel refuses, it stays as it is. */
static void leave_to_others(void)
{
    struct processors of_the_first;
    if (is_real_time(policy_of(0))) policy_set(SCHED_OTHER);
    if (processors_of(platform_process_number(), &of_the_first))
        platform_call(SYS_sched_setaffinity, 0, sizeof of_the_first.words, of_the_first.words);
}

static bool is_idle(pid_t thread)
{
    return policy_of(thread) == SCHED_IDLE;
}

/* 0 where the kernel does not say, which has it as 20 less the value. */
static long nice_value(pid_t thread)
{
    long answer = platform_call(SYS_getpriority, PRIO_PROCESS, thread);
    return answer > 0 ? 20 - answer : 0;
}

bool platform_thread_ranks_below_first(void)
{
    int saved = errno;
    pid_t first = platform_process_number();
    bool below = (is_idle(0) && !is_idle(first)) || nice_value(0) > nice_value(first);
    errno = saved;
    return below;
}

/* Both apply to the calling thread alone, on Linux. A nice value where a sandbox forbids the better one. */
static void lower_priority(void)
{
    if (!policy_set(SCHED_IDLE)) platform_call(SYS_setpriority, PRIO_PROCESS, 0, 19);
}

/* Exit handlers are about to run here, and what would end the program meanwhile is to end it. */
static void let_signals_in(void)
{
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}

static void *thread_begin(void *argument)
{
    struct start *shared = argument;
    struct start start = {.run = shared->run, .argument = shared->argument, .low_priority = shared->low_priority};
    const char *name = shared->name;
    /* Release: we have read all. The starter's stack may be gone before the wake, which then wakes nobody. Before any other
     * system call, which a sandbox may answer by ending the thread: the starter waits for this one. */
    atomic_store_explicit(&shared->copied, 1, memory_order_release);
    futex_wake_one(&shared->copied);
    platform_call(SYS_prctl, PR_SET_NAME, name, 0, 0, 0);
    leave_to_others(); /* not before: the starter, which may have a deadline, would wait for a thread that has none */
    if (start.low_priority) lower_priority();
    start.run(start.argument);
    if (platform_thread_is_last()) let_signals_in();
    return NULL;
}

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* The C library's own. */
static create_function *create_thread = pthread_create;

void platform_undisturbed(void (*act)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    act(argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool create(struct start *start, size_t stack_size)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    bool created = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                   (stack_size == 0 || pthread_attr_setstacksize(&attributes, stack_size) == 0) &&
                   create_thread(&thread, &attributes, thread_begin, start) == 0;
    pthread_attr_destroy(&attributes);
    return created;
}

/* Undisturbed: the new thread inherits that signals are blocked; and in the child of a handler that forks during the wait there
 * would be nobody to end it. */
static void create_and_await(void *argument)
{
    struct start *start = argument;
    /* Much thread-local storage may not leave room in a small stack: then one of the usual size. */
    size_t minimum = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    start->created = create(start, minimum + STACK_SIZE) || create(start, 0);
    /* Acquire: pairs with the release in thread_begin. */
    while (start->created && atomic_load_explicit(&start->copied, memory_order_acquire) == 0)
        futex_wait(&start->copied, 0);
}

bool platform_thread_start(const char *name, void (*run)(void *), void *argument, bool low_priority)
{
    struct start start = {.name = name, .run = run, .argument = argument, .low_priority = low_priority};
    int saved = errno;
    platform_undisturbed(create_and_await, &start);
    errno = saved;
    return start.created;
}

void platform_wait(_Atomic(uint32_t) *word, uint32_t expected, uint32_t timeout_us)
{
    struct timespec timeout = {.tv_sec = timeout_us / 1000000, .tv_nsec = (long)(timeout_us % 1000000) * 1000};
    int saved = errno;
    platform_call(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &timeout, NULL, 0);
    errno = saved;
}

void platform_wake(_Atomic(uint32_t) *word)
{
    int saved = errno;
    futex_wake_one(word);
    errno = saved;
}

/* Numbers of Linux 4.14, in linux/membarrier.h. */
enum { BARRIER_PRIVATE_EXPEDITED = 1 << 3, BARRIER_REGISTER = 1 << 4 };

static bool membarrier(int command)
{
    int saved = errno;
    bool done = platform_call(SYS_membarrier, command, 0) == 0;
    errno = saved;
    return done;
}

/* ThreadSanitizer knows no order but that of each thread's own fences, and would report what the kernel orders. */
#if defined(__SANITIZE_THREAD__)
#define SEES_BARRIER 0
#elif defined(__has_feature)
#define SEES_BARRIER (!__has_feature(thread_sanitizer))
#else
#define SEES_BARRIER 1
#endif

bool platform_barrier_prepare(void)
{
    return SEES_BARRIER && membarrier(BARRIER_REGISTER);
}

bool platform_barrier_everywhere(void)
{
    return membarrier(BARRIER_PRIVATE_EXPEDITED);
}

/* The state of the first thread: the letter behind the name, which stands in parentheses and may contain some. */
static char first_thread_state(void)
{
    char text[256];
    /* By bare system calls, which are no points at which a thread can be cancelled. */
    long file = platform_call(SYS_openat, AT_FDCWD, "/proc/self/stat", O_RDONLY | O_CLOEXEC);
    long size = file < 0 ? -1 : platform_call(SYS_read, file, text, sizeof text - 1);
    if (file >= 0) platform_call(SYS_close, file);
    while (size > 0 && text[size - 1] != ')') size--;
    return size > 0 && (size_t)size + 1 < sizeof text ? text[size + 1] : '?';
}

bool platform_first_thread_leaves(void)
{
    int saved = errno;
    bool leaves = platform_thread_number() == platform_process_number() || first_thread_state() == 'Z';
    errno = saved;
    return leaves;
}

bool platform_thread_is_last(void)
{
    /* Links of the folder: itself, the one above, and one for each thread, the dead first one too. */
    enum { LINKS = 2, FIRST_AND_OWN = 2 };
    struct stat tasks;
    int saved = errno;
    bool two = stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink <= LINKS + FIRST_AND_OWN;
    bool last = two && first_thread_state() == 'Z';
    errno = saved;
    return last;
}

/* ---- signals ------------------------------------------------------------------------------------------------- */

/* The kernel's set of signals, of which its files write the digits. */
static uint64_t signals_in(const char *line, const char *name)
{
    size_t length = strlen(name);
    return strncmp(line, name, length) == 0 ? strtoul(line + length, NULL, 16) : 0;
}

/* Those that somebody has sent to this very thread, and that the program handles. */
static uint64_t signals_due(void)
{
    struct lines lines;
    uint64_t sent = 0, handled = 0;
    if (!lines_open(&lines, "/proc/thread-self/status")) return 0;
    while (lines_next(&lines)) {
        sent |= signals_in(lines.line, "SigPnd:\t");
        handled |= signals_in(lines.line, "SigCgt:\t");
    }
    lines_close(&lines);
    return sent & handled;
}

void platform_answer_signals(void)
{
    int saved = errno;
    uint64_t pending = 0; /* also for the process: those are for other threads */
    if (platform_call(SYS_rt_sigpending, &pending, sizeof pending) == 0 && pending != 0) {
        uint64_t due = signals_due();
        if (due != 0) {
            platform_call(SYS_rt_sigprocmask, SIG_UNBLOCK, &due, NULL, sizeof due);
            platform_call(SYS_rt_sigprocmask, SIG_BLOCK, &due, NULL, sizeof due);
        }
    }
    errno = saved;
}

/* ---- whose code it is ------------------------------------------------------------------------------------ */

static bool is_in_parts(const ElfW(Phdr) * parts, unsigned count, uintptr_t base, uintptr_t address)
{
    for (unsigned i = 0; i < count; i++)
        if (parts[i].p_type == PT_LOAD && address - base - parts[i].p_vaddr < parts[i].p_memsz) return true;
    return false;
}

bool platform_is_in_linker(const void *address)
{
    uintptr_t base = getauxval(AT_BASE); /* 0: there is none, or it was told to start the program */
    if (base == 0) return true;
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)base;
    return is_in_parts((const ElfW(Phdr) *)(base + header->e_phoff), header->e_phnum, base, (uintptr_t)address);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif

#if !SANITIZED
/* Where the C library has pthread_create: in the second before glibc 2.34. To musl either name, of a library that is to be
 * loaded, is its own; dl_iterate_phdr has another. */
static const char *const thread_libraries[] = {"libc.so.6", "libpthread.so.0"};
enum { THREAD_LIBRARIES = sizeof thread_libraries / sizeof *thread_libraries };

/* For dl_iterate_phdr: whether pthread_create, as this library is bound to it, is the C library's. */
static int is_create_in(struct dl_phdr_info *object, size_t size, void *is_own)
{
    (void)size;
    if (!is_in_parts(object->dlpi_phdr, object->dlpi_phnum, object->dlpi_addr, (uintptr_t)pthread_create)) return 0;
    const char *slash = strrchr(object->dlpi_name, '/');
    for (unsigned i = 0; i < THREAD_LIBRARIES; i++)
        if (strcmp(slash == NULL ? object->dlpi_name : slash + 1, thread_libraries[i]) == 0) *(bool *)is_own = true;
    return 1;
}

/* Weak, and dlopen found by it: see cxx.c. */
#pragma weak dlsym

static create_function *find_create(void)
{
    void *(*open)(const char *, int) = NULL;
    create_function *found = NULL;
    if (dlsym != NULL) *(void **)&open = dlsym(RTLD_DEFAULT, "dlopen");
    for (unsigned i = 0; open != NULL && found == NULL && i < THREAD_LIBRARIES; i++) {
        void *library = open(thread_libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library != NULL) *(void **)&found = dlsym(library, "pthread_create");
    }
    return found;
}
#endif

void platform_thread_prepare(void)
{
#if !SANITIZED /* whose run-time library wants to know of each thread */
    bool is_own = false;
    int saved = errno;
    dl_iterate_phdr(is_create_in, &is_own);
    create_function *found = is_own ? NULL : find_create();
    if (found != NULL) create_thread = found;
    errno = saved;
#endif
}

int32_t platform_thread_number(void)
{
    return (int32_t)platform_call(SYS_gettid); /* the C library has a function for it only since 2.30 */
}

int32_t platform_process_number(void)
{
    return (int32_t)platform_call(SYS_getpid);
}

/* The number of a namespace of processes is below 2^32, and 0 where /proc does not say. */
uint64_t platform_process_identity(void)
{
    int32_t number = platform_process_number();
    if (number != 1) return (uint64_t)number;
    char name[64];
    int saved = errno;
    link_says("/proc/self/ns/pid", name, sizeof name);
    errno = saved;
    const char *digits = strchr(name, '[');
    uint64_t space = digits == NULL ? SIZE_MAX : number_at(digits + 1);
    return space == SIZE_MAX ? 1 : space << 32 | 1;
}

bool platform_thread_exists(int32_t number)
{
    int saved = errno;
    bool exists = platform_call(SYS_tgkill, platform_process_number(), number, 0) == 0 ||
                  errno != ESRCH; /* a sandbox may forbid to ask */
    errno = saved;
    return exists;
}
