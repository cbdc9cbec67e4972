/* The recorder's life in a process: its start, forks, its end.
 *
 * It begins with the library's constructor: what other libraries' constructors have allocated before is not recorded. It ends
 * with the destructor, or where a process is left without one: exits.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "attach.h"
#include "next.h"
#include "note.h"
#include "platform/namespaces.h"
#include "python.h"
#include "writer.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- forks ------------------------------------------------------------------------------------------------------------ */

typedef pid_t fork_function(void);

static struct {
    fork_function *fork; /* NULL: not looked for yet */
    fork_function *bare; /* _Fork, which the C library has only since 2.34; NULL before */
} next;

static void forks_start(void)
{
    *(void **)&next.bare = next_symbol("_Fork");
    *(void **)&next.fork = next_symbol("fork");
}

static bool is_served = true; /* by us, as far as is known */
static bool has_had_thread; /* here, or in the process that this is a copy of: the C library goes by that */

static void has_forked(void)
{
    attach_fork_child();
    writer_fork_child(is_served);
}

/* In a signal's handler that has interrupted malloc, the C library's fork would wait for ever: for a lock of its malloc that the
 * interrupted call has. In a program of one thread it takes none, but there ours is a second one. Its _Fork never does; nor
 * does it call anybody's handlers. */
EXPORT pid_t fork(void)
{
    if (UNLIKELY(next.fork == NULL)) forks_start(); /* another library's constructor */
    if (!has_had_thread || next.bare == NULL) return next.fork();
    if (LIKELY(!record_is_inside() && !interrupted_is_malloc(frame_of_caller()))) return next.fork();
    pid_t child = next.bare();
    if (child == 0) attach_fork_child();
    if (child == 0) writer_fork_child(false);
    return child;
}

/* ---- namespaces ------------------------------------------------------------------------------------------------------- */

static volatile bool is_aside; /* a signal handler may ask meanwhile */

/* Of this thread and R alone: another one could be recorded meanwhile, and the kernel would refuse all the same. */
static bool nobody_else_is_there(void)
{
    struct stat threads;
    return stat("/proc/self/task", &threads) == 0 && threads.st_nlink == 2 + 2;
}

/* What the kernel grants only to a process of one thread is asked again without R if it is refused. R comes back with another file,
 * where that can still be made. */
static long again(long (*call)(long, long), long first, long second)
{
    int before = errno;
    long result = call(first, second);
    int saved = errno;
    if (result == 0 || saved != EINVAL || is_aside) return result;
    if (!writer_is_ours() || !writer_thread_exists() || !nobody_else_is_there()) {
        errno = saved;
        return result;
    }
    is_aside = true;
    bool records = recording_is_busy();
    uint64_t passed_ms = records ? recording_passed_ms() : 0; /* told with `busy` */
    if (writer_end("unshare")) {
        errno = before;
        result = call(first, second);
        saved = errno;
        if (record_file.number > 0) record_settings.first = false; /* the file that there is stays */
        record_settings.passed_ms = passed_ms;
        record_settings.quiet = true;
        writer_start(records);
    }
    is_aside = false;
    errno = saved;
    return result;
}

static long next_unshare(long flags, long unused)
{
    (void)unused;
    int (*next)(int);
    *(void **)&next = next_symbol("unshare");
    return next((int)flags);
}

static long next_setns(long descriptor, long type)
{
    int (*next)(int, int);
    *(void **)&next = next_symbol("setns");
    return next((int)descriptor, (int)type);
}

EXPORT int unshare(int flags)
{
    return (int)(platform_unshares_alone(flags) ? again(next_unshare, flags, 0) : next_unshare(flags, 0));
}

EXPORT int setns(int descriptor, int type)
{
    return (int)(platform_enters_alone(type) ? again(next_setns, descriptor, type) : next_setns(descriptor, type));
}

/* ---- start, end ------------------------------------------------------------------------------------------------------ */

static void quick_exit_begins(void)
{
    writer_finish("quick_exit");
}

void process_prepare(void)
{
    python_start();
    if (has_had_thread) return;
    pthread_atfork(attach_fork_prepare, attach_fork_parent, has_forked);
    at_quick_exit(quick_exit_begins); /* the first that is registered is the last that runs */
    has_had_thread = true;
}

__attribute__((constructor)) static void process_start(void)
{
    bool late = attach_is_late();
    if (late) next_are_of_program();
    intercept_start();
    exits_start();
    forks_start();
    if (late) return; /* heapfit_record_attach is called when this is done */
    record_settings_read();
    if (!record_settings_apply()) return;
    is_served = intercept_check();
    intercept_live_before();
    process_prepare();
    signals_find(); /* dlsym frees what it said of the last name that it did not find: not to be recorded */
    writer_start(!record_settings.later);
    if (is_served) signals_start();
    else writer_end("not served"); /* the file says so; a second thread would only be in the program's way */
}

__attribute__((destructor)) static void process_end(void)
{
    writer_finish("exit");
}
