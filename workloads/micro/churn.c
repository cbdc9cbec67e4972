/* How fast does a block of the same size come back, among many that live?
 *
 * Holds `live` blocks of one size and replaces a random one at each step; with no live block, plain
 * pairs of malloc and free. The oldest of allocator tests: it shows the fast path and, as the blocks
 * that are freed lie anywhere, the locality of the free lists. Follows the same-size loops of Grunwald,
 * Zorn and Henderson, "Improving the cache locality of memory allocation" (PLDI 1993), and of
 * Berger, McKinley, Blumofe and Wilson, "Hoard" (ASPLOS 2000, threadtest).
 */
#include "micro.h"

static uint64_t operations = 20000000, live = 100000, size = 64, threads = 1;

static void pairs(micro_worker *worker, micro_random *random)
{
    for (uint64_t i = 0; i < operations; i++) worker->digest += block_free(block_new(size, micro_next(random)), size);
}

static void replacements(micro_worker *worker, micro_random *random)
{
    void **blocks = micro_map(live * sizeof *blocks);
    for (uint64_t i = 0; i < live; i++) blocks[i] = block_new(size, micro_next(random));
    for (uint64_t i = 0; i < operations; i++) {
        void **slot = &blocks[micro_below(random, live)];
        worker->digest += block_free(*slot, size);
        *slot = block_new(size, micro_next(random));
    }
    for (uint64_t i = 0; i < live; i++) worker->digest += block_free(blocks[i], size);
}

static void *work(void *argument)
{
    micro_worker *worker = argument;
    micro_random random = micro_random_start(worker->index);
    if (live) replacements(worker, &random);
    else pairs(worker, &random);
    worker->operations = operations;
    return NULL;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "how fast does a block of the same size come back?",
                (micro_option[]){{"operations", &operations, true, "replacements, or pairs, per thread"},
                                 {"live", &live, false, "blocks held per thread; 0: pairs"},
                                 {"size", &size, false, "of every block, in bytes"},
                                 {"threads", &threads, false, "that do so, each on its own"},
                                 {0}});
    micro_require(size >= 8, "size is at least 8");
    double start = micro_now();
    micro_run(threads, work);
    return micro_report_workers(threads, micro_now() - start);
}
