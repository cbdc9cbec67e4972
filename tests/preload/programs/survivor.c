/* Survives its faults by a handler of its own, which was there before ours: in so many threads, each so often. They come from objects
 * that were freed, or have no bytes. */
#include "system.h"

#include <setjmp.h>

int hf_option_set(const char *name, const char *value) __attribute__((weak));

static __thread sigjmp_buf after;
static int faults;
static size_t size;

static void survive(int number)
{
    (void)number;
    siglongjmp(after, 1);
}

static void *make_faults(void *unused)
{
    char *volatile object = malloc(size);
    if (size != 0) free(object);
    for (volatile int i = 0; i < faults; i = i + 1)
        if (sigsetjmp(after, 1) == 0) *object = 1;
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 4 || signal(SIGSEGV, survive) == SIG_ERR || hf_option_set == NULL) return 2;
    hf_option_set("guard_sample", "1");
    size = strtoul(argv[1], NULL, 10);
    faults = atoi(argv[3]);
    int count = atoi(argv[2]);
    pthread_t threads[64];
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, make_faults, NULL) != 0) return 2;
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    puts("survived");
    return 0;
}
