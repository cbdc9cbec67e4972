/* Heaps whose threads rest: taking from a heap what its owner does not need, without the owner's help.
 *
 * A heap belongs to one thread, whose fast paths change it without locks or atomics, and may be interrupted for seconds at any
 * instruction. So which part of it can another thread have? That which only the owner's slow paths touch: the chains of its
 * spans, what is carved in them, and its lists but for their first block. The slow paths say so when they are under way, and the
 * background thread keeps them out while it works (a *claim*):
 *
 *     owner, slow path:   inside = 1; is it claimed? then wait ... inside = 0
 *     background thread:  claimed = 1; barrier in all threads (membarrier); is the owner inside? then give up
 *
 * The owner has no fence between its store and its load. The system call is one for it, wherever it is: if its load came
 * before, its store is seen and the claim is given up; if after, it sees the claim. So the paths that everybody takes pay two
 * plain stores and a load per refill, and the rare one pays the system call.
 *
 * What the fast paths may do meanwhile: free takes a block that the program has, writes a link to it that leads to the first
 * block of its span's list, makes it the first, and counts down, in that order. malloc takes blocks of the span that its bin's
 * list is of. So under a claim
 *
 * - a span none of whose blocks lives is nobody's: no block of it can be freed, and its bin's list is not of it, for the blocks
 *   there count as live. It is given away. What its owner last wrote there comes before its count, so after one more barrier
 *   all of it is written. The owner may have counted down to 0 and be about to say so: it finds that the span is not its own.
 * - of a sparse span's list the first block, as it was before one more barrier, may become the second while we look, but what
 *   stands behind it nobody touches. So it stays where it is, the others are linked anew, and pages on which nothing else lies
 *   go back. A link that is not yet written does not look like one; then the span is left alone.
 *
 * - what others have freed for the owner can be counted, and spans of which nothing else lives are given away: see remote.c.
 *
 * - what is at hand (bin.c), which slow paths alone touch, goes to the owner's inbox, so that it counts among these.
 *
 * What cannot be had: the blocks of the bins' own lists, which malloc may take at any time, few in each bin of a heap that has freed
 * spans; and pages of spans that are not sparse. That takes an owner that sleeps in the kernel: of such a one the whole heap can be
 * had, see lent.c. Objects of mixed sizes are freed and made elsewhere: their bins are
 * left alone. Heaps of a lock are not idle.
 *
 * The registry's lock is held during a claim, so that no owner retires meanwhile, unless the heap is lent: then its owner has to
 * fetch it before. A thread that forks is inside its heap until
 * the fork ends, so that the child finds no claim of it. What the claimer calls waits for no lock that a fork holds. A copy of the
 * process that was made without fork's handlers may have a claim and no claimer: its owner begins anew (registry.c) where
 * the claimer was at work.
 */
#include "heap.h"

/* Spans of a heap that are looked at in a claim: so its owner waits for some hundred microseconds at most. */
enum { CLAIMED_SPANS = 16 };

struct found {
    struct span *span;
    uintptr_t head; /* of its list, if it is sparse; 0: no block of it lives */
};

struct finds {
    struct found spans[CLAIMED_SPANS];
    unsigned count;
};

/* ---- the owner ---------------------------------------------------------------------------------------------------- */

enum { WAIT_US = 1000000 };

/* While it is lent and we are inside, no claim comes further than to find us there. */
static void end_lending(struct heap *heap)
{
    heap_take_back(heap);
    uint32_t claimed = CLAIM_LENT;
    /* Relaxed: for who claims it the mark orders nothing. */
    atomic_compare_exchange_strong_explicit(&heap->claimed, &claimed, CLAIM_NONE, memory_order_relaxed,
                                            memory_order_relaxed);
}

COLD void heap_wait_for_claim(struct heap *heap)
{
    for (;;) {
        platform_copy_look();
        uint32_t claimed = CLAIMED;
        /* Acquire: pairs with the release in claim_end. */
        if (!atomic_compare_exchange_strong_explicit(&heap->claimed, &claimed, CLAIMED_OWNER_WAITS,
                                                     memory_order_acquire, memory_order_acquire)) {
            if (claimed == CLAIM_NONE) return;
            if (claimed == CLAIM_LENT) {
                end_lending(heap);
                continue;
            }
        }
        platform_wait(&heap->claimed, CLAIMED_OWNER_WAITS, WAIT_US);
    }
}

/* ---- claims ------------------------------------------------------------------------------------------------------- */

static void claim_end(struct heap *heap)
{
    /* Release: for a copy of the process, in which what came before it is done. */
    atomic_store_explicit(&heap->claim_holds, false, memory_order_release);
    enum claim after = heap_is_lent(heap) ? CLAIM_LENT : CLAIM_NONE;
    /* Release: what was done is seen by the owner when it finds no claim. */
    if (atomic_exchange_explicit(&heap->claimed, after, memory_order_release) == CLAIMED_OWNER_WAITS)
        platform_wake(&heap->claimed);
}

