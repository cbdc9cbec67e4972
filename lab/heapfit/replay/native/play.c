/* Plays a plan: each recorded thread's calls, in a thread of its own. */
#include "replay.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define COLD static __attribute__((noinline, cold))
#define UNLIKELY(condition) __builtin_expect(condition, 0)

enum { PAGE = 4096, STACK = 256 * 1024 };

/* C++'s operators, where the allocator defines them; else malloc and free, which libstdc++'s come to. */
static void *(*call_new)(size_t);
static void *(*call_new_aligned)(size_t, size_t);
static void (*call_delete)(void *);
static void (*call_delete_aligned)(void *, size_t);

static void *aligned(size_t size, size_t alignment)
{
    void *block;
    size_t least = sizeof(void *);
    return posix_memalign(&block, alignment < least ? least : alignment, size) == 0 ? block : NULL;
}

static void free_aligned_block(void *block, size_t alignment)
{
    (void)alignment;
    free(block);
}

/* Through memory: ISO C has no conversion from what dlsym returns. */
static bool find_operator(const char *name, void *function)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found != NULL) memcpy(function, &found, sizeof found);
    return found != NULL;
}

static void find_operators(void)
{
    bool all = find_operator("_Znwm", &call_new) && find_operator("_ZdlPv", &call_delete) &&
               find_operator("_ZnwmSt11align_val_t", &call_new_aligned) &&
               find_operator("_ZdlPvSt11align_val_t", &call_delete_aligned);
    if (all) return;
    call_new = malloc;
    call_new_aligned = aligned;
    call_delete = free;
    call_delete_aligned = free_aligned_block;
}

/* ---- threads ------------------------------------------------------------------------------------------------------------ */

static pthread_attr_t attributes;

static void play(struct player *me);

static bool join_ended(struct replay *replay)
{
    struct player *ended = atomic_exchange_explicit(&replay->ended, NULL, memory_order_acquire);
    for (struct player *player = ended; player != NULL; player = player->ended_before) {
        pthread_join(player->thread, NULL);
        atomic_fetch_add_explicit(&replay->joined, 1, memory_order_relaxed);
    }
    return ended != NULL;
}

