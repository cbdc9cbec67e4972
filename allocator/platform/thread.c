/* Processors, locks, fork, thread exit, and threads of the allocator's own. */
#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- processors ---------------------------------------------------------------------------------- */

/* Linux knows no more than 8192. */
enum { PROCESSOR_WORDS = 8192 / (8 * sizeof(unsigned long)) };

unsigned platform_processors(void)
{
    /* Of the first thread and of this one: either may have bound itself to some, the process is bound to all of these. */
    const pid_t threads[] = {getpid(), 0};
    unsigned long processors[PROCESSOR_WORDS] = {0};
    int saved = errno;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        unsigned long mask[PROCESSOR_WORDS] = {0};
        if (syscall(SYS_sched_getaffinity, threads[i], sizeof mask, mask) < 0) continue;
        for (size_t word = 0; word < PROCESSOR_WORDS; word++) processors[word] |= mask[word];
    }
    errno = saved;
    unsigned count = 0;
    for (size_t word = 0; word < PROCESSOR_WORDS; word++) count += (unsigned)__builtin_popcountl(processors[word]);
    return count == 0 ? 1 : count;
}

/* ---- locks --------------------------------------------------------------------------------------- */

/* How many locks this thread holds for a fork that is under way. */
static __thread unsigned thread_fork_locks;

enum { UNLOCKED = 0, LOCKED = 1, CONTENDED = 2 };

/* Tries before sleeping. The longest critical section is a few hundred nanoseconds, unless its holder was
 * scheduled away; then spinning longer only burns its core. */
enum { LOCK_SPINS = 100 };

