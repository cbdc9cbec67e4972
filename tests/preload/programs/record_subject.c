/* A program that is recorded while it does what may go wrong: `record_subject WAY [ARGUMENT...]`. What it allocates has sizes
 * that nobody else's has, so that a test finds it in the recording, and what it prints tells whether it was disturbed.
 */
#include "system.h"

#include <linux/close_range.h>
#include <spawn.h>
#include <sys/auxv.h>

enum { SIZE = 1000003, BLOCKS = 100, CODE = 7 };

static char *program, **arguments; /* those of the way */

static void require(int condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "record_subject: %s: %s\n", what, strerror(errno));
    exit(99);
}

/* Not to be optimised away. */
static void *(*volatile allocate)(size_t) = malloc;

/* BLOCKS blocks of SIZE + batch bytes, freed again. */
static void work(int batch)
{
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = allocate(SIZE + (size_t)batch);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    printf("worked %d\n", batch);
}

/* Fills and empties rings, as fast as it can. */
static void churn(long events)
{
    for (long i = 0; i < events; i++) free(allocate((size_t)(i * 7919 % 1777)));
}

/* Says by a file beside it that the program waits, and so has begun. */
static void wait_for_file(const char *path)
{
    char awaited[PATH_MAX];
    snprintf(awaited, sizeof awaited, "%s.awaited", path);
    int file = open(awaited, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    require(file >= 0 && close(file) == 0, "awaited");
    while (access(path, F_OK) != 0) usleep(1000);
}

static int wait_for(pid_t child)
{
    int status;
    require(waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* ---- ends ------------------------------------------------------------------------------------------------------------ */

static void way_return(void)
{
    work(1);
}

static void way_exits(void)
{
    work(1);
    fflush(stdout);
    if (strcmp(arguments[0], "_exit") == 0) _exit(CODE);
    if (strcmp(arguments[0], "_Exit") == 0) _Exit(CODE);
    quick_exit(CODE);
}

static void handle_own(int number)
{
    (void)number;
}

static struct sigaction swap(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler}, before;
    require(sigaction(number, &action, &before) == 0, "sigaction");
    return before;
}

/* What it has set, and the default, is what it is told, by either function. */
static void way_defaults(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int number = numbers[i];
        struct sigaction now;
        require(sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_DFL, "the default at first");
        require(signal(number, handle_own) == SIG_DFL && signal(number, SIG_DFL) == handle_own, "signal");
        require(swap(number, handle_own).sa_handler == SIG_DFL, "its own by sigaction");
        require(swap(number, SIG_IGN).sa_handler == handle_own && raise(number) == 0, "ignored");
        require(swap(number, SIG_DFL).sa_handler == SIG_IGN && signal(number, SIG_DFL) == SIG_DFL, "the default");
    }
    work(1);
}

/* It ends by the signal that is named, which it has handled before. */
static void way_ended(void)
{
    int number = atoi(arguments[0]);
    work(1);
    swap(number, handle_own);
    require(raise(number) == 0, "its own handler");
    swap(number, SIG_DFL);
    kill(getpid(), number);
    for (;;) pause();
}

/* A child of its own ends, and is seen to end, by a signal; it goes on. */
static void way_child_ended(void)
{
    work(1);
    pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    kill(child, SIGTERM);
    require(wait_for(child) == 1000 + SIGTERM, "ended by the signal");
    work(1);
}

static void *exit_there(void *unused)
{
    (void)unused;
    exit(CODE);
}

static void way_exit_in_thread(void)
{
    pthread_t thread;
    work(1);
    pthread_create(&thread, NULL, exit_there, NULL);
    for (;;) pause();
}

static void way_reallocs(void)
{
    void *(*volatile resize)(void *, size_t) = realloc;
    char *block = resize(allocate(SIZE + 50), SIZE + 51);
    require(resize(block, SIZE_MAX / 2) == NULL, "too much");
    free(block);
}

/* Each bit of the number decides from which of two places the next call is made. */
static __attribute__((noinline)) unsigned wind(uint64_t number, int calls)
{
    unsigned (*volatile next)(uint64_t, int) = wind;
    unsigned made = 1;
    if (calls == 0) {
        free(allocate(SIZE));
    } else if (number & 1) {
        made += next(number >> 1, calls - 1);
        __asm__ volatile("# one" : "+r"(made));
    } else {
        made += next(number >> 1, calls - 1);
        __asm__ volatile("# the other" : "+r"(made));
    }
    return made;
}

/* Allocates, each time at the end of another chain of 64 calls. */
static void way_winding(void)
{
    for (uint64_t i = 1, count = strtoull(arguments[0], NULL, 10); i <= count; i++)
        require(wind(i * UINT64_C(0x9E3779B97F4A7C15), 64) == 65, "calls");
}

static void way_wait(void)
{
    work(1);
    fflush(stdout);
    if (arguments[0] != NULL) wait_for_file(arguments[0]);
    else
        for (;;) pause();
    work(2);
}

static void way_churn(void)
{
    churn(atol(arguments[0]));
    work(1);
}

static void way_churn_after(void)
{
    wait_for_file(arguments[0]);
    churn(atol(arguments[1]));
    work(1);
}

/* ---- other programs --------------------------------------------------------------------------------------------------- */

static void *wait_for_ever(void *unused)
{
    for (;;) pause();
    return unused;
}

/* What the kernel grants to a process of one thread alone. */
static void way_unshare(void)
{
    work(1);
    require(unshare(CLONE_VM) == 0, "unshare");
    work(2);
}

/* While another thread is there, which makes no difference to the network. */
static void way_enter(void)
{
    pthread_t thread;
    work(1);
    int network = open("/proc/self/ns/net", O_RDONLY);
    pthread_create(&thread, NULL, wait_for_ever, NULL);
    for (int i = 0; i < 10; i++) (void)!setns(network, 0); /* it may be forbidden */
    work(2);
}

static void way_exec(void)
{
    char *words[] = {program, "return", NULL};
    work(1);
    fflush(stdout);
    const char *way = arguments[0];
    if (strcmp(way, "execv") == 0) execv(program, words);
    if (strcmp(way, "execlp") == 0) execlp(program, program, "return", (char *)NULL);
    if (strcmp(way, "fexecve") == 0) fexecve(open(program, O_RDONLY), words, environ);
    require(0, "exec");
}

static void way_exec_fails(void)
{
    work(1);
    require(execl("/nowhere/at/all", "all", (char *)NULL) == -1 && errno == ENOENT, "execl");
    work(2);
    require(execlp("no-such-program", "no", "such", "program", (char *)NULL) == -1 && errno == ENOENT, "execlp");
    work(3);
}

/* An exec that takes long to fail: a search for the program in folders that are not there. */
static void *fail_slowly(void *unused)
{
    enum { FOLDERS = 2000000, FOLDER_BYTES = 4 };
    char *path = malloc((size_t)FOLDERS * FOLDER_BYTES + 1);
    for (int i = 0; i < FOLDERS; i++) memcpy(path + (size_t)i * FOLDER_BYTES, "/no:", FOLDER_BYTES);
    path[(size_t)FOLDERS * FOLDER_BYTES] = '\0';
    setenv("PATH", path, 1);
    execlp("no-such-program", "no", "such", "program", (char *)NULL);
    return unused;
}

static void way_work_while_exec_fails(void)
{
    pthread_t thread;
    work(1);
    pthread_create(&thread, NULL, fail_slowly, NULL);
    work(2);
    churn(100000);
    pthread_join(thread, NULL);
    work(3);
}

static void way_vfork(void)
{
    work(1);
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        free(allocate(5));
        execl(program, program, "return", (char *)NULL);
        _exit(1);
    }
    printf("vfork: %d\n", wait_for(child));
    fflush(stdout);
    char *words[] = {program, "return", NULL};
    require(posix_spawn(&child, program, NULL, NULL, words, environ) == 0, "posix_spawn");
    printf("posix_spawn: %d\n", wait_for(child));
    child = vfork();
    if (child == 0) _exit(3);
    printf("vfork: %d\n", wait_for(child));
    work(2);
}

