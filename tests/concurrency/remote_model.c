/* Checks the hand-over of remote frees, the settling of idle heaps, orphans and their adoption, and fork, in every
 * interleaving with a few preemptions.
 *
 * It is the real remote.c, registry.c and shared.c that run, included below with atomics and locks that let other threads in: a
 * model in a language of its own (Promela, TLA+) would check what we believe the code to be, and would not notice when the
 * code changes. What lies beneath them (bins, address space) is replaced by the least that counts blocks, so that an
 * execution takes microseconds.
 *
 * The sources come by macro, so that the build can make mutants of them, which this program must reject.
 */
#include "interleave.h"
#include "memory.h"

#include "heap/heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the sources, compiled so that every atomic access is a place to change threads (memory.h) ------------------------------ */

/* What they read while others write it, they read atomically; that a sanitizer need not know of it is not for us. */
#undef READS_RACILY
#define READS_RACILY

/* Their thread-local variables are those of the one thread of the system, exchanged when threads are (switched). */
#include REMOTE_SOURCE
#include REGISTRY_SOURCE
#include SHARED_SOURCE

/* ---- platform/: locks --------------------------------------------------------------------------------------------------------- */

enum { NOBODY = 0 };

static UNTOLD bool lock_is_free(const void *lock)
{
    return ((const platform_lock *)lock)->word == NOBODY;
}

/* As platform/lock.c: a lock has a thread's number, from 1 on, or forks hold it. */
enum { FORK = 1 << 8, FORK_FOR_EVER = 1 << 16 };

static uint64_t self(void)
{
    return (uint64_t)interleave_self() + 1;
}

static UNTOLD bool is_of_a_thread(const platform_lock *lock)
{
    return lock->word != NOBODY && lock->word < FORK;
}

static UNTOLD bool is_of_no_thread(const void *lock)
{
    return !is_of_a_thread(lock);
}

UNTOLD void platform_lock_acquire(platform_lock *lock)
{
    memory_lock_wanted(lock);
    if (lock->word == self()) interleave_fail("a lock is taken twice");
    if (lock->word >= FORK) interleave_fail("a thread waits for a lock that a fork holds");
    while (!lock_is_free(lock)) interleave_wait(lock_is_free, lock);
    lock->word = self();
    memory_lock_taken(lock);
}

/* Who is refused learns nothing of what was done under it. */
UNTOLD bool platform_lock_enter(platform_lock *lock)
{
    memory_lock_wanted(lock);
    while (is_of_a_thread(lock) && lock->word != self()) interleave_wait(is_of_no_thread, lock);
    if (lock->word != NOBODY) return false;
    lock->word = self();
    memory_lock_taken(lock);
    return true;
}

UNTOLD void platform_lock_release(platform_lock *lock)
{
    if (lock->word != self()) interleave_fail("a lock is released that is not held");
    lock->word = NOBODY;
    memory_lock_released(lock);
}

UNTOLD bool platform_lock_is_held_by_fork(const platform_lock *lock)
{
    memory_lock_wanted(lock);
    memory_lock_taken(lock); /* it acquires */
    return lock->word >= FORK;
}

bool platform_lock_is_any_own(void)
{
    return false; /* no signals here */
}

UNTOLD void platform_lock_fork_begin(platform_lock *lock)
{
    memory_lock_wanted(lock);
    while (is_of_a_thread(lock)) interleave_wait(is_of_no_thread, lock);
    lock->word += FORK;
    memory_lock_taken(lock);
}

UNTOLD void platform_lock_fork_end(platform_lock *lock)
{
    memory_lock_wanted(lock);
    if (lock->word < FORK) interleave_fail("a fork ends that did not begin");
    lock->word -= FORK;
    memory_lock_released(lock);
}

UNTOLD void platform_lock_fork_end_in_child(platform_lock *lock)
{
    lock->word = is_of_a_thread(lock) ? FORK_FOR_EVER : NOBODY;
}

UNTOLD bool platform_lock_mend(platform_lock *lock)
{
    bool lost = is_of_a_thread(lock);
    lock->word = NOBODY;
    return lost;
}

void platform_fork_watch(void (*mend)(void))
{
    /* our handler is the child's first */
}

/* Nor are there copies without handlers. */
void platform_copy_watch(void (*mend)(void)) {}

