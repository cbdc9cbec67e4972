/* A program that puts itself, with all its threads, behind a filter that kills for each system call that is not named, and then only
 * allocates and frees: confined NUMBER... Its own calls must be among those that are named. With `alone`, it is of one thread as far
 * as it knows, confines that one, and ends by exit: confined alone NUMBER... */
#include "system.h"

enum { CALLS_MAX = 100, THREADS = 2, HELD = 256, STEPS = 60000 };

static _Atomic(unsigned) begun, confined, done;
static _Atomic(void *) exchanged[64];

static unsigned draw(unsigned *state)
{
    return *state = *state * 1664525 + 1013904223;
}

/* Objects of all sizes, some of which other threads free. */
static void work(unsigned seed)
{
    void *held[HELD] = {NULL};
    for (unsigned i = 0; i < STEPS; i++) {
        unsigned place = draw(&seed) >> 8 & (HELD - 1), size = draw(&seed) >> 8;
        size = i % 2000 == 0 ? 6000000 : i % 30 == 0 ? size % 400000 : size % 3000;
        if (i % 5 == 0) held[place] = atomic_exchange(&exchanged[i % 64], held[place]);
        free(held[place]);
        held[place] = i % 2 == 0 ? malloc(size) : calloc(1, size);
        if (i % 8 == 0) held[place] = realloc(held[place], 2 * (size_t)size + 1);
        if (held[place] == NULL) abort();
        memset(held[place], 1, size < 4096 ? size : 4096);
    }
    for (unsigned i = 0; i < HELD; i++) free(held[i]);
    malloc_trim(0);
}

/* Never ends: how a thread ends is the C library's affair. */
static void *live(void *argument)
{
    free(malloc(100));
    begun++;
    while (!confined) continue;
    work((unsigned)(size_t)argument);
    done++;
    for (unsigned never = 0;;) syscall(SYS_futex, &never, 128, 0, NULL, NULL, 0); /* FUTEX_WAIT_PRIVATE */
    return NULL;
}

static void confine(unsigned flags, int count, char **words)
{
    struct sock_filter rules[2 * CALLS_MAX + 2];
    unsigned short length = 0;
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count && i < CALLS_MAX; i++) {
        rules[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(words[i]), 0, 1);
        rules[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {.len = length, .filter = rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) != 0)
        exit(77);
}

int main(int count, char **words)
{
    pthread_t thread;
    if (count > 1 && strcmp(words[1], "alone") == 0) {
        confine(0, count - 2, words + 2);
        work(7);
        exit(write(STDOUT_FILENO, "done\n", 5) != 5);
    }
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, live, (void *)i) != 0) return 1;
    while (begun < THREADS) continue;
    confine(SECCOMP_FILTER_FLAG_TSYNC, count - 1, words + 1);
    confined = 1;
    work(7);
    while (done < THREADS) continue;
    work(8);
    if (write(STDOUT_FILENO, "done\n", 5) != 5) return 1;
    syscall(SYS_exit_group, 0);
}
