/* What do huge pages save a program that reads all over a large block?
 *
 * One block is allocated, a word is written at places of equal distance, and the places are read in turn or in random
 * order, many times. The distance is more than a page of the ordinary size, so that each read needs another entry of
 * the processor's cache of address translations (TLB), which covers little with such pages: the micro-benchmark of
 * Reddy, Iyer and Chakravarthi, "How to tune malloc to optimize serving side applications", section 4.4, table 5.
 *
 * The block comes from malloc or, for what an allocator could reach at best, from the kernel, without huge pages and
 * with them. Only the reads are timed: to get the pages is another matter.
 */
#include "micro.h"

static uint64_t footprint = 320u << 20, stride = 5000, reads = 300000000, in_order = 0, source = 0;

enum { SOURCE_MALLOC, SOURCE_SMALL_PAGES, SOURCE_HUGE_PAGES, SOURCES };
enum { HUGE_PAGE = 2 << 20 };

/* Memory of the kernel's, from where a huge page begins. */
static char *mapped(int advice)
{
    size_t size = footprint + HUGE_PAGE;
    uintptr_t start = ((uintptr_t)micro_map(size) + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    /* A kernel without huge pages has nothing to advise. What came of it is printed. */
    (void)madvise((void *)start, size - HUGE_PAGE, advice);
    return (char *)start;
}

static char *block_of_source(void)
{
    switch (source) {
    case SOURCE_SMALL_PAGES:
        return mapped(MADV_NOHUGEPAGE);
    case SOURCE_HUGE_PAGES:
        return mapped(MADV_HUGEPAGE);
    default:
        return block_accept(malloc(footprint), footprint);
    }
}

static uint64_t tag_at(uint64_t place)
{
    return micro_mix(micro_seed ^ place << 8);
}

/* Both orders add up what they read, so that no read can be left out. */
static uint64_t read_in_order(const char *block, uint64_t places)
{
    uint64_t sum = 0, place = 0;
    for (uint64_t i = 0; i < reads; i++) {
        uint64_t word;
        memcpy(&word, block + place * stride, sizeof word);
        sum += word;
        place = place + 1 == places ? 0 : place + 1;
    }
    return sum;
}

static uint64_t read_at_random(const char *block, uint64_t places)
{
    micro_random random = micro_random_start(0);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < reads; i++) {
        uint64_t word;
        memcpy(&word, block + micro_below(&random, places) * stride, sizeof word);
        sum += word;
    }
    return sum;
}

static void check_places(const char *block, uint64_t places)
{
    for (uint64_t place = 0; place < places; place++) {
        uint64_t word;
        memcpy(&word, block + place * stride, sizeof word);
        if (word != tag_at(place)) micro_fail("the word at %" PRIu64 " was overwritten", place * stride);
    }
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what do huge pages save a program that reads all over a large block?",
                (micro_option[]){{"footprint", &footprint, false, "bytes that are read all over"},
                                 {"stride", &stride, false, "bytes from one place to the next"},
                                 {"reads", &reads, true, "of a word each"},
                                 {"in-order", &in_order, false, "1: place after place, 0: at random"},
                                 {"source", &source, false, "0: malloc, 1: small pages of the kernel's, 2: huge ones"},
                                 {0}});
    micro_require(stride >= 8 && footprint >= stride && source < SOURCES, "8 <= stride <= footprint, source 0 to 2");
    char *block = block_of_source();
    uint64_t places = footprint / stride;
    for (uint64_t place = 0; place < places; place++) {
        uint64_t tag = tag_at(place);
        memcpy(block + place * stride, &tag, sizeof tag);
    }
    double start = micro_now();
    uint64_t digest = in_order ? read_in_order(block, places) : read_at_random(block, places);
    double seconds = micro_now() - start;
    check_places(block, places);
    printf("huge_bytes: %" PRIu64 "\n", micro_smaps("AnonHugePages:") + micro_smaps("Private_Hugetlb:"));
    printf("read_ns: %.3f\n", seconds / (double)reads * 1e9);
    return micro_report(reads, seconds, digest);
}
