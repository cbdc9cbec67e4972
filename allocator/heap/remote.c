/* Blocks that another thread freed.
 *
 * A thread that frees blocks of other heaps collects them in its *outbox*: a list for each of a few dozen spans, linked as
 * their owner links free blocks. Such a list is a *message*: the owner puts it before the span's own free list by writing
 * one link, and touches none of the other blocks before it hands them out again. Messages are collected for each target and
 * handed over by one compare-and-swap on its inbox, which the owner empties by one exchange whenever it refills a bin, and
 * when it exits. So neither waits for the other, and a block costs a fraction of an atomic.
 *
 *     free ─► outbox: list per span ─► messages per target ─► target's inbox ─► lists of its spans
 *
 * Whoever hands over to a heap that no thread owns, or that several share, settles it at once (registry.c), so that nothing
 * lies in an inbox that nobody will open. A span may change owner while a message is on its way: whoever finds one that is not its own sends it on.
 * Blocks on their way count as live, so their span stays what it is.
 *
 * A block that looks free when it is freed is nearly always freed twice, and never freed again. If this thread has it in its
 * outbox, that is proven. Else it is put before its owner (`suspect`), which looks into its lists.
 */
#include "heap.h"

struct heap_settings heap_settings = {
    .remote_free_batch = 256,
    .remote_free_bytes = (size_t)64 * 1024,
    .thread_spans_cached = 4,
    .free_page_threshold = SIZE_MAX,
    .lockless_threads = UINT32_MAX,
    .background = 0, /* the option says when */
    .pool_carve_units = 1,
};

/* ---- messages -------------------------------------------------------------------------------------------------------------- */

/* The first block's second word says what the owner must know without walking: in 12 bits the place of the last block in
 * its span, in units of MALLOC_ALIGNMENT; in 8 bits the number of blocks; above, the next message of the same target, as the
 * distance of its first block from the base in the same units, plus 1; 0: none. */
enum {
    LAST_BITS = 12,
    COUNT_BITS = 8,
    NEXT_SHIFT = LAST_BITS + COUNT_BITS,
    MESSAGE_BLOCKS_MAX = (1 << COUNT_BITS) - 1
};

_Static_assert((SPAN_SIZE >> LAST_BITS) == MALLOC_ALIGNMENT, "a place in a span");

struct message {
    uintptr_t first, last;
    uint32_t blocks;
    uintptr_t next; /* first block of the next message, or 0 */
};

static void message_write(const struct message *message)
{
    uintptr_t next = message->next == 0 ? 0 : (message->next - space.base) / MALLOC_ALIGNMENT + 1;
    uintptr_t last = (message->last & (SPAN_SIZE - 1)) / MALLOC_ALIGNMENT;
    uintptr_t word = next << NEXT_SHIFT | (uintptr_t)message->blocks << LAST_BITS | last;
    block_words(message->first)[1] = word ^ space.link_key;
}

/* Ends the program when the word was overwritten, as far as that shows. */
static struct message message_read(uintptr_t first)
{
    uintptr_t word = block_words(first)[1] ^ space.link_key;
    uintptr_t next = word >> NEXT_SHIFT;
    if (UNLIKELY(next > space.size / MALLOC_ALIGNMENT)) check_link_failed((const void *)first);
    return (struct message){
        .first = first,
        .last = (first & ~(uintptr_t)(SPAN_SIZE - 1)) | (word & ((1u << LAST_BITS) - 1)) * MALLOC_ALIGNMENT,
        .blocks = (uint32_t)(word >> LAST_BITS) & MESSAGE_BLOCKS_MAX,
        .next = next == 0 ? 0 : space.base + (next - 1) * MALLOC_ALIGNMENT,
    };
}

static void message_chain(uintptr_t message, uintptr_t next)
{
    struct message changed = message_read(message);
    changed.next = next;
    message_write(&changed);
}

