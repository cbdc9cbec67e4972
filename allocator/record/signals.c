/* Signals that end a program by their default action: how most services end, and Ctrl-C. No destructor runs then, so that the file
 * would be cut short.
 *
 * Where the program leaves the action at its default, there is a handler of ours: it makes the file whole, as `_exit` does, and then
 * has the signal do what it would have done. The program is told of the default all the same, whichever way it asks or sets it; of a
 * handler of its own, or of ignoring, nothing of this is known. Not in the first process of a container, which the kernel shields
 * from signals by that very default.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "next.h"
#include "record.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef int action_function(int number, const struct sigaction *action, struct sigaction *before);
typedef void (*handler)(int number);
typedef handler handler_function(int number, handler wanted);

static struct {
    action_function *sigaction; /* NULL: not looked for yet */
    handler_function *signal, *sysv, *sigset;
    _Atomic(bool) watches; /* set once, before any other thread is; relaxed */
} next;

void signals_find(void)
{
    if (LIKELY(next.sigaction != NULL)) return;
    *(void **)&next.signal = next_symbol("signal");
    *(void **)&next.sysv = next_symbol("__sysv_signal");
    *(void **)&next.sigset = next_symbol("sigset");
    *(void **)&next.sigaction = next_symbol("sigaction");
}

static bool is_watched(int number)
{
    bool ends = number == SIGTERM || number == SIGINT || number == SIGHUP;
    return ends && atomic_load_explicit(&next.watches, memory_order_relaxed); /* see there */
}

/* In the thread that the kernel has chosen, which may hold any lock. In a child that is not recorded the file is another's. The signal
 * is blocked while this runs; when it no longer is, it is there at once. */
static void end_in_order(int number)
{
    int saved = errno;
    writer_finish(number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : "SIGHUP");
    struct sigaction as_ever = {.sa_handler = SIG_DFL};
    next.sigaction(number, &as_ever, NULL);
    kill(getpid(), number);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    errno = saved; /* a tracer may have kept the signal from us */
}

/* What is set in place of the default. */
static const struct sigaction in_order = {.sa_handler = end_in_order, .sa_flags = SA_RESTART | SA_ONSTACK};

static bool is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) == 0 && action->sa_handler == end_in_order;
}

void signals_start(void)
{
    enum { FIRST_OF_CONTAINER = 1 };
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction now;
    if (next.sigaction == NULL || getpid() == FIRST_OF_CONTAINER) return;
    atomic_store_explicit(&next.watches, true, memory_order_relaxed); /* see there */
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (next.sigaction(numbers[i], NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
            now.sa_handler == SIG_DFL)
            next.sigaction(numbers[i], &in_order, NULL);
}

/* ---- what the program sees ------------------------------------------------------------------------------------------------ */

EXPORT int sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    signals_find();
    bool is_default = action != NULL && (action->sa_flags & SA_SIGINFO) == 0 && action->sa_handler == SIG_DFL;
    int result = next.sigaction(number, is_default && is_watched(number) ? &in_order : action, before);
    if (result == 0 && before != NULL && is_ours(before)) *before = (struct sigaction){.sa_handler = SIG_DFL};
    return result;
}

static handler handle(handler_function *function, int number, handler wanted)
{
    handler before = function(number, wanted == SIG_DFL && is_watched(number) ? end_in_order : wanted);
    return before == end_in_order ? SIG_DFL : before;
}

EXPORT handler signal(int number, handler wanted)
{
    signals_find();
    return handle(next.signal, number, wanted);
}

/* By this name calls it whoever is compiled for System V's rules. */
EXPORT handler __sysv_signal(int number, handler wanted)
{
    signals_find();
    return handle(next.sysv, number, wanted);
}

EXPORT handler sigset(int number, handler wanted)
{
    signals_find();
    return handle(next.sigset, number, wanted);
}
