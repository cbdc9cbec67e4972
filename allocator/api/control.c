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
#include "api.h"
#include "json.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 8, /* for one more, that one is closed which has asked nothing for longest */
    ANSWER_MS = 2000, /* in which a client has to take its answer, since all others wait */
    PAUSE_MS = 1000, /* after an error that would come again at once */
    FAREWELL_MS = 1000 /* the main thread waits for this one to end */
};

/* ---- connections: the thread's own ----------------------------------------------------------------------------- */

struct connection {
    int socket;
    size_t length; /* bytes of a request that is not complete */
    uint64_t turn; /* when it was opened or last heard, in the order of such events */
    char request[REQUEST_MAX + 1]; /* with the line's end */
};

static struct connection connections[CONNECTIONS_MAX];
static size_t connection_count;
static uint64_t turns;

struct json_socket {
    struct json json;
    int socket;
    uint64_t end; /* clock in ms */
};

static bool write_to_socket(struct json *json, const char *bytes, size_t size)
{
    const struct json_socket *target = (const struct json_socket *)json;
    uint64_t now = platform_clock_ms();
    return platform_send(target->socket, bytes, size, now < target->end ? target->end - now : 0);
}

static struct json_socket json_to(int socket)
{
    uint64_t end = platform_clock_ms() + ANSWER_MS;
    return (struct json_socket){.json = {.write = write_to_socket}, .socket = socket, .end = end};
}

static bool answer(int socket, const char *line, size_t length)
{
    struct json_socket target = json_to(socket);
    request_answer(line, length, &target.json);
    return json_end(&target.json);
}

static void refuse(int socket, const char *why)
{
    struct json_socket target = json_to(socket);
    request_refuse(&target.json, why);
    json_end(&target.json);
}

static bool answer_complete_requests(struct connection *connection)
{
    const char *end;
    while ((end = memchr(connection->request, '\n', connection->length)) != NULL) {
        size_t length = (size_t)(end - connection->request);
        if (!answer(connection->socket, connection->request, length)) return false;
        connection->length -= length + 1;
        memmove(connection->request, end + 1, connection->length);
        connection->turn = ++turns;
    }
    return true;
}

/* False when the connection is to be closed. */
static bool receive(struct connection *connection)
{
    char *room = connection->request + connection->length;
    size_t size = sizeof connection->request - connection->length;
    ptrdiff_t received = platform_receive(connection->socket, room, size);
    if (received < 0) return false;
    connection->length += (size_t)received;
    if (!answer_complete_requests(connection)) return false;
    if (connection->length < sizeof connection->request) return true;
    answer(connection->socket, connection->request, connection->length); /* which says that it is too long */
    return false;
}

static void connection_close(size_t place)
{
    close(connections[place].socket);
    connections[place] = connections[--connection_count];
}

static size_t longest_silent(void)
{
    size_t place = 0;
    for (size_t i = 1; i < connection_count; i++)
        if (connections[i].turn < connections[place].turn) place = i;
    return place;
}

static void connection_open(int listener)
{
    int socket = platform_accept(listener);
    if (socket < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) poll(NULL, 0, PAUSE_MS);
        return;
    }
    if (!platform_peer_is_trusted(socket)) {
        refuse(socket, "this process belongs to another user");
        close(socket);
        return;
    }
    if (connection_count == CONNECTIONS_MAX) connection_close(longest_silent());
    struct connection *connection = &connections[connection_count++];
    connection->socket = socket;
    connection->length = 0;
    connection->turn = ++turns;
}

/* ---- the thread ------------------------------------------------------------------------------------------------ */

/* Relaxed: a connection is made afterwards, which the thread sees, and with it this. */
static _Atomic(bool) stopping;
/* Relaxed: it is only looked at to know whether that thread still exists. 0: not known yet. */
static _Atomic(int32_t) thread_number;

static void serve(int listener)
{
    struct pollfd polled[1 + CONNECTIONS_MAX] = {{.fd = listener, .events = POLLIN}};
    for (size_t i = 0; i < connection_count; i++)
        polled[1 + i] = (struct pollfd){.fd = connections[i].socket, .events = POLLIN};
    if (poll(polled, 1 + connection_count, -1) < 0) {
        if (errno != EINTR) poll(NULL, 0, PAUSE_MS); /* fewer descriptors are allowed than we look at */
        return;
    }
    /* From the last to the first: closing one moves the last into its place. */
    for (size_t i = connection_count; i-- > 0;)
        if (polled[1 + i].revents != 0 && !receive(&connections[i])) connection_close(i);
    if (polled[0].revents != 0) connection_open(listener);
}

enum { NAME_MAX_BYTES = 32 };

static void socket_name(char *name)
{
    platform_format(name, NAME_MAX_BYTES, "heapfit/%zu", (size_t)getpid());
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
                         errno == EADDRINUSE ? "is taken by another process" : "cannot be made");
    /* Its number stays taken, lest a message to stderr goes to whoever is connected. */
    if (listener < 0 || dup2(listener, STDERR_FILENO) < 0) close(STDERR_FILENO);
    return listener;
}

static void control_run(void *argument)
{
    (void)argument;
    atomic_store_explicit(&thread_number, platform_thread_number(), memory_order_relaxed);
    connection_count = 0; /* a fork's child has a copy of what the parent had open */
    int listener = listener_open();
    while (listener >= 0 && !atomic_load_explicit(&stopping, memory_order_relaxed)) serve(listener);
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
    if (platform_thread_number() != getpid()) return;
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
