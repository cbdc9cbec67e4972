/* The replayer's parts: play.c makes the recorded calls, wait.c waits for other threads, memory.c looks at the memory, age.c
 * ages the heap before, replay.c is the program around them. None of them calls the allocator but to make a recorded call, or
 * to age the heap. */
#ifndef HEAPFIT_REPLAY_H
#define HEAPFIT_REPLAY_H

#include "plan.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <time.h>

#define CACHE_LINE 64

/* A block's place. Whoever has the turn alone may touch the rest, and hands it on with the turn: release when it is made
 * one more, acquire by who has waited for it. */
struct slot {
    _Atomic(uint32_t) turn;
    uint32_t size; /* of the block, or UINT32_MAX when it is larger */
    void *block;
};

enum touch { TOUCH_NONE, TOUCH_PAGE, TOUCH_LINE };

/* One recorded thread. What it alone writes is by itself in its cache lines. */
struct player {
    /* All its events before this place are done; PLAYER_AWAY: none are to come, or it has not begun. Relaxed: it throttles,
     * and carries nothing over. */
    _Alignas(CACHE_LINE) _Atomic(uint64_t) progress;
    uint64_t slowest; /* the least progress of all when it last looked: no thread's is less now */
    uint64_t waited_ns, waited_cpu_ns;
    uint64_t failures; /* calls that gave no memory */
    const struct plan_stream *stream;
    struct replay *replay;
    struct player *ended_before; /* in replay's `ended` */
    pthread_t thread;
};
#define PLAYER_AWAY UINT64_MAX

/* A look at the memory. */
struct look {
    uint64_t ns; /* since the replay began */
    uint64_t resident; /* bytes of anonymous memory, without the replayer's own tables, which are shared */
    uint64_t live; /* bytes that the recording had in use at that place */
};

enum { LOOKS_MAX = 1 << 16 };

/* Shared with the process that looks. All of it is that one's from `go` on until it has ended, but for `stop` and `at_peak`;
 * before `go` it touches nothing. */
struct looks {
    _Atomic(bool) go; /* release: the first look and what it depends on are there; acquire by who waits for it */
    _Atomic(bool) stop; /* relaxed: it carries nothing over */
    uint64_t began_ns;
    uint64_t aged_bytes; /* live from before the replay */
    uint32_t count;
    struct look at_peak; /* by the thread that makes the recording's peak */
    struct look looks[LOOKS_MAX];
};

struct replay {
    const struct plan_header *plan;
    const struct plan_op *ops;
    const uint64_t *course;
    const struct plan_stream *streams;
    enum touch touch;
    bool real_speed;
    bool null; /* the calls, and what touches memory, are left out */
    bool spins; /* there is another processor that may do what is waited for */
    uint64_t drift; /* events that a thread may be ahead of the slowest */
    uint64_t began_ns;
    struct slot *slots;
    struct player *players;
    struct looks *looks; /* NULL: nobody looks */
    int statm; /* a descriptor of this process's /proc/self/statm */
    int status; /* and of its /proc/self/status; negative: the machine has no pool of huge pages */
    pid_t watcher; /* the process that looks */
    _Atomic(uint32_t) started, joined; /* threads. Relaxed: play_and_join says why */
    _Atomic(struct player *) ended; /* those that nobody has joined yet. Release: they are done; acquire by who joins */
    sem_t ends; /* posted after each */
};

/* What a replay took. */
struct used {
    uint64_t wall_ns, cpu_ns;
    uint64_t waited_ns, waited_cpu_ns;
    uint64_t faults;
    uint64_t failures;
};

/* play.c: plays the whole plan, once. Ends the process where a thread cannot be started. */
void replay_run(struct replay *replay, struct used *used);

/* wait.c */
void await_turn(struct player *me, struct slot *slot, uint32_t turn);
void await_others(struct player *me, uint64_t order); /* until none is behind `order` by more than the drift */
void sleep_until(struct player *me, uint64_t ns); /* since the replay began */
uint64_t clock_ns(clockid_t clock);
uint64_t least_progress(const struct replay *replay); /* PLAYER_AWAY: there is nobody */

/* age.c: before the replay, to so many times the recording's peak. */
struct ageing {
    uint64_t left_bytes; /* live from then on */
    uint64_t failures;
};
struct ageing age_heap(const struct replay *replay, double times);

/* memory.c */
struct look look_at_memory(const struct replay *replay);
int open_status(void); /* for `status` */
/* Makes the process that looks, while there is hardly any memory that the two would have to copy, and sets it going when the
 * heap is ready. */
bool watch_begin(struct replay *replay); /* false: errno says why */
void watch_go(struct replay *replay, uint64_t aged_bytes);
bool watch_end(struct replay *replay); /* false: what was seen is lost */

struct memory_course {
    uint64_t peak;
    double mean, mean_live; /* over time */
};
struct memory_course memory_course(const struct looks *looks);

#endif