void platform_copy_look(void) {}

static void (*exit_hook)(void *);

void platform_thread_exit_hook(void (*hook)(void *))
{
    exit_hook = hook;
}

bool platform_thread_exit_arm(void *argument)
{
    return true;
}

unsigned platform_processors(void)
{
    return 1; /* so all that share use the same heap */
}

uint64_t platform_random(void)
{
    return UINT64_C(0x123456789ABCDEF0);
}

/* ---- space/: a few spans of four blocks ----------------------------------------------------------------------------------------- */

enum { SPANS = 3, BLOCKS = 4, HEAPS = 4, BLOCK_BYTES = 64, BIN = 3 };

struct space space;
/* The table grows downwards from the first span: it has the room of one before it. */
static char memory[1 + SPANS][SPAN_SIZE] __attribute__((aligned(1 << SPAN_SHIFT)));

static struct heap heaps[HEAPS];
static int heaps_made;
static struct outbox outboxes[HEAPS];
static int outboxes_made;

static bool may_accuse; /* the scenario frees a block twice */
static int gone; /* threads that have exited */
static _Atomic(bool) told; /* by one thread of the program to another, that a block has been freed */

enum block_state { LIVE, FREED };
static enum block_state blocks[SPANS][BLOCKS];

void heap_configure(void) {}

bool space_start(void)
{
    return true;
}

UNTOLD void *space_metadata(size_t size)
{
    if (size == sizeof(struct outbox)) {
        if (outboxes_made == HEAPS) interleave_fail("too many outboxes");
        return &outboxes[outboxes_made++];
    }
    if (heaps_made == HEAPS) interleave_fail("too many heaps");
    return &heaps[heaps_made++];
}

uint32_t space_spans(void)
{
    return SPANS;
}

void space_fork_begin(void) {}

void space_fork_end(void) {}

void space_fork_child(void) {}

static uintptr_t block_at(int span, int block)
{
    return span_start(span_at((uint32_t)span)) + (uintptr_t)block * BLOCK_BYTES;
}

/* ---- bins: lists of spans, and blocks that are live or freed ---------------------------------------------------------------------- */

static void own(struct heap *heap, struct span *span)
{
    atomic_store_explicit(&span->owner, heap, memory_order_relaxed);
    span->owned_next = heap->owned.first;
    heap->owned.first = span_index(span);
    heap->owned.spans++;
    span->next = heap->bins[BIN].listed;
    heap->bins[BIN].listed = span_index(span);
}

static void unchain(uint32_t *link, struct span *span, bool by_owner)
{
    while (*link != span_index(span)) {
        if (*link == SPAN_NONE) interleave_fail("a span is not in the list of its owner");
        link = by_owner ? &span_at(*link)->owned_next : &span_at(*link)->next;
    }
    *link = by_owner ? span->owned_next : span->next;
}

static void disown(struct heap *heap, struct span *span)
{
    unchain(&heap->owned.first, span, true);
    heap->owned.spans--;
    unchain(&heap->bins[BIN].listed, span, false);
}

void heap_take_span(struct heap *heap, struct heap *from, struct span *span)
{
    disown(from, span);
    own(heap, span);
}

void heap_take_spans(struct heap *heap, struct heap *from)
{
    while (from->owned.spans != 0) heap_take_span(heap, from, span_at(from->owned.first));
}

static UNTOLD struct heap *latest_owner(const struct span *span)
{
    return span->owner;
}

void block_free_local(struct heap *heap, struct span *span, uintptr_t block)
{
    if (latest_owner(span) != heap) interleave_fail("a block was taken by a heap that does not own it");
    enum block_state *state = &blocks[span_index(span)][(block & (SPAN_SIZE - 1)) / BLOCK_BYTES];
    if (*state == FREED) interleave_fail("a block was taken twice");
    *state = FREED;
    *block_words(block) = span_list_end(span) ^ block ^ space.link_key; /* it looks free */
    if (--span->countdown != 0) return;
    disown(heap, span);
    atomic_store_explicit(&span->owner, NULL, memory_order_relaxed);
}

