/* Time and chance. */
#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A process that enters a time namespace, or is restored from a checkpoint on another machine, finds its monotonic clock set back:
 * what was dated before would be in the future for as long. So what was lost is added from then on.
 *
 *     seen_ms     about the latest time that a thread has returned: renewed every SEEN_MS, so that its line is mostly read
 *     added_ms    what has been lost, all in all
 *
 * Both relaxed: numbers. Two threads that find the clock set back at once add what is missing once, by the exchange; one that was
 * kept from running for longer than SEEN_MS between reading the clock and looking at seen_ms adds what it slept, which makes
 * some memory look older than it is, once. */
static _Atomic(uint64_t) seen_ms, added_ms;

enum { SEEN_MS = 500 };

__attribute__((cold, noinline)) static uint64_t clock_follow(uint64_t now, uint64_t added)
{
    uint64_t seen = atomic_load_explicit(&seen_ms, memory_order_relaxed);
    if (now >= seen) {
        atomic_store_explicit(&seen_ms, now, memory_order_relaxed);
        return now;
    }
    if (seen - now <= SEEN_MS) return now; /* another thread has looked later */
    atomic_compare_exchange_strong_explicit(&added_ms, &added, added + (seen - now), memory_order_relaxed,
                                            memory_order_relaxed);
    return seen;
}

uint64_t platform_clock_ms(void)
{
    struct timespec time;
    /* COARSE is answered from the vDSO without reading the hardware clock. */
    if (!platform_clock_get(CLOCK_MONOTONIC_COARSE, &time)) return 0;
    uint64_t added = atomic_load_explicit(&added_ms, memory_order_relaxed);
    uint64_t now = (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000 + added;
    uint64_t passed = now - atomic_load_explicit(&seen_ms, memory_order_relaxed);
    return __builtin_expect(passed < SEEN_MS, 1) ? now : clock_follow(now, added);
}

uint64_t platform_clock_thread_us(void)
{
    struct timespec now;
    if (!platform_clock_get(CLOCK_THREAD_CPUTIME_ID, &now)) return 0;
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t platform_clock_ns(void)
{
    struct timespec now;
    if (!platform_clock_get(CLOCK_MONOTONIC, &now)) return 0;
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t platform_random(void)
{
    uint64_t value = 0;
    int saved = errno;
    /* A bare system call: getrandom is a point at which a thread can be cancelled, and malloc is none. */
    if (platform_call(SYS_getrandom, &value, sizeof value, GRND_NONBLOCK) != (long)sizeof value) {
        /* Early at boot or in a sandbox: the 16 random bytes that the kernel gives every process. */
        const void *bytes = (const void *)getauxval(AT_RANDOM);
        if (bytes != NULL) memcpy(&value, bytes, sizeof value);
        value ^= platform_clock_ms() * UINT64_C(0x9E3779B97F4A7C15);
    }
    errno = saved;
    return value;
}

/* ---- drawing ------------------------------------------------------------------------------------------------------------- */

/* Fractions are of 32 bits. All by integers: a program may look at what floating-point operations leave behind. */
enum { FRACTION_BITS = 32 };
static const uint64_t LN_2 = UINT64_C(2977044472); /* the natural logarithm of 2 */

__extension__ typedef unsigned __int128 wide;

/* SplitMix64 (Steele, Lea, Flood, 2014). */
uint64_t chance_draw(uint64_t *state)
{
    uint64_t bits = *state += UINT64_C(0x9E3779B97F4A7C15);
    bits = (bits ^ bits >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94D049BB133111EB);
    return bits ^ bits >> 31;
}

/* The binary logarithm of a number that is not 0: its bits one after the other by squaring (Knuth, 1.2.2, exercise 25). */
static uint64_t logarithm(uint64_t number)
{
    unsigned zeros = (unsigned)__builtin_clzll(number);
    uint64_t mantissa = number << zeros; /* from 1 to below 2, with 63 bits of fraction */
    uint64_t result = 63 - zeros;
    for (int bit = 0; bit < FRACTION_BITS; bit++) {
        wide square = (wide)mantissa * mantissa; /* below 4, with 126 */
        bool is_two = square >> 127 != 0;
        mantissa = (uint64_t)(square >> (is_two ? 64 : 63));
        result = result << 1 | is_two;
    }
    return result;
}

size_t chance_distance(uint64_t *state, size_t mean)
{
    uint64_t bits = chance_draw(state);
    uint64_t binary = ((uint64_t)64 << FRACTION_BITS) - logarithm(bits | 1); /* of 1 / u, with u evenly from 0 to 1 */
    uint64_t natural = (uint64_t)((wide)binary * LN_2 >> FRACTION_BITS);
    wide distance = (wide)mean * natural >> FRACTION_BITS;
    return distance < SIZE_MAX ? (size_t)distance : SIZE_MAX;
}
