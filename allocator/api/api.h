/* api/: what programs call: heapfit.h, the malloc family, C++ new and delete, options, statistics. */
#ifndef HEAPFIT_API_H
#define HEAPFIT_API_H

#include "../heap/fast.h"

/* Everything else in the library is hidden. */
#define EXPORT __attribute__((visibility("default")))

/* Free an object whose size the program states, and abort when it cannot be true. */
ALWAYS_INLINE void api_free_sized(void *pointer, size_t size)
{
    if (UNLIKELY(pointer != NULL && size > heap_usable_size(pointer)))
        check_size_failed(pointer, size, heap_usable_size(pointer));
    heap_free(pointer);
}

#endif
