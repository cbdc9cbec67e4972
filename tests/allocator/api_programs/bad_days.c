/* What correct programs do on a bad day, and other allocators survive. The library comes by LD_PRELOAD; without one each way passes,
 * too. What hangs is ended by an alarm.
 */
#include "forking.h"

enum { PATIENCE_S = 500, CHILD_PATIENCE_S = 400 };

/* ---- a handler of fork that ends the process ------------------------------------------------------------------------ */

enum { LEFT = 7, THREADS = 3, FORKS = 20 };

static void leave(void)
{
    churn(1, 200);
    _exit(LEFT);
}

/* In a child of its own, since it is the process that forks that ends: from the handler that comes before, or after. */
static void fork_and_leave(struct forking_handlers handlers)
{
    pid_t child = fork();
    require(child >= 0, "no child");
    if (child != 0) {
        require(exit_code_of(child) == LEFT, "the handler did not end the process");
        return;
    }
    pthread_t thread;
    alarm(CHILD_PATIENCE_S);
    start(&thread, churns, NULL);
    forking_handlers = handlers;
    fork();
    _exit(1);
}

static void end_in_child(void)
{
    pid_t child = fork();
    require(child >= 0, "no child");
    if (child == 0) _exit(1);
    require(exit_code_of(child) == LEFT, "the handler did not end the child");
}

static struct forking_handlers outer;

static void outer_prepare(void)
{
    if (outer.prepare != NULL) outer.prepare();
}

static void outer_parent(void)
{
    if (outer.parent != NULL) outer.parent();
}

static void outer_child(void)
{
    if (outer.child != NULL) outer.child();
}

/* A handler that comes in the child before ours, and one that comes after. */
static int way_exit_in_handler(void)
{
    pthread_t threads[THREADS];
    require(pthread_atfork(outer_prepare, outer_parent, outer_child) == 0, "no handlers");
    for (uintptr_t i = 0; i < THREADS; i++) start(&threads[i], churns, (void *)i);
    for (unsigned i = 0; i < FORKS; i++) {
        fork_and_leave((struct forking_handlers){.prepare = leave});
        fork_and_leave((struct forking_handlers){.parent = leave});
        (i % 2 == 0 ? &forking_handlers : &outer)->child = leave;
        end_in_child();
        forking_handlers.child = outer.child = NULL;
    }
    threads_stop = true;
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

/* ---- a library that goes while threads have what its destructors free ---------------------------------------------------- */

static const char *plugin_path;

struct plugin {
    void *handle;
    void (*use)(void), (*use_as_cxx)(void);
    bool as_cxx;
};

static struct plugin plugin_open(void)
{
    struct plugin plugin = {.handle = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL)};
    if (plugin.handle == NULL) fprintf(stderr, "%s\n", dlerror());
    require(plugin.handle != NULL, "no plugin");
    *(void **)&plugin.use = dlsym(plugin.handle, "plugin_use");
    *(void **)&plugin.use_as_cxx = dlsym(plugin.handle, "plugin_use_as_cxx");
    return plugin;
}

static pthread_barrier_t used, closed;

static void *uses_plugin(void *argument)
{
    struct plugin *plugin = argument;
    plugin->use();
    if (plugin->as_cxx) plugin->use_as_cxx();
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    churn(3, 300);
    return NULL;
}

/* Threads end when the library has been closed; the first thread uses it, too. Every other time it stays until they have ended. */
static int way_destructors(void)
{
    enum { USERS = 4, ROUNDS = 30 };
    pthread_t threads[USERS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct plugin plugin = plugin_open();
        plugin.as_cxx = round % 2 != 0;
        pthread_barrier_init(&used, NULL, USERS + 1);
        pthread_barrier_init(&closed, NULL, USERS + 1);
        for (unsigned i = 0; i < USERS; i++) start(&threads[i], uses_plugin, &plugin);
        plugin.use();
        pthread_barrier_wait(&used);
        require(dlclose(plugin.handle) == 0, "dlclose");
        pthread_barrier_wait(&closed);
        for (unsigned i = 0; i < USERS; i++) pthread_join(threads[i], NULL);
        churn(round, 300);
    }
    return 0;
}