void span_free_list(struct heap *heap, struct span *span, uintptr_t first, uintptr_t last, uint32_t count)
{
    uintptr_t block = first;
    for (; count > 1; count--) {
        uintptr_t next = list_next(block);
        block_free_local(heap, span, block);
        block = next;
    }
    if (block != last || !list_is_empty(list_next(block))) interleave_fail("a message is not what it says");
    block_free_local(heap, span, block);
}

static _Atomic(int) freed_of_0; /* blocks, by the program */

/* All its blocks have been freed, though its owner does not know. */
void span_give_away(struct heap *heap, struct span *span, uint32_t *chain)
{
    if (latest_owner(span) != heap) interleave_fail("a span is given away by a heap that does not own it");
    if (freed_of_0 != BLOCKS) interleave_fail("a span is given away of which a block lives");
    for (int block = 0; block < BLOCKS; block++) blocks[span_index(span)][block] = FREED;
    disown(heap, span);
    atomic_store_explicit(&span->owner, NULL, memory_order_relaxed);
}

uintptr_t bin_take_from_hands(struct heap *heap)
{
    return 0; /* its blocks are too small */
}

void heap_flush(struct heap *heap) {}

void heap_chores_look(struct heap *heap) {}

void heap_chores_expect(struct heap *heap) {}

void heap_orphans_look(void) {}

enum chores_left cache_detach_old(struct heap *heap, uint64_t now, uint32_t age_ms, uint32_t *chain)
{
    return CHORES_NONE;
}

enum chores_left idle_tend(struct heap *heap, uint64_t now, uint32_t age_ms, uint32_t *chain, struct heap **lent)
{
    return CHORES_NONE;
}

enum chores_left idle_tend_lent(struct heap *heap, uint64_t now)
{
    return CHORES_NONE;
}

void heap_wait_for_claim(struct heap *heap) {}

/* Nor lends one: lent_model.c. */
struct heap *heap_fetch(void)
{
    interleave_fail("a heap is fetched that is not lent");
}

_Atomic(uint32_t) heap_background_status;

void heap_background_consider(void) {}

void heap_background_fork_child(void) {}
void heap_pressure_fork_child(void) {}
_Atomic(uint32_t) heap_inherit_after;
void heap_inherit_expect(void) {}
void heap_inherit_look(void) {}
void heap_take_restored(struct heap *heap, struct span *span, uint32_t live)
{
    (void)heap;
    (void)span;
    (void)live;
}

void heap_background_start(const void *caller) {}

/* Nobody claims a heap but who plays it. */
void heap_background_thread_leaves(void) {}

bool heap_background_may_interrupt_others(void)
{
    return false;
}

uint64_t platform_clock_ms(void)
{
    return 0;
}

bool platform_lock_is_awaited(const platform_lock *lock)
{
    return false;
}

int32_t platform_thread_number(void)
{
    return 1;
}

uint64_t platform_process_identity(void)
{
    return 1;
}

bool platform_thread_exists(int32_t number)
{
    return true;
}

/* No heap keeps free spans here. */
void cache_start(struct span_cache *cache) {}

uint32_t cache_detach(struct heap *heap, uint32_t chain)
{
    return chain;
}

void cache_release(uint32_t chain) {}
void cache_growth_rests(void) {}

size_t cache_bytes(const struct heap *heap)
{
    return 0;
}

void heap_give_back(struct heap *heap)
{
    if (heap->size != space.size) interleave_fail("a heap is used that is not set up");
}

void heap_locked_give_back(struct heap *heap)
{
    heap_give_back(heap);
}

enum chores_left heap_locked_step(struct heap *heap)
{
    return CHORES_NONE;
}

void check_link_failed(const void *block)
{
    interleave_fail("a block arrived that was not on its way");
}

void check_pointer_failed(const char *function, const void *pointer)
{
    interleave_fail("a live block has no owner");
}

void check_double_free(const void *pointer)
{
    if (may_accuse) interleave_end();
    interleave_fail("a block that is freed once is taken for freed twice");
}

bool check_list_contains(uintptr_t list, uintptr_t block)
{
    return false;
}

void check_suspicious_free(const struct heap *heap, const struct span *span, uintptr_t block)
{
    if (blocks[span_index(span)][(block & (SPAN_SIZE - 1)) / BLOCK_BYTES] == FREED)
        check_double_free((const void *)block);
}

