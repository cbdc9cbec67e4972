/* Processors, locks, fork and thread exit. */
#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
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
