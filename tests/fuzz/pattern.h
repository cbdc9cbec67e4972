/* What the fuzz targets of calls share: every live object carries a pattern, checked before it is resized or freed. */
#ifndef HEAPFIT_FUZZ_PATTERN_H
#define HEAPFIT_FUZZ_PATTERN_H

#include "heap/size_class.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stops the fuzzer, which keeps the input. */
static inline void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

enum { PATTERN_SAMPLE = 4093 }; /* prime: no two pages at the same offset */

/* All of a small object; of a large one a byte in every page or so, and the last. */
static inline size_t pattern_step(size_t size)
{
    return size <= SMALL_MAX ? 1 : PATTERN_SAMPLE;
}

static inline void pattern_fill(unsigned char *object, size_t size, unsigned char pattern)
{
    size_t step = pattern_step(size);
    if (step == 1) memset(object, pattern, size);
    else
        for (size_t i = 0; i < size; i += step) object[i] = pattern;
    if (size > 0) object[size - 1] = pattern;
}

/* `kept` of `size` bytes still carry the pattern. */
static inline void pattern_check(const unsigned char *object, size_t size, size_t kept, unsigned char pattern)
{
    size_t step = pattern_step(size);
    for (size_t i = 0; i < kept; i += step) require(object[i] == pattern, "an object was overwritten");
    if (kept == size && size > 0) require(object[size - 1] == pattern, "an object's end was overwritten");
}

#endif
