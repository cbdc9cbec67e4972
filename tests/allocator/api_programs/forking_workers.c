#include "forking.h"

void require(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "%s\n", what);
    _exit(1);
}

int exit_code_of(pid_t child)
{
    int status = 0;
    pid_t waited;
    do waited = waitpid(child, &status, 0);
    while (waited < 0 && errno == EINTR);
    require(waited == child, "no child to wait for");
    require(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM, "a child hung");
    require(WIFEXITED(status), "a child was ended by a signal");
    return WEXITSTATUS(status);
}

void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    require(pthread_create(thread, NULL, run, argument) == 0, "no thread");
}

enum { SLOTS = 128 };

static uint32_t random_next(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

void churn(uint32_t seed, unsigned steps)
{
    unsigned char *blocks[SLOTS] = {NULL};
    for (unsigned i = 0; i < steps; i++) {
        unsigned slot = random_next(&seed) % SLOTS;
        if (blocks[slot] != NULL) require(*blocks[slot] == slot, "a block was written to");
        free(blocks[slot]);
        uint32_t kind = random_next(&seed) % 64;
        size_t size = kind == 0 ? 200000 : kind < 8 ? 5000 : 1 + random_next(&seed) % 600;
        blocks[slot] = malloc(size);
        require(blocks[slot] != NULL, "no memory");
        *blocks[slot] = (unsigned char)slot;
        if (i % 1024 == 0 && blocks[(slot + 1) % SLOTS] != NULL) {
            unsigned char *moved = realloc(blocks[(slot + 1) % SLOTS], 300000);
            require(moved != NULL, "no memory");
            blocks[(slot + 1) % SLOTS] = moved;
        }
    }
    for (unsigned slot = 0; slot < SLOTS; slot++) free(blocks[slot]);
}

atomic_bool threads_stop;

void *churns(void *argument)
{
    for (uint32_t seed = (uint32_t)(uintptr_t)argument; !threads_stop; seed++) churn(seed, 500);
    return NULL;
}

static pthread_t workers[2];
static bool working;
static atomic_bool workers_stop;

static void *works(void *argument)
{
    uint32_t seed = (uint32_t)(uintptr_t)argument;
    while (!workers_stop) churn(seed++, 100);
    churn(seed, 20000); /* what it does at its end it does while the process forks */
    return NULL;
}

void workers_start(void)
{
    workers_stop = false;
    for (uintptr_t i = 0; i < 2; i++) start(&workers[i], works, (void *)i);
    working = true;
}

void workers_join(void)
{
    if (!working) return;
    workers_stop = true;
    for (unsigned i = 0; i < 2; i++) pthread_join(workers[i], NULL);
    working = false;
}
