/* A thread that has the dynamic linker's lock nearly all the time, in a process that forks: the children allocate at places of the
 * program where nobody has before. */
#include "system.h"

#include <link.h>

enum { CHILDREN = 20, DEPTH = 12, CHILD_SECONDS = 60 };

static atomic_int passes;

static int pass(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)object, (void)size, (void)unused;
    passes++;
    return 0;
}

static void *look_all_the_time(void *unused)
{
    for (;;) dl_iterate_phdr(pass, unused);
    return NULL;
}

__attribute__((noinline)) static void allocate(int depth)
{
    if (depth > 0) allocate(depth - 1);
    free(malloc(24 + (size_t)depth));
    __asm__ volatile("" ::: "memory");
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, look_all_the_time, NULL);
    while (passes == 0) continue;
    for (int i = 0; i < CHILDREN; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            alarm(CHILD_SECONDS);
            allocate(DEPTH);
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status != 0) _exit(1);
    }
    _exit(0);
}