/* ---- handing over ------------------------------------------------------------------------------------------------------------ */

/* The owner of a span in which blocks live. Relaxed: any value that it had since the block was born will do, see above. */
static struct heap *owner_of(const struct span *span, uintptr_t block)
{
    struct heap *owner = atomic_load_explicit(&span->owner, memory_order_relaxed);
    if (UNLIKELY(owner == NULL)) check_pointer_failed("free", (void *)block);
    return owner;
}

static void settle_if_idle(struct heap *target)
{
    /* Sequentially consistent: see hand_over. */
    if (UNLIKELY(atomic_load_explicit(&target->state, memory_order_seq_cst) != HEAP_OWNED)) heap_settle(target);
}

/* Hand over a chain of messages. */
static void hand_over(struct heap *target, uintptr_t first, uintptr_t last)
{
    uintptr_t head = atomic_load_explicit(&target->inbox, memory_order_relaxed);
    do {
        message_chain(last, head);
        /* Release (part of seq_cst): the links are seen by the owner's acquire exchange. There is no ABA: the owner
         * takes all or nothing, and `head` is only written into our own message.
         * Sequentially consistent with the load of `state` in settle_if_idle and the store and load in heap_retire: either we
         * see that the heap has no thread any more, or its last look sees our blocks. */
    } while (!atomic_compare_exchange_weak_explicit(&target->inbox, &head, first, memory_order_seq_cst,
                                                    memory_order_relaxed));
    settle_if_idle(target);
}

/* ---- collecting ---------------------------------------------------------------------------------------------------------------- */

enum { OUTBOX_LISTS = 64, OUTBOX_TARGETS = 8 };

/* The blocks of one span. */
struct outbox_list {
    struct span *span; /* NULL when the list is empty */
    uintptr_t first, last;
    uint32_t blocks;
};

/* The messages for one heap. */
struct outbox_target {
    struct heap *heap; /* NULL: empty */
    uintptr_t first, last;
    uint32_t blocks;
};

struct outbox {
    struct outbox_list lists[OUTBOX_LISTS]; /* by the span's number */
    struct outbox_target targets[OUTBOX_TARGETS]; /* by the heap's address */
    uint32_t blocks; /* since all was handed over; and how much memory they are */
    size_t bytes;
};

static struct outbox_target *target_slot(struct outbox *outbox, const struct heap *heap)
{
    /* Heaps are a few KiB apart, some cache lines in size: mix the bits that differ. */
    uintptr_t number = (uintptr_t)heap / CACHE_LINE;
    return &outbox->targets[(number ^ (number >> 3) ^ (number >> 6)) % OUTBOX_TARGETS];
}

static void count_batch(struct heap *heap, uint32_t blocks)
{
    /* Only the heap's thread writes; who sums up may read one before the other. */
    __atomic_store_n(&heap->remote_batches, heap->remote_batches + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&heap->remote_blocks, heap->remote_blocks + blocks, __ATOMIC_RELAXED);
}

static void target_hand_over(struct heap *heap, struct outbox_target *target)
{
    struct heap *owner = target->heap;
    target->heap = NULL; /* first: settling it may come back here */
    count_batch(heap, target->blocks);
    heap_background_expect();
    hand_over(owner, target->first, target->last);
}

static void target_add(struct heap *heap, struct heap *owner, struct message *message)
{
    struct outbox_target *target = target_slot(heap->outbox, owner);
    if (target->heap != owner) {
        if (target->heap != NULL) target_hand_over(heap, target);
        *target = (struct outbox_target){.heap = owner, .last = message->first};
    }
    message->next = target->first;
    message_write(message);
    target->first = message->first;
    target->blocks += message->blocks;
}

/* Make a message of a list. */
static void list_close(struct heap *heap, struct outbox_list *list)
{
    struct message message = {.first = list->first, .last = list->last, .blocks = list->blocks};
    struct heap *owner = owner_of(list->span, message.first);
    list->span = NULL;
    list->blocks = 0;
    target_add(heap, owner, &message);
}

