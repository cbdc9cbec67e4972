/* What memory.c lets threads see, by the usual small programs (Alglave, Maranget, Tautschnig: Herding cats, TOPLAS 2014): what
 * C11 allows must be found, so that weak orders are noticed, and what it forbids must not, so that the right ones pass. */
#include "interleave.h"
#include "memory.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVIATIONS = 4 };

/* Ints that are stored in them stay apart by their address. */
static struct {
    _Atomic(int) x, y;
    int plain;
} memory;
static int seen[4]; /* what threads have read */
static memory_order stores, loads; /* the orders that a case is about */

static void set_up(void)
{
    memset(&memory, 0, sizeof memory);
    memset(seen, 0, sizeof seen);
}

/* ---- programs ------------------------------------------------------------------------------------------------------------- */

static void store_x_load_y(void)
{
    atomic_store_explicit(&memory.x, 1, stores);
    seen[0] = atomic_load_explicit(&memory.y, loads);
}

static void store_y_load_x(void)
{
    atomic_store_explicit(&memory.y, 1, stores);
    seen[1] = atomic_load_explicit(&memory.x, loads);
}

static bool not_both_missed(void)
{
    return seen[0] != 0 || seen[1] != 0;
}

static void exchange_x_load_y(void)
{
    atomic_exchange_explicit(&memory.x, 1, stores);
    seen[0] = atomic_load_explicit(&memory.y, loads);
}

static void write_then_tell(void)
{
    memory.plain = 1;
    atomic_store_explicit(&memory.x, 1, stores);
}

static void hear_then_read(void)
{
    if (atomic_load_explicit(&memory.x, loads) >= 1) seen[0] = memory.plain;
}

static void hear_2_then_read(void)
{
    if (atomic_load_explicit(&memory.x, loads) == 2) seen[0] = memory.plain;
}

/* The same, where what was written plainly is loaded atomically, which is no race here. */
static void hear_then_load(void)
{
    seen[0] = atomic_load_explicit(&memory.x, loads);
    seen[1] = __atomic_load_n(&memory.plain, __ATOMIC_RELAXED);
}

static void store_then_tell_plainly(void)
{
    atomic_store_explicit(&memory.x, 1, stores);
    memory.plain = 1;
}

static void hear_plainly_then_load(void)
{
    seen[0] = __atomic_load_n(&memory.plain, __ATOMIC_ACQUIRE);
    seen[1] = atomic_load_explicit(&memory.x, loads);
}

static void count_up_plainly(void)
{
    for (int i = 1; i <= 2; i++) {
        memory.plain = i;
        atomic_store_explicit(&memory.x, i, memory_order_relaxed); /* so that both are stored */
    }
}

static void load_plain_twice(void)
{
    seen[0] = __atomic_load_n(&memory.plain, __ATOMIC_RELAXED);
    seen[1] = __atomic_load_n(&memory.plain, __ATOMIC_RELAXED);
}

static void pass_on(void)
{
    int expected = 1;
    atomic_compare_exchange_strong_explicit(&memory.x, &expected, 2, memory_order_relaxed, memory_order_relaxed);
}

static void overwrite(void)
{
    if (atomic_load_explicit(&memory.x, memory_order_relaxed) == 1)
        atomic_store_explicit(&memory.x, 2, memory_order_relaxed);
}

static void read_twice(void)
{
    seen[0] = atomic_load_explicit(&memory.x, memory_order_relaxed);
    seen[1] = atomic_load_explicit(&memory.x, memory_order_relaxed);
}

static void count_up(void)
{
    atomic_store_explicit(&memory.x, 1, memory_order_relaxed);
    atomic_store_explicit(&memory.x, 2, memory_order_relaxed);
}

static bool never_backwards(void)
{
    return seen[0] <= seen[1];
}

static void tell_x(void)
{
    atomic_store_explicit(&memory.x, 1, stores);
}

static void tell_y(void)
{
    atomic_store_explicit(&memory.y, 1, stores);
}

static void read_x_then_y(void)
{
    seen[0] = atomic_load_explicit(&memory.x, loads);
    seen[1] = atomic_load_explicit(&memory.y, loads);
}

static void read_y_then_x(void)
{
    seen[2] = atomic_load_explicit(&memory.y, loads);
    seen[3] = atomic_load_explicit(&memory.x, loads);
}

static bool one_order(void)
{
    return !(seen[0] == 1 && seen[1] == 0 && seen[2] == 1 && seen[3] == 0);
}

static void increment(void)
{
    atomic_fetch_add_explicit(&memory.x, 1, memory_order_relaxed);
}

