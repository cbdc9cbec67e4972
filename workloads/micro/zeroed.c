/* Does an allocator clear memory that is clear already?
 *
 * Holds blocks of 16 bytes to 1 MiB made by calloc and replaces a random one at each step; each block
 * is found zero and then written to. Memory fresh from the kernel needs no clearing, memory that was
 * used does: compare the time with what memset of the same bytes would take. The cost of zeroing is
 * the subject of Yang, Blackburn, Frampton, Sartor and McKinley, "Why nothing matters: the impact of
 * zeroing" (OOPSLA 2011).
 */
#include "micro.h"

static uint64_t operations = 120000, slots = 2000, smallest = 4, largest = 20;

/* One block in this many is looked at whole, the others in the places that block_write writes to. */
enum { WHOLE = 64 };

static void require_zero(const unsigned char *bytes, size_t size, bool whole)
{
    size_t step = whole ? 1 : size < MICRO_PAGE ? MICRO_CACHE_LINE : MICRO_PAGE;
    unsigned char found = bytes[size - 1];
    for (size_t at = 0; at < size; at += step) found |= bytes[at];
    if (found) micro_fail("block %p of %zu bytes from calloc is not zero", (const void *)bytes, size);
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "does an allocator clear memory that is clear already?",
                (micro_option[]){{"operations", &operations, true, "blocks allocated"},
                                 {"slots", &slots, false, "blocks that live"},
                                 {"smallest", &smallest, false, "size, as a power of two"},
                                 {"largest", &largest, false, "size, as a power of two"},
                                 {0}});
    micro_require(slots > 0 && smallest >= 4 && smallest < largest && largest <= 31, "4 <= smallest < largest <= 31");
    micro_slot *held = micro_map(slots * sizeof *held);
    micro_random random = micro_random_start(0);
    uint64_t digest = 0;
    double start = micro_now();
    for (uint64_t i = 0; i < operations; i++) {
        micro_slot *slot = &held[micro_below(&random, slots)];
        digest += slot_clear(slot);
        slot->size = micro_log_uniform(&random, (unsigned)smallest, (unsigned)largest);
        slot->block = block_accept(calloc(1, slot->size), slot->size);
        require_zero(slot->block, slot->size, i % WHOLE == 0);
        block_write(slot->block, slot->size, micro_next(&random));
    }
    digest += slots_clear(held, slots);
    return micro_report(operations, micro_now() - start, digest);
}
