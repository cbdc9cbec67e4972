/* Calls of the kernel that no other library stands in front of.
 *
 * Libraries that are preloaded replace functions of the C library, even `syscall` and `clock_gettime` (libfaketime does). Such a
 * function may allocate, or ask the dynamic linker, which does: it would wait for a lock that the thread has, or find a heap that
 * has not started. And a clock that somebody makes up stands still or runs backwards. So the kernel is called by an instruction,
 * and the clock is read from the vDSO, as the C library does it.
 *
 * What maps, unmaps and advises memory is called by its public name all the same: libraries that keep track of memory which a
 * device may write to (UCX, for one) must see what goes back to the kernel, and replace these functions by some that do not
 * allocate.
 */
#define _GNU_SOURCE
#include "symbol.h"

#include "platform.h"

#include <errno.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
static long call(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    register long sixth __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}
#define CLOCK_FUNCTION "__vdso_clock_gettime"
#elif defined(__aarch64__)
static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long which __asm__("x8") = number;
    register long first __asm__("x0") = a;
    register long second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;
    register long fifth __asm__("x4") = e;
    register long sixth __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(first)
                     : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "memory");
    return first;
}
#define CLOCK_FUNCTION "__kernel_clock_gettime"
#endif

long platform_call_kernel(long number, long a, long b, long c, long d, long e, long f)
{
    enum { ERRNO_MAX = 4095 };
    long result = call(number, a, b, c, d, e, f);
    if (result >= 0 || result < -ERRNO_MAX) return result;
    errno = (int)-result;
    return -1;
}

typedef int clock_function(clockid_t, struct timespec *);

/* A plain system call where the kernel offers none (emulators do not). */
static int ask_kernel(clockid_t clock, struct timespec *time)
{
    return (int)call(SYS_clock_gettime, clock, (long)time, 0, 0, 0, 0);
}

static COLD clock_function *find_clock(void)
{
    int saved = errno; /* of getauxval, which does not find it */
    uintptr_t found = kernel_mapped_symbol(getauxval(AT_SYSINFO_EHDR), CLOCK_FUNCTION);
    errno = saved;
    return found == 0 ? ask_kernel : (clock_function *)found;
}

bool platform_clock_get(int clock, struct timespec *time)
{
    static _Atomic(uintptr_t) known; /* relaxed: every thread finds the same */
    uintptr_t function = atomic_load_explicit(&known, memory_order_relaxed);
    if (UNLIKELY(function == 0)) {
        function = (uintptr_t)find_clock();
        atomic_store_explicit(&known, function, memory_order_relaxed);
    }
    return ((clock_function *)function)(clock, time) == 0;
}
