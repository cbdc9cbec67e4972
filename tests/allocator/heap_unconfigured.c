/* Stands where api/ would be when the layers below it are tested alone: no options. */
#include "heap/heap.h"

void heap_configure(void) {}
