/* Memory of the coder's, from malloc: what a trial of these programs is about. Without memory the
 * program says so and ends.
 */
#ifndef RANGE_MEMORY_H
#define RANGE_MEMORY_H

#include "failure.h"
#include <stdlib.h>

static inline void *memory_take(size_t size)
{
    void *block = malloc(size);
    if (!block) fail("no memory for %zu bytes", size);
    return block;
}

static inline void *memory_grow(void *block, size_t size)
{
    void *grown = realloc(block, size);
    if (!grown) fail("no memory for %zu bytes", size);
    return grown;
}

#endif