/* ---- forks ------------------------------------------------------------------------------------------------------------- */

static _Atomic(int) stop;

static void *churn_until_stop(void *unused)
{
    (void)unused;
    while (!stop) {
        churn(100);
        usleep(1000); /* the test reads all that */
    }
    return NULL;
}

enum { CHURNERS = 3 };

static void way_fork(void)
{
    pthread_t threads[CHURNERS];
    for (int i = 0; i < CHURNERS; i++) pthread_create(&threads[i], NULL, churn_until_stop, NULL);
    for (int i = 0; i < atoi(arguments[0]); i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            work(100 + i);
            fflush(stdout);
            if (i % 2 == 0) exit(i);
            _exit(i);
        }
        require(wait_for(child) == i, "child");
    }
    stop = 1;
    for (int i = 0; i < CHURNERS; i++) pthread_join(threads[i], NULL);
    work(1);
}

static _Atomic(int) forks_in_handlers;
static const struct itimerval soon = {.it_value.tv_usec = 300};

/* The next comes a while after this one has ended, however long that takes: or nothing else would ever be done. */
static void fork_in_handler(int number)
{
    (void)number;
    pid_t child = fork();
    if (child == 0) _exit(4);
    require(wait_for(child) == 4, "child of a handler");
    forks_in_handlers++;
    setitimer(ITIMER_REAL, &soon, NULL);
}

