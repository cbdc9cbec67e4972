// How libheapfit-hardened starts, by its internal names.

#include "heap_internals.h"
#include "system.h"

// In a fork's child whose parent had another thread in the middle of the start.
TEST(HardenedStart, MayBeBegunAgain)
{
    void *object = heap_malloc(100);
    hardened_start(); // the secrets stay what they are, in a page that can only be read
    heap_free(object);
}
