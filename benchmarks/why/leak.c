/* A leak: requests are answered, and what each keeps is forgotten. `leak MIB` */
#include "ready.h"

struct request {
    char *path, *body;
};

int main(int count, char **arguments)
{
    size_t much = count > 1 ? (size_t)atoi(arguments[1]) * MIB : MUCH;
    for (size_t had = 0, i = 0; had < much; i++) {
        struct request *request = malloc(sizeof *request);
        size_t size = 40 + i * 7919 % 1500;
        request->path = strdup("/a/path/of/some/length");
        request->body = memset(malloc(size), 'x', size);
        had += sizeof *request + 24 + size;
    }
    ready();
}
