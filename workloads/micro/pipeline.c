/* What does it cost when requests cross several threads that each do something else to them?
 *
 * Messages pass four stages, a thread each: the first reads a message in (allocates it), the second
 * parses it (allocates a larger block, frees the message that the first had allocated), the third
 * formats the answer (reallocates it to its final size), the last writes it out (frees it). No two
 * stages have the same mix of calls and only the second frees and allocates alike: the asymmetry that
 * Lietar et al., "snmalloc: a message passing allocator" (ISMM 2019), and Leijen, Zorn and de Moura,
 * "Mimalloc: free list sharding in action" (APLAS 2019), are made for.
 */
#include "channel.h"

static uint64_t messages = 2000000, smallest = 32, largest = 768;

static void receive(micro_worker *worker, micro_slot *slot, micro_random *random)
{
    (void)worker;
    uint64_t tag = micro_next(random);
    slot_fill(slot, micro_between(random, smallest, largest), tag);
}

static void parse(micro_worker *worker, micro_slot *slot, micro_random *random)
{
    size_t size = slot->size + micro_between(random, 0, slot->size); /* the tree is up to twice its text */
    uint64_t tag = slot_clear(slot);
    worker->digest += tag;
    slot_fill(slot, size, micro_mix(tag));
}

static void answer(micro_worker *worker, micro_slot *slot, micro_random *random)
{
    uint64_t tag = block_check(slot->block, slot->size);
    worker->digest += tag;
    slot->size = micro_between(random, smallest, 2 * largest);
    slot->block = block_accept(realloc(slot->block, slot->size), slot->size);
    block_write(slot->block, slot->size, micro_mix(tag));
}

static void finish(micro_worker *worker, micro_slot *slot, micro_random *random)
{
    (void)random;
    worker->digest += slot_clear(slot);
}

static void (*const stages[])(micro_worker *, micro_slot *, micro_random *) = {receive, parse, answer, finish};
static channel *channels[MICRO_COUNT(stages) - 1];

/* Copies the basket from the stage before, if any, works on it, and hands it to the next stage, if any. */
static void pass_basket(micro_worker *worker, size_t count, micro_random *random)
{
    channel *in = worker->index > 0 ? channels[worker->index - 1] : NULL;
    channel *out = worker->index + 1 < MICRO_COUNT(stages) ? channels[worker->index] : NULL;
    channel_basket *full = in ? channel_full(in) : NULL;
    channel_basket *empty = out ? channel_empty(out) : NULL;
    for (size_t i = 0; i < count; i++) {
        micro_slot slot = full ? full->slots[i] : (micro_slot){0};
        stages[worker->index](worker, &slot, random);
        if (empty) empty->slots[i] = slot;
    }
    if (in) channel_done(in);
    if (out) channel_send(out);
}

static void *work(void *argument)
{
    micro_worker *worker = argument;
    micro_random random = micro_random_start(worker->index);
    for (uint64_t left = messages; left;) {
        size_t count = left < CHANNEL_BASKET ? left : CHANNEL_BASKET;
        pass_basket(worker, count, &random);
        left -= count;
    }
    if (worker->index == 0) worker->operations = messages;
    return NULL;
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does it cost when requests cross several threads?",
                (micro_option[]){{"messages", &messages, true, "that pass all stages"},
                                 {"smallest", &smallest, false, "size, in bytes"},
                                 {"largest", &largest, false, "size, in bytes; answers are up to twice that"},
                                 {0}});
    micro_require(smallest >= 8 && smallest <= largest, "8 <= smallest <= largest");
    for (size_t i = 0; i < MICRO_COUNT(channels); i++) channels[i] = channel_create();
    double start = micro_now();
    micro_run(MICRO_COUNT(stages), work);
    return micro_report_workers(MICRO_COUNT(stages), micro_now() - start);
}