static void futex_wait(_Atomic(uint32_t) *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_one(_Atomic(uint32_t) *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static COLD void lock_wait(platform_lock *lock)
{
    for (int spin = 0; spin < LOCK_SPINS; spin++) {
        uint32_t expected = UNLOCKED;
        /* Acquire: pairs with the release in platform_lock_release. */
        if (atomic_compare_exchange_weak_explicit(&lock->word, &expected, LOCKED, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        cpu_relax();
    }
    int saved = errno;
    /* From here on we hold it as CONTENDED, so that our release wakes the next one (Drepper, "Futexes are
     * tricky", mutex 2). Acquire as above. */
    while (atomic_exchange_explicit(&lock->word, CONTENDED, memory_order_acquire) != UNLOCKED)
        futex_wait(&lock->word, CONTENDED);
    errno = saved;
}

/* Reads held_by_fork only when this thread is inside fork(): then it is the holder who wrote it. */
static bool held_by_own_fork(const platform_lock *lock)
{
    return UNLIKELY(thread_fork_locks != 0) && lock->held_by_fork;
}

void platform_lock_acquire(platform_lock *lock)
{
    if (held_by_own_fork(lock)) return;
    uint32_t expected = UNLOCKED;
    if (UNLIKELY(!atomic_compare_exchange_strong_explicit(&lock->word, &expected, LOCKED, memory_order_acquire,
                                                          memory_order_relaxed)))
        lock_wait(lock);
}

bool platform_lock_try(platform_lock *lock)
{
    uint32_t expected = UNLOCKED;
    /* Acquire: as in lock_wait. */
    return atomic_compare_exchange_strong_explicit(&lock->word, &expected, LOCKED, memory_order_acquire,
                                                   memory_order_relaxed) ||
           held_by_own_fork(lock);
}

void platform_lock_release(platform_lock *lock)
{
    if (held_by_own_fork(lock)) return;
    /* Release: what was written under the lock is seen by the next holder. */
    if (UNLIKELY(atomic_exchange_explicit(&lock->word, UNLOCKED, memory_order_release) == CONTENDED)) {
        int saved = errno;
        futex_wake_one(&lock->word);
        errno = saved;
    }
}

void platform_lock_fork_begin(platform_lock *lock)
{
    platform_lock_acquire(lock);
    lock->held_by_fork = true;
    thread_fork_locks++;
}

void platform_lock_fork_end(platform_lock *lock)
{
    lock->held_by_fork = false;
    thread_fork_locks--;
    platform_lock_release(lock);
}

/* ---- thread exit ---------------------------------------------------------------------------------- */

static pthread_key_t exit_key;
static bool exit_key_made;

void platform_thread_exit_hook(void (*hook)(void *))
{
    exit_key_made = pthread_key_create(&exit_key, hook) == 0;
}

void platform_thread_exit_arm(void *argument)
{
    if (!exit_key_made) return;
    int saved = errno;
    pthread_setspecific(exit_key, argument);
    errno = saved;
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
    _Atomic(uint32_t) copied;
};

/* Both apply to the calling thread alone, on Linux. A nice value where a sandbox forbids the better one. */
static void lower_priority(void)
{
    const struct sched_param none = {0};
    if (sched_setscheduler(0, SCHED_IDLE, &none) != 0) setpriority(PRIO_PROCESS, 0, 19);
}

static void *thread_begin(void *argument)
{
    struct start *shared = argument;
    struct start start = {.run = shared->run, .argument = shared->argument, .low_priority = shared->low_priority};
    prctl(PR_SET_NAME, shared->name);
    /* Release: we have read all. The starter's stack may be gone before the wake, which then wakes nobody. */
    atomic_store_explicit(&shared->copied, 1, memory_order_release);
    futex_wake_one(&shared->copied);
    if (start.low_priority) lower_priority();
    start.run(start.argument);
    return NULL;
}

static bool create(struct start *start, size_t stack_size)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    bool created = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                   (stack_size == 0 || pthread_attr_setstacksize(&attributes, stack_size) == 0) &&
                   pthread_create(&thread, &attributes, thread_begin, start) == 0;
    pthread_attr_destroy(&attributes);
    return created;
}

bool platform_thread_start(const char *name, void (*run)(void *), void *argument, bool low_priority)
{
    struct start start = {.name = name, .run = run, .argument = argument, .low_priority = low_priority};
    int saved = errno;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited */
    /* Much thread-local storage may not leave room in a small stack: then one of the usual size. */
    size_t minimum = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    bool created = create(&start, minimum + STACK_SIZE) || create(&start, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    /* Acquire: pairs with the release in thread_begin. */
    while (created && atomic_load_explicit(&start.copied, memory_order_acquire) == 0) futex_wait(&start.copied, 0);
    errno = saved;
    return created;
}

void platform_wait(_Atomic(uint32_t) *word, uint32_t expected, uint32_t timeout_us)
{
    struct timespec timeout = {.tv_sec = timeout_us / 1000000, .tv_nsec = (long)(timeout_us % 1000000) * 1000};
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &timeout, NULL, 0);
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
    bool done = syscall(SYS_membarrier, command, 0) == 0;
    errno = saved;
    return done;
}

bool platform_barrier_prepare(void)
{
    return membarrier(BARRIER_REGISTER);
}

bool platform_barrier_everywhere(void)
{
    return membarrier(BARRIER_PRIVATE_EXPEDITED);
}

/* The state of the first thread: the letter behind the name, which stands in parentheses and may contain some. */
static char first_thread_state(void)
{
    char text[256];
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    while (size > 0 && text[size - 1] != ')') size--;
    return size > 0 && (size_t)size + 1 < sizeof text ? text[size + 1] : '?';
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

bool platform_is_in_linker(const void *address)
{
    uintptr_t base = getauxval(AT_BASE); /* 0: there is none, or it was told to start the program */
    if (base == 0) return true;
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)base;
    const ElfW(Phdr) *part = (const ElfW(Phdr) *)(base + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++)
        if (part[i].p_type == PT_LOAD && (uintptr_t)address - base - part[i].p_vaddr < part[i].p_memsz) return true;
    return false;
}

int32_t platform_thread_number(void)
{
    return (int32_t)syscall(SYS_gettid); /* the C library has a function for it only since 2.30 */
}

int32_t platform_process_number(void)
{
    return (int32_t)getpid();
}

bool platform_thread_exists(int32_t number)
{
    int saved = errno;
    bool exists = syscall(SYS_tgkill, getpid(), number, 0) == 0 || errno != ESRCH; /* a sandbox may forbid to ask */
    errno = saved;
    return exists;
}