/* False when the owner has been on a slow path since its `entries` were looked at; then `*left` says that it is to be tried again.
 * And when the kernel refuses the barrier, as a sandbox that the process has entered since may have it do: then what is left is
 * the owner's to do. */
static bool claim_begin(struct heap *heap, uint32_t entries, enum chores_left *left)
{
    /* Nobody else has claimed it: look_at_rest has seen that, under the registry's lock, and without it claims only end. */
    atomic_store_explicit(&heap->claimed, CLAIMED, memory_order_seq_cst);
    bool passed = platform_barrier_everywhere();
    *left = passed ? CHORES_LATER : CHORES_NONE;
    /* Acquire: pairs with the release in heap_leave. */
    if (!passed || atomic_load_explicit(&heap->inside, memory_order_acquire) != entries) {
        claim_end(heap);
        return false;
    }
    atomic_store_explicit(&heap->claim_holds, true, memory_order_relaxed);
    atomic_thread_fence(
        memory_order_release); /* what is done now, a copy of the process sees after that or not at all */
    return true;
}

/* ---- what there is ------------------------------------------------------------------------------------------------ */

static void find(struct finds *finds, struct span *span, uintptr_t head)
{
    finds->spans[finds->count++] = (struct found){.span = span, .head = head};
}

/* Racily, as the owner's fast paths go on: a count that they have not finished is too high. */
READS_RACILY static void find_empty(const struct heap *heap, struct finds *finds)
{
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        for (uint32_t index = heap->bins[bin].listed; index != SPAN_NONE; index = span_at(index)->next) {
            if (finds->count == CLAIMED_SPANS) return;
            if (__atomic_load_n(&span_at(index)->countdown, __ATOMIC_RELAXED) + span_at(index)->held_back == 0)
                find(finds, span_at(index), 0);
        }
    }
}

READS_RACILY static void find_sparse(const struct heap *heap, struct finds *finds, uint64_t now, uint32_t age_ms)
{
    for (uint32_t index = heap->sparse.first; index != SPAN_NONE; index = span_at(index)->owned_next) {
        struct span *span = span_at(index);
        if (finds->count == CLAIMED_SPANS || span_age(span, now) < age_ms) return;
        bool is_empty = __atomic_load_n(&span->countdown, __ATOMIC_RELAXED) + span->held_back == 0;
        if (!bin_is_pool(span->bin) && !is_empty) find(finds, span, __atomic_load_n(&span->free, __ATOMIC_RELAXED));
    }
}

/* ---- whether it rests --------------------------------------------------------------------------------------------- */

/* Whether others have freed something for it that was not looked at. */
static enum chores_left inbox_left(const struct heap *heap, uint64_t now, uint32_t age_ms)
{
    uintptr_t first = atomic_load_explicit(&heap->inbox, memory_order_relaxed); /* only to be compared */
    if (first == 0 || first == heap->inbox_seen) return CHORES_NONE;
    return age_ms != AT_ONCE && now < heap->inbox_due ? CHORES_LATER : CHORES_NOW;
}

/* Whether the owner has kept away from its slow paths for so long, and what these have left, or others, was not seen to yet. */
static enum chores_left look_at_rest(struct heap *heap, uint64_t now, uint32_t age_ms, uint32_t *entries)
{
    /* Is somebody at work in it, as it was lent? Acquire: pairs with the release in claim_end. */
    uint32_t claimed = atomic_load_explicit(&heap->claimed, memory_order_acquire);
    if (claimed == CLAIMED || claimed == CLAIMED_OWNER_WAITS) return CHORES_LATER;
    /* Relaxed: a hint, claim_begin looks again. */
    *entries = atomic_load_explicit(&heap->inside, memory_order_relaxed);
    if (*entries != heap->rest_entries || (*entries & HEAP_INSIDE) != 0) {
        heap->rest_entries = *entries;
        heap->rest_begun = now;
        heap->rest_done = heap->rest_runs = false;
        heap->inbox_seen = 0;
    }
    if ((*entries & HEAP_INSIDE) != 0) return CHORES_LATER;
    enum chores_left left = heap->rest_done && !heap->rest_runs ? inbox_left(heap, now, age_ms) : CHORES_NOW;
    if (left != CHORES_NOW) return left;
    return now - heap->rest_begun < age_ms ? CHORES_LATER : CHORES_NOW;
}

/* ---- what others have freed for it ------------------------------------------------------------------------------------ */

/* Messages are cache misses, and there may be millions of them, of which nothing can be had. So no more than one part in so many
 * of a processor's time is spent on them. */
enum { INBOX_TIME_SHARE = 64 };

static bool owner_waits(const struct heap *heap)
{
    return atomic_load_explicit(&heap->claimed, memory_order_relaxed) == CLAIMED_OWNER_WAITS;
}