/* ---- the stage --------------------------------------------------------------------------------------------------------------------- */

struct thread_locals {
    struct heap *heap, *shared, *fork_inside;
    unsigned exits, forks;
    bool fork_holds;
    uint32_t fork_entered, shared_calls;
    uint64_t held;
};

static struct thread_locals locals[INTERLEAVE_THREADS_MAX];

static void switched(int from, int to)
{
    locals[from] =
        (struct thread_locals){thread_heap,       thread_shared,       thread_fork_inside,  thread_exits, thread_forks,
                               thread_fork_holds, thread_fork_entered, thread_shared_calls, held};
    thread_heap = locals[to].heap;
    thread_shared = locals[to].shared;
    thread_fork_inside = locals[to].fork_inside;
    thread_exits = locals[to].exits;
    thread_forks = locals[to].forks;
    thread_fork_holds = locals[to].fork_holds;
    thread_fork_entered = locals[to].fork_entered;
    thread_shared_calls = locals[to].shared_calls;
    held = locals[to].held;
}

static uint32_t lockless; /* the limit of the scenario */

/* A heap for thread i, or its shared one. */
static struct heap *join(int i)
{
    thread_heap = &heap_none;
    struct heap *heap = heap_thread_enter();
    heap_thread_leave(heap);
    locals[i] = (struct thread_locals){.heap = thread_heap, .shared = thread_shared};
    return heap;
}

/* Thread i has a heap with span i, all of whose blocks live; span SPANS-1 is an orphan, its owner gone. */
static void set_up(void)
{
    memset(memory[1] - SPANS * sizeof(struct span), 0, SPANS * sizeof(struct span));
    for (int span = 0; span < SPANS; span++) memset(memory[1 + span], 0, BLOCKS * BLOCK_BYTES);
    memset(heaps, 0, sizeof heaps);
    memset(outboxes, 0, sizeof outboxes);
    outboxes_made = 0;
    memset(&registry, 0, sizeof registry);
    memset(&shared, 0, sizeof shared);
    memset(&heap_orphans, 0, sizeof heap_orphans);
    memset(blocks, 0, sizeof blocks);
    may_accuse = false;
    freed_of_0 = 0;
    gone = 0;
    told = false;
    heap_orphans.state = HEAP_SHARED;
    heaps_made = 0;
    space.base = (uintptr_t)memory[1];
    space.size = SPANS * SPAN_SIZE;
    heap_settings.remote_free_batch = 1;
    heap_settings.lockless_threads = lockless;
    heap_settings.share_first = 0;
    thread_exits = thread_forks = 0;
    thread_shared_calls = 0;
    thread_fork_inside = NULL;
    for (int i = 0; i < INTERLEAVE_THREADS_MAX; i++) locals[i] = (struct thread_locals){.heap = &heap_none};
    for (int i = 0; i < SPANS; i++) {
        struct span *span = span_at((uint32_t)i);
        struct heap *heap = i == SPANS - 1 ? &heap_orphans : join(i);
        span->kind = SPAN_BLOCKS;
        span->bin = BIN;
        span->block_size = BLOCK_BYTES;
        span->reciprocal = UINT32_MAX / BLOCK_BYTES + 1;
        span->countdown = span->carved = BLOCKS;
        own(heap, span);
    }
    thread_heap = locals[0].heap;
    thread_shared = locals[0].shared;
}

/* What free() does, without its fast path's check of the program. */
static void free_block(int span_number, int block)
{
    uintptr_t address = block_at(span_number, block);
    struct span *span = span_at((uint32_t)span_number);
    struct heap *owner = atomic_load_explicit(&span->owner, memory_order_relaxed);
    if (owner == thread_heap) block_free_local(thread_heap, span, address);
    else if (thread_heap != &heap_sharing) remote_free(thread_heap, span, address);
    else if (!heap_is_shared(owner) || !shared_free(owner, span, address)) remote_free(&heap_none, span, address);
}

static void free_span(int span_number)
{
    for (int block = 0; block < BLOCKS; block++) free_block(span_number, block);
}

static void exit_thread(void)
{
    if (thread_heap != &heap_none) exit_hook(thread_heap);
    gone++;
}

static bool others_are_gone(const void *unused)
{
    return gone == 2;
}

