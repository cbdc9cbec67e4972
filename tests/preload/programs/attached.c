/* Programs to be recorded while they run: the first argument says which, the others how. Each goes on until its standard input ends or
 * says so, checks itself all the time, prints what came of it and exits with 0 if that was right. */
#include "system.h"

#include <sys/epoll.h>

static _Atomic(int) over;

static void fail(const char *what)
{
    printf("%s\n", what);
    fflush(stdout);
    _exit(1);
}

static void wait_for_end(void)
{
    char byte;
    ssize_t size;
    while ((size = read(STDIN_FILENO, &byte, 1)) > 0 || (size < 0 && errno == EINTR)) continue;
    if (size < 0) fail("read");
    over = 1;
}

/* Without a system call that sleeps. */
static int is_over(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

/* ---- pattern: for each line of the input, a number, so many blocks are allocated and freed, or held if there is an h before it; then
 * it says so ---------------------------------------------------------------------------------------------------------------- */

enum { PATTERN_SIZE = 12345 };
static void *volatile kept;

static int pattern(void)
{
    char line[32];
    void *old = malloc(PATTERN_SIZE);
    printf("ready\n");
    while (fgets(line, sizeof line, stdin) != NULL) {
        int holds = line[0] == 'h';
        for (long i = strtol(line + holds, NULL, 10); i > 0; i--) {
            kept = malloc(PATTERN_SIZE);
            if (!holds) free(kept);
        }
        free(old);
        old = NULL;
        printf("done\n");
    }
    return 0;
}

/* ---- churn N: N threads, or the only one, allocate and free all the time ------------------------------------------------------ */

enum { BLOCKS = 64 };

static void churn_some(uint64_t *seed, unsigned char **blocks, size_t *sizes)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    size_t i = *seed >> 58, size = 1 + (*seed >> 40) % 3000;
    if (blocks[i] != NULL &&
        (blocks[i][0] != (unsigned char)sizes[i] || blocks[i][sizes[i] - 1] != (unsigned char)sizes[i]))
        fail("a block was overwritten");
    if (size % 3 == 0) blocks[i] = realloc(blocks[i], size);
    else {
        free(blocks[i]);
        blocks[i] = malloc(size);
    }
    if (blocks[i] == NULL) fail("no memory");
    blocks[i][0] = blocks[i][size - 1] = (unsigned char)size;
    sizes[i] = size;
}

static void *churn_thread(void *number)
{
    unsigned char *blocks[BLOCKS] = {NULL};
    size_t sizes[BLOCKS] = {0};
    uint64_t seed = (uintptr_t)number;
    while (!over)
        for (int i = 0; i < 1000; i++) churn_some(&seed, blocks, sizes);
    for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
    return NULL;
}

static int churn(int threads)
{
    pthread_t ids[64];
    if (threads == 0) {
        unsigned char *blocks[BLOCKS] = {NULL};
        size_t sizes[BLOCKS] = {0};
        uint64_t seed = 1;
        printf("ready\n");
        while (!is_over())
            for (int i = 0; i < 100000; i++) churn_some(&seed, blocks, sizes);
        return 0;
    }
    for (intptr_t i = 0; i < threads; i++) pthread_create(&ids[i], NULL, churn_thread, (void *)(i + 1));
    printf("ready\n");
    wait_for_end();
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    return 0;
}

/* ---- forks ------------------------------------------------------------------------------------------------------------------ */

static int forks(void)
{
    printf("ready\n");
    while (!is_over()) {
        int status;
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child == 0) {
            void *blocks[100];
            for (int i = 0; i < 100; i++) blocks[i] = malloc((size_t)i * 10);
            for (int i = 0; i < 100; i++) free(blocks[i]);
            _exit(7);
        }
        while (waitpid(child, &status, 0) < 0)
            if (errno != EINTR) fail("waitpid");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) fail("a child ended otherwise");
    }
    return 0;
}

/* ---- loads: libraries come and go ---------------------------------------------------------------------------------------------- */

static void *loads_thread(void *unused)
{
    static const char *const names[] = {"libm.so.6",   "libresolv.so.2", "libutil.so.1",
                                        "libanl.so.1", "libz.so.1",      "libstdc++.so.6"};
    (void)unused;
    for (unsigned i = 0; !over; i++) {
        void *library = dlopen(names[i % (sizeof names / sizeof *names)], i % 2 ? RTLD_NOW : RTLD_LAZY);
        if (library != NULL) dlclose(library);
    }
    return NULL;
}

