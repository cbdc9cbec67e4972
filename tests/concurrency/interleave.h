/* An exhaustive scheduler for small concurrent programs: runs the same program again and again, each time with another
 * interleaving, until there is none left.
 *
 * The threads are coroutines of one thread of the system. They may change over where they say interleave(), which memory.c
 * makes every atomic access and every lock do that other threads can tell. All executions with at most a given number of
 * deviations are run. Preemptions are such: changes from a thread that could have gone on; changes from one that is blocked or
 * has ended are free. Few preemptions find most errors (Musuvathi, Qadeer: Iterative context bounding, PLDI 2007). The others
 * are what memory may do against expectation: see memory.h.
 */
#ifndef HEAPFIT_TESTS_INTERLEAVE_H
#define HEAPFIT_TESTS_INTERLEAVE_H

#include <stdbool.h>

enum { INTERLEAVE_THREADS_MAX = 4, INTERLEAVE_STEPS_MAX = 4096 };

struct interleave_program {
    int threads;
    void (*set_up)(void);              /* before each execution */
    void (*thread[INTERLEAVE_THREADS_MAX])(void);
    bool (*is_right)(void);            /* after each execution */
    void (*switched)(int from, int to); /* exchange what is thread-local; NULL: nothing is */
};

/* What an exploration found. */
struct interleave_result {
    unsigned long executions;
    const char *error; /* NULL: none */
};

struct interleave_result interleave_explore(const struct interleave_program *program, int deviations);

/* Another thread may run here. */
void interleave(void);

/* One of 1 + `others` ways to go on: 0, or a number up to `others`, which is a deviation. */
int interleave_deviate(int others);

/* This thread cannot go on before `can_go_on(argument)` is true; when it does, others may have made it false again. */
void interleave_wait(bool (*can_go_on)(const void *argument), const void *argument);

/* The number of the running thread; and whether any of them runs, rather than the stage being set or the end being looked at. */
int interleave_self(void);
bool interleave_runs(void);

/* Something is wrong: this execution ends here, and with it the exploration. */
_Noreturn void interleave_fail(const char *error);

/* The program ends here, and rightly: so does this execution, of which the end is not looked at. */
_Noreturn void interleave_end(void);

/* All other threads are gone from now on, wherever they are: what fork() does to the child. */
void interleave_kill_others(void);

#endif