/* ---- a process that shares this one's memory ------------------------------------------------------------------------------ */

enum { STACK_BYTES = 256 * 1024, HANDED_OVER = 200 };

static void *blocks[HANDED_OVER];

/* Frees what it was given, and leaves blocks of its own; enough comes and goes that a housekeeper would be wanted. */
static int lives_in_our_memory(void *argument)
{
    for (unsigned i = 0; i < HANDED_OVER; i++) {
        free(blocks[i]);
        blocks[i] = malloc(10 + i * 40);
        require(blocks[i] != NULL, "no memory");
    }
    churn(11, 5000);
    for (unsigned i = 0; i < 24; i++) {
        void *large = malloc((size_t)1 << 20);
        require(large != NULL, "no memory");
        memset(large, 1, (size_t)1 << 20);
        free(large);
    }
    _exit((int)(intptr_t)argument);
}

/* It has the thread-local variables of the thread that made it, which does nothing meanwhile. Other threads go on. */
static void *makes_processes(void *argument)
{
    char *stack = malloc(STACK_BYTES);
    require(stack != NULL, "no memory");
    for (unsigned i = 0; i < 6; i++) {
        for (unsigned k = 0; k < HANDED_OVER; k++) require((blocks[k] = malloc(10 + k * 40)) != NULL, "no memory");
        int flags = CLONE_VM | SIGCHLD | (i % 3 == 0 ? CLONE_VFORK : i % 3 == 1 ? CLONE_FILES | CLONE_FS : 0);
        pid_t child = clone(lives_in_our_memory, stack + STACK_BYTES, flags, (void *)(intptr_t)LEFT);
        require(child > 0, "no process");
        require(exit_code_of(child) == LEFT, "it failed");
        for (unsigned k = 0; k < HANDED_OVER; k++) free(blocks[k]);
        churn(i, 1000);
        if (i % 4 == 0) { /* a fork as any other afterwards */
            child = fork();
            if (child == 0) {
                alarm(CHILD_PATIENCE_S);
                churn(i, 1000);
                _exit(LEFT);
            }
            require(exit_code_of(child) == LEFT, "the fork's child failed");
        }
    }
    free(stack);
    return argument;
}