static bool is_awaited(const struct heap *heap)
{
    return owner_waits(heap) || heap_registry_is_awaited();
}

static void inbox_rest(struct heap *heap, uint64_t now, uint64_t begun_ns)
{
    heap->inbox_due = now + (platform_clock_ns() - begun_ns) / 1000000 * INBOX_TIME_SHARE;
}

static enum chores_left inbox_tend(struct heap *heap, uint64_t now, uint32_t age_ms, uint32_t *chain)
{
    /* While a block is accused, the inbox is what it may be accused of being in: that is left to the owner. */
    if (atomic_load_explicit(&heap->suspects, memory_order_relaxed) != 0) return CHORES_NONE;
    remote_send_hands(heap); /* it rests: what is at hand is as if others had freed it */
    if (inbox_left(heap, now, age_ms) != CHORES_NOW) return CHORES_NONE;
    uint64_t begun = platform_clock_ns();
    uint32_t spans;
    bool whole = remote_inbox_hold(heap, age_ms == AT_ONCE ? NULL : is_awaited, &spans), more = false;
    if (whole && spans != 0) {
        whole = platform_barrier_everywhere();
        if (whole) more = remote_inbox_give_away(heap, chain);
    }
    uintptr_t left = remote_inbox_put_back(heap);
    heap->inbox_seen = whole && !more ? left : 0;
    inbox_rest(heap, now, begun);
    return !whole ? CHORES_LATER : more ? CHORES_NOW : CHORES_NONE;
}

/* ---- a heap ------------------------------------------------------------------------------------------------------- */

static enum chores_left spans_tend(struct heap *heap, uint64_t now, uint32_t age_ms, uint32_t *chain)
{
    struct finds finds = {.count = 0};
    find_empty(heap, &finds);
    find_sparse(heap, &finds, now, age_ms);
    if (finds.count != 0 && !platform_barrier_everywhere())
        return CHORES_LATER; /* refused for once; if it were tried at once, it would be again */
    for (unsigned i = 0; i < finds.count; i++) {
        struct span *span = finds.spans[i].span;
        if (finds.spans[i].head == 0) span_give_away(heap, span, chain);
        else span_purge_resting(heap, span, finds.spans[i].head);
    }
    heap->rest_done = finds.count < CLAIMED_SPANS;
    return heap->rest_done ? CHORES_NONE : CHORES_NOW;
}

/* A real-time thread would have to wait for us as long as other such threads take our processor. Nothing is left to do until it has
 * been on a slow path again. */
static bool is_left_to_real_time(struct heap *heap)
{
    /* Relaxed, both: written under the registry's lock; and only to be compared. */
    if (!platform_thread_is_real_time(atomic_load_explicit(&heap->thread, memory_order_relaxed))) return false;
    heap->rest_done = true;
    heap->rest_runs = false;
    heap->inbox_seen = atomic_load_explicit(&heap->inbox, memory_order_relaxed);
    return true;
}

enum chores_left idle_tend(struct heap *heap, uint64_t now, uint32_t age_ms, uint32_t *chain, struct heap **lent)
{
    uint32_t entries;
    enum chores_left left = look_at_rest(heap, now, age_ms, &entries);
    if (left != CHORES_NOW) return left;
    if (is_left_to_real_time(heap)) return CHORES_NONE;
    enum platform_sleep sleep = lent == NULL ? THREAD_IS_ELSEWHERE : heap_sleep(heap);
    bool runs_on = heap->rest_runs && sleep == THREAD_RUNS;
    if (runs_on && heap->rest_done && inbox_left(heap, now, age_ms) != CHORES_NOW) return CHORES_LATER;
    if (lent != NULL) heap->rest_runs = sleep == THREAD_RUNS;
    if (!claim_begin(heap, entries, &left)) return left;
    if (sleep == THREAD_SLEEPS) sleep = heap_lend(heap);
    if (sleep == THREAD_SLEEPS) {
        *lent = heap;
        return CHORES_NONE;
    }
    if (lent != NULL) heap->rest_runs = sleep == THREAD_RUNS; /* it may have woken just now */
    left = heap->rest_runs ? CHORES_LATER : CHORES_NONE;
    enum chores_left inbox = inbox_tend(heap, now, age_ms, chain);
    if (!heap->rest_done) left = chores_more_urgent(left, spans_tend(heap, now, age_ms, chain));
    claim_end(heap);
    return chores_more_urgent(left, inbox);
}

enum chores_left idle_tend_lent(struct heap *heap, uint64_t now)
{
    uint64_t begun = platform_clock_ns();
    heap->rest_done = heap_lent_give_back(heap, owner_waits);
    heap->inbox_seen = 0;
    inbox_rest(heap, now, begun);
    enum chores_left left = heap->rest_done ? CHORES_NONE : CHORES_LATER;
    claim_end(heap);
    return left;
}
