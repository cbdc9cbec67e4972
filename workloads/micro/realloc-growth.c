/* What does it cost to grow: vectors by half their capacity, strings by a few bytes at a time?
 *
 * Many vectors and strings grow side by side, a random one at each step. A vector appends a record and
 * calls realloc for half as much again when it is full, as growing arrays do; a string calls realloc
 * for its exact new length at every append, as careless programs do. One that has reached its limit is
 * checked and freed, and another begins. On growth by a constant factor see Brodnik et al., "Resizable
 * arrays in optimal time and space" (WADS 1999); on realloc, Wilson et al. (IWMM 1995).
 */
#include "micro.h"

static uint64_t operations = 20000000, vectors = 256, strings = 4096;

enum { RECORD = 32, FIRST_CAPACITY = 64 };
enum { VECTOR_LIMIT_LOW = 6, VECTOR_LIMIT_HIGH = 21, STRING_LIMIT_LOW = 4, STRING_LIMIT_HIGH = 10 }; /* powers of 2 */

typedef struct {
    unsigned char *bytes;
    size_t length, capacity, limit;
    uint64_t tag; /* every byte written is made from the tag and its place */
} growing;

static unsigned char byte_at(const growing *own, size_t at)
{
    return (unsigned char)(own->tag + at * 0x9du);
}

/* Verifies a byte of every cache line and the last one, and frees. */
static uint64_t retire(growing *own)
{
    if (!own->bytes) return 0;
    for (size_t at = 0; at < own->length;
         at = at + MICRO_CACHE_LINE < own->length ? at + MICRO_CACHE_LINE : own->length)
        if (own->bytes[at] != byte_at(own, at))
            micro_fail("byte %zu of %p was lost while its block grew", at, (void *)own->bytes);
    if (own->bytes[own->length - 1] != byte_at(own, own->length - 1))
        micro_fail("the last byte of %p was lost while its block grew", (void *)own->bytes);
    uint64_t digest = own->tag + own->length;
    free(own->bytes);
    *own = (growing){0};
    return digest;
}

static void reserve(growing *own, size_t capacity)
{
    own->bytes = block_accept(realloc(own->bytes, capacity), capacity);
    own->capacity = capacity;
}

static void append(growing *own, size_t count)
{
    for (size_t i = 0; i < count; i++, own->length++) own->bytes[own->length] = byte_at(own, own->length);
}

static uint64_t step_vector(growing *own, micro_random *random)
{
    uint64_t digest = own->length + RECORD > own->limit ? retire(own) : 0;
    if (!own->bytes) {
        own->tag = micro_next(random);
        own->limit = micro_log_uniform(random, VECTOR_LIMIT_LOW, VECTOR_LIMIT_HIGH);
        reserve(own, FIRST_CAPACITY);
    } else if (own->length + RECORD > own->capacity) {
        reserve(own, own->capacity + own->capacity / 2);
    }
    append(own, RECORD);
    return digest;
}

static uint64_t step_string(growing *own, micro_random *random)
{
    size_t count = micro_between(random, 1, 16);
    uint64_t digest = own->length + count > own->limit ? retire(own) : 0;
    if (!own->bytes) {
        own->tag = micro_next(random);
        own->limit = micro_log_uniform(random, STRING_LIMIT_LOW, STRING_LIMIT_HIGH);
    }
    reserve(own, own->length + count);
    append(own, count);
    return digest;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does it cost to grow, by half or by a few bytes at a time?",
                (micro_option[]){{"operations", &operations, true, "appends, half of them to strings"},
                                 {"vectors", &vectors, false, "that grow side by side, to 2 MiB at most"},
                                 {"strings", &strings, false, "that grow side by side, to 1 KiB at most"},
                                 {0}});
    micro_require(vectors > 0 && strings > 0, "a vector and a string at least");
    growing *all = micro_map((vectors + strings) * sizeof *all);
    micro_random random = micro_random_start(0);
    uint64_t digest = 0;
    double start = micro_now();
    for (uint64_t i = 0; i < operations; i += 2) {
        digest += step_vector(&all[micro_below(&random, vectors)], &random);
        digest += step_string(&all[vectors + micro_below(&random, strings)], &random);
    }
    for (uint64_t i = 0; i < vectors + strings; i++) digest += retire(&all[i]);
    return micro_report(operations, micro_now() - start, digest);
}
