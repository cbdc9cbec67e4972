/* The control channel: a thread that answers requests of other processes on the abstract Unix socket "\0heapfit/PID".
 *
 * An abstract socket is a file nowhere, so that a dead process leaves nothing behind, and it is of this network
 * namespace, so that a container reaches its own. Anybody there may connect: whoever is not of the same user, or root,
 * is told so and left.
 *
 * The program must not notice. The thread has a table of descriptors of its own (platform_descriptors_own), so no
 * number of the program's is ever one of ours, whatever it closes or opens; children inherit nothing; and exec ends the
 * thread with all it has. It has no heap, allocates nothing, and takes no signal. What it says on stderr it says before
 * it closes that: from then on a message of the allocator from this thread, which would be of corrupted lists, is lost.
 *
 * A process lives as long as any thread of it, so this one ends when the main thread leaves by pthread_exit. A fork's
 * child starts a thread of its own, under its own number.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../platform/server.h"
#include "api.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

enum {
    PATIENCE_MS = 2000, /* with a client that does not take its answer */
    FAREWELL_MS = 1000 /* the main thread waits for this one to end */
};

/* ---- the thread ------------------------------------------------------------------------------------------------ */

/* Relaxed: a connection is made afterwards, which the thread sees, and with it this. */
static _Atomic(bool) stopping;
/* Relaxed: it is only looked at to know whether that thread still exists. 0: not known yet. */
static _Atomic(int32_t) thread_number;
static struct server server; /* the thread's own */

enum { NAME_MAX_BYTES = 32 };

static void socket_name(char *name)
{
    platform_format(name, NAME_MAX_BYTES, "heapfit/%zu", (size_t)platform_process_number());
}

/* Says why when it fails, on stderr, which is open until it returns. */
static int listener_open(void)
{
    char name[NAME_MAX_BYTES];
    socket_name(name);
    if (!platform_descriptors_own()) {
        platform_message("no control: this kernel does not let a thread have descriptors of its own (Linux 5.9 does)");
        return -1;
    }
    int listener = platform_listen(name);
    if (listener < 0)
        platform_message("no control: the socket @%s %s", name,
                         errno == EADDRINUSE ? "is taken by another heap of this process, or by another process"
                                             : "cannot be made");
    /* Its number stays taken, lest a message to stderr goes to whoever is connected. */
    if (listener < 0 || dup2(listener, STDERR_FILENO) < 0) close(STDERR_FILENO);
    return listener;
}

static void control_run(void *argument)
{
    (void)argument;
    atomic_store_explicit(&thread_number, platform_thread_number(), memory_order_relaxed);
    /* A fork's child has a copy of what the parent had open. */
    server = (struct server){.listener = listener_open(), .answer = request_answer, .patience_ms = PATIENCE_MS};
    while (server.listener >= 0 && !atomic_load_explicit(&stopping, memory_order_relaxed)) server_serve(&server, -1);
}

/* ---- the main thread leaves ------------------------------------------------------------------------------------ */

static pthread_key_t main_thread;
static bool main_thread_known;

/* Wait for the thread's end: the last thread of a process runs its exit handlers, for which ours has not the
 * descriptors. */
static void main_thread_leaves(void *argument)
{
    char name[NAME_MAX_BYTES];
    (void)argument;
    atomic_store_explicit(&stopping, true, memory_order_relaxed);
    socket_name(name);
    int wake = platform_connect(name);
    for (int waited = 0; waited < FAREWELL_MS; waited++) {
        int32_t number = atomic_load_explicit(&thread_number, memory_order_relaxed);
        if (number != 0 && !platform_thread_exists(number)) break;
        poll(NULL, 0, 1);
    }
    if (wake >= 0) close(wake);
}

/* Only in the main thread itself can it be told that it leaves. It is the one that loads the library, and that a child
 * has. */
static void watch_main_thread(void)
{
    if (platform_thread_number() != platform_process_number()) return;
    if (!main_thread_known) main_thread_known = pthread_key_create(&main_thread, main_thread_leaves) == 0;
    if (main_thread_known) pthread_setspecific(main_thread, &main_thread); /* anything but NULL */
}

/* ---- start, fork ----------------------------------------------------------------------------------------------- */

/* Relaxed: whoever is first starts it. */
static _Atomic(bool) started;

void control_start(void)
{
    if (LIKELY(!options_control()) || atomic_exchange_explicit(&started, true, memory_order_relaxed)) return;
    hf_free(hf_malloc(1)); /* the thread finds the allocator started, and need not ask whether it is */
    if (platform_thread_start("heapfit-control", control_run, NULL, false)) watch_main_thread();
    else platform_message("no control: the thread for it cannot be started");
}

void control_fork_child(void)
{
    atomic_store_explicit(&started, false, memory_order_relaxed);
    atomic_store_explicit(&stopping, false, memory_order_relaxed);
    atomic_store_explicit(&thread_number, 0, memory_order_relaxed);
    control_start();
}
