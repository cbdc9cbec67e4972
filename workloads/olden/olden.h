/* What the Olden programs share beyond what all small programs of ours do (micro.h: command line, random numbers,
 * report).
 *
 * Each program builds its data structure, as the published one does, object by object with malloc, works on it,
 * checks its own answer and prints it with a digest. Both depend on the arguments alone: an address is never
 * hashed, compared or printed. Objects live to the end of the program unless the published one drops them.
 */
#ifndef OLDEN_H
#define OLDEN_H

#include "../micro/micro.h"

/* A new object. Always inlined: each place that makes objects stays a call site of malloc of its own. */
__attribute__((always_inline)) static inline void *olden_new(size_t size)
{
    return block_accept(malloc(size), size);
}

/* A digest of a sequence of words: another order is another digest. */
static inline uint64_t olden_fold(uint64_t digest, uint64_t word)
{
    return micro_mix(digest + word);
}

static inline uint64_t olden_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#endif
