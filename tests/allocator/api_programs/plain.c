/* A C program: heapfit must not bring a C++ run-time library into it. Exits with 0 when all is well; says what is not. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heapfit/heapfit.h>

static int failures;

static void expect(int condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "not so: %s\n", what);
    failures++;
}

static int maps_contain(const char *name)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (maps == NULL) return -1;
    while (fgets(line, sizeof line, maps) != NULL) found |= strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

static void *allocate_and_free(void *unused)
{
    (void)unused;
    for (int i = 0; i < 10000; i++) {
        char *text = malloc((size_t)(i % 2000) + 1);
        if (text == NULL) abort();
        text[i % 2000] = 'x';
        free(text);
    }
    return strdup("freed by the main thread");
}

static void use_threads(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        expect(pthread_create(&threads[i], NULL, allocate_and_free, NULL) == 0, "threads start");
    for (int i = 0; i < 4; i++) {
        void *text = NULL;
        pthread_join(threads[i], &text);
        free(text);
    }
}

static void use_fork(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        allocate_and_free(NULL);
        _exit(0);
    }
    expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child process allocates");
}

int main(void)
{
    volatile size_t too_much = (size_t)PTRDIFF_MAX + 1;
    void *object = malloc(100);
    expect(hf_is_ours(object), "malloc is heapfit's");
    object = realloc(object, 100000);
    expect(object != NULL && malloc_usable_size(object) >= 100000, "realloc grows");
    free(object);
    errno = 0;
    expect(malloc(too_much) == NULL && errno == ENOMEM, "too much is refused");
    char *line = NULL;
    expect(asprintf(&line, "%d objects", 3) == 9 && hf_is_ours(line), "the C library allocates with heapfit");
    free(line);
    use_threads();
    use_fork();
    expect(maps_contain("libstdc++") == 0 && maps_contain("libc++") == 0, "there is no C++ run-time library");
    return failures == 0 ? 0 : 1;
}
