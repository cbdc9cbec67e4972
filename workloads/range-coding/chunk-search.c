/* What does it cost a server to take a large block for each request, fill it, search it and drop it?
 *
 * `threads` threads work off `records` requests, about as ebizzy does, which stands for the back end of
 * a web application (Henson, 2006): each takes a chunk, copies one of the stored chunks into it, looks
 * random keys up by binary search, changes some of what it found, and frees the chunk. The stored chunks
 * hold rising keys, so what a search finds can be foretold and is checked.
 *
 * A request's random numbers depend on its own number only. Threads take requests one by one from a
 * shared counter: all end together, and the digest does not depend on who did what.
 */
#include "../micro/micro.h"
#include <stdatomic.h>

enum {
    STORED = 10, /* chunks, as in ebizzy */
    FEWEST_KEYS = 512,
    KEY_STEP = 16, /* between two neighbouring keys of a chunk; most numbers are no key */
    KEY_BITS = 8,  /* of a key that name its chunk; below them none, above them the rank */
};

static uint64_t threads = 2, chunk = 256 << 10, mebibytes = 16384, searches = 16;

static const uint64_t *stored[STORED];
static uint64_t records, keys; /* requests in all, keys in a chunk */
static _Alignas(2 * MICRO_CACHE_LINE) atomic_uint_fast64_t taken;

/* ------------------------------------------------------------------- chunks */

/* The key at `rank` of stored chunk `which`: each chunk has keys of its own. */
static uint64_t key_at(uint64_t which, uint64_t rank)
{
    return (rank * KEY_STEP << KEY_BITS) | which;
}

static void store_chunks(void)
{
    for (uint64_t which = 0; which < STORED; which++) {
        uint64_t *key = micro_map(chunk);
        for (uint64_t rank = 0; rank < keys; rank++) key[rank] = key_at(which, rank);
        stored[which] = key;
    }
}

/* The rank of the first key that is not below `wanted`; `keys` when all are. */
static uint64_t search(const uint64_t *copy, uint64_t wanted)
{
    uint64_t low = 0, high = keys;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (copy[middle] < wanted) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ----------------------------------------------------------------- requests */

/* One lookup of a key that is there or, as often, of a number just above it that is not. */
static uint64_t look_up(const uint64_t *copy, uint64_t which, micro_random *random)
{
    uint64_t rank = micro_below(random, keys), absent = micro_below(random, 2);
    uint64_t found = search(copy, key_at(which, rank) + absent);
    if (found != rank + absent)
        micro_fail("a search ended at %" PRIu64 " instead of %" PRIu64 ": the chunk was overwritten", found,
                   rank + absent);
    return found;
}

/* Writes to a random place as a server does that stores what it worked out, and takes it back: whoever
 * owns the same memory by mistake sees the chunk change, or changes it. */
static uint64_t change(uint64_t *copy, micro_random *random)
{
    uint64_t rank = micro_below(random, keys), before = copy[rank], value = micro_next(random);
    ((volatile uint64_t *)copy)[rank] = value;
    if (((volatile uint64_t *)copy)[rank] != value) micro_fail("what was written to a chunk is not there");
    copy[rank] = before;
    return value;
}

static uint64_t serve(uint64_t record)
{
    micro_random random = micro_random_start(record);
    uint64_t which = micro_below(&random, STORED), digest = 0;
    uint64_t *copy = malloc(chunk);
    if (!copy) micro_fail("no memory for %" PRIu64 " bytes", chunk);
    memcpy(copy, stored[which], chunk);
    for (uint64_t i = 0; i < searches; i++) {
        digest += look_up(copy, which, &random);
        digest += change(copy, &random);
    }
    if (memcmp(copy, stored[which], MICRO_PAGE) != 0) micro_fail("the start of a chunk was overwritten");
    free(copy);
    return micro_mix(digest + record);
}

static void *work(void *argument)
{
    micro_worker *self = argument;
    uint64_t record;
    /* The counter orders nothing but itself: requests share no memory. */
    while ((record = atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed)) < records) {
        self->digest += serve(record);
        self->operations++;
    }
    return NULL;
}

/* ------------------------------------------------------------------- report */

/* The rate goes to standard output, where a study reads it. */
static int report(double seconds)
{
    printf("records_per_s: %.1f\n", (double)records / seconds);
    return micro_report_workers(threads, seconds);
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does it cost to fill, search and drop a large block for each request?",
                (micro_option[]){{"threads", &threads, false, "that serve requests"},
                                 {"chunk", &chunk, false, "bytes of a chunk"},
                                 {"mebibytes", &mebibytes, true, "copied in all: the work"},
                                 {"searches", &searches, false, "in each chunk"},
                                 {0}});
    micro_require(threads >= 1 && threads <= MICRO_MAX_THREADS, "1 to 1024 threads");
    keys = chunk / sizeof(uint64_t);
    micro_require(keys >= FEWEST_KEYS && keys < UINT32_MAX && chunk % sizeof(uint64_t) == 0,
                  "a chunk of 4 KiB to 32 GiB, a multiple of 8 bytes");
    records = (mebibytes << 20) / chunk;
    micro_require(records > 0, "a chunk at least to copy");
    store_chunks();
    double start = micro_now();
    micro_run(threads, work);
    return report(micro_now() - start);
}
