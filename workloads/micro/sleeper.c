/* What does an allocator cost a program that hardly uses it?
 *
 * Allocates one small block, sleeps, and prints its resident memory. Every process of a machine pays
 * this: shells, helpers, sidecars. Start-up footprint is a figure that allocator papers rarely give; an
 * exception is Leijen, Zorn and de Moura, "Mimalloc" (APLAS 2019), section 4, on small programs.
 */
#include "micro.h"

static uint64_t milliseconds = 100, size = 100;

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does an allocator cost a program that hardly uses it?",
                (micro_option[]){{"milliseconds", &milliseconds, true, "to sleep"},
                                 {"size", &size, false, "of the one block, in bytes"},
                                 {0}});
    micro_require(size >= 8, "size is at least 8");
    setvbuf(stdout, NULL, _IONBF, 0); /* its buffer would be a second block */
    double start = micro_now();
    void *block = block_new(size, micro_seed);
    nanosleep(&(struct timespec){(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000}, NULL);
    printf("resident_bytes: %" PRIu64 "\n", micro_resident());
    uint64_t digest = block_free(block, size);
    return micro_report(1, micro_now() - start, digest);
}
