/* How much of a limited address space can be had:
 *
 *     address_space start MIB    limits itself, starts anew, and prints how many MiB it got in small objects
 *     address_space later        has had 1200 MiB when it limits itself to 4 GiB; then another mapping and a thread are wanted
 */
#include "system.h"

#define MIB ((size_t)1 << 20)

static void limit(size_t mib)
{
    struct rlimit both = {mib * MIB, mib * MIB};
    if (setrlimit(RLIMIT_AS, &both) != 0) exit(2);
}

static void *run(void *argument)
{
    return argument;
}

static int later(void)
{
    enum { COUNT = 1200 };
    static char *volatile objects[COUNT];
    pthread_t thread;
    for (size_t i = 0; i < COUNT; i++) *(objects[i] = malloc(MIB)) = 1;
    for (size_t i = 0; i < COUNT; i++) free(objects[i]);
    limit(4096);
    objects[0] = malloc(64 * MIB);
    void *mapped = mmap(NULL, 1024 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (objects[0] == NULL || mapped == MAP_FAILED || pthread_create(&thread, NULL, run, NULL) != 0) return 1;
    puts("done");
    return 0;
}

int main(int count, char **words)
{
    if (count < 3) return later();
    if (strcmp(words[1], "start") == 0) {
        limit(strtoul(words[2], NULL, 10));
        execl("/proc/self/exe", words[0], "got", words[2], NULL);
    }
    size_t got = 0;
    while (malloc(1000) != NULL) got += 1000;
    char text[32];
    int length = snprintf(text, sizeof text, "%zu\n", got / MIB);
    return write(STDOUT_FILENO, text, (size_t)length) != length;
}
