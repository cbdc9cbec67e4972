/* A running program whose calls of malloc do not all go the same way: to be attached to, and to end well.
 *
 *     attached_scopes stub             it is linked to a fixed address and takes malloc's: all others then see a stub of its own
 *     attached_scopes plugin LIBRARY   it has loaded a library with a scope of its own (RTLD_DEEPBIND)
 *     attached_scopes mappings COUNT   it has so many mappings below its libraries
 *
 * Reads a number and allocates as many blocks of BLOCK bytes, then says "done", until there is nothing to read. */
#include "system.h"

enum { BLOCK = 12345 };

typedef void work(void);

static void *(*volatile allocate)(size_t) = NULL;
static work *plugin_begins, *plugin_ends;

static void load(const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == NULL) {
        puts(dlerror());
        exit(1);
    }
    *(void **)&plugin_begins = dlsym(library, "plugin_begins");
    *(void **)&plugin_ends = dlsym(library, "plugin_ends");
    plugin_begins();
}

/* Each second page can be written, so that no two are one. */
static void map(long count)
{
    size_t page = 4096;
    char *start = mmap((void *)0x10000000, (size_t)count * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < count; i += 2) mprotect(start + i * page, page, PROT_READ | PROT_WRITE);
}

int main(int count, char **arguments)
{
    long blocks;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(arguments[1], "stub") == 0) allocate = malloc;
    if (strcmp(arguments[1], "plugin") == 0 && count > 2) load(arguments[2]);
    if (strcmp(arguments[1], "mappings") == 0 && count > 2) map(strtol(arguments[2], NULL, 10));
    puts("ready");
    while (scanf("%ld", &blocks) == 1) {
        for (long i = 0; i < blocks; i++) free(i % 2 && allocate != NULL ? allocate(BLOCK) : malloc(BLOCK));
        puts("done");
    }
    if (plugin_ends != NULL) plugin_ends();
    puts("right");
    return 0;
}
