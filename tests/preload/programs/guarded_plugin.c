/* Allocates for a program that unloads it afterwards. */
#include <stdlib.h>

char *plugin_make(size_t size)
{
    char *volatile name = malloc(size);
    return name;
}