void remote_outbox_flush(struct heap *heap)
{
    struct outbox *outbox = heap->outbox;
    if (outbox == NULL || outbox->blocks == 0) return;
    outbox->blocks = 0;
    outbox->bytes = 0;
    for (unsigned i = 0; i < OUTBOX_LISTS; i++)
        if (outbox->lists[i].blocks != 0) list_close(heap, &outbox->lists[i]);
    for (unsigned i = 0; i < OUTBOX_TARGETS; i++)
        if (outbox->targets[i].heap != NULL) target_hand_over(heap, &outbox->targets[i]);
}

/* The list for a span's blocks, once it has one. */
ALWAYS_INLINE struct outbox_list *list_of(struct heap *heap, const struct span *span)
{
    return &heap->outbox->lists[(uint32_t)(heap->table - span) % OUTBOX_LISTS];
}

ALWAYS_INLINE void outbox_add(struct heap *heap, struct outbox_list *list, const struct span *span, uintptr_t block)
{
    struct outbox *outbox = heap->outbox;
    *block_words(block) = list->first ^ block ^ heap->link_key;
    list->first = block;
    list->blocks++;
    outbox->bytes += span->block_size;
    /* By their bytes, too: large blocks are worth more to their owner. */
    if (UNLIKELY(++outbox->blocks >= atomic_load_explicit(&heap_settings.remote_free_batch, memory_order_relaxed) ||
                 outbox->bytes >= atomic_load_explicit(&heap_settings.remote_free_bytes, memory_order_relaxed)))
        remote_outbox_flush(heap);
}

static _Atomic(size_t) sent_alone; /* for statistics: relaxed */

size_t remote_sent_alone(void)
{
    return atomic_load_explicit(&sent_alone, memory_order_relaxed);
}

/* A message of one block, for a thread without an outbox. */
static void send_alone(struct span *span, uintptr_t block)
{
    atomic_fetch_add_explicit(&sent_alone, 1, memory_order_relaxed);
    *block_words(block) = span_list_end(span) ^ block ^ space.link_key;
    struct message message = {.first = block, .last = block, .blocks = 1};
    message_write(&message);
    hand_over(owner_of(span, block), block, block);
}

static COLD bool make_outbox(struct heap *heap)
{
    if (heap == &heap_none) return false;
    heap->outbox = space_metadata(sizeof *heap->outbox); /* most threads never need one */
    return heap->outbox != NULL;
}

/* ---- blocks that look free -------------------------------------------------------------------------------------------------------- */

static bool outbox_contains(const struct outbox *outbox, uintptr_t block)
{
    for (unsigned i = 0; i < OUTBOX_LISTS; i++)
        if (outbox->lists[i].blocks != 0 && check_list_contains(outbox->lists[i].first, block)) return true;
    for (unsigned i = 0; i < OUTBOX_TARGETS; i++) {
        if (outbox->targets[i].heap == NULL) continue;
        for (uintptr_t first = outbox->targets[i].first; first != 0; first = message_read(first).next)
            if (check_list_contains(first, block)) return true;
    }
    return false;
}

/* Put a block before its owner. If another is there already this one is forgotten: it is not freed, for it looks free. */
static void accuse(struct heap *owner, uintptr_t block)
{
    uintptr_t none = 0;
    /* As in hand_over; only the address is handed over. */
    atomic_compare_exchange_strong_explicit(&owner->suspect, &none, block, memory_order_seq_cst, memory_order_relaxed);
    settle_if_idle(owner);
}

static COLD void remote_free_suspect(const struct heap *heap, struct span *span, uintptr_t block)
{
    if (heap->outbox != NULL && outbox_contains(heap->outbox, block)) check_double_free((void *)block);
    accuse(owner_of(span, block), block);
}

