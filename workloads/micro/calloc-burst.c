/* What does calloc pay for clearing, above malloc, and does somebody else pay it ahead of time?
 *
 * In each round `burst` blocks of `size` bytes are allocated, then read and written through where
 * `touch` is not 0, then freed; then the program does something else for `pause` microseconds. Odd
 * rounds use malloc, even ones calloc, so that both meet the same machine. Three times are printed, in
 * ns per block: of the malloc calls, of the calloc calls, and of each with the touching, which is when
 * memory that the kernel or another core has cleared is first fetched. The difference of the first two
 * is what a housekeeper can save that clears memory while the program does something else.
 *
 * The first tenth of the rounds is not timed. With touch 0 only the ends of each block are looked at.
 */
#include "micro.h"

static uint64_t size = 64 << 10, burst = 128, rounds = 200, pause_us = 10000, touch = 1;

enum kind { MALLOC, CALLOC, KINDS };

static struct {
    double calls, touched; /* seconds, of `touched` the calls are a part */
    uint64_t blocks;
} spent[KINDS];

static uint64_t digest;

static void require_zero(const unsigned char *block, size_t at)
{
    if (__builtin_expect(block[at] != 0, 0)) micro_fail("byte %zu of a block from calloc is not zero", at);
}

/* A word in every cache line, which is what decides how long it takes. */
static void use(unsigned char *block, enum kind kind, uint64_t tag)
{
    for (size_t at = 0; touch != 0 && at + sizeof tag <= size; at += MICRO_CACHE_LINE) {
        if (kind == CALLOC) require_zero(block, at);
        memcpy(block + at, &tag, sizeof tag);
    }
    if (kind == CALLOC) require_zero(block, size - 1);
    block_write(block, size, tag);
}

/* Outside what is timed, one block in a round is looked at whole before it is used. */
static void require_whole_zero(const unsigned char *block)
{
    for (size_t at = 0; at < size; at++) require_zero(block, at);
}

static void do_something_else(double until)
{
    while (micro_now() < until) continue;
}

static void round_of(enum kind kind, void **blocks, micro_random *random, bool timed)
{
    double start = micro_now();
    for (uint64_t i = 0; i < burst; i++) {
        blocks[i] = kind == CALLOC ? calloc(1, size) : malloc(size);
        block_accept(blocks[i], size);
    }
    double called = micro_now();
    if (kind == CALLOC) require_whole_zero(blocks[micro_below(random, burst)]);
    double checked = micro_now();
    for (uint64_t i = 0; i < burst; i++) use(blocks[i], kind, micro_next(random));
    double used = micro_now();
    for (uint64_t i = 0; i < burst; i++) digest += block_free(blocks[i], size);
    if (timed) {
        spent[kind].calls += called - start;
        spent[kind].touched += called - start + used - checked;
        spent[kind].blocks += burst;
    }
    do_something_else(micro_now() + (double)pause_us * 1e-6);
}

static double ns_per_block(double seconds, enum kind kind)
{
    return seconds * 1e9 / (double)spent[kind].blocks;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does calloc pay for clearing, above malloc?",
                (micro_option[]){{"rounds", &rounds, true, "bursts, half of them by calloc"},
                                 {"size", &size, false, "bytes of a block"},
                                 {"burst", &burst, false, "blocks allocated before the first is freed"},
                                 {"pause", &pause_us, false, "microseconds between two bursts"},
                                 {"touch", &touch, false, "whether the blocks are read and written through"},
                                 {0}});
    micro_require(size >= 16 && burst > 0 && burst < (uint64_t)1 << 32, "size >= 16 and burst > 0");
    void **blocks = micro_map(burst * sizeof *blocks);
    micro_random random = micro_random_start(0);
    rounds = rounds < 4 ? 4 : rounds;
    double start = micro_now();
    for (uint64_t i = 0; i < rounds; i++)
        round_of(i % 2 == 0 ? CALLOC : MALLOC, blocks, &random, i >= 2 && i >= rounds / 10);
    printf("malloc_ns: %.1f\n", ns_per_block(spent[MALLOC].calls, MALLOC));
    printf("calloc_ns: %.1f\n", ns_per_block(spent[CALLOC].calls, CALLOC));
    printf("malloc_and_touch_ns: %.1f\n", ns_per_block(spent[MALLOC].touched, MALLOC));
    printf("calloc_and_touch_ns: %.1f\n", ns_per_block(spent[CALLOC].touched, CALLOC));
    return micro_report(rounds * burst, micro_now() - start, digest);
}
