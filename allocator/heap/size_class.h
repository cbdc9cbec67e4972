/* Size classes: which block size serves a request.
 *
 * Every 16 bytes up to 256, then eight per doubling up to 32 KiB, so that rounding wastes at most a ninth of a
 * block. All are multiples of 16, the alignment that malloc promises.
 *
 *     class      0   1 …  15    16   17 …   23    24 …          71
 *     bytes     16  32 … 256   288  320 …  512   576 …       32768
 */
#ifndef HEAPFIT_SIZE_CLASS_H
#define HEAPFIT_SIZE_CLASS_H

#include <stddef.h>
#include <stdint.h>

enum {
    MALLOC_ALIGNMENT = 16,
    LINEAR_CLASSES = 16, /* up to LINEAR_MAX, one every 16 bytes */
    LINEAR_MAX = LINEAR_CLASSES * MALLOC_ALIGNMENT,
    CLASSES_PER_DOUBLING_LOG2 = 3,
    CLASSES_PER_DOUBLING = 1 << CLASSES_PER_DOUBLING_LOG2,
    DOUBLINGS = 7,
    BIN_COUNT = LINEAR_CLASSES + DOUBLINGS * CLASSES_PER_DOUBLING,
    SMALL_MAX = LINEAR_MAX << DOUBLINGS, /* 32 KiB: larger objects have spans of their own */
    FAST_MAX = 1024,                     /* up to here the class is one look-up away */
};

/* Class of a request of `size` bytes, indexed by (size + 15) / 16, for size <= FAST_MAX. */
extern const uint8_t size_class_table[FAST_MAX / MALLOC_ALIGNMENT + 1];

static inline unsigned size_class_fast(size_t size)
{
    return size_class_table[(size + MALLOC_ALIGNMENT - 1) / MALLOC_ALIGNMENT];
}

/* The same for LINEAR_MAX < size <= SMALL_MAX, by arithmetic: the position of the highest bit of size-1 gives
 * the doubling, the three bits below it the step. */
static inline unsigned size_class_computed(size_t size)
{
    size_t last = size - 1;
    unsigned bit = 63 - (unsigned)__builtin_clzl(last);
    unsigned step = (unsigned)(last >> (bit - CLASSES_PER_DOUBLING_LOG2)) & (CLASSES_PER_DOUBLING - 1);
    return LINEAR_CLASSES + (bit - 8) * CLASSES_PER_DOUBLING + step; /* 8 = log2(LINEAR_MAX) */
}

static inline unsigned size_class(size_t size)
{
    return size <= FAST_MAX ? size_class_fast(size) : size_class_computed(size);
}

/* Bytes of a block of this class. */
static inline uint32_t size_class_bytes(unsigned bin)
{
    if (bin < LINEAR_CLASSES) return (bin + 1) * MALLOC_ALIGNMENT;
    unsigned doubling = (bin - LINEAR_CLASSES) / CLASSES_PER_DOUBLING;
    unsigned step = (bin - LINEAR_CLASSES) % CLASSES_PER_DOUBLING;
    return (uint32_t)(CLASSES_PER_DOUBLING + step + 1) << (doubling + 8 - CLASSES_PER_DOUBLING_LOG2);
}

/* The first class from `bin` on whose blocks fill whole cache lines of `line` bytes. Above 512 bytes each does so for 64. */
static inline unsigned size_class_of_lines(unsigned bin, uint32_t line)
{
    while (size_class_bytes(bin) % line != 0) bin++;
    return bin;
}

#endif
