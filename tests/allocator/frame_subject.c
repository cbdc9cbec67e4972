/* Functions with frames of many shapes, each of which calls on: compiled several times, with the optimisation that its
 * name in the build says, under names that begin with SUBJECT. Whoever calls SUBJECT_run gets its `probe` called from the
 * innermost of them. */
#include <stdlib.h>
#include <string.h>

#define PASTE(a, b) a##_##b
#define NAME(a, b) PASTE(a, b)
#define FUNCTION(name) NAME(SUBJECT, name)

/* Not to be merged into its caller. What follows the call of the next keeps that from being a jump. */
#if __has_attribute(noclone)
#define FRAME __attribute__((noinline, noclone))
#else
#define FRAME __attribute__((noinline))
#endif

void FUNCTION(run)(void (*probe)(void), unsigned seed);

static volatile unsigned sink;

FRAME static void plain(void (*probe)(void), unsigned seed)
{
    probe();
    sink += seed;
}

/* More arguments than there are registers for: some are pushed for the call. */
FRAME static unsigned many_arguments(void (*probe)(void), unsigned a, unsigned b, unsigned c, unsigned d, unsigned e,
                                     unsigned f, unsigned g, unsigned h)
{
    plain(probe, a + b);
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
}

FRAME static void pushes(void (*probe)(void), unsigned seed)
{
    sink += many_arguments(probe, seed, seed + 1, seed + 2, seed + 3, sink, sink + 1, sink * 2, seed * 3);
}

/* All callee-saved registers, the frame pointer's among them. */
FRAME static void registers(void (*probe)(void), unsigned seed)
{
    unsigned a = sink, b = sink, c = sink, d = sink, e = sink, f = sink, g = sink;
    pushes(probe, seed);
    sink += a * b + c * d + e * f + g;
}

FRAME static void large_frame(void (*probe)(void), unsigned seed)
{
    volatile char array[50000];
    array[seed % sizeof array] = 1;
    registers(probe, seed);
    sink += array[seed % sizeof array];
}

/* The stack pointer moves by a number that no table can tell. */
FRAME static void variable_frame(void (*probe)(void), unsigned seed)
{
    volatile char array[seed % 1000 + 1];
    array[seed % 1000] = 1;
    large_frame(probe, seed);
    sink += array[seed % 1000];
}

/* A piece of it may be put elsewhere as unlikely, with an entry of its own. */
FRAME static void unlikely(void (*probe)(void), unsigned seed)
{
    if (__builtin_expect(seed != 0, 0)) {
        variable_frame(probe, seed);
        sink += seed;
    }
    sink++;
}

FRAME static unsigned recursive(void (*probe)(void), unsigned seed, unsigned depth)
{
    if (depth == 0) unlikely(probe, seed);
    else sink += recursive(probe, seed, depth - 1);
    return seed;
}

static void (*compare_probe)(void);

static int compare(const void *a, const void *b)
{
    if (compare_probe != NULL) recursive(compare_probe, 7, 3);
    compare_probe = NULL;
    return *(const char *)a - *(const char *)b;
}

/* Out of the C library. */
FRAME static void by_callback(void (*probe)(void), unsigned seed)
{
    char letters[] = "frames";
    compare_probe = probe;
    qsort(letters, sizeof letters - 1, 1, compare);
    sink += (unsigned)letters[seed % 5];
}

void FUNCTION(run)(void (*probe)(void), unsigned seed)
{
    recursive(probe, seed, 5);
    by_callback(probe, seed);
    sink++;
}
