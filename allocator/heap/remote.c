/* Blocks that another thread freed.
 *
 * A thread that frees a block of another heap puts it into the outbox slot of that heap; a full slot is handed over as
 * one list, by one compare-and-swap on the target's inbox. The owner empties its inbox by one exchange whenever it
 * refills a bin, and when it exits. So neither waits for the other, and a block costs a fraction of an atomic.
 *
 * Whoever hands over to a heap that no thread owns settles it at once (registry.c), so that nothing lies in an inbox that
 * nobody will open. A span may change owner while a block of it is on its way: whoever finds a block that is not its own
 * sends it on.
 *
 * While a block is on its way its first word says so, for noticing double frees, and its second links it to the next.
 */
#include "heap.h"

struct heap_settings heap_settings = {.remote_free_batch = 64, .thread_spans_cached = 4};

/* A slot is handed over early when its blocks hold this much memory: large blocks are worth more to their owner. */
enum { OUTBOX_BYTES = 32 * 1024 };

static struct outbox *outbox_slot(struct heap *heap, const struct heap *target)
{
    /* Heaps are a few KiB apart, some cache lines in size: mix the bits that differ. */
    uintptr_t number = (uintptr_t)target / CACHE_LINE;
    return &heap->outbox[(number ^ (number >> 3) ^ (number >> 6)) % OUTBOX_SLOTS];
}

static void hand_over(struct heap *target, uintptr_t first, uintptr_t last)
{
    uintptr_t head = atomic_load_explicit(&target->inbox, memory_order_relaxed);
    do {
        block_words(last)[1] = head;
        /* Release (part of seq_cst): the links are seen by the owner's acquire exchange. There is no ABA: the owner
         * takes all or nothing, and `head` is only written into our own block.
         * Sequentially consistent with the load of `state` below and the store and load in heap_retire: either we see
         * that the heap has no thread any more, or its last look sees our blocks. */
    } while (!atomic_compare_exchange_weak_explicit(&target->inbox, &head, first, memory_order_seq_cst,
                                                    memory_order_relaxed));
    if (UNLIKELY(atomic_load_explicit(&target->state, memory_order_seq_cst) != HEAP_OWNED)) heap_settle(target);
}

static void outbox_hand_over(struct outbox *slot)
{
    struct heap *target = slot->target;
    uintptr_t first = slot->first;
    uintptr_t last = slot->last;
    /* Empty it first: settling the target may come back here. */
    *slot = (struct outbox){.target = NULL};
    hand_over(target, first, last);
}

static void outbox_add(struct heap *heap, struct heap *target, uintptr_t block, uint32_t block_size)
{
    struct outbox *slot = outbox_slot(heap, target);
    if (slot->target != target) {
        if (slot->target != NULL) outbox_hand_over(slot);
        slot->target = target;
        slot->last = block;
    }
    block_words(block)[1] = slot->first;
    slot->first = block;
    slot->blocks++;
    slot->bytes += block_size;
    if (slot->blocks >= atomic_load_explicit(&heap_settings.remote_free_batch, memory_order_relaxed) ||
        slot->bytes >= OUTBOX_BYTES)
        outbox_hand_over(slot);
}

static void send(struct heap *heap, struct span *span, uintptr_t block)
{
    /* Relaxed: any value that it had since the block was born will do, see above. */
    struct heap *owner = atomic_load_explicit(&span->owner, memory_order_relaxed);
    if (owner == NULL) check_pointer_failed("free", (void *)block);
    if (heap == &heap_none) hand_over(owner, block, block);
    else outbox_add(heap, owner, block, span->block_size);
}

void remote_free(struct heap *heap, struct span *span, uintptr_t block)
{
    uintptr_t word = *block_words(block) ^ space.link_key;
    if (word == LINK_REMOTE || word == LINK_REMOTE_SUSPECT) check_double_free((void *)block);
    /* If it looks free otherwise, only the owner can tell whether it is: it looks when the block arrives. */
    *block_words(block) = (word <= LINK_MAX ? LINK_REMOTE_SUSPECT : LINK_REMOTE) ^ space.link_key;
    send(heap, span, block);
}

/* Check a block that arrives, and free it if it is the heap's own. */
static bool arrive(struct heap *heap, uintptr_t block)
{
    uintptr_t word = *block_words(block) ^ space.link_key;
    if (word != LINK_REMOTE && word != LINK_REMOTE_SUSPECT) check_link_failed((void *)block);
    struct span *span = span_of_offset(block - space.base);
    if (UNLIKELY(atomic_load_explicit(&span->owner, memory_order_relaxed) != heap)) return false;
    if (UNLIKELY(word == LINK_REMOTE_SUSPECT)) check_suspicious_free(heap, span, block);
    block_free_local(heap, span, block);
    return true;
}

void remote_inbox_take(struct heap *heap)
{
    if (!remote_inbox_is_filled(heap)) return; /* most often; the exchange would take the line from the others */
    /* Acquire: pairs with the release in hand_over. */
    uintptr_t block = atomic_exchange_explicit(&heap->inbox, 0, memory_order_acquire);
    while (block != 0) {
        uintptr_t next = block_words(block)[1];
        if (UNLIKELY(!arrive(heap, block))) send(heap, span_of_offset(block - space.base), block);
        block = next;
    }
}

uintptr_t remote_inbox_take_orphans(void)
{
    uintptr_t elsewhere = 0;
    uintptr_t block = atomic_exchange_explicit(&heap_orphans.inbox, 0, memory_order_acquire);
    while (block != 0) {
        uintptr_t next = block_words(block)[1];
        if (UNLIKELY(!arrive(&heap_orphans, block))) {
            block_words(block)[1] = elsewhere;
            elsewhere = block;
        }
        block = next;
    }
    return elsewhere;
}

void remote_send_on(uintptr_t blocks)
{
    while (blocks != 0) {
        uintptr_t next = block_words(blocks)[1];
        send(&heap_none, span_of_offset(blocks - space.base), blocks);
        blocks = next;
    }
}

void remote_outbox_flush(struct heap *heap)
{
    for (unsigned i = 0; i < OUTBOX_SLOTS; i++)
        if (heap->outbox[i].target != NULL) outbox_hand_over(&heap->outbox[i]);
}
