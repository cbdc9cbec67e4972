/* A server of requests, see server.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "server.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { PAUSE_MS = 1000 }; /* after an error that would come again at once, for who has nothing else to do */

/* ---- answers ------------------------------------------------------------------------------------------------------- */

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

static struct json_socket json_to(int socket, uint64_t milliseconds)
{
    uint64_t end = platform_clock_ms() + milliseconds;
    return (struct json_socket){.json = {.write = write_to_socket}, .socket = socket, .end = end};
}

static bool answer(const struct server *server, int socket, const char *line, size_t length)
{
    struct json_socket target = json_to(socket, server->patience_ms);
    server->answer(line, length, &target.json);
    return json_end(&target.json);
}

void server_refuse(struct json *json, const char *why)
{
    json_open(json, '{');
    json_name(json, "ok");
    json_bool(json, false);
    json_name(json, "error");
    json_string(json, why);
    json_close(json, '}');
}

static void refuse(const struct server *server, int socket, const char *why)
{
    struct json_socket target = json_to(socket, server->patience_ms);
    server_refuse(&target.json, why);
    json_end(&target.json);
}

/* ---- connections --------------------------------------------------------------------------------------------------- */

static bool answer_complete_requests(struct server *server, struct connection *connection)
{
    const char *end;
    while ((end = memchr(connection->request, '\n', connection->length)) != NULL) {
        size_t length = (size_t)(end - connection->request);
        if (!answer(server, connection->socket, connection->request, length)) return false;
        connection->length -= length + 1;
        memmove(connection->request, end + 1, connection->length);
        connection->turn = ++server->turns;
    }
    return true;
}

/* False when the connection is to be closed. */
static bool receive(struct server *server, struct connection *connection)
{
    char *room = connection->request + connection->length;
    size_t size = sizeof connection->request - connection->length;
    ptrdiff_t received = platform_receive(connection->socket, room, size);
    if (received < 0) return false;
    connection->length += (size_t)received;
    if (!answer_complete_requests(server, connection)) return false;
    if (connection->length < sizeof connection->request) return true;
    answer(server, connection->socket, connection->request, connection->length); /* which says that it is too long */
    return false;
}

static void connection_close(struct server *server, size_t place)
{
    close(server->connections[place].socket);
    server->connections[place] = server->connections[--server->count];
}

static size_t longest_silent(const struct server *server)
{
    size_t place = 0;
    for (size_t i = 1; i < server->count; i++)
        if (server->connections[i].turn < server->connections[place].turn) place = i;
    return place;
}

static void pause_unless(bool hurried)
{
    if (!hurried) poll(NULL, 0, PAUSE_MS);
}

static void connection_open(struct server *server, bool hurried)
{
    int socket = platform_accept(server->listener);
    if (socket < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) pause_unless(hurried);
        return;
    }
    if (!platform_peer_is_trusted(socket)) {
        refuse(server, socket, "this process belongs to another user");
        close(socket);
        return;
    }
    if (server->count == CONNECTIONS_MAX) connection_close(server, longest_silent(server));
    struct connection *connection = &server->connections[server->count++];
    connection->socket = socket;
    connection->length = 0;
    connection->turn = ++server->turns;
}

void server_serve(struct server *server, int milliseconds)
{
    bool hurried = milliseconds == 0;
    struct pollfd polled[1 + CONNECTIONS_MAX] = {{.fd = server->listener, .events = POLLIN}};
    for (size_t i = 0; i < server->count; i++)
        polled[1 + i] = (struct pollfd){.fd = server->connections[i].socket, .events = POLLIN};
    if (poll(polled, 1 + server->count, milliseconds) < 0) {
        if (errno != EINTR) pause_unless(hurried); /* fewer descriptors are allowed than we look at */
        return;
    }
    /* From the last to the first: closing one moves the last into its place. */
    for (size_t i = server->count; i-- > 0;)
        if (polled[1 + i].revents != 0 && !receive(server, &server->connections[i])) connection_close(server, i);
    if (polled[0].revents != 0) connection_open(server, hurried);
}
