/* Time and chance. */
#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <time.h>

uint64_t platform_clock_ms(void)
{
    struct timespec now;
    /* COARSE is answered from the vDSO without reading the hardware clock. */
    if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) != 0) return 0;
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t platform_clock_thread_us(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return 0;
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t platform_clock_ns(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t platform_random(void)
{
    uint64_t value = 0;
    int saved = errno;
    if (getrandom(&value, sizeof value, GRND_NONBLOCK) != (ssize_t)sizeof value) {
        /* Early at boot or in a sandbox: the 16 random bytes that the kernel gives every process. */
        const void *bytes = (const void *)getauxval(AT_RANDOM);
        if (bytes != NULL) memcpy(&value, bytes, sizeof value);
        value ^= platform_clock_ms() * UINT64_C(0x9E3779B97F4A7C15);
    }
    errno = saved;
    return value;
}
