/* A table that the program was compiled with room for. */
#include "ready.h"

static long table[24 * MIB];

int main(void)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) table[i] = (long)i;
    ready();
    return table[7] != 7;
}
