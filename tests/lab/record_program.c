/* A program to be recorded: COUNT blocks of 64 bytes, then `done`.
 *
 *   allocate COUNT [exit=CODE | kill=SIGNAL | sleep=MILLISECONDS | serve]
 *
 * With `sleep` it waits before it frees them, with `serve` it is a server: says `ready`, allocates and
 * frees anew at each SIGUSR1 and says `served`, and exits with 7 at SIGTERM. It prints without malloc.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64, EXIT_OF_SERVER = 7 };

static void say(const char *line)
{
    if (write(STDOUT_FILENO, line, strlen(line)) < 0) {
        _exit(99);
    }
}

static void allocate(long count, int milliseconds)
{
    void **blocks = malloc((size_t)count * sizeof *blocks);
    for (long i = 0; i < count; i++) {
        blocks[i] = malloc(SIZE);
    }
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&pause, NULL);
    for (long i = 0; i < count; i++) {
        free(blocks[i]);
    }
    free(blocks);
}

static int serve(long count)
{
    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGUSR1);
    sigaddset(&handled, SIGTERM);
    sigprocmask(SIG_BLOCK, &handled, NULL);
    say("ready\n");
    for (int number = 0; sigwait(&handled, &number) == 0 && number == SIGUSR1;) {
        allocate(count, 0);
        say("served\n");
    }
    return EXIT_OF_SERVER;
}

static int told(const char *word, const char *name)
{
    size_t length = strlen(name);
    return word != NULL && strncmp(word, name, length) == 0 ? atoi(word + length) : 0;
}

int main(int count, char **words)
{
    const char *more = count > 2 ? words[2] : NULL;
    long blocks = count > 1 ? atol(words[1]) : 0;
    if (more != NULL && strcmp(more, "serve") == 0) {
        return serve(blocks);
    }
    allocate(blocks, told(more, "sleep="));
    if (told(more, "kill=") != 0) {
        raise(told(more, "kill="));
    }
    say("done\n");
    return told(more, "exit=");
}
