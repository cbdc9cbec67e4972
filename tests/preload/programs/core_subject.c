/* Holds objects of all sizes, says where each is and what it holds, and waits to be looked at. */
#include "system.h"

static char *hold(size_t size, const char *text)
{
    char *object = malloc(size);
    if (object == NULL) exit(1);
    memset(object, 'x', size);
    snprintf(object + size - 64, 64, "%s", text); /* at its end, which became accessible last */
    printf("%p %s\n", (void *)(object + size - 64), text);
    return object;
}

static void *hold_in_thread(void *argument)
{
    hold(300, "an object of another thread");
    return argument;
}

int main(void)
{
    pthread_t thread;
    hold(100, "a small object");
    hold(30000, "an object of some pages");
    free(hold(30000, "a freed object of some pages")); /* the other block of its span is held */
    hold(1 << 20, "a large object");
    hold(40000, "a large object that does not fill its span");
    free(hold(200, "a freed object"));
    if (pthread_create(&thread, NULL, hold_in_thread, NULL) != 0) return 1;
    pthread_join(thread, NULL);
    for (int i = 0; i < 12; i++) hold(3 << 20, "one of those for which the heap has grown");
    free(hold(200000, "a freed large object"));
    fflush(stdout);
    getchar();
    return 0;
}
