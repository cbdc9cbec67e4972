/* Two plugins of one shape: OBJECT_BYTES says which. They lie at the same addresses, one after the other. */
#include <stdlib.h>
#include <string.h>

static __attribute__((noinline)) void *checked_malloc(size_t size)
{
    void *object = malloc(size);
    if (object == NULL) abort();
    return object;
}

__attribute__((noinline)) void *make_object(int fill)
{
    return memset(checked_malloc(OBJECT_BYTES), fill, OBJECT_BYTES);
}
