/* Ways out of a program that no destructor is run on: _exit, a program that takes this one's place (exec), and daemon, whose
 * parent ends. Each is passed on to the next library that defines it, when the file is whole.
 *
 * All may be called in a child of vfork, which has the parent's memory, and in signal handlers: the writer's functions bear
 * that, and nothing here allocates.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "next.h"
#include "record.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void exit_function(int status);
typedef int exec_function(const char *path, char *const arguments[]);
typedef int exec_environment_function(const char *path, char *const arguments[], char *const variables[]);

static struct {
    bool found;
    exit_function *_exit, *_Exit;
    exec_function *execv, *execvp;
    exec_environment_function *execve, *execvpe;
    int (*fexecve)(int file, char *const arguments[], char *const variables[]);
    int (*daemon)(int stay, int keep);
} next;

void exits_start(void)
{
    /* ISO C knows no way from an object's address to a function's; POSIX says that this is one. */
    *(void **)&next._exit = next_symbol("_exit");
    *(void **)&next._Exit = next_symbol("_Exit");
    *(void **)&next.execv = next_symbol("execv");
    *(void **)&next.execvp = next_symbol("execvp");
    *(void **)&next.execve = next_symbol("execve");
    *(void **)&next.execvpe = next_symbol("execvpe");
    *(void **)&next.fexecve = next_symbol("fexecve");
    *(void **)&next.daemon = next_symbol("daemon");
    next.found = true;
}

/* Another library's constructor may call one of these before ours has run. */
static void find_next(void)
{
    if (UNLIKELY(!next.found)) exits_start();
}

/* ---- _exit ----------------------------------------------------------------------------------------------------------- */

static _Noreturn void leave(exit_function *function, int status)
{
    if (function != NULL) function(status);
    for (;;) syscall(SYS_exit_group, status);
}

EXPORT _Noreturn void _exit(int status)
{
    writer_finish("_exit");
    find_next();
    leave(next._exit, status);
}

EXPORT _Noreturn void _Exit(int status)
{
    writer_finish("_Exit");
    find_next();
    leave(next._Exit, status);
}

/* ---- exec ------------------------------------------------------------------------------------------------------------ */

/* It has failed: the program goes on, and so does the recording. */
static int go_on(bool paused, int result)
{
    int saved = errno;
    if (paused) writer_resume();
    errno = saved;
    return result;
}

static bool pause_for(const char *why)
{
    find_next();
    return writer_pause(why);
}

EXPORT int execve(const char *path, char *const arguments[], char *const variables[])
{
    bool paused = pause_for("exec");
    return go_on(paused, next.execve(path, arguments, variables));
}

EXPORT int execv(const char *path, char *const arguments[])
{
    bool paused = pause_for("exec");
    return go_on(paused, next.execv(path, arguments));
}

EXPORT int execvp(const char *file, char *const arguments[])
{
    bool paused = pause_for("exec");
    return go_on(paused, next.execvp(file, arguments));
}

EXPORT int execvpe(const char *file, char *const arguments[], char *const variables[])
{
    bool paused = pause_for("exec");
    return go_on(paused, next.execvpe(file, arguments, variables));
}

EXPORT int fexecve(int file, char *const arguments[], char *const variables[])
{
    bool paused = pause_for("exec");
    return go_on(paused, next.fexecve(file, arguments, variables));
}

/* The C library has it only since 2.34, and does no more than this. */
EXPORT int execveat(int folder, const char *path, char *const arguments[], char *const variables[], int flags)
{
    bool paused = writer_pause("exec");
    return go_on(paused, (int)syscall(SYS_execveat, folder, path, arguments, variables, flags));
}

/* The arguments of a call, up to the NULL that ends them; the caller's stack has room for as many. */
static size_t count_arguments(va_list arguments)
{
    size_t count = 1;
    while (va_arg(arguments, char *) != NULL) count++;
    return count;
}

static void copy_arguments(char **to, const char *first, size_t count, va_list arguments)
{
    to[0] = (char *)first;
    for (size_t i = 1; i <= count; i++) to[i] = va_arg(arguments, char *); /* with the NULL */
}

/* Makes an array of what stands behind `first`, on the stack, and leaves `given` at what stands behind that. */
/* NOLINTBEGIN(bugprone-macro-parentheses): `arguments` names what is declared */
#define TAKE_ARGUMENTS(arguments, first, given)                                                                        \
    va_list given;                                                                                                     \
    va_start(given, first);                                                                                            \
    size_t count = count_arguments(given);                                                                             \
    va_end(given);                                                                                                     \
    char *arguments[count + 1];                                                                                        \
    va_start(given, first);                                                                                            \
    copy_arguments(arguments, first, count, given)
/* NOLINTEND(bugprone-macro-parentheses) */

EXPORT int execl(const char *path, const char *first, ...)
{
    TAKE_ARGUMENTS(arguments, first, given);
    va_end(given);
    return execv(path, arguments);
}

EXPORT int execlp(const char *file, const char *first, ...)
{
    TAKE_ARGUMENTS(arguments, first, given);
    va_end(given);
    return execvp(file, arguments);
}

EXPORT int execle(const char *path, const char *first, ...)
{
    TAKE_ARGUMENTS(arguments, first, given);
    char *const *variables = va_arg(given, char *const *);
    va_end(given);
    return execve(path, arguments, variables);
}

/* ---- daemon ------------------------------------------------------------------------------------------------------------ */

/* In the child, which it returns in, fork's handlers have begun anew: there nobody has paused. */
EXPORT int daemon(int stay, int keep)
{
    pid_t process = getpid();
    bool paused = pause_for("daemon");
    int result = next.daemon(stay, keep);
    return go_on(paused && getpid() == process, result);
}
