/* Waiting for other threads: futexes, copies of the process, locks, and locks around forks. */
#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

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

bool platform_lock_fork_passes(const platform_lock *lock)
{
    return word_latest(lock) != LEFT && fork_watched.mend == NULL;
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
    if (platform_lock_is_own(lock)) {
        /* Release: as when it is released. */
        atomic_exchange_explicit(&lock->word, FORK, memory_order_release);
        own_remove();
        lock_wake(lock, INT_MAX);
        return;
    }
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