/* ---- what is right at the end ----------------------------------------------------------------------------------------------------------- */

static int blocks_freed; /* by the threads of the scenario, of each span that they free wholly */
static bool forked;

static UNTOLD bool inboxes_are_empty(void)
{
    for (int i = 0; i < heaps_made; i++)
        if (heaps[i].inbox != 0 || heaps[i].suspects != 0) return false;
    return heap_orphans.inbox == 0 && heap_orphans.suspects == 0;
}

static bool locks_are_free(void)
{
    for (int i = 0; i < heaps_made; i++)
        if (heaps[i].lock.word != NOBODY) return false;
    return registry.lock.word == NOBODY && heap_orphans.lock.word == NOBODY;
}

static int heaps_shared(void)
{
    int count = 0;
    for (int i = 0; i < heaps_made; i++)
        if (heaps[i].state == HEAP_SHARED && heaps[i].owned.spans == 0) count++;
    return count;
}

/* All heaps stand in the list of idle ones, each once, or are shared by nobody. */
static bool all_heaps_are_idle(void)
{
    int listed = 0;
    for (const struct heap *heap = registry.idle; heap != NULL && listed <= HEAPS; heap = heap->next) {
        if (heap->state != HEAP_IDLE || heap->owned.spans != 0) return false;
        listed++;
    }
    return listed + heaps_shared() == heaps_made && registry.idle_count == (size_t)listed && registry.lockless == 0 &&
           registry.sharing == 0;
}

/* Every freed block has arrived, once, and every thread is gone: so no heap but the orphans' owns anything. */
static bool nothing_is_lost(void)
{
    int freed = 0;
    for (int span = 0; span < SPANS; span++)
        for (int block = 0; block < BLOCKS; block++) freed += blocks[span][block] == FREED;
    return freed == blocks_freed && inboxes_are_empty() && all_heaps_are_idle() && locks_are_free();
}

/* In the child of a fork blocks may lie in the inboxes of heaps whose threads are no more; but what it frees of the orphans
 * is taken, and nothing hangs. */
static bool child_is_sound(void)
{
    return locks_are_free() && heap_orphans.inbox == 0;
}

/* ---- the scenarios --------------------------------------------------------------------------------------------------------------------------- */

static void owner_exits(void)
{
    exit_thread();
}

/* So that the span stays its own: what is forwarded to another owner meanwhile may be missed. */
static void owner_takes_in_and_exits_last(void)
{
    for (int i = 0; i < 2; i++) {
        interleave();
        remote_inbox_take(thread_heap);
    }
    interleave_wait(others_are_gone, NULL);
    exit_thread();
}

static void frees_first_half_of_0(void)
{
    free_block(0, 0);
    free_block(0, 1);
    exit_thread();
}

static void frees_second_half_of_0(void)
{
    free_block(0, 2);
    free_block(0, 3);
    exit_thread();
}

/* The owner has freed it, or it is in a list of the orphans; whoever has the span by then has to look. */
static void frees_twice(void)
{
    may_accuse = true;
    memory_races_expected();
    struct span *span = span_at(0);
    uintptr_t block = block_at(0, 0);
    if (block_looks_free(block) && atomic_load_explicit(&span->owner, memory_order_relaxed) != NULL)
        remote_free(&heap_none, span, block);
    exit_thread();
}

static void frees_three_in_batches_of_two(void)
{
    heap_settings.remote_free_batch = 2;
    free_block(0, 0);
    atomic_store_explicit(&told, true, memory_order_release);
    free_block(0, 1);
    free_block(0, 2);
    exit_thread();
}

static UNTOLD bool is_told(const void *unused)
{
    return told;
}

/* Only what was freed before can be found: who frees a block twice at the same moment may not be noticed. */
static void frees_twice_when_told(void)
{
    interleave_wait(is_told, NULL);
    if (atomic_load_explicit(&told, memory_order_acquire)) frees_twice();
    else exit_thread();
}

/* The program has copied into it the link that an earlier use of the memory left behind. */
static void make_look_free(int span, int block)
{
    *block_words(block_at(span, block)) = (uintptr_t)BLOCK_BYTES ^ space.link_key;
}

static void frees_blocks_of_0_that_look_free(void)
{
    make_look_free(0, 0);
    make_look_free(0, 1);
    free_block(0, 0);
    free_block(0, 1);
    exit_thread();
}

