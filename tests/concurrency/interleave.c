/* See interleave.h. An execution is a sequence of choices: at each step, which of the threads that can run runs next. The
 * choices of the last execution are kept; the next one repeats them up to the last step that had another choice left. */
#include "interleave.h"

#include "memory.h"

#include <stddef.h>
#include <stdlib.h>
#include <ucontext.h>

enum { STACK_BYTES = 64 * 1024 };

enum status { READY, WAITING, ENDED };

static struct {
    ucontext_t context;
    char stack[STACK_BYTES];
    enum status status;
    bool (*can_go_on)(const void *argument);
    const void *argument;
} threads[INTERLEAVE_THREADS_MAX];

struct step {
    unsigned char choice, choices;
};

static struct {
    const struct interleave_program *program;
    ucontext_t main;
    struct step steps[INTERLEAVE_STEPS_MAX];
    int taken; /* steps of this execution so far */
    int kept; /* steps that it repeats */
    int deviations_left;
    int running;
    bool runs; /* a thread does, not the stage's hands */
    bool ended; /* by the program itself */
    const char *error;
} explorer;

static bool can_run(int thread)
{
    if (threads[thread].status == WAITING) return threads[thread].can_go_on(threads[thread].argument);
    return threads[thread].status == READY;
}

/* The threads that may run next, the running one first if it can: that choice is no preemption. */
static int candidates(int list[INTERLEAVE_THREADS_MAX])
{
    int count = 0;
    bool goes_on = can_run(explorer.running);
    if (goes_on) list[count++] = explorer.running;
    if (goes_on && explorer.deviations_left == 0) return count;
    for (int i = 0; i < explorer.program->threads; i++)
        if (i != explorer.running && can_run(i)) list[count++] = i;
    return count;
}

static int choose(int count)
{
    struct step *step = &explorer.steps[explorer.taken];
    if (explorer.taken >= explorer.kept) *step = (struct step){.choice = 0, .choices = (unsigned char)count};
    explorer.taken++;
    return step->choice;
}

static void switch_to(int next)
{
    int from = explorer.running;
    threads[next].status = READY;
    if (next == from) return;
    explorer.running = next;
    if (explorer.program->switched != NULL) explorer.program->switched(from, next);
    swapcontext(&threads[from].context, &threads[next].context);
}

static void schedule(void)
{
    int list[INTERLEAVE_THREADS_MAX];
    int count = candidates(list);
    if (count == 0) {
        for (int i = 0; i < explorer.program->threads; i++)
            if (threads[i].status != ENDED) interleave_fail("deadlock");
        setcontext(&explorer.main);
    }
    if (explorer.taken == INTERLEAVE_STEPS_MAX) interleave_fail("no end in sight");
    int next = list[count == 1 ? 0 : choose(count)];
    if (next != explorer.running && threads[explorer.running].status == READY) explorer.deviations_left--;
    switch_to(next);
}

void interleave(void)
{
    if (explorer.runs) schedule();
}

int interleave_deviate(int others)
{
    if (others == 0 || explorer.deviations_left == 0) return 0;
    if (explorer.taken == INTERLEAVE_STEPS_MAX) interleave_fail("no end in sight");
    int way = choose(1 + others);
    if (way != 0) explorer.deviations_left--;
    return way;
}

void interleave_wait(bool (*can_go_on)(const void *argument), const void *argument)
{
    if (can_go_on(argument)) return;
    threads[explorer.running].status = WAITING;
    threads[explorer.running].can_go_on = can_go_on;
    threads[explorer.running].argument = argument;
    schedule();
}

int interleave_self(void)
{
    return explorer.running;
}

bool interleave_runs(void)
{
    return explorer.runs;
}

void interleave_fail(const char *error)
{
    explorer.error = error;
    setcontext(&explorer.main);
    abort(); /* not reached */
}

void interleave_end(void)
{
    explorer.ended = true;
    setcontext(&explorer.main);
    abort(); /* not reached */
}

void interleave_kill_others(void)
{
    for (int i = 0; i < explorer.program->threads; i++)
        if (i != explorer.running) threads[i].status = ENDED;
    memory_see_all();
}

static void run_thread(int number)
{
    explorer.program->thread[number]();
    threads[number].status = ENDED;
    schedule();
}

static void prepare(int number)
{
    threads[number].status = READY;
    getcontext(&threads[number].context);
    threads[number].context.uc_stack.ss_sp = threads[number].stack;
    threads[number].context.uc_stack.ss_size = STACK_BYTES;
    threads[number].context.uc_link = NULL;
    makecontext(&threads[number].context, (void (*)(void))run_thread, 1, number);
}

static void execute(int deviations)
{
    const struct interleave_program *program = explorer.program;
    explorer.taken = 0;
    explorer.deviations_left = deviations;
    explorer.running = 0;
    explorer.ended = false;
    program->set_up();
    memory_execute(program->threads);
    for (int i = 0; i < program->threads; i++) prepare(i);
    volatile bool ended = false;
    getcontext(&explorer.main);
    if (!ended) {
        ended = true;
        explorer.runs = true;
        setcontext(&threads[0].context);
    }
    explorer.runs = false;
}

/* Whether there is another execution; sets up its choices. */
static bool next_choices(void)
{
    for (int i = explorer.taken; i-- > 0;) {
        if (explorer.steps[i].choice + 1 < explorer.steps[i].choices) {
            explorer.steps[i].choice++;
            explorer.kept = i + 1;
            return true;
        }
    }
    return false;
}

struct interleave_result interleave_explore(const struct interleave_program *program, int deviations)
{
    struct interleave_result result = {0};
    bool more;
    explorer.program = program;
    explorer.kept = 0;
    explorer.error = NULL;
    memory_explore();
    do {
        execute(deviations);
        result.executions++;
        if (explorer.error == NULL && !explorer.ended && !program->is_right()) explorer.error = "the end is not right";
        more = next_choices();
        if (memory_learned()) { /* there are more steps than were thought: from the start, whatever came of this */
            explorer.kept = 0;
            explorer.error = NULL;
            more = true;
        }
    } while (explorer.error == NULL && more);
    result.error = explorer.error;
    return result;
}
