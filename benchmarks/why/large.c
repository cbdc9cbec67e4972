/* Buffers of a few MiB each, which malloc maps one by one. */
#include "ready.h"

int main(void)
{
    for (size_t had = 0, size; had < MUCH; had += size) {
        size = (size_t)(2 + had / MIB % 5) * MIB;
        memset(malloc(size), 'x', size);
    }
    ready();
}