/* It shares until another thread's place is free, and then has a heap of its own. */
static void allocates_until_it_has_a_heap(void)
{
    heap_settings.share_first = 1;
    for (int i = 0; i < 3; i++) heap_thread_leave(heap_thread_enter());
    exit_thread();
}

static void frees_orphans_that_look_free(void)
{
    make_look_free(2, 0);
    make_look_free(2, 1);
    free_block(2, 0);
    free_block(2, 1);
    exit_thread();
}

/* What was done under a claim comes before what the owner then does, by a barrier of the kernel's. The registry's lock, which the
 * claimer has meanwhile, stands for that. */
static void sleeps_until_others_are_gone(void)
{
    interleave_wait(others_are_gone, NULL);
    platform_lock_acquire(&registry.lock);
    platform_lock_release(&registry.lock);
    exit_thread();
}

static void free_of_0(int block)
{
    freed_of_0++;
    free_block(0, block);
}

static void frees_first_half_of_a_sleeper(void)
{
    free_of_0(0);
    free_of_0(1);
    exit_thread();
}

static void frees_all_of_a_sleeper(void)
{
    for (int block = 0; block < BLOCKS; block++) free_of_0(block);
    exit_thread();
}

static UNTOLD struct heap *first_heap(void)
{
    return locals[0].heap;
}

/* As idle.c does when it has claimed the heap. */
static void looks_into_the_inbox_of_a_sleeper(void)
{
    struct heap *heap = first_heap();
    for (int i = 0; i < 2; i++) {
        uint32_t spans, chain = SPAN_NONE;
        platform_lock_acquire(&registry.lock);
        remote_inbox_hold(heap, NULL, &spans);
        if (spans != 0) remote_inbox_give_away(heap, &chain);
        remote_inbox_put_back(heap);
        platform_lock_release(&registry.lock);
    }
    exit_thread();
}

static void frees_own_then_exits(void)
{
    free_block(0, 0);
    free_block(0, 1);
    exit_thread();
}

static void frees_0_in_batches(void)
{
    heap_settings.remote_free_batch = 3;
    free_span(0);
    exit_thread();
}

static void frees_1_then_exits(void)
{
    free_block(1, 0);
    free_block(1, 1);
    exit_thread();
}

static void adopts_then_exits(void)
{
    struct heap *heap = thread_heap->size == 0 ? heap_thread_enter() : thread_heap;
    heap_adopt_span(heap, BIN);
    heap_thread_leave(heap);
    exit_thread();
}

static void frees_orphans(void)
{
    free_block(2, 0);
    free_block(2, 1);
    exit_thread();
}

static void frees_orphans_too(void)
{
    free_block(2, 2);
    free_block(2, 3);
    exit_thread();
}

static void starts_and_exits(void)
{
    heap_thread_leave(heap_thread_enter());
    exit_thread();
}

static void trims_the_shared_heaps(void)
{
    shared_trim();
    exit_thread();
}

static void frees_first_half_of_1(void)
{
    free_block(1, 0);
    free_block(1, 1);
    exit_thread();
}

static void frees_second_half_of_1(void)
{
    free_block(1, 2);
    free_block(1, 3);
    exit_thread();
}

/* Forks, lives on as the child, and frees what it has inherited. */
static void forks(void)
{
    heap_fork_begin();
    interleave();
    interleave_kill_others();
    heap_fork_end_in_child();
    free_block(0, 2);
    free_block(2, 2);
    adopts_then_exits();
    starts_and_exits();
}

static void forks_as_parent(void)
{
    heap_fork_begin();
    free_block(2, 0); /* another library's handler */
    heap_fork_end();
    free_block(2, 1);
    exit_thread();
}

struct scenario {
    const char *name;
    int deviations;
    int freed; /* blocks, at the end; -1: the child of a fork, where this is not known */
    int threads;
    void (*thread[INTERLEAVE_THREADS_MAX])(void);
};

