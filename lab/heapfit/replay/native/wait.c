/* Waiting, in a replay, for other threads and for the clock.
 *
 * Who is waited for does not know it: to look whether there is somebody to wake would cost each operation a fence, several
 * times of what it costs now. So who waits looks again and again: at first at once, for as long as it would take to ask
 * for the time; then behind whoever else wants the processor; then after naps. What those take, in time and in processor
 * time, is kept apart; so is the time between a replay's events at the recorded speed. Neither uses futex, whose calls are the allocator's alone then. */
#include "replay.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

enum {
    SPINS = 32, /* a microsecond or so: as long as a cache line that another core writes may take, several times over */
    YIELDS = 16,
    NAP_NS = 20 * 1000,
    NS_PER_S = 1000 * 1000 * 1000,
};

uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_a_little(unsigned round)
{
    if (round < YIELDS) sched_yield();
    else nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/* Begins and ends what is kept apart. */
struct waiting {
    uint64_t ns, cpu_ns;
};

static struct waiting waiting_begin(void)
{
    return (struct waiting){clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_THREAD_CPUTIME_ID)};
}

static void waiting_end(struct player *me, struct waiting began)
{
    me->waited_cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - began.cpu_ns;
    me->waited_ns += clock_ns(CLOCK_MONOTONIC) - began.ns;
}

/* Acquire pairs with the release of who had the turn before. */
static bool has_turn(struct slot *slot, uint32_t turn)
{
    return atomic_load_explicit(&slot->turn, memory_order_acquire) == turn;
}

void await_turn(struct player *me, struct slot *slot, uint32_t turn)
{
    for (unsigned i = 0; me->replay->spins && i < SPINS; i++) {
        if (has_turn(slot, turn)) return;
        relax();
    }
    struct waiting began = waiting_begin();
    for (unsigned round = 0; !has_turn(slot, turn); round++) wait_a_little(round);
    waiting_end(me, began);
}

uint64_t least_progress(const struct replay *replay)
{
    uint64_t least = PLAYER_AWAY;
    for (uint32_t i = 0; i < replay->plan->streams; i++) {
        uint64_t progress = atomic_load_explicit(&replay->players[i].progress, memory_order_relaxed);
        if (progress < least) least = progress;
    }
    return least;
}

/* That a thread waits for the slowest and that it waits for its turn make no circle: of all operations that are yet to be
 * done, the one that comes first in the order of the recording waits for no turn, and no thread is behind its own by more
 * than a step, which is less than the drift. */
void await_others(struct player *me, uint64_t order)
{
    const struct replay *replay = me->replay;
    me->slowest = least_progress(replay);
    if (me->slowest + replay->drift >= order) return;
    struct waiting began = waiting_begin();
    for (unsigned round = 0; me->slowest + replay->drift < order; round++) {
        wait_a_little(round);
        me->slowest = least_progress(replay);
    }
    waiting_end(me, began);
}

void sleep_until(struct player *me, uint64_t ns)
{
    struct waiting began = waiting_begin();
    uint64_t at = me->replay->began_ns + ns;
    struct timespec then = {.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) == EINTR) continue;
    waiting_end(me, began);
}
