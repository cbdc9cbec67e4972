/* Answering other processes: a thread that waits on an abstract Unix socket for requests, a line each, and answers each
 * with a line of JSON. One thread alone may use a server. Whoever connects is not trusted to be of this user, nor what it
 * sends to be text; one that takes no answer is left. Nothing is allocated.
 */
#ifndef HEAPFIT_SERVER_H
#define HEAPFIT_SERVER_H

#include "json.h"

enum {
    REQUEST_MAX = 256, /* bytes of a request, a line without its end, of any bytes */
    CONNECTIONS_MAX = 8 /* for one more, that one is closed which has asked nothing for longest */
};

struct connection {
    int socket;
    size_t length; /* bytes of a request that is not complete */
    uint64_t turn; /* when it was opened or last heard, in the order of such events */
    char request[REQUEST_MAX + 1]; /* with the line's end */
};

struct server {
    int listener; /* of platform_listen */
    /* Does what a request says and writes the answer, a JSON object without its line's end. */
    void (*answer)(const char *line, size_t length, struct json *json);
    uint64_t
        patience_ms; /* in which a client has to take its answer, since all others wait; 0: it must have room for it */
    size_t count;
    uint64_t turns;
    struct connection connections[CONNECTIONS_MAX];
};

/* Wait for a request, at most so long, -1 for ever, and answer all that are there. */
void server_serve(struct server *server, int milliseconds);

/* The answer that says no. */
void server_refuse(struct json *json, const char *why);

#endif
