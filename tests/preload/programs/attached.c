/* Programs to be recorded while they run: the first argument says which, the others how. Each goes on until its standard input ends or
 * says so, checks itself all the time, prints what came of it and exits with 0 if that was right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

/* ---- pattern: for each line of the input, a number, so many blocks are allocated and freed; then it says so ------------------ */

enum { PATTERN_SIZE = 12345 };
static void *volatile kept;

static int pattern(void)
{
    char line[32];
    void *old = malloc(PATTERN_SIZE);
    printf("ready\n");
    while (fgets(line, sizeof line, stdin) != NULL) {
        for (long i = strtol(line, NULL, 10); i > 0; i--) {
            kept = malloc(PATTERN_SIZE);
            free(kept);
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

/* ---- registers: all keep what is in them ---------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* Counts `rounds` down with a pattern in each register that code has, and in the red zone; 0: all were still there, as the flags. */
static long registers_round(long rounds)
{
    long wrong;
    __asm__ volatile(
        "  leaq -256(%%rsp), %%rsp\n"
        "  movq %%rbp, 128(%%rsp)\n"
        "  movq %%rbx, 136(%%rsp)\n"
        "  movq $0x1234567, %%rbx\n movq $0x2345678, %%rbp\n movq $0x3456789, %%rsi\n movq $0x456789a, %%rdi\n"
        "  movq $0x56789ab, %%r8\n movq $0x6789abc, %%r9\n movq $0x789abcd, %%r10\n movq $0x89abcde, %%r11\n"
        "  movq $0x9abcdef, %%r12\n movq $0xabcdef, %%r13\n movq $0xbcdef0, %%r14\n movq $0xcdef01, %%r15\n"
        "  movq %%rbx, %%xmm0\n movq %%rbp, %%xmm1\n movq %%rsi, %%xmm2\n movq %%rdi, %%xmm3\n movq %%r8, %%xmm4\n"
        "  movq %%r9, %%xmm5\n movq %%r10, %%xmm6\n movq %%r11, %%xmm7\n movq %%r12, %%xmm8\n movq %%r13, %%xmm9\n"
        "  movq %%r14, %%xmm10\n movq %%r15, %%xmm11\n movq %%rbx, %%xmm12\n movq %%rbp, %%xmm13\n"
        "  movq %%rsi, %%xmm14\n movq %%rdi, %%xmm15\n"
        "  movq %%rbx, -8(%%rsp)\n movq %%rbp, -128(%%rsp)\n movq %%rsi, -64(%%rsp)\n"
        "  fldpi\n fldl2e\n"
        "  stc\n" /* which decq keeps */
        "1:decq %%rcx\n"
        "  jnz 1b\n"
        "  movl $0, %%eax\n"
        "  jc 2f\n orl $1, %%eax\n 2:\n"
#define SAME(number, register, bit) "  cmpq $" number ", %%" register "\n je 3f\n orl $" bit ", %%eax\n 3:\n"
        SAME("0x1234567", "rbx", "2") SAME("0x2345678", "rbp", "2") SAME("0x3456789", "rsi", "4")
            SAME("0x456789a", "rdi", "4") SAME("0x56789ab", "r8", "8") SAME("0x6789abc", "r9", "8")
                SAME("0x789abcd", "r10", "16") SAME("0x89abcde", "r11", "16") SAME("0x9abcdef", "r12", "32")
                    SAME("0xabcdef", "r13", "32") SAME("0xbcdef0", "r14", "64")
                        SAME("0xcdef01", "r15", "64") "  cmpq %%rbx, -8(%%rsp)\n je 3f\n orl $128, %%eax\n 3:\n"
                                                      "  cmpq %%rbp, -128(%%rsp)\n je 3f\n orl $128, %%eax\n 3:\n"
                                                      "  cmpq %%rsi, -64(%%rsp)\n je 3f\n orl $128, %%eax\n 3:\n"
#define SAME_VECTOR(vector, register)                                                                                  \
    "  movq %%" vector ", %%rdx\n cmpq %%rdx, %%" register "\n je 3f\n orl $256, %%eax\n 3:\n"
        SAME_VECTOR("xmm0", "rbx") SAME_VECTOR("xmm1", "rbp") SAME_VECTOR("xmm2", "rsi") SAME_VECTOR("xmm3", "rdi")
            SAME_VECTOR("xmm4", "r8") SAME_VECTOR("xmm5", "r9") SAME_VECTOR("xmm6", "r10") SAME_VECTOR("xmm7", "r11")
                SAME_VECTOR("xmm8", "r12") SAME_VECTOR("xmm9", "r13") SAME_VECTOR("xmm10", "r14") SAME_VECTOR(
                    "xmm11", "r15") SAME_VECTOR("xmm12", "rbx") SAME_VECTOR("xmm13", "rbp") SAME_VECTOR("xmm14", "rsi")
                    SAME_VECTOR("xmm15",
                                "rdi") "  fldl2e\n fcomip %%st(1), %%st\n je 3f\n orl $512, %%eax\n 3:\n fstp %%st(0)\n"
                                       "  fldpi\n fcomip %%st(1), %%st\n je 3f\n orl $512, %%eax\n 3:\n fstp %%st(0)\n"
                                       "  movq 128(%%rsp), %%rbp\n"
                                       "  movq 136(%%rsp), %%rbx\n"
                                       "  leaq 256(%%rsp), %%rsp\n"
        : "=&a"(wrong), "+c"(rounds)
        :
        : "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3",
          "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc",
          "memory");
    return wrong & 0xffffffff;
}

static int registers(void)
{
    printf("ready\n");
    while (!is_over()) {
        long wrong = registers_round(20000000);
        if (wrong != 0) {
            printf("registers have changed: %ld\n", wrong);
            return 1;
        }
    }
    return 0;
}
#endif

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
#if defined(__x86_64__)
    if (strcmp(way, "registers") == 0) result = registers();
#endif
    if (strcmp(way, "sleeps") == 0) result = sleeps();
    if (strcmp(way, "signals") == 0) result = signals();
    if (strcmp(way, "leaves") == 0) result = leaves();
    if (result == 0) printf("right\n");
    return result;
}