static const struct scenario scenarios[] = {
    {"an owner exits while another thread frees its blocks", 5, 2, 2, {owner_exits, frees_first_half_of_0}},
    {"an owner exits while two threads free its blocks",
     3,
     4,
     3,
     {owner_exits, frees_first_half_of_0, frees_second_half_of_0}},
    {"a batch is handed over while its target exits", 5, 4, 2, {owner_exits, frees_0_in_batches}},
    {"two threads exit and free each other's blocks", 4, 4, 2, {frees_1_then_exits, frees_first_half_of_0}},
    {"an owner exits while a block that it freed is freed again", 6, 2, 2, {frees_own_then_exits, frees_twice}},
    {"a block is freed again while another thread has it in hand",
     3,
     3,
     3,
     {owner_takes_in_and_exits_last, frees_three_in_batches_of_two, frees_twice_when_told}},
    {"an owner exits while blocks that only look free are freed",
     5,
     2,
     2,
     {owner_exits, frees_blocks_of_0_that_look_free}},
    {"an orphan is adopted while blocks that only look free are freed",
     3,
     2,
     3,
     {adopts_then_exits, owner_exits, frees_orphans_that_look_free}},
    {"an orphan is adopted while its blocks are freed", 3, 2, 3, {adopts_then_exits, owner_exits, frees_orphans}},
    {"two threads adopt while a third frees", 3, 2, 3, {adopts_then_exits, adopts_then_exits, frees_orphans}},
    {"the orphan's last blocks are freed while it is adopted",
     3,
     4,
     3,
     {adopts_then_exits, frees_orphans, frees_orphans_too}},
    {"an idle heap is taken while blocks arrive in it",
     3,
     2,
     3,
     {owner_exits, frees_first_half_of_0, starts_and_exits}},
    {"the inbox of a sleeper is looked into while all of a span arrives in it",
     3,
     4,
     3,
     {sleeps_until_others_are_gone, frees_all_of_a_sleeper, looks_into_the_inbox_of_a_sleeper}},
    {"the inbox of a sleeper is looked into while half of a span arrives in it",
     4,
     2,
     3,
     {sleeps_until_others_are_gone, frees_first_half_of_a_sleeper, looks_into_the_inbox_of_a_sleeper}},
    {"a thread forks while others exit and free: the child", 3, -1, 3, {owner_exits, forks, frees_orphans}},
    {"a thread forks while others adopt and free: the child",
     3,
     -1,
     3,
     {adopts_then_exits, forks, frees_first_half_of_0}},
    {"a thread forks while others exit and free: the parent",
     3,
     4,
     3,
     {owner_exits, forks_as_parent, frees_first_half_of_0}},
};

/* All but the first thread that asks for a heap share one. */
static const struct scenario sharing_scenarios[] = {
    {"the last thread that shares exits while a thread frees its blocks",
     4,
     2,
     2,
     {frees_first_half_of_1, owner_exits}},
    {"the last thread that shares frees and exits, and the span becomes empty",
     4,
     4,
     2,
     {frees_second_half_of_1, frees_first_half_of_1}},
    {"two threads that share free the same span",
     3,
     4,
     3,
     {owner_exits, frees_first_half_of_1, frees_second_half_of_1}},
    {"one thread begins to share while another ceases to, and blocks arrive",
     3,
     2,
     3,
     {frees_first_half_of_1, owner_exits, adopts_then_exits}},
    {"a thread that shares frees blocks of one that exits, and they only look free",
     3,
     2,
     2,
     {owner_exits, frees_blocks_of_0_that_look_free}},
    {"threads that share adopt while blocks that only look free are freed",
     2,
     2,
     3,
     {frees_orphans_that_look_free, adopts_then_exits, adopts_then_exits}},
    {"a thread that shares frees the blocks of one that exits", 4, 2, 2, {owner_exits, frees_first_half_of_0}},
    {"a thread gets the place of one that exits, and no longer shares",
     4,
     0,
     2,
     {owner_exits, allocates_until_it_has_a_heap}},
    {"a thread ceases to share while blocks of what it shares are freed",
     3,
     2,
     3,
     {owner_exits, allocates_until_it_has_a_heap, frees_first_half_of_1}},
    {"a thread ceases to share while another forks: the child",
     3,
     -1,
     3,
     {owner_exits, allocates_until_it_has_a_heap, forks}},
    {"an orphan is adopted while a thread that shares frees its blocks", 4, 2, 2, {adopts_then_exits, frees_orphans}},
    {"threads that share adopt while another frees", 3, 2, 3, {frees_orphans, adopts_then_exits, adopts_then_exits}},
    {"a thread that shares forks while others exit and free: the child",
     3,
     -1,
     3,
     {frees_first_half_of_1, forks, adopts_then_exits}},
    {"a thread forks while others share: the child", 3, -1, 3, {forks, frees_first_half_of_1, adopts_then_exits}},
    {"a thread forks while others share: the parent", 3, 4, 3, {forks_as_parent, frees_first_half_of_1, owner_exits}},
};

