/* Local sockets, for a thread that serves other processes while the program goes on with its own descriptors. */
#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SYS_close_range /* Linux 5.9; the same number on all processors */
#define SYS_close_range 436
#endif
#define UNSHARE 2u /* CLOSE_RANGE_UNSHARE, absent from older headers */

/* Connections that wait to be accepted. */
enum { BACKLOG = 16 };

/* unshare(2) and closing one by one would do the same on older kernels, but containers forbid it. */
bool platform_descriptors_own(void)
{
    if (platform_call(SYS_close_range, STDERR_FILENO + 1u, ~0u, UNSHARE) != 0) return false;
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    return true;
}

bool platform_descriptors_own_all(void)
{
    int saved = errno;
    platform_descriptors_are_own = platform_call(SYS_close_range, 0, ~0u, UNSHARE) == 0;
    errno = saved;
    return platform_descriptors_are_own;
}

/* An abstract name begins with a zero. Returns its length as an address, 0 when it is too long. */
static socklen_t abstract_address(struct sockaddr_un *address, const char *name)
{
    size_t length = strlen(name);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length >= sizeof address->sun_path) return 0;
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int socket_at(const char *name, bool listens)
{
    struct sockaddr_un address;
    socklen_t size = abstract_address(&address, name);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) return -1;
    const struct sockaddr *any = (const struct sockaddr *)&address;
    if (listens ? bind(made, any, size) == 0 && listen(made, BACKLOG) == 0 : connect(made, any, size) == 0) return made;
    int error = errno;
    close(made);
    errno = error;
    return -1;
}

int platform_listen(const char *name)
{
    return socket_at(name, true);
}

int platform_connect(const char *name)
{
    return socket_at(name, false);
}

int platform_accept(int listener)
{
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int saved = errno;
    listen(listener, BACKLOG); /* again: it is this call that notes whom clients are shown */
    errno = saved;
    return connection;
}

bool platform_peer_is_trusted(int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

ptrdiff_t platform_receive(int connection, char *bytes, size_t capacity)
{
    ssize_t received = recv(connection, bytes, capacity, MSG_DONTWAIT);
    if (received > 0) return received;
    return received < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/* Whether there is room to write, within `milliseconds`. */
static bool wait_for_room(int file, uint64_t milliseconds)
{
    struct pollfd polled = {.fd = file, .events = POLLOUT};
    int ready;
    do ready = poll(&polled, 1, (int)milliseconds);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

bool platform_send(int connection, const char *bytes, size_t size, uint64_t milliseconds)
{
    uint64_t end = platform_clock_ms() + milliseconds;
    while (size > 0) {
        ssize_t sent = send(connection, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent == 0) return false;
        if (sent > 0) {
            bytes += sent;
            size -= (size_t)sent;
            continue;
        }
        if (errno == EINTR) continue;
        uint64_t now = platform_clock_ms();
        if (errno != EAGAIN || now >= end || !wait_for_room(connection, end - now)) return false;
    }
    return true;
}

enum { WRITE_WAIT_MS = 1000 };

bool platform_write(int file, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t written = write(file, bytes, size);
        if (written == 0) return false;
        if (written > 0) {
            bytes += written;
            size -= (size_t)written;
            continue;
        }
        if (errno != EINTR && (errno != EAGAIN || !wait_for_room(file, WRITE_WAIT_MS))) return false;
    }
    return true;
}