static int loads(void)
{
    pthread_t ids[2];
    for (int i = 0; i < 2; i++) pthread_create(&ids[i], NULL, loads_thread, NULL);
    printf("ready\n");
    wait_for_end();
    for (int i = 0; i < 2; i++) pthread_join(ids[i], NULL);
    return 0;
}

/* ---- sleeps: calls that last as long as they were asked to, and are not broken off --------------------------------------------- */

static void *sleeps_thread(void *kind)
{
    enum { MS = 30 };
    sigset_t none;
    sigemptyset(&none);
    int events = epoll_create1(EPOLL_CLOEXEC);
    while (!over) {
        struct timespec begun, ended, asked = {.tv_nsec = MS * 1000000L};
        struct epoll_event event;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        int result = (intptr_t)kind == 0   ? nanosleep(&asked, NULL)
                     : (intptr_t)kind == 1 ? poll(NULL, 0, MS)
                     : (intptr_t)kind == 2 ? epoll_wait(events, &event, 1, MS)
                     : (intptr_t)kind == 3 ? ppoll(NULL, 0, &asked, &none)
                                           : epoll_pwait(events, &event, 1, MS, &none);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        long ms = (ended.tv_sec - begun.tv_sec) * 1000 + (ended.tv_nsec - begun.tv_nsec) / 1000000;
        if (result != 0) fail("a call was broken off");
        if (ms < MS - 1) fail("a call ended early");
    }
    close(events);
    return NULL;
}

static int sleeps(void)
{
    pthread_t ids[5];
    printf("ready\n");
    for (intptr_t i = 0; i < 5; i++) pthread_create(&ids[i], NULL, sleeps_thread, (void *)i);
    wait_for_end();
    for (int i = 0; i < 5; i++) pthread_join(ids[i], NULL);
    return 0;
}

/* ---- signals: a handler that runs all the time, and a thread that waits for a signal as only sigsuspend can ---------------------- */

static _Atomic(long) ticks;

static void tick(int number)
{
    (void)number;
    ticks++;
}

/* A signal that is missed is waited for for ever. */
static int signals(void)
{
    struct sigaction action = {.sa_handler = tick};
    sigset_t blocked, open;
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, &open);
    printf("ready\n");
    pid_t sender = fork(), us = getppid();
    if (sender == 0) {
        us = getppid();
        long seen = 0;
        for (;;) {
            if (kill(us, SIGUSR1) != 0 || getppid() != us) _exit(0);
            struct timespec pause = {.tv_nsec = 200000 + seen++ % 7 * 100000};
            nanosleep(&pause, NULL);
        }
    }
    (void)us;
    while (!is_over()) {
        long before = ticks;
        void *block = malloc(200);
        free(block);
        if (sigsuspend(&open) != -1 || errno != EINTR) fail("sigsuspend");
        if (ticks == before) fail("sigsuspend ended without a signal");
    }
    kill(sender, SIGKILL);
    waitpid(sender, NULL, 0);
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    if (!sigismember(&now, SIGUSR1) || sigismember(&now, SIGTERM) || sigismember(&now, SIGINT)) fail("another mask");
    return 0;
}

/* ---- leaves: the main thread ends first, and what is written last is in a buffer --------------------------------------------- */

static void *last_thread(void *unused)
{
    (void)unused;
    wait_for_end();
    printf("right\n");
    return malloc(100);
}

static int leaves(void)
{
    static char buffer[4096];
    pthread_t id;
    printf("ready\n");
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    if (pthread_create(&id, NULL, last_thread, NULL) != 0) fail("pthread_create");
    pthread_exit(NULL);
}

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "";
    int number = count > 2 ? (int)strtol(arguments[2], NULL, 10) : 0, result = 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(way, "pattern") == 0) result = pattern();
    if (strcmp(way, "churn") == 0) result = churn(number);
    if (strcmp(way, "forks") == 0) result = forks();
    if (strcmp(way, "loads") == 0) result = loads();
    if (strcmp(way, "sleeps") == 0) result = sleeps();
    if (strcmp(way, "signals") == 0) result = signals();
    if (strcmp(way, "leaves") == 0) result = leaves();
    if (result == 0) printf("right\n");
    return result;
}