/* The first two threads have heaps of their own, the third makes the first one to share. */
static const struct scenario making_scenarios[] = {
    {"a thread trims the heap to share that another makes",
     3,
     0,
     3,
     {trims_the_shared_heaps, owner_exits, starts_and_exits}},
};

static bool is_right(void)
{
    return forked ? child_is_sound() : nothing_is_lost();
}

/* Deviations beyond those of the scenarios: for a longer run. One deviation more takes about ten times as long. */
static int deeper(void)
{
    const char *text = getenv("HEAPFIT_TEST_DEPTH");
    return text == NULL ? 0 : atoi(text);
}

/* Whether an error was found. */
static bool explore(const struct scenario *scenario, uint32_t limit, int deviations)
{
    struct interleave_program program = {
        .threads = scenario->threads,
        .set_up = set_up,
        .is_right = is_right,
        .switched = switched,
    };
    memcpy(program.thread, scenario->thread, sizeof program.thread);
    lockless = limit;
    forked = scenario->freed < 0;
    blocks_freed = scenario->freed;
    struct interleave_result result = interleave_explore(&program, deviations);
    printf("%s: %lu executions with up to %d deviations: %s\n", scenario->name, result.executions, deviations,
           result.error == NULL ? "right" : result.error);
    fflush(stdout);
    return result.error != NULL;
}

static const struct {
    const struct scenario *scenarios;
    size_t count;
    uint32_t lockless;
} all[] = {
    {scenarios, sizeof scenarios / sizeof *scenarios, UINT32_MAX},
    {sharing_scenarios, sizeof sharing_scenarios / sizeof *sharing_scenarios, 1},
    {making_scenarios, sizeof making_scenarios / sizeof *making_scenarios, 2},
};

/* Every scenario with as many deviations as it says, and `more`. */
static bool explore_all(int more)
{
    bool found = false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t k = 0; k < all[i].count; k++)
            found |= explore(&all[i].scenarios[k], all[i].lockless, all[i].scenarios[k].deviations + more);
    return found;
}

/* Whether there is an error. Few deviations first, which most errors take. */
static bool find_any(int deviations)
{
    bool deepest = true;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (size_t k = 0; k < all[i].count; k++) {
            if (all[i].scenarios[k].deviations < deviations) continue;
            deepest = false;
            if (explore(&all[i].scenarios[k], all[i].lockless, deviations)) return true;
        }
    }
    return !deepest && find_any(deviations + 1);
}

static void watch_all(void)
{
    memory_watch("the spans' descriptors", memory[1] - SPANS * sizeof(struct span), SPANS * sizeof(struct span));
    memory_watch("the blocks", memory[1], SPANS * SPAN_SIZE);
    memory_watch("what became of blocks", blocks, sizeof blocks);
    memory_watch("the heaps", heaps, sizeof heaps);
    memory_watch("the outboxes", outboxes, sizeof outboxes);
    memory_watch("the orphans' heap", &heap_orphans, sizeof heap_orphans);
    memory_watch("what threads tell", &told, sizeof told);
    memory_watch("the registry", &registry, sizeof registry);
    memory_watch("the shared heaps", &shared, sizeof shared);
}

/* With --mutant the sources have an error, and finding one is what is right. With --quick each scenario has one deviation less. */
int main(int count, char **arguments)
{
    bool mutant = count > 1 && strcmp(arguments[1], "--mutant") == 0;
    bool quick = count > 1 && strcmp(arguments[1], "--quick") == 0;
#ifdef MUTANT_IS_STALE
    puts(MUTANT_IS_STALE);
    return EXIT_FAILURE;
#endif
    watch_all();
    bool right = mutant ? find_any(0) : !explore_all(deeper() - quick);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
