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
 * An owner that sleeps opens nothing. Who has claimed its heap (idle.c) takes what is in the inbox in hand, counts, gives away the
 * spans of which every live block lies there, and puts the others' messages back.
 *
 * A block that looks free when it is freed is nearly always freed twice. But a live one may look so too, because the program
 * has copied what an earlier use of the memory left there. If this thread has it in its outbox, it is free. Else it is put
 * before its owner (`suspects`), which looks wherever free blocks are: it then ends the program, or frees the block.
 */
#include "fast.h"

struct heap_settings heap_settings = {
    .remote_free_batch = 256,
    .remote_free_bytes = (size_t)64 * 1024,
    .thread_spans_cached = 64,
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

/* Of a block that is accused of being free: it is no message, and the next is the next of these. */
enum { BLOCKS_ACCUSED = 0 };

static void message_write(const struct message *message)
{
    uintptr_t next = message->next == 0 ? 0 : (message->next - space.base) / MALLOC_ALIGNMENT + 1;
    uintptr_t last = (message->last & (SPAN_SIZE - 1)) / MALLOC_ALIGNMENT;
    uintptr_t word = next << NEXT_SHIFT | (uintptr_t)message->blocks << LAST_BITS | last;
    block_words(message->first)[1] = word ^ space.link_key;
}

/* Ends the program when the word was overwritten, as far as that shows. */
static struct message message_or_accused(uintptr_t first)
{
    uintptr_t word = block_words(first)[1] ^ space.link_key;
    uintptr_t next = word >> NEXT_SHIFT;
    if (UNLIKELY(next > space_size() / MALLOC_ALIGNMENT)) check_link_failed((const void *)first);
    return (struct message){
        .first = first,
        .last = (first & ~(uintptr_t)(SPAN_SIZE - 1)) | (word & ((1u << LAST_BITS) - 1)) * MALLOC_ALIGNMENT,
        .blocks = (uint32_t)(word >> LAST_BITS) & MESSAGE_BLOCKS_MAX,
        .next = next == 0 ? 0 : space.base + (next - 1) * MALLOC_ALIGNMENT,
    };
}

static struct message message_read(uintptr_t first)
{
    struct message message = message_or_accused(first);
    /* Freed again while on its way, and accused of it: see judge. */
    if (UNLIKELY(message.blocks == BLOCKS_ACCUSED)) check_double_free((const void *)first);
    return message;
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
    /* Sequentially consistent: see inbox_put. */
    if (UNLIKELY(atomic_load_explicit(&target->state, memory_order_seq_cst) != HEAP_OWNED)) heap_settle(target);
}

/* Put a chain of messages into an inbox. */
static void inbox_put(struct heap *target, uintptr_t first, uintptr_t last)
{
    uintptr_t head = atomic_load_explicit(&target->inbox, memory_order_relaxed);
    do {
        message_chain(last, head);
        /* Release (part of seq_cst): the links are seen by the owner's acquire exchange. There is no ABA: whoever takes, takes
         * all, and `head` is only written into our own message, behind which comes then what follows it at that moment.
         * Sequentially consistent with the load of `state` in settle_if_idle, which follows, and the store and load in heap_retire: either we
         * see that the heap has no thread any more, or its last look sees our blocks. */
    } while (!atomic_compare_exchange_weak_explicit(&target->inbox, &head, first, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

/* Hand over a chain of messages. */
static void hand_over(struct heap *target, uintptr_t first, uintptr_t last)
{
    inbox_put(target, first, last);
    settle_if_idle(target);
}

/* ---- collecting ---------------------------------------------------------------------------------------------------------------- */

enum { OUTBOX_LISTS = 64, OUTBOX_TARGETS_LOG2 = 6, OUTBOX_TARGETS = 1 << OUTBOX_TARGETS_LOG2 };

/* The blocks of one span. `first`, here and below, is 0 once they stand in the next place where is_on_its_way looks. */
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
    uint64_t lists_used, targets_used; /* a bit for each that is not empty, and perhaps for others */
    uint32_t blocks; /* since all was handed over; and how much memory they are */
    size_t bytes;
};

/* Heaps are made at equal distances, which multiples of the golden ratio spread over the slots (Knuth: The Art of Computer
 * Programming, volume 3, section 6.4). */
static struct outbox_target *target_slot(struct outbox *outbox, const struct heap *heap)
{
    uint64_t number = (uintptr_t)heap / CACHE_LINE;
    return &outbox->targets[number * UINT64_C(0x9E3779B97F4A7C15) >> (64 - OUTBOX_TARGETS_LOG2)];
}

static void count_batch(struct heap *heap, uint32_t blocks)
{
    /* Only the heap's thread writes; who sums up may read one before the other. */
    __atomic_store_n(&heap->remote_batches, heap->remote_batches + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&heap->remote_blocks, heap->remote_blocks + blocks, __ATOMIC_RELAXED);
}

/* NOLINTBEGIN(readability-non-const-parameter): the built-in function writes through it */

/* Another thread may be looking for a block (word_at). Release: who sees this one first sees what it is linked to, and in the next
 * place what stood here before. */
ALWAYS_INLINE void put_first(uintptr_t *first, uintptr_t block)
{
    __atomic_store_n(first, block, __ATOMIC_RELEASE);
}

/* Release, again: who sees this sees the blocks in the next place. */
static void has_gone_on(uintptr_t *first)
{
    __atomic_store_n(first, 0, __ATOMIC_RELEASE);
}

/* NOLINTEND(readability-non-const-parameter) */

static void target_hand_over(struct heap *heap, struct outbox_target *target)
{
    struct heap *owner = target->heap;
    target->heap = NULL; /* first: settling it may come back here */
    count_batch(heap, target->blocks);
    heap_background_expect();
    inbox_put(owner, target->first, target->last);
    has_gone_on(&target->first);
    settle_if_idle(owner);
}

static void target_add(struct heap *heap, struct heap *owner, struct message *message)
{
    struct outbox_target *target = target_slot(heap->outbox, owner);
    if (target->heap != owner) {
        if (target->heap != NULL) target_hand_over(heap, target);
        target->heap = owner; /* `first` is 0, and not stored again without release */
        heap->outbox->targets_used |= UINT64_C(1) << (target - heap->outbox->targets);
        target->last = message->first;
        target->blocks = 0;
    }
    message->next = target->first;
    message_write(message);
    put_first(&target->first, message->first);
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
    if (LIKELY(list->span == NULL)) has_gone_on(&list->first); /* nor used again by what target_add has settled */
}

/* The number of a bit that was set, and is no more; false: none was. */
ALWAYS_INLINE bool take_bit(uint64_t *bits, unsigned *number)
{
    if (*bits == 0) return false;
    *number = (unsigned)__builtin_ctzll(*bits);
    *bits &= *bits - 1;
    return true;
}

static void outbox_flush(struct heap *heap)
{
    struct outbox *outbox = heap->outbox;
    if (outbox == NULL || outbox->blocks == 0) return;
    outbox->blocks = 0;
    outbox->bytes = 0;
    unsigned i;
    while (take_bit(&outbox->lists_used, &i))
        if (outbox->lists[i].blocks != 0) list_close(heap, &outbox->lists[i]);
    while (take_bit(&outbox->targets_used, &i))
        if (outbox->targets[i].heap != NULL) target_hand_over(heap, &outbox->targets[i]);
}

/* It may wait for locks, and the outbox is nobody else's meanwhile. */
void remote_outbox_flush(struct heap *heap)
{
    uint32_t entered = heap_enter(heap);
    outbox_flush(heap);
    heap_leave(heap, entered);
}

void remote_outbox_forget(struct heap *heap)
{
    if (heap->outbox != NULL) *heap->outbox = (struct outbox){.blocks = 0};
}

void remote_lent_flush(struct heap *heap)
{
    outbox_flush(heap);
}

/* Which list a span's blocks are collected in. */
ALWAYS_INLINE unsigned list_number(const struct span *span)
{
    return (uintptr_t)span / sizeof *span % OUTBOX_LISTS;
}

/* The list for a span's blocks, once it has one. */
ALWAYS_INLINE struct outbox_list *list_of(struct heap *heap, const struct span *span)
{
    return &heap->outbox->lists[list_number(span)];
}

static COLD void outbox_is_full(struct heap *heap, const void *caller)
{
    remote_outbox_flush(heap);
    heap_background_pass(caller); /* a thread that only frees for others comes nowhere else */
}

/* `caller` of malloc's family. */
ALWAYS_INLINE void outbox_add(struct heap *heap, struct outbox_list *list, const struct span *span, uintptr_t block,
                              const void *caller)
{
    struct outbox *outbox = heap->outbox;
    *block_words(block) = list->first ^ block ^ heap->link_key;
    put_first(&list->first, block);
    list->blocks++;
    outbox->bytes += span->block_size;
    /* By their bytes, too: large blocks are worth more to their owner. */
    if (UNLIKELY(++outbox->blocks >= atomic_load_explicit(&heap_settings.remote_free_batch, memory_order_relaxed) ||
                 outbox->bytes >= atomic_load_explicit(&heap_settings.remote_free_bytes, memory_order_relaxed)))
        outbox_is_full(heap, caller);
}

static _Atomic(size_t) sent_alone; /* for statistics: relaxed */

size_t remote_sent_alone(void)
{
    return atomic_load_explicit(&sent_alone, memory_order_relaxed);
}

static void message_of_block(const struct span *span, uintptr_t block)
{
    *block_words(block) = span_list_end(span) ^ block ^ space.link_key;
    struct message message = {.first = block, .last = block, .blocks = 1};
    message_write(&message);
}

/* For a thread without an outbox. */
static void send_alone(struct span *span, uintptr_t block)
{
    atomic_fetch_add_explicit(&sent_alone, 1, memory_order_relaxed);
    message_of_block(span, block);
    hand_over(owner_of(span, block), block, block);
}

void remote_send_hands(struct heap *heap)
{
    uintptr_t block;
    while ((block = bin_take_from_hands(heap)) != 0) {
        message_of_block(span_of_offset(block - space.base), block);
        inbox_put(heap, block, block);
    }
}

static COLD bool make_outbox(struct heap *heap)
{
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

static void accused_write(uintptr_t block, uintptr_t next)
{
    struct message accused = {.first = block, .last = block, .blocks = BLOCKS_ACCUSED, .next = next};
    message_write(&accused);
}

/* Put a block before its owner. The chain goes through the second words: the freeing thread's own in a live block, of no
 * meaning in a free one, unless it leads a message, which then ends the program when it is read. */
static void accuse(struct heap *owner, uintptr_t block)
{
    uintptr_t head = atomic_load_explicit(&owner->suspects, memory_order_relaxed);
    do accused_write(block, head); /* as in inbox_put */
    while (!atomic_compare_exchange_weak_explicit(&owner->suspects, &head, block, memory_order_seq_cst,
                                                  memory_order_relaxed));
    settle_if_idle(owner);
}

static COLD void remote_free_suspect(const struct heap *heap, struct span *span, uintptr_t block)
{
    if (heap->outbox != NULL && outbox_contains(heap->outbox, block)) check_double_free((void *)block);
    accuse(owner_of(span, block), block);
}

void remote_accuse(struct heap *owner, uintptr_t block)
{
    accuse(owner, block);
}

void remote_free_own_suspect(struct heap *heap, uintptr_t block)
{
    accuse(heap, block);
    remote_inbox_take(heap);
}

/* ---- blocks on their way from other threads -------------------------------------------------------------------------------------- */

/* What other threads have in hand is looked at while they go on. Blocks of a span that its owner does not take in meanwhile go
 * one way only, from lists to targets to inboxes, stay linked as they are, and leave each place after they have come to the
 * next: looked for in this order, a block that was there before is found. It is missed while a heap forwards what has come
 * for a former owner; only a program that frees it twice at that very moment suffers. A live block is in no list: only a torn
 * look could find it there, and would lose it. */

/* More messages than an inbox ever has. */
enum { MESSAGES_MAX = 1 << 20 };

/* Acquire: pairs with put_first and has_gone_on. */
READS_RACILY static uintptr_t word_at(const uintptr_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static bool list_seems_to_have(const struct span *span, uintptr_t list, uintptr_t block)
{
    for (uint32_t blocks = 0; blocks < MESSAGE_BLOCKS_MAX; blocks++) {
        if (list == block) return true;
        if (list - span_start(span) >= SPAN_SIZE || list % MALLOC_ALIGNMENT != 0) return false;
        uintptr_t link = word_at(block_words(list)) ^ space.link_key;
        if (link > LINK_MAX) return false;
        list ^= link;
    }
    return false;
}

/* Whether blocks are at an address, so that it can be read. What leads there may be a program's own words by now, if the block
 * that it was read from has been handed out meanwhile. */
static bool may_be_read(uintptr_t address)
{
    size_t offset = address - space.base;
    return offset < space_size() &&
           atomic_load_explicit(&span_of_offset(offset)->owner, memory_order_relaxed) != NULL; /* a hint will do */
}

static bool messages_seem_to_have(const struct span *span, uintptr_t first, uintptr_t block)
{
    for (uint32_t messages = 0; messages < MESSAGES_MAX && may_be_read(first); messages++) {
        if (list_seems_to_have(span, first, block)) return true;
        uintptr_t next = (word_at(block_words(first) + 1) ^ space.link_key) >> NEXT_SHIFT;
        if (next == 0 || next > space_size() / MALLOC_ALIGNMENT) return false;
        first = space.base + (next - 1) * MALLOC_ALIGNMENT;
    }
    return false;
}

READS_RACILY static const struct outbox *outbox_of(const struct heap *heap)
{
    return __atomic_load_n(&heap->outbox, __ATOMIC_ACQUIRE); /* it was made of memory that reads as zeros */
}

static bool lists_seem_to_have(const struct heap *heap, const struct span *span, uintptr_t block)
{
    const struct outbox *outbox = outbox_of(heap);
    return outbox != NULL && list_seems_to_have(span, word_at(&outbox->lists[list_number(span)].first), block);
}

static bool targets_seem_to_have(const struct heap *heap, const struct span *span, uintptr_t block)
{
    const struct outbox *outbox = outbox_of(heap);
    for (unsigned i = 0; outbox != NULL && i < OUTBOX_TARGETS; i++)
        if (messages_seem_to_have(span, word_at(&outbox->targets[i].first), block)) return true;
    return false;
}

static bool inbox_seems_to_have(const struct heap *heap, const struct span *span, uintptr_t block)
{
    return messages_seem_to_have(span, atomic_load_explicit(&heap->inbox, memory_order_acquire), block);
}

static bool is_on_its_way(const struct span *span, uintptr_t block)
{
    static bool (*const places[])(const struct heap *heap, const struct span *span,
                                  uintptr_t block) = {lists_seem_to_have, targets_seem_to_have, inbox_seems_to_have};
    for (size_t place = 0; place < sizeof places / sizeof *places; place++)
        for (const struct heap *heap = heap_youngest(); heap != NULL; heap = heap->made_before)
            if (places[place](heap, span, block)) return true;
    return inbox_seems_to_have(&heap_orphans, span, block);
}

/* ---- judging ------------------------------------------------------------------------------------------------------------------------ */

/* What every free block has: a link to another, or to the end of its list. */
static bool has_link(const struct span *span, uintptr_t block)
{
    uintptr_t next = (*block_words(block) ^ space.link_key) ^ block;
    bool is_near = (next ^ block) <= NEXT_MAX;
    return next == span_list_end(span) || (is_near && next % MALLOC_ALIGNMENT == 0 && block_is_at_start(span, next));
}

/* A block of the heap's own that looked free when it was freed: one that is ends the program, but for one that another thread
 * has in hand, which stays freed once. One that is found nowhere lives, and is freed now. If it looks so no more, it was
 * free and has been handed out since. */
static void judge(struct heap *heap, struct span *span, uintptr_t block)
{
    if (span->kind != SPAN_BLOCKS || !block_is_at_start(span, block) || !block_looks_free(block))
        check_double_free((const void *)block);
    if (has_link(span, block)) {
        if (is_on_its_way(span, block)) return;
        check_suspicious_free(heap, span, block);
    }
    block_free_local(heap, span, block);
}

/* Judge those of the heap's own; returns the others, chained. */
static uintptr_t judge_suspects(struct heap *heap, uintptr_t suspects)
{
    uintptr_t elsewhere = 0;
    while (suspects != 0) {
        uintptr_t block = suspects;
        suspects = message_or_accused(block).next;
        accused_write(block, 0); /* should it stand in the chain twice, this is where that ends */
        struct span *span = span_of_offset(block - space.base);
        const struct heap *owner = atomic_load_explicit(&span->owner, memory_order_relaxed);
        if (UNLIKELY(owner == NULL)) check_double_free((const void *)block);
        if (LIKELY(owner == heap)) {
            judge(heap, span, block);
        } else {
            accused_write(block, elsewhere);
            elsewhere = block;
        }
    }
    return elsewhere;
}

/* A list for a span's blocks, emptied if it had others; NULL: there is no outbox. It may wait for locks. */
ALWAYS_INLINE struct outbox_list *list_empty(struct heap *heap, const struct span *span)
{
    struct outbox_list *list = NULL;
    uint32_t entered = heap_enter(heap);
    if (LIKELY(heap->outbox != NULL) || make_outbox(heap)) {
        list = list_of(heap, span);
        while (list->blocks != 0) list_close(heap, list); /* which may use it again */
    }
    heap_leave(heap, entered);
    return list;
}

/* The first block of its list, or an error of the program. */
static __attribute__((noinline)) void remote_free_first(struct heap *heap, struct span *span, uintptr_t block)
{
    if (UNLIKELY(block_looks_free(block))) {
        remote_free_suspect(heap, span, block);
        return;
    }
    struct outbox_list *list = LIKELY(heap->outbox != NULL) ? list_of(heap, span) : NULL;
    if (list == NULL || list->blocks != 0) list = LIKELY(heap != &heap_none) ? list_empty(heap, span) : NULL;
    if (UNLIKELY(list == NULL)) {
        send_alone(span, block);
        return;
    }
    heap->outbox->lists_used |= UINT64_C(1) << list_number(span);
    list->span = span;
    list->last = block;
    put_first(&list->first, span_list_end(span));
    outbox_add(heap, list, span, block, __builtin_return_address(0));
}

void remote_free(struct heap *heap, struct span *span, uintptr_t block)
{
    if (LIKELY(heap->outbox != NULL && (*block_words(block) ^ heap->link_key) > LINK_MAX)) {
        struct outbox_list *list = list_of(heap, span);
        if (LIKELY(list->span == span && list->blocks < MESSAGE_BLOCKS_MAX)) {
            outbox_add(heap, list, span, block,
                       __builtin_return_address(0)); /* those who called it have left by jumps */
            return;
        }
    }
    remote_free_first(heap, span, block);
}

/* ---- taking in -------------------------------------------------------------------------------------------------------------------- */

/* Take a message in if its span is the heap's own. */
ALWAYS_INLINE bool arrive(struct heap *heap, const struct message *message)
{
    struct span *span = span_of_offset(message->first - space.base);
    if (UNLIKELY(atomic_load_explicit(&span->owner, memory_order_relaxed) != heap)) return false;
    if (UNLIKELY(message->blocks == 0 || message->blocks > span_live(span))) check_link_failed((void *)message->first);
    if (HARDENED) block_words(message->first)[1] = 0; /* which a free block has clear */
    span_free_list(heap, span, message->first, message->last, message->blocks);
    return true;
}

/* Acquire: pairs with the release in inbox_put. */
static uintptr_t inbox_empty(struct heap *heap)
{
    return atomic_exchange_explicit(&heap->inbox, 0, memory_order_acquire);
}

/* Take a message in, or put it before those that are sent on. Returns the next of its inbox, 0 at the end. */
ALWAYS_INLINE uintptr_t receive(struct heap *heap, uintptr_t first, struct remote_elsewhere *elsewhere)
{
    struct message message = message_read(first);
    uintptr_t next = message.next;
    if (LIKELY(arrive(heap, &message))) return next;
    message.next = elsewhere->messages;
    message_write(&message);
    elsewhere->messages = message.first;
    return next;
}

/* Take in all that is the heap's own; returns what is not. The suspects of before, last: what they are accused of being in has
 * then been taken in. */
static struct remote_elsewhere take_in(struct heap *heap)
{
    uintptr_t suspects = 0;
    if (UNLIKELY(atomic_load_explicit(&heap->suspects, memory_order_relaxed) != 0))
        suspects = atomic_exchange_explicit(&heap->suspects, 0, memory_order_acquire); /* as inbox_empty */
    struct remote_elsewhere elsewhere = {0, 0};
    for (uintptr_t first = inbox_empty(heap); first != 0;) first = receive(heap, first, &elsewhere);
    elsewhere.suspects = judge_suspects(heap, suspects);
    return elsewhere;
}

void remote_inbox_take(struct heap *heap)
{
    if (!remote_inbox_is_filled(heap)) return; /* most often; the exchange would take the line from the others */
    if (UNLIKELY(heap_is_shared(heap))) return;
    uint32_t entered = heap_enter(heap);
    struct remote_elsewhere elsewhere = take_in(heap);
    heap_leave(heap, entered);
    if (UNLIKELY((elsewhere.messages | elsewhere.suspects) != 0)) remote_send_on(elsewhere);
}

struct remote_elsewhere remote_inbox_take_shared(struct heap *heap)
{
    return take_in(heap);
}

/* ---- for an owner that sleeps -------------------------------------------------------------------------------------------------- */

/* What is in hand: of one heap at a time, under the registry's lock and a claim, so that the owner neither takes anything in nor
 * judges a block meanwhile.
 *
 * A span of which as many blocks lie here as live is nobody's: no thread has a block of it that could be freed, and no bin hands
 * any out. Its live blocks cannot become more, since blocks are handed out from the bins alone, which have none of it, and are
 * filled on slow paths; nor fewer, since all are here. A count that the owner is about to lower is too high, and leaves the span
 * where it is. */
enum { HELD_SPANS = 4096, LOOK_EVERY = 64 };

static struct {
    uintptr_t messages; /* the first */
    struct {
        uint32_t span; /* its index */
        uint32_t blocks; /* of it; 0: this slot is free, or the span is not to be given away */
    } spans[HELD_SPANS]; /* by its index; one that finds its slot taken waits for the next time */
    bool more; /* some do */
} held_inbox;

static bool hold_message(const struct heap *heap, const struct message *message)
{
    const struct span *span = span_of_offset(message->first - space.base);
    uint32_t index = span_index(span);
    if (atomic_load_explicit(&span->owner, memory_order_relaxed) != heap || bin_is_pool(span->bin)) return true;
    if (held_inbox.spans[index % HELD_SPANS].blocks == 0) held_inbox.spans[index % HELD_SPANS].span = index;
    if (held_inbox.spans[index % HELD_SPANS].span != index) return false;
    held_inbox.spans[index % HELD_SPANS].blocks += message->blocks;
    return true;
}

/* Racily, as the owner's fast paths go on. */
READS_RACILY static uint32_t held_choose(void)
{
    uint32_t chosen = 0;
    for (unsigned i = 0; i < HELD_SPANS; i++) {
        if (held_inbox.spans[i].blocks == 0) continue;
        const struct span *span = span_at(held_inbox.spans[i].span);
        uint32_t live = __atomic_load_n(&span->countdown, __ATOMIC_RELAXED) + span->held_back;
        if (held_inbox.spans[i].blocks == live) chosen++;
        else held_inbox.spans[i].blocks = 0;
    }
    return chosen;
}

bool remote_inbox_hold(struct heap *heap, bool (*is_awaited)(const struct heap *heap), uint32_t *spans)
{
    uint32_t looked = 0;
    *spans = 0;
    for (unsigned i = 0; i < HELD_SPANS; i++) held_inbox.spans[i].blocks = 0;
    held_inbox.more = false;
    held_inbox.messages = inbox_empty(heap);
    for (uintptr_t first = held_inbox.messages; first != 0;) {
        struct message message = message_read(first);
        first = message.next;
        held_inbox.more |= !hold_message(heap, &message);
        if (is_awaited != NULL && ++looked % LOOK_EVERY == 0 && is_awaited(heap)) return false;
    }
    *spans = held_choose();
    return true;
}

/* Whether the message is of a span that is chosen. */
static bool message_goes(struct heap *heap, const struct message *message, uint32_t *chain)
{
    struct span *span = span_of_offset(message->first - space.base);
    uint32_t index = span_index(span);
    if (held_inbox.spans[index % HELD_SPANS].span != index || held_inbox.spans[index % HELD_SPANS].blocks == 0)
        return false;
    held_inbox.spans[index % HELD_SPANS].blocks -= message->blocks;
    if (held_inbox.spans[index % HELD_SPANS].blocks == 0) span_give_away(heap, span, chain);
    return true;
}

bool remote_inbox_give_away(struct heap *heap, uint32_t *chain)
{
    uintptr_t *first = &held_inbox.messages, kept = 0;
    bool gap = false;
    for (uintptr_t next = *first; next != 0;) {
        struct message message = message_read(next);
        next = message.next;
        if (message_goes(heap, &message, chain)) {
            gap = true;
            continue;
        }
        if (kept == 0) *first = message.first;
        else if (gap) message_chain(kept, message.first);
        kept = message.first;
        gap = false;
    }
    if (kept == 0) *first = 0;
    else if (gap) message_chain(kept, 0);
    return held_inbox.more;
}

/* Put messages back that were taken out; returns the first that is there then. */
static uintptr_t inbox_put_back(struct heap *heap, uintptr_t first)
{
    uintptr_t head = 0;
    if (first == 0) return 0;
    /* Release: as in inbox_put. No look at the state follows: the claim keeps it what it was, since who retires the heap comes in
     * before his last look. */
    while (!atomic_compare_exchange_strong_explicit(&heap->inbox, &head, first, memory_order_release,
                                                    memory_order_relaxed)) {
        uintptr_t newer = inbox_empty(heap); /* what has come meanwhile goes before it; nobody but us takes any out */
        uintptr_t last = newer;
        for (struct message message = message_read(last); message.next != 0; message = message_read(last))
            last = message.next;
        message_chain(last, first);
        first = newer;
        head = 0;
    }
    return first;
}

uintptr_t remote_inbox_put_back(struct heap *heap)
{
    uintptr_t first = held_inbox.messages;
    held_inbox.messages = 0;
    return inbox_put_back(heap, first);
}

bool remote_lent_take_in(struct heap *heap, bool (*is_awaited)(const struct heap *heap))
{
    /* While a block is accused, the inbox is what it may be accused of being in: that is left to the owner. */
    if (atomic_load_explicit(&heap->suspects, memory_order_relaxed) != 0) return true;
    struct remote_elsewhere elsewhere = {0, 0};
    uint32_t looked = 0;
    uintptr_t first = inbox_empty(heap);
    while (first != 0 && (++looked % LOOK_EVERY != 0 || !is_awaited(heap))) first = receive(heap, first, &elsewhere);
    inbox_put_back(heap, first);
    remote_send_on(elsewhere);
    return first == 0;
}

void remote_send_on(struct remote_elsewhere elsewhere)
{
    while (elsewhere.messages != 0) {
        struct message message = message_read(elsewhere.messages);
        elsewhere.messages = message.next;
        struct heap *owner = owner_of(span_of_offset(message.first - space.base), message.first);
        hand_over(owner, message.first, message.first);
    }
    while (elsewhere.suspects != 0) {
        uintptr_t block = elsewhere.suspects;
        elsewhere.suspects = message_or_accused(block).next;
        accuse(owner_of(span_of_offset(block - space.base), block), block);
    }
}