static int way_shared_memory(void)
{
    pthread_t threads[THREADS], maker;
    makes_processes(NULL); /* while there is one thread */
    for (uintptr_t i = 0; i < THREADS; i++) start(&threads[i], churns, (void *)i);
    makes_processes(NULL);
    start(&maker, makes_processes, NULL);
    pthread_join(maker, NULL);
    threads_stop = true;
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

/* ---- small stacks ------------------------------------------------------------------------------------------------------------ */

enum {
    SMALL_THREADS = 8,
    SMALL_ROUNDS = 12,
    LIVE_MIB = 24,
    OWN_FRAME = 4096 /* bytes that the program itself needs */
};

static _Atomic(void *) passed_on[256]; /* blocks of threads, for others to free */

/* Blocks of all sizes, so that each bin is refilled; some stay for other threads, some are others'. On the stack is what a program
 * may have there under the C library's malloc. */
static void *allocates_on_a_small_stack(void *argument)
{
    unsigned turn = (unsigned)(uintptr_t)argument;
    volatile char own[OWN_FRAME];
    for (unsigned i = 0; i < OWN_FRAME; i++) own[i] = (char)i;
    void **mine = calloc(512, sizeof *mine);
    require(mine != NULL, "no memory");
    for (unsigned i = 0; i < 512; i++) {
        size_t size = i % 64 == 0 ? (size_t)300000 : (size_t)1 + i * i % 20000;
        mine[i] = i % 5 == 0 ? aligned_alloc(64, size / 64 * 64 + 64) : i % 3 == 0 ? calloc(1, size) : malloc(size);
        require(mine[i] != NULL, "no memory");
    }
    for (unsigned i = 0; i < 512; i++) {
        void *moved = realloc(mine[i], (size_t)1 + (i * 7919 + turn) % 40000);
        require(moved != NULL, "no memory");
        free(atomic_exchange(&passed_on[(i + turn * 31) % 256], moved));
    }
    free(mine);
    require(own[OWN_FRAME - 1] == (char)(OWN_FRAME - 1), "the stack was written to");
    return NULL;
}

static void start_on_small_stack(pthread_t *thread, void *argument)
{
    pthread_attr_t attributes;
    long size = sysconf(_SC_THREAD_STACK_MIN); /* more than PTHREAD_STACK_MIN where a signal's frame is large */
    pthread_attr_init(&attributes);
    require(size >= PTHREAD_STACK_MIN, "no size");
    require(pthread_attr_setstacksize(&attributes, (size_t)size) == 0, "no stack so small");
    require(pthread_create(thread, &attributes, allocates_on_a_small_stack, argument) == 0, "no thread");
    pthread_attr_destroy(&attributes);
}

/* In a heap that is large enough for all that is done for large ones, from the stack of whoever allocates. */
static int way_small_stacks(void)
{
    pthread_t threads[SMALL_THREADS];
    char *live[LIVE_MIB];
    for (unsigned i = 0; i < LIVE_MIB; i++) {
        live[i] = malloc((size_t)1 << 20);
        require(live[i] != NULL, "no memory");
        memset(live[i], 1, (size_t)1 << 20);
    }
    for (unsigned round = 0; round < SMALL_ROUNDS; round++) {
        for (uintptr_t i = 0; i < SMALL_THREADS; i++) start_on_small_stack(&threads[i], (void *)(i + round));
        for (unsigned i = 0; i < SMALL_THREADS; i++) pthread_join(threads[i], NULL);
    }
    for (unsigned i = 0; i < 256; i++) free(atomic_exchange(&passed_on[i], NULL));
    for (unsigned i = 0; i < LIVE_MIB; i++) free(live[i]);
    return 0;
}

/* ---- the last thread ------------------------------------------------------------------------------------------------------------ */

/* The C library runs exit handlers in the last thread of the process, which must be the program's: it has the room on the stack
 * and the signals that the program wants it to have. */
static void judge_last_thread(void)
{
    char name[16] = "";
    sigset_t blocked;
    prctl(PR_GET_NAME, name);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    require(strncmp(name, "heapfit", 7) != 0, "the exit handlers run in a thread that is not the program's");
    require(sigismember(&blocked, SIGTERM) == 0, "the exit handlers run with signals blocked");
}

static void use_much_memory(void)
{
    char *blocks[40];
    for (unsigned i = 0; i < 40; i++) {
        blocks[i] = calloc(1, (size_t)1 << 20);
        require(blocks[i] != NULL, "no memory");
        memset(blocks[i], 1, (size_t)1 << 20);
    }
    for (unsigned i = 0; i < 40; i++) free(blocks[i]);
    for (unsigned i = 0; i < 300; i++) free(calloc(1, 200000));
}

static void *lives_for_a_while(void *argument)
{
    use_much_memory();
    usleep((useconds_t)(uintptr_t)argument);
    return NULL;
}

/* After the main one has left, or before. */
static int last_thread(useconds_t of_the_other, useconds_t of_main)
{
    pthread_t thread;
    atexit(judge_last_thread);
    require(pthread_create(&thread, NULL, lives_for_a_while, (void *)(uintptr_t)of_the_other) == 0, "no thread");
    pthread_detach(thread);
    use_much_memory();
    usleep(of_main);
    pthread_exit(NULL);
}

static int way_last_thread(void)
{
    return last_thread(300000, 0);
}

static int way_last_thread_is_main(void)
{
    return last_thread(0, 300000);
}

/* ---- the ways ---------------------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } ways[] = {
        {"exit_in_handler", way_exit_in_handler},
        {"last_thread", way_last_thread},
        {"last_thread_is_main", way_last_thread_is_main},
        {"destructors", way_destructors},
        {"shared_memory", way_shared_memory},
        {"small_stacks", way_small_stacks},
    };
    alarm(PATIENCE_S);
    plugin_path = argc > 2 ? argv[2] : "";
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (argc > 1 && strcmp(argv[1], ways[i].name) == 0) return ways[i].run();
    fputs("usage: bad_days WAY [PLUGIN]\n", stderr);
    return 2;
}
