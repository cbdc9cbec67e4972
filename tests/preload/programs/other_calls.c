/* A library in front of, or behind, an allocator: like libfaketime it replaces functions of the C library by some that allocate, and
 * shows a clock that stands still. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/types.h>
#include <time.h>

static void *volatile kept;

static void *next(const char *name)
{
    kept = malloc(100);
    free(kept);
    return dlsym(RTLD_NEXT, name);
}

#define NEXT(name) ((__typeof__(&(name)))next(#name))

pid_t getpid(void)
{
    return NEXT(getpid)();
}

ssize_t getrandom(void *buffer, size_t size, unsigned flags)
{
    return ((ssize_t (*)(void *, size_t, unsigned))next("getrandom"))(buffer, size, flags);
}

int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
    return NEXT(getrlimit)(resource, limit);
}

int sysinfo(struct sysinfo *info)
{
    return NEXT(sysinfo)(info);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    kept = malloc(100);
    free(kept);
    if (clock < 0) return EINVAL;
    *time = (struct timespec){.tv_sec = 1000};
    return 0;
}

long syscall(long number, ...)
{
    long a[6];
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(given, long);
    va_end(given);
    long (*call)(long, ...);
    *(void **)&call = next("syscall");
    return call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