static void *player_main(void *argument)
{
    struct player *me = argument;
    struct replay *replay = me->replay;
    me->thread = pthread_self(); /* who joins gets it from here, not from whoever started this thread */
    play(me);
    atomic_store_explicit(&me->progress, PLAYER_AWAY, memory_order_relaxed);
    me->ended_before = atomic_load_explicit(&replay->ended, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&replay->ended, &me->ended_before, me, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    sem_post(&replay->ends);
    return NULL;
}

/* Ended threads are joined when another starts, so that there are no more of them than in the program. */
COLD void start(struct player *me, uint32_t number)
{
    struct replay *replay = me->replay;
    struct player *player = &replay->players[number];
    if (number == replay->plan->main) return; /* it is there from the beginning */
    join_ended(replay);
    /* No less than mine is, hence no less than what others have seen as the least; alone, I may have seen more. */
    atomic_store_explicit(&player->progress, atomic_load_explicit(&me->progress, memory_order_relaxed),
                          memory_order_relaxed);
    me->slowest = 0;
    atomic_fetch_add_explicit(&replay->started, 1, memory_order_relaxed);
    pthread_t unused;
    int error = pthread_create(&unused, &attributes, player_main, player);
    if (error == 0) return;
    fprintf(stderr, "cannot start thread %u of %u: %s\n", number + 1, replay->plan->streams, strerror(error));
    _exit(EXIT_FAILURE); /* the others would wait for it */
}

/* ---- one thread's operations ---------------------------------------------------------------------------------------------- */

COLD void pace(struct player *me, const struct plan_op *op)
{
    struct replay *replay = me->replay;
    uint64_t order = plan_order(op);
    atomic_store_explicit(&me->progress, order, memory_order_relaxed);
    /* Only one thread gets here, since a peak is one thread's. What it sees is read when all have been joined. */
    if (op->alignment != 0 && order == replay->plan->peak_look && replay->looks != NULL) {
        replay->looks->at_peak = look_at_memory(replay);
    }
    if (replay->real_speed) sleep_until(me, plan_ns(op));
    if (order > me->slowest + replay->drift) await_others(me, order);
}

/* Writes into each page or cache line of a block from `from` on. */
ALWAYS_INLINE void touch_block(char *block, size_t from, size_t size, enum touch touch)
{
    if (touch == TOUCH_NONE) return;
    const uintptr_t stride = touch == TOUCH_PAGE ? PAGE : CACHE_LINE;
    uintptr_t end = (uintptr_t)block + size;
    for (uintptr_t at = (uintptr_t)block + from; at < end; at = (at | (stride - 1)) + 1) *(volatile char *)at = 1;
}

ALWAYS_INLINE struct slot *slot_in_turn(struct player *me, struct slot *slots, const struct plan_op *op)
{
    struct slot *slot = &slots[op->slot];
    /* Acquire, as in await_turn. Where the thread itself had the turn before, it is its own value that it sees. */
    if (UNLIKELY(atomic_load_explicit(&slot->turn, memory_order_acquire) != op->turn)) {
        await_turn(me, slot, op->turn);
    }
    return slot;
}

ALWAYS_INLINE void pass_turn(struct slot *slot, const struct plan_op *op)
{
    atomic_store_explicit(&slot->turn, op->turn + 1, memory_order_release);
}

ALWAYS_INLINE void fill(struct player *me, struct slot *slot, const struct plan_op *op, void *block, size_t touched,
                        enum touch touch)
{
    if (UNLIKELY(block == NULL)) me->failures++;
    else touch_block(block, touched, op->size, touch);
    slot->block = block;
    slot->size = op->size < UINT32_MAX ? (uint32_t)op->size : UINT32_MAX;
    pass_turn(slot, op);
}

/* The program has, as a rule, just used what it frees. */
ALWAYS_INLINE void read_once(const struct slot *slot, enum touch touch)
{
    if (touch != TOUCH_NONE && slot->size > 0 && slot->block != NULL) (void)*(volatile char *)slot->block;
}

ALWAYS_INLINE void *allocate(const struct plan_op *op)
{
    switch ((enum plan_kind)op->kind) {
    case PLAN_CALLOC:
        return calloc(1, op->size);
    case PLAN_ALIGNED:
        return aligned(op->size, (size_t)1 << op->alignment);
    case PLAN_NEW:
        return call_new(op->size);
    case PLAN_NEW_ALIGNED:
        return call_new_aligned(op->size, (size_t)1 << op->alignment);
    default:
        return malloc(op->size);
    }
}

ALWAYS_INLINE void play_realloc(struct player *me, struct slot *slot, const struct plan_op *op, enum touch touch)
{
    size_t before = slot->size < op->size ? slot->size : op->size;
    /* To nothing would be a free to some allocators, as it was none to the recorded one. */
    void *moved = realloc(slot->block, op->size > 0 ? op->size : 1);
    if (moved == NULL) { /* the old block stays, to be freed */
        me->failures++;
        pass_turn(slot, op);
        return;
    }
    fill(me, slot, op, moved, before, touch);
}

ALWAYS_INLINE void play_free(struct slot *slot, const struct plan_op *op, enum touch touch)
{
    read_once(slot, touch);
    if (op->kind == PLAN_FREE) free(slot->block);
    else if (op->alignment == 0) call_delete(slot->block);
    else call_delete_aligned(slot->block, (size_t)1 << op->alignment);
    pass_turn(slot, op);
}

/* With `null`, all but the calls and the touching: what is measured of it is the replayer's own. */
ALWAYS_INLINE void play_all(struct player *me, bool null, enum touch touch)
{
    struct slot *slots = me->replay->slots;
    const struct plan_op *op = me->replay->ops + me->stream->first;
    for (;; op++) {
        /* Of what is no operation on a slot it is another number: to fetch from nowhere is harmless. */
        __builtin_prefetch(&slots[op[PLAN_AHEAD / 2].slot], 1);
        switch ((enum plan_kind)op->kind) {
        case PLAN_FREE:
        case PLAN_DELETE: {
            struct slot *slot = slot_in_turn(me, slots, op);
            if (null) pass_turn(slot, op);
            else play_free(slot, op, touch);
            break;
        }
        case PLAN_REALLOC: {
            struct slot *slot = slot_in_turn(me, slots, op);
            if (null) fill(me, slot, op, slot->block, 0, TOUCH_NONE);
            else play_realloc(me, slot, op, touch);
            break;
        }
        case PLAN_MALLOC:
        case PLAN_CALLOC:
        case PLAN_ALIGNED:
        case PLAN_NEW:
        case PLAN_NEW_ALIGNED: {
            struct slot *slot = slot_in_turn(me, slots, op);
            if (null) fill(me, slot, op, slot, 0, TOUCH_NONE);
            else fill(me, slot, op, allocate(op), 0, touch);
            break;
        }
        case PLAN_START:
            start(me, op->slot);
            break;
        case PLAN_PACE:
            pace(me, op);
            break;
        case PLAN_JUMP:
            op = me->replay->ops + op->size - 1;
            break;
        case PLAN_END:
            return;
        }
    }
}

/* One copy of the loop for each, in which the choice costs nothing. */
static void play(struct player *me)
{
    const struct replay *replay = me->replay;
    if (replay->null) play_all(me, true, TOUCH_NONE);
    else if (replay->touch == TOUCH_LINE) play_all(me, false, TOUCH_LINE);
    else if (replay->touch == TOUCH_PAGE) play_all(me, false, TOUCH_PAGE);
    else play_all(me, false, TOUCH_NONE);
}

/* ---- all of it -------------------------------------------------------------------------------------------------------------- */

static uint64_t faults_so_far(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

static void play_and_join(struct replay *replay)
{
    struct player *me = &replay->players[replay->plan->main];
    atomic_store_explicit(&me->progress, 0, memory_order_relaxed);
    if (replay->plan->main != 0) start(me, 0);
    play(me);
    atomic_store_explicit(&me->progress, PLAYER_AWAY, memory_order_relaxed);
    /* Who has been started by another thread is counted when that one has been joined: the join orders it. */
    while (atomic_load_explicit(&replay->joined, memory_order_relaxed) <
           atomic_load_explicit(&replay->started, memory_order_relaxed)) {
        if (!join_ended(replay)) {
            while (sem_wait(&replay->ends) != 0) continue;
        }
    }
}

void replay_run(struct replay *replay, struct used *used)
{
    find_operators();
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    uint64_t faults = faults_so_far();
    uint64_t cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    replay->began_ns = clock_ns(CLOCK_MONOTONIC);
    play_and_join(replay);
    *used = (struct used){
        .wall_ns = clock_ns(CLOCK_MONOTONIC) - replay->began_ns,
        .cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns,
        .faults = faults_so_far() - faults,
    };
    for (uint32_t i = 0; i < replay->plan->streams; i++) {
        used->waited_ns += replay->players[i].waited_ns;
        used->waited_cpu_ns += replay->players[i].waited_cpu_ns;
        used->failures += replay->players[i].failures;
    }
}