/* In a program of one thread a handler may fork, whatever it has interrupted. */
static void way_forks_in_handlers(void)
{
    const struct itimerval never = {0};
    int resizes = strcmp(arguments[0], "realloc") == 0;
    void *blocks[64] = {NULL};
    signal(SIGALRM, fork_in_handler);
    setitimer(ITIMER_REAL, &soon, NULL);
    for (unsigned i = 0; forks_in_handlers < atoi(arguments[1]); i++) {
        size_t size = i * 7919u % 100003u + 1;
        void **block = &blocks[i * 31u % 64];
        if (resizes) *block = realloc(*block, size);
        else free(*block), *block = allocate(size);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    work(1);
}

static void way_daemon(void)
{
    work(1);
    fflush(stdout);
    require(daemon(1, 0) == 0, "daemon");
    work(2);
    wait_for_file(arguments[0]);
    work(3);
}

/* ---- threads ------------------------------------------------------------------------------------------------------------- */

static void *outlive_main(void *unused)
{
    (void)unused;
    churn(1);
    usleep(300000); /* most likely main has left; it is no matter if not */
    work(2);
    return NULL; /* the output's buffer is written by the exit handlers */
}

static void way_main_leaves(void)
{
    pthread_t thread;
    work(1);
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, outlive_main, NULL);
    pthread_exit(NULL);
}

static void *short_thread(void *number)
{
    free(allocate(SIZE + (size_t)number));
    return NULL;
}

static void start_short_threads(void)
{
    int count = atoi(arguments[0]);
    for (int i = 0; i < count; i += 4) {
        pthread_t threads[4];
        for (int j = 0; j < 4; j++)
            require(pthread_create(&threads[j], NULL, short_thread, (void *)(size_t)(1000 + i + j)) == 0, "thread");
        for (int j = 0; j < 4; j++) pthread_join(threads[j], NULL);
    }
    work(1);
}

/* How much address space there is in the end depends on how many there were at a time, not in all. */
static void way_many_threads(void)
{
    const size_t most = (size_t)400 << 20;
    size_t pages = 0;
    mallopt(M_ARENA_MAX, 1); /* each of the C library's takes 64 MiB */
    start_short_threads();
    FILE *sizes = fopen("/proc/self/statm", "r");
    require(sizes != NULL && fscanf(sizes, "%zu", &pages) == 1, "statm");
    fclose(sizes);
    require(pages * (size_t)sysconf(_SC_PAGESIZE) < most, "much address space is taken");
}

/* ---- the world around ------------------------------------------------------------------------------------------------------ */

static void way_close_all(void)
{
    int out = dup2(1, 3);
    work(1);
    fflush(stdout);
    require(syscall(SYS_close_range, 4u, ~0u, 0u) == 0, "close_range");
    close(0);
    close(1);
    close(2);
    for (int file = 0; file < 3; file++) require(open("/dev/null", O_RDWR) == file, "open");
    churn(50000);
    work(2);
    fflush(stdout);
    dprintf(out, "all closed\n");
}

static _Atomic(int) handled_elsewhere, handled;

static void handle(int number)
{
    (void)number;
    handled++;
    if (syscall(SYS_gettid) != getpid()) handled_elsewhere++;
}

static void way_signals(void)
{
    sigset_t set, pending;
    signal(SIGUSR1, handle);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    for (int i = 0; i < 100; i++) {
        /* Blocked here, it goes to any thread that does not block it. */
        sigprocmask(SIG_BLOCK, &set, NULL);
        kill(getpid(), SIGUSR1);
        work(1);
        sigpending(&pending);
        require(sigismember(&pending, SIGUSR1), "another thread has taken the signal");
        sigprocmask(SIG_UNBLOCK, &set, NULL);
    }
    printf("handled %d, elsewhere %d\n", handled, handled_elsewhere);
}

static void way_secure(void)
{
    printf("secure %d\n", getauxval(AT_SECURE) != 0);
    work(1);
}

/* Prints its environment but for what the test itself sets. */
static void way_environment(void)
{
    for (char **at = environ; *at != NULL; at++)
        if (strncmp(*at, "HEAPFIT", 7) != 0 && strncmp(*at, "LD_PRELOAD", 10) != 0) puts(*at);
    require(setenv("HEAPFIT_NEW", "1", 1) == 0 && clearenv() == 0 && setenv("HEAPFIT_NEW", "2", 1) == 0, "environment");
}

static const struct way {
    const char *name;
    void (*go)(void);
} ways[] = {
    {"return", way_return},
    {"exits", way_exits},
    {"exit_in_thread", way_exit_in_thread},
    {"defaults", way_defaults},
    {"ended", way_ended},
    {"child_ended", way_child_ended},
    {"reallocs", way_reallocs},
    {"winding", way_winding},
    {"wait", way_wait},
    {"churn", way_churn},
    {"churn_after", way_churn_after},
    {"unshare", way_unshare},
    {"enter", way_enter},
    {"exec", way_exec},
    {"exec_fails", way_exec_fails},
    {"work_while_exec_fails", way_work_while_exec_fails},
    {"vfork", way_vfork},
    {"fork", way_fork},
    {"forks_in_handlers", way_forks_in_handlers},
    {"daemon", way_daemon},
    {"main_leaves", way_main_leaves},
    {"many_threads", way_many_threads},
    {"close_all", way_close_all},
    {"signals", way_signals},
    {"secure", way_secure},
    {"environment", way_environment},
};

int main(int count, char **words)
{
    program = words[0];
    arguments = words + 2;
    for (size_t i = 0; count > 1 && i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(words[1], ways[i].name) != 0) continue;
        ways[i].go();
        return CODE;
    }
    require(0, "there is no such way");
    return 1;
}
