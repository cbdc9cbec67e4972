/* A cache of which most entries expire: those that stay keep the heap from shrinking. */
#include "ready.h"

int main(void)
{
    enum { ENTRIES = 500000 };
    static char *entries[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) {
        size_t size = 100 + (size_t)i * 31 % 600;
        entries[i] = memset(malloc(size), 'x', size);
    }
    for (int i = 0; i < ENTRIES; i++)
        if (i % 12) free(entries[i]);
    ready();
}