static void increment_weakly(void)
{
    int before = atomic_load_explicit(&memory.x, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&memory.x, &before, before + 1, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

static bool counted_two(void)
{
    return memory.x == 2;
}

#ifndef __clang__ /* see its case */
static void set_weakly(void)
{
    int expected = 0;
    seen[0] =
        atomic_compare_exchange_weak_explicit(&memory.x, &expected, 1, memory_order_relaxed, memory_order_relaxed);
}
#endif

static void set_strongly(void)
{
    int expected = 0;
    seen[0] =
        atomic_compare_exchange_strong_explicit(&memory.x, &expected, 1, memory_order_relaxed, memory_order_relaxed);
}

static void look(void)
{
    seen[1] = atomic_load_explicit(&memory.x, memory_order_relaxed);
}

static bool it_was_set(void)
{
    return seen[0] != 0;
}

static bool is_free(const void *argument)
{
    (void)argument;
    return seen[3] == 0;
}

static int lock; /* an address */

static __attribute__((no_sanitize("thread"))) void write_under_the_lock(void)
{
    memory_lock_wanted(&lock);
    while (!is_free(NULL)) interleave_wait(is_free, NULL);
    seen[3] = 1;
    memory_lock_taken(&lock);
    write_then_tell();
    seen[3] = 0;
    memory_lock_released(&lock);
}

static void fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

static bool anything(void)
{
    return true;
}

/* ---- the cases ------------------------------------------------------------------------------------------------------------- */

static const struct litmus {
    const char *name;
    const char *error; /* what must be found, or how it begins; NULL: nothing may be */
    memory_order stores, loads;
    bool (*is_right)(void);
    void (*thread[INTERLEAVE_THREADS_MAX])(void);
} cases[] = {
#define NOT_RIGHT "the end is not right"
#define A_RACE "a race: "
#define RLX memory_order_relaxed
#define ACQ memory_order_acquire
#define REL memory_order_release
#define SEQ memory_order_seq_cst
    {"store buffering, seq_cst", NULL, SEQ, SEQ, not_both_missed, {store_x_load_y, store_y_load_x}},
    {"store buffering, release and acquire", NOT_RIGHT, REL, ACQ, not_both_missed, {store_x_load_y, store_y_load_x}},
    {"store buffering, stores seq_cst alone", NOT_RIGHT, SEQ, ACQ, not_both_missed, {store_x_load_y, store_y_load_x}},
    {"store buffering, loads seq_cst alone", NOT_RIGHT, REL, SEQ, not_both_missed, {store_x_load_y, store_y_load_x}},
    {"store buffering with an exchange, seq_cst", NULL, SEQ, SEQ, not_both_missed, {exchange_x_load_y, store_y_load_x}},
    {"store buffering with an exchange, acquire",
     NOT_RIGHT,
     SEQ,
     ACQ,
     not_both_missed,
     {exchange_x_load_y, store_y_load_x}},
    {"a message, release and acquire", NULL, REL, ACQ, anything, {write_then_tell, hear_then_read}},
    {"a message, release and relaxed", A_RACE, REL, RLX, anything, {write_then_tell, hear_then_read}},
    {"a message, relaxed and acquire", A_RACE, RLX, ACQ, anything, {write_then_tell, hear_then_read}},
    {"a message that an exchange passes on", NULL, REL, ACQ, anything, {write_then_tell, pass_on, hear_2_then_read}},
    {"a message that a store overwrites", A_RACE, REL, ACQ, anything, {write_then_tell, overwrite, hear_2_then_read}},
    {"two messages that are told apart", NULL, REL, ACQ, one_order, {tell_x, read_x_then_y}},
    {"two writers, two readers, seq_cst", NULL, SEQ, SEQ, one_order, {tell_x, tell_y, read_x_then_y, read_y_then_x}},
    {"two writers, two readers, release and acquire",
     NOT_RIGHT,
     REL,
     ACQ,
     one_order,
     {tell_x, tell_y, read_x_then_y, read_y_then_x}},
    {"one location is read forwards", NULL, RLX, RLX, never_backwards, {count_up, read_twice}},
    {"one location that is written plainly, too",
     NULL,
     RLX,
     RLX,
     never_backwards,
     {count_up_plainly, load_plain_twice}},
    {"what was written plainly is loaded after a message, release and acquire",
     NULL,
     REL,
     ACQ,
     never_backwards,
     {write_then_tell, hear_then_load}},
    {"what was written plainly is loaded after a message, relaxed and acquire",
     NOT_RIGHT,
     RLX,
     ACQ,
     never_backwards,
     {write_then_tell, hear_then_load}},
    {"a message that is written plainly carries nothing",
     NOT_RIGHT,
     REL,
     ACQ,
     never_backwards,
     {store_then_tell_plainly, hear_plainly_then_load}},
    {"relaxed increments all count", NULL, RLX, RLX, counted_two, {increment, increment}},
    {"so do those by compare-and-swap", NULL, RLX, RLX, counted_two, {increment_weakly, increment_weakly}},
#ifndef __clang__ /* which calls the same for a strong one */
    {"a weak compare-and-swap may fail", NOT_RIGHT, RLX, RLX, it_was_set, {set_weakly, look}},
#endif
    {"a strong one does not for no reason", NULL, RLX, RLX, it_was_set, {set_strongly, look}},
    {"two threads write the same", A_RACE, RLX, RLX, anything, {write_then_tell, write_then_tell}},
    {"two threads write the same under a lock", NULL, RLX, RLX, anything, {write_under_the_lock, write_under_the_lock}},
    {"a fence is not taken for one", "a fence: ", RLX, RLX, anything, {fence, look}},
};

static bool check(const struct litmus *litmus)
{
    struct interleave_program program = {.set_up = set_up, .is_right = litmus->is_right};
    memcpy(program.thread, litmus->thread, sizeof program.thread);
    while (program.threads < INTERLEAVE_THREADS_MAX && program.thread[program.threads] != NULL) program.threads++;
    stores = litmus->stores;
    loads = litmus->loads;
    struct interleave_result result = interleave_explore(&program, DEVIATIONS);
    bool right = litmus->error == NULL
                     ? result.error == NULL
                     : result.error != NULL && strncmp(result.error, litmus->error, strlen(litmus->error)) == 0;
    printf("%s: %lu executions: %s%s\n", litmus->name, result.executions,
           result.error == NULL ? "nothing" : result.error, right ? "" : ", AND THAT IS WRONG");
    return right;
}

int main(void)
{
    bool right = true;
    memory_watch("the memory", &memory, sizeof memory);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) right &= check(&cases[i]);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
