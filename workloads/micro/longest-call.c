/* How long does the longest call take while much memory waits to go back?
 *
 * Fills `heap` bytes with blocks of 4 KiB to 1 MiB and frees them all. Then, for `milliseconds`, it
 * allocates and frees blocks of 16 bytes to 16 KiB, of which it holds some, and times each call: an
 * allocator that gives the memory back from within a call makes that call wait. The same clock is read
 * as often with nothing in between, which says what the machine adds. Times of calls are wall time.
 */
#include "micro.h"

static uint64_t heap = (uint64_t)8 << 30, milliseconds = 4000, held = 4096;

enum { LARGEST_LOG2 = 20, BUCKETS = 64 * 8 };

/* Durations in ns, counted in eighths of a power of two. */
typedef struct {
    uint64_t counts[BUCKETS], total, longest;
} durations;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void add(durations *all, uint64_t ns)
{
    unsigned power = ns < 8 ? 3 : 63 - (unsigned)__builtin_clzll(ns);
    all->counts[power * 8 + (ns >> (power - 3) & 7)]++;
    all->total++;
    if (ns > all->longest) all->longest = ns;
}

/* What all but `beyond` of them stay below, in ns. */
static uint64_t below(const durations *all, uint64_t beyond)
{
    uint64_t left = all->total;
    unsigned bucket = 0;
    for (; bucket < BUCKETS - 1 && left > beyond; bucket++) left -= all->counts[bucket];
    uint64_t bound = (uint64_t)(8 + bucket % 8) << (bucket / 8) >> 3;
    return bound < all->longest ? bound : all->longest;
}

static uint64_t fill_and_free(micro_random *random)
{
    size_t most = heap / 4096;
    micro_slot *slots = micro_map(most * sizeof *slots);
    size_t count = 0;
    for (uint64_t bytes = 0; bytes < heap; bytes += slots[count++].size)
        slot_fill(&slots[count], micro_log_uniform(random, 12, LARGEST_LOG2), micro_next(random));
    uint64_t digest = slots_clear(slots, count);
    munmap(slots, most * sizeof *slots);
    return digest;
}

static void print(const char *name, const durations *all)
{
    printf("%s_longest_us: %.1f\n", name, (double)all->longest / 1e3);
    printf("%s_all_but_10_us: %.1f\n", name, (double)below(all, 10) / 1e3);
    printf("%s_all_but_one_in_10000_us: %.3f\n", name, (double)below(all, all->total / 10000) / 1e3);
}

int main(int argc, char **argv)
{
    static durations calls, nothing;
    micro_parse(argc, argv, "how long does the longest call take while much memory waits to go back?",
                (micro_option[]){{"heap", &heap, false, "bytes that are allocated and freed first"},
                                 {"milliseconds", &milliseconds, false, "of timed calls"},
                                 {"held", &held, false, "blocks that live meanwhile"},
                                 {0}});
    micro_require(heap >= 1 << 20 && held >= 1, "a heap of at least 1m, and something held");
    setvbuf(stdout, NULL, _IONBF, 0); /* its buffer would come from the allocator */
    micro_random random = micro_random_start(0);
    uint64_t digest = fill_and_free(&random);
    micro_slot *slots = micro_map(held * sizeof *slots);
    double start = micro_now();
    for (uint64_t now = now_ns(), end = now + milliseconds * 1000000; now < end;) {
        micro_slot *slot = &slots[micro_below(&random, held)];
        if (slot->block) digest += block_check(slot->block, slot->size);
        size_t size = micro_log_uniform(&random, 4, 14);
        uint64_t before = now_ns();
        free(slot->block);
        uint64_t freed = now_ns();
        slot->block = malloc(size);
        uint64_t allocated = now_ns();
        now = now_ns();
        add(&calls, freed - before);
        add(&calls, allocated - freed);
        add(&nothing, now - allocated);
        slot->size = size;
        block_write(block_accept(slot->block, size), size, micro_next(&random));
    }
    digest += slots_clear(slots, held);
    print("call", &calls);
    print("nothing", &nothing);
    return micro_report(calls.total, micro_now() - start, digest);
}
