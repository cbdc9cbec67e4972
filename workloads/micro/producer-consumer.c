/* Does memory come back when one thread allocates and another frees, and what does it cost?
 *
 * Each producer allocates small blocks of random sizes and sends them to its consumer, which frees
 * them: neither ever frees or allocates anything itself. The blocks under way are bounded, so memory
 * beyond that is blow-up in the sense of Berger, McKinley, Blumofe and Wilson, "Hoard" (ASPLOS 2000);
 * the loop is that of Lever and Boreham, "malloc() performance in a multithreaded Linux environment"
 * (USENIX 2000). With --blocks 100000000 it runs long enough to see a leak of a byte per block.
 */
#include "channel.h"

static uint64_t blocks = 8000000, smallest = 16, largest = 512, pairs = 1;

static void produce(micro_worker *worker, channel *out)
{
    micro_random random = micro_random_start(worker->index);
    for (uint64_t left = blocks; left;) {
        channel_basket *basket = channel_empty(out);
        basket->count = left < CHANNEL_BASKET ? left : CHANNEL_BASKET;
        for (size_t i = 0; i < basket->count; i++) {
            uint64_t tag = micro_next(&random);
            slot_fill(&basket->slots[i], micro_between(&random, smallest, largest), tag);
        }
        left -= basket->count;
        channel_send(out);
    }
}

static void consume(micro_worker *worker, channel *in)
{
    for (uint64_t left = blocks; left;) {
        channel_basket *basket = channel_full(in);
        worker->digest += slots_clear(basket->slots, basket->count);
        left -= basket->count;
        channel_done(in);
    }
    worker->operations = blocks;
}

/* Even workers produce for the odd worker after them. */
static void *work(void *argument)
{
    micro_worker *worker = argument;
    if (worker->index % 2 == 0) produce(worker, worker->own);
    else consume(worker, worker->own);
    return NULL;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "does memory come back when one thread allocates and another frees?",
                (micro_option[]){{"blocks", &blocks, true, "sent by each producer"},
                                 {"smallest", &smallest, false, "size, in bytes"},
                                 {"largest", &largest, false, "size, in bytes"},
                                 {"pairs", &pairs, false, "of a producer and a consumer"},
                                 {0}});
    micro_require(smallest >= 8 && smallest <= largest && pairs >= 1 && 2 * pairs <= MICRO_MAX_THREADS,
                  "8 <= smallest <= largest, and 1 to 512 pairs");
    for (uint64_t i = 0; i < pairs; i++) micro_workers[2 * i].own = micro_workers[2 * i + 1].own = channel_create();
    printf("live_bound_bytes: %" PRIu64 "\n", pairs * CHANNEL_BASKETS * CHANNEL_BASKET * (smallest + largest) / 2);
    double start = micro_now();
    micro_run(2 * pairs, work);
    return micro_report_workers(2 * pairs, micro_now() - start);
}
