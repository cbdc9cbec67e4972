/* Memory errors that guard_sample finds, beside musl: with no stacks, since nothing there says where a frame's caller is. */
#include "check.h"

static volatile char sink;

static void overflow(void)
{
    for (;;) {
        char *volatile object = malloc(64);
        sink = object[64];
        free(object);
    }
}

static void use_after_free(void)
{
    for (;;) {
        char *volatile object = malloc(64);
        free(object);
        sink = object[16]; /* beyond what links free blocks */
    }
}

static void free_twice(void)
{
    char *objects[100];
    for (int i = 0; i < 100; i++) objects[i] = malloc(64);
    for (int i = 0; i < 100; i++) free(objects[i]);
    for (int i = 0; i < 100; i++) free(*(char *volatile *)&objects[i]);
}

/* What a child says that makes a mistake, and how it ends. */
static void expect(void (*mistake)(void), int signal, const char *said)
{
    char text[4096];
    size_t length = 0;
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        alarm(60);
        mistake();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0;) length += (size_t)got;
    text[length] = '\0';
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    if (strstr(text, said) == NULL) fputs(text, stderr);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal);
    CHECK(strstr(text, said) != NULL);
    CHECK(strstr(text, "  allocated by thread ") != NULL);
}

int main(void)
{
    expect(overflow, SIGSEGV, "byte 1 past the end of the block at ");
    expect(use_after_free, SIGSEGV, "use after free: read of ");
    expect(free_twice, SIGABRT, ", a block of 64 bytes");
    return 0;
}