/* Look for a suspect in the lists of its owner. When it is not there, it is on its way from a third thread, or a live block
 * that looked free by chance: then 2^-48 is how often one leaks. */
static void judge_suspect(struct heap *heap)
{
    if (LIKELY(atomic_load_explicit(&heap->suspect, memory_order_relaxed) == 0)) return;
    uintptr_t block = atomic_exchange_explicit(&heap->suspect, 0, memory_order_relaxed);
    struct span *span = span_of_offset(block - space.base);
    if (block != 0 && atomic_load_explicit(&span->owner, memory_order_relaxed) == heap)
        check_suspicious_free(heap, span, block);
}

/* The first block of its list, or an error of the program. */
static __attribute__((noinline)) void remote_free_first(struct heap *heap, struct span *span, uintptr_t block)
{
    if (UNLIKELY(block_looks_free(block))) {
        remote_free_suspect(heap, span, block);
    } else if (UNLIKELY(heap->outbox == NULL) && !make_outbox(heap)) {
        send_alone(span, block);
    } else {
        struct outbox_list *list = list_of(heap, span);
        if (list->blocks != 0) list_close(heap, list);
        *list = (struct outbox_list){.span = span, .first = span_list_end(span), .last = block, .blocks = 0};
        outbox_add(heap, list, span, block);
    }
}

void remote_free(struct heap *heap, struct span *span, uintptr_t block)
{
    if (LIKELY(heap->outbox != NULL && (*block_words(block) ^ heap->link_key) > LINK_MAX)) {
        struct outbox_list *list = list_of(heap, span);
        if (LIKELY(list->span == span && list->blocks < MESSAGE_BLOCKS_MAX)) {
            outbox_add(heap, list, span, block);
            return;
        }
    }
    remote_free_first(heap, span, block);
}

/* ---- taking in -------------------------------------------------------------------------------------------------------------------- */

/* Take a message in if its span is the heap's own. */
static bool arrive(struct heap *heap, const struct message *message)
{
    struct span *span = span_of_offset(message->first - space.base);
    if (UNLIKELY(atomic_load_explicit(&span->owner, memory_order_relaxed) != heap)) return false;
    if (UNLIKELY(message->blocks == 0 || message->blocks > span_live(span))) check_link_failed((void *)message->first);
    span_free_list(heap, span, message->first, message->last, message->blocks);
    return true;
}

/* Acquire: pairs with the release in hand_over. */
static uintptr_t inbox_empty(struct heap *heap)
{
    return atomic_exchange_explicit(&heap->inbox, 0, memory_order_acquire);
}

/* Take in all that is the heap's own; returns the messages that are not, chained. */
static uintptr_t take_in(struct heap *heap)
{
    uintptr_t elsewhere = 0;
    for (uintptr_t first = inbox_empty(heap); first != 0;) {
        struct message message = message_read(first);
        first = message.next;
        if (LIKELY(arrive(heap, &message))) continue;
        message.next = elsewhere;
        message_write(&message);
        elsewhere = message.first;
    }
    judge_suspect(heap);
    return elsewhere;
}

void remote_inbox_take(struct heap *heap)
{
    if (!remote_inbox_is_filled(heap)) return; /* most often; the exchange would take the line from the others */
    if (UNLIKELY(heap_is_shared(heap))) return;
    uint32_t entered = heap_enter(heap);
    uintptr_t elsewhere = take_in(heap);
    heap_leave(heap, entered);
    if (UNLIKELY(elsewhere != 0)) remote_send_on(elsewhere);
}

uintptr_t remote_inbox_take_shared(struct heap *heap)
{
    return take_in(heap);
}

void remote_send_on(uintptr_t messages)
{
    while (messages != 0) {
        struct message message = message_read(messages);
        messages = message.next;
        struct heap *owner = owner_of(span_of_offset(message.first - space.base), message.first);
        hand_over(owner, message.first, message.first);
    }
}
