/* A table that is hardly filled, in huge pages: each entry brings 2 MiB along. */
#include "ready.h"

int main(void)
{
    char *table = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(table, MUCH, MADV_HUGEPAGE);
    for (size_t i = 0; i < MUCH; i += 64 * KIB) strcpy(table + i, "an entry");
    ready();
}
