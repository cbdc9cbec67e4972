/* fork() where other allocators survive it: beside handlers that wait for threads which are inside malloc, beside the C
 * library's own locks, in a signal's handler, and the handler of an abort. The library comes by LD_PRELOAD.
 *
 * Every way does a fixed amount of work. What hangs is ended by an alarm, which no way uses otherwise; a child has one of
 * its own.
 */
#include "forking.h"

enum { PATIENCE_S = 500, CHILD_PATIENCE_S = 400 };

/* ---- children ------------------------------------------------------------------------------------------------------- */

static void await(pid_t child)
{
    require(exit_code_of(child) == 0, "a child failed");
}

static void *churns_a_little(void *argument)
{
    churn((uint32_t)(uintptr_t)argument, 3000);
    return NULL;
}

/* Allocates, in threads of its own, too. */
static void live_as_a_child(void)
{
    pthread_t threads[2];
    alarm(CHILD_PATIENCE_S);
    churn(1, 5000);
    for (uintptr_t i = 0; i < 2; i++) start(&threads[i], churns_a_little, (void *)i);
    for (unsigned i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

/* Children of children, so many generations. */
static void fork_and_await(unsigned generations)
{
    unsigned depth = 0;
    pid_t child;
    for (; depth < generations; depth++) {
        child = fork();
        require(child >= 0, "no child");
        if (child != 0) break;
        live_as_a_child();
    }
    if (depth < generations) await(child);
    if (depth > 0) _exit(0);
}

/* ---- a handler that takes a mutex ------------------------------------------------------------------------------------ */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void take_mutex(void)
{
    pthread_mutex_lock(&mutex);
}

static void release_mutex(void)
{
    pthread_mutex_unlock(&mutex);
}

static void *churns_in_mutex(void *argument)
{
    for (uint32_t seed = (uint32_t)(uintptr_t)argument; !threads_stop; seed++) {
        pthread_mutex_lock(&mutex);
        churn(seed, 200);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

/* Its memory lives on without it, and so is everybody's. */
static void *churns_in_short_lives(void *argument)
{
    static _Atomic(void *) left[64];
    for (unsigned i = 0; !threads_stop; i++) {
        pthread_t thread;
        start(&thread, churns_a_little, (void *)(uintptr_t)i);
        free(atomic_exchange(&left[i % 64], malloc(100 + i % 1000)));
        pthread_join(thread, NULL);
    }
    for (unsigned i = 0; i < 64; i++) free(atomic_exchange(&left[i], NULL));
    return argument;
}

static int way_mutex(void)
{
    enum { THREADS = 3, FORKS = 40 };
    pthread_t threads[THREADS + 1];
    forking_handlers = (struct forking_handlers){take_mutex, release_mutex, release_mutex};
    for (uintptr_t i = 0; i < THREADS; i++) start(&threads[i], churns_in_mutex, (void *)i);
    start(&threads[THREADS], churns_in_short_lives, NULL);
    for (unsigned i = 0; i < FORKS; i++) fork_and_await(i % 4 == 0 ? 2 : 1);
    threads_stop = true;
    for (unsigned i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

/* ---- a handler that waits for its threads ------------------------------------------------------------------------------ */

static void fork_among_workers(void)
{
    for (unsigned i = 0; i < 40; i++) fork_and_await(1);
}

static int way_workers(void)
{
    forking_handlers = (struct forking_handlers){.prepare = workers_join, .parent = workers_start};
    workers_start();
    fork_among_workers();
    workers_join();
    return 0;
}

static int way_plugin(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) fprintf(stderr, "%s\n", dlerror());
    require(plugin != NULL, "no plugin");
    fork_among_workers();
    void (*join)(void) = NULL;
    *(void **)&join = dlsym(plugin, "workers_join");
    join();
    return 0;
}

/* ---- the C library's locks ------------------------------------------------------------------------------------------------ */

enum { LINE_MAX_BYTES = 60000 };

static FILE *lines_file(void)
{
    FILE *file = tmpfile();
    require(file != NULL, "no file");
    for (int length = 100; length < LINE_MAX_BYTES; length *= 2) fprintf(file, "%0*d\n", length, 0);
    return file;
}

static void *reads_lines(void *argument)
{
    while (!threads_stop) {
        FILE *file = lines_file();
        char *line = NULL;
        size_t size = 0;
        for (unsigned i = 0; i < 20; i++) {
            rewind(file);
            while (getline(&line, &size, file) > 0) {
                free(line); /* so that it has to grow again */
                line = NULL;
                size = 0;
            }
        }
        free(line);
        fclose(file);
    }
    return argument;
}

static void *flushes_all(void *argument)
{
    while (!threads_stop) fflush(NULL);
    return argument;
}

static void *forks(void *argument)
{
    for (unsigned i = 0; i < 60; i++) {
        pid_t child = fork();
        require(child >= 0, "no child");
        if (child == 0) {
            alarm(CHILD_PATIENCE_S);
            churn(i, 2000);
            FILE *file = tmpfile();
            if (file != NULL) fclose(file);
            _exit(0);
        }
        await(child);
    }
    return argument;
}

static int way_stdio(void)
{
    enum { FORKERS = 4, READERS = 6, FLUSHERS = 2 };
    pthread_t forkers[FORKERS], others[READERS + FLUSHERS];
    for (unsigned i = 0; i < READERS + FLUSHERS; i++) start(&others[i], i < READERS ? reads_lines : flushes_all, NULL);
    for (unsigned i = 0; i < FORKERS; i++) start(&forkers[i], forks, NULL);
    for (unsigned i = 0; i < FORKERS; i++) pthread_join(forkers[i], NULL);
    threads_stop = true;
    for (unsigned i = 0; i < READERS + FLUSHERS; i++) pthread_join(others[i], NULL);
    return 0;
}

/* ---- a signal's handler ------------------------------------------------------------------------------------------------------- */

enum { SIGNAL_FORKS = 160, SIGNAL_INTERVAL_US = 500 };

static volatile sig_atomic_t signal_forks;
static volatile sig_atomic_t is_child;

/* Every eighth child goes on with what was interrupted. */
static void fork_in_handler(int number)
{
    (void)number;
    if (is_child || signal_forks >= SIGNAL_FORKS) return;
    int saved = errno;
    signal_forks++;
    pid_t child = fork();
    if (child == 0) {
        if (signal_forks % 8 != 0) _exit(0);
        is_child = 1;
        alarm(CHILD_PATIENCE_S);
    } else {
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        if (status != 0)
            dprintf(STDERR_FILENO, "child %d ended with wait status %#x\n", (int)signal_forks, (unsigned)status);
        if (status != 0) _exit(1);
    }
    errno = saved;
}

static void fork_from_now_on(void)
{
    struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, SIGNAL_INTERVAL_US}, {0, SIGNAL_INTERVAL_US}};
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
}

static void churn_until_forked(void)
{
    fork_from_now_on();
    for (uint32_t seed = 0; signal_forks < SIGNAL_FORKS && !is_child; seed++) churn(seed, 500);
    if (is_child) {
        churn(7, 5000);
        _exit(0);
    }
    setitimer(ITIMER_PROF, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
}

static int way_signal(void)
{
    churn_until_forked();
    return 0;
}

static void *churns_unsignalled(void *argument)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    return churns(argument);
}

/* Runs that go into its cache and come from it. */
static void *churns_large(void *argument)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (size_t i = 0; !threads_stop; i++) {
        void *volatile large = malloc((size_t)(1 + i % 8) << 16);
        free(large);
    }
    return argument;
}

static int way_signal_threads(void)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) start(&threads[i], churns_unsignalled, (void *)i);
    churn_until_forked();
    threads_stop = true;
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

/* In the midst of a trim, which takes the locks of other threads' caches one after the other. */
static int way_signal_trim(void)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    int (*trim)(size_t);
    *(void **)&trim = dlsym(RTLD_DEFAULT, "malloc_trim");
    require(trim != NULL, "no malloc_trim");
    for (uintptr_t i = 0; i < THREADS; i++) start(&threads[i], churns_large, NULL);
    fork_from_now_on();
    while (signal_forks < SIGNAL_FORKS && !is_child) trim(0);
    if (is_child) _exit(0);
    setitimer(ITIMER_PROF, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    threads_stop = true;
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

/* ---- no memory ------------------------------------------------------------------------------------------------------------------ */

/* Another thread frees a large object while the process forks, when there is no memory for what it might do about it. */
static void *large_object;
static pthread_barrier_t forks_now, has_freed;

static void *frees_meanwhile(void *argument)
{
    churn(1, 100);
    pthread_barrier_wait(&has_freed);
    pthread_barrier_wait(&forks_now);
    free(large_object);
    pthread_barrier_wait(&has_freed);
    return argument;
}

static void let_it_free(void)
{
    pthread_barrier_wait(&forks_now);
    pthread_barrier_wait(&has_freed);
}

static int way_no_memory(void)
{
    const struct rlimit limit = {(rlim_t)400 << 20, (rlim_t)400 << 20};
    pthread_t thread;
    pthread_barrier_init(&forks_now, NULL, 2);
    pthread_barrier_init(&has_freed, NULL, 2);
    start(&thread, frees_meanwhile, NULL);
    pthread_barrier_wait(&has_freed);
    large_object = malloc((size_t)1 << 20);
    require(large_object != NULL, "no object");
    require(setrlimit(RLIMIT_AS, &limit) == 0, "no limit");
    for (size_t size = (size_t)16 << 20; size >= 16; size /= 2)
        while (malloc(size) != NULL) continue;
    forking_handlers.prepare = let_it_free;
    pid_t child = fork(); /* which the kernel may have no memory for */
    if (child == 0) _exit(0);
    if (child > 0) await(child);
    pthread_join(thread, NULL);
    return 0;
}

/* ---- an abort's handler --------------------------------------------------------------------------------------------------------- */

static void *allocates(void *argument)
{
    churn(3, 3000);
    return argument;
}

/* As one that writes a report: it allocates, has another thread do so, and waits for it. */
static void report(int number)
{
    pthread_t thread;
    (void)number;
    churn(5, 3000);
    start(&thread, allocates, NULL);
    pthread_join(thread, NULL);
    _exit(0);
}

static void *leaves_two_blocks(void *argument)
{
    void **blocks = argument;
    for (unsigned i = 0; i < 2; i++) blocks[i] = malloc(40);
    return NULL;
}

/* Of a thread that is no more, whose blocks are freed under a lock, which is held when it is noticed that one is freed
 * twice: at once where threads share heaps, otherwise when what was freed has arrived. The other block keeps the span. */
static int way_abort(void)
{
    void *blocks[2];
    pthread_t thread;
    size_t (*trim)(void); /* malloc_trim is glibc's alone */
    *(void **)&trim = dlsym(RTLD_DEFAULT, "hf_trim");
    churn(1, 100);
    start(&thread, leaves_two_blocks, blocks);
    pthread_join(thread, NULL);
    signal(SIGABRT, report);
    free(blocks[0]);
    if (trim != NULL) trim();
    free(blocks[0]);
    fputs("nothing was noticed\n", stderr);
    return 1;
}

/* ---- the ways ---------------------------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } ways[] = {
        {"mutex", way_mutex},
        {"workers", way_workers},
        {"stdio", way_stdio},
        {"signal", way_signal},
        {"signal_threads", way_signal_threads},
        {"signal_trim", way_signal_trim},
        {"no_memory", way_no_memory},
        {"abort", way_abort},
    };
    alarm(PATIENCE_S);
    if (argc > 2 && strcmp(argv[1], "plugin") == 0) return way_plugin(argv[2]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (argc == 2 && strcmp(argv[1], ways[i].name) == 0) return ways[i].run();
    fputs("usage: forking WAY\n", stderr);
    return 2;
}
