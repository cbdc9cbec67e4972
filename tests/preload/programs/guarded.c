/* Makes one kind of mistake with small objects, again and again, as a service does that is asked the same thing: most do no harm
 * that shows. Ends by itself when none is noticed. */
#include "system.h"

enum { REQUESTS = 2000000, NAME = 48 };

volatile char sink;

__attribute__((noinline)) char *make_name(size_t size)
{
    char *name = malloc(size);
    if (name == NULL) exit(2);
    memset(name, 'x', size);
    return name;
}

__attribute__((noinline)) void drop_name(char *name)
{
    free(name);
}

__attribute__((noinline)) void read_beyond(const char *name)
{
    sink = name[NAME];
}

__attribute__((noinline)) void read_before(const char *name)
{
    sink = name[-1];
}

__attribute__((noinline)) void read_freed(const char *name)
{
    sink = name[7];
}

/* One byte too many: it falls into what alignment leaves, where nobody is harmed. */
__attribute__((noinline)) void write_beyond(char *name)
{
    name[NAME - 8] = '\0';
}

static void *drop_in_thread(void *name)
{
    drop_name(name);
    return NULL;
}

static void request(const char *kind)
{
    char *name = make_name(strcmp(kind, "off_by_one") == 0 ? NAME - 8 : NAME);
    if (strcmp(kind, "overflow") == 0) read_beyond(name);
    if (strcmp(kind, "underflow") == 0) read_before(name);
    if (strcmp(kind, "off_by_one") == 0) write_beyond(name);
    drop_name(name);
    if (strcmp(kind, "freed") == 0) read_freed(name);
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    for (int i = 0; i < REQUESTS; i++) {
        if (strcmp(argv[1], "thread") == 0) {
            pthread_t thread;
            char *name = make_name(NAME);
            if (pthread_create(&thread, NULL, drop_in_thread, name) != 0) return 2;
            pthread_join(thread, NULL);
            read_freed(name);
        } else {
            request(argv[1]);
        }
    }
    puts("nothing was noticed");
    return 0;
}
