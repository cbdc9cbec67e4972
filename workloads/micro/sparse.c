/* Does an allocator give back memory that is free, when few objects are left scattered over it?
 *
 * Allocates `peak` bytes of mixed small blocks and frees all but a random one in `keep`. From then on
 * the program is nearly idle: a malloc and a free every 10 ms, or none at all (--asleep 1). Its resident memory is printed at once,
 * after 0.5, 1 and 2 s. Nearly every page is free, but hardly any larger unit is free as a whole. This
 * is what remains of a load peak in a long-running server; see Powers, Tench, Berger and McGregor,
 * "Mesh: compacting memory management for C/C++ applications" (PLDI 2019), and Maas et al.,
 * "Learning-based memory allocation for C++ server workloads" (ASPLOS 2020). The goal is stated for
 * --peak 2g; the default is smaller.
 */
#include "micro.h"

static uint64_t peak = 256 << 20, keep = 4096, asleep = 0, smallest = 16, largest = 1024;

/* The program's own tables are unmapped before memory is measured, but for the survivors'. */
static void **survivors;
static size_t survivor_count;
static uint64_t live, digest;

/* Small sizes are as many as in programs: the power of two is drawn first. */
static size_t draw_size(micro_random *random)
{
    size_t size = micro_log_uniform(random, 4, 10);
    return size < smallest ? smallest : size > largest ? largest : size;
}

static uint64_t rise(void **blocks, micro_random *random)
{
    uint64_t count = 0, bytes = 0;
    while (bytes < peak) {
        size_t size = draw_size(random);
        blocks[count++] = tagged_new(size, random);
        bytes += size;
    }
    return count;
}

static void fall(void **blocks, size_t count, micro_random *random)
{
    for (size_t i = 0; i < count; i++) {
        if (micro_below(random, keep) == 0) {
            live += tagged_size(blocks[i]);
            survivors[survivor_count++] = blocks[i];
        } else {
            digest += tagged_free(blocks[i]);
        }
    }
}

static void rise_and_fall(void)
{
    micro_random random = micro_random_start(0);
    size_t most = peak / smallest + 1;
    void **blocks = micro_map(most * sizeof *blocks); /* its unused part is never touched */
    survivors = micro_map(most * sizeof *survivors);
    uint64_t count = rise(blocks, &random);
    printf("peak_resident_bytes: %" PRIu64 "\n", micro_resident() - count * sizeof *blocks);
    fall(blocks, count, &random);
    munmap(blocks, most * sizeof *blocks);
}

static void idle_until(double when)
{
    while (micro_now() < when) {
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
        if (asleep) continue;
        digest += block_free(block_new(smallest, micro_seed), smallest) - micro_seed;
    }
}

int main(int argc, char **argv)
{
    static const struct {
        double seconds;
        const char *name;
    } moments[] = {{0, "0"}, {0.5, "500"}, {1, "1000"}, {2, "2000"}};
    micro_parse(argc, argv, "does an allocator give back memory when few objects are left?",
                (micro_option[]){{"peak", &peak, true, "live bytes before nearly all are freed"},
                                 {"keep", &keep, false, "one block in so many survives"},
                                 {"asleep", &asleep, false, "1: calls nothing while it waits"},
                                 {"smallest", &smallest, false, "size, in bytes"},
                                 {"largest", &largest, false, "size, in bytes, at most 1024"},
                                 {0}});
    micro_require(smallest >= 8 && smallest <= largest && largest <= 1024 && keep > 0,
                  "8 <= smallest <= largest <= 1024");
    setvbuf(stdout, NULL, _IONBF, 0); /* its buffer would come from the allocator */
    rise_and_fall();
    double start = micro_now();
    for (size_t i = 0; i < MICRO_COUNT(moments); i++) {
        idle_until(start + moments[i].seconds);
        printf("resident_bytes_after_%s_ms: %" PRIu64 "\n", moments[i].name, micro_resident());
    }
    printf("live_bytes: %" PRIu64 "\n", live);
    uint64_t left = survivor_count;
    while (survivor_count) digest += tagged_free(survivors[--survivor_count]);
    return micro_report(left, micro_now() - start, digest);
}
