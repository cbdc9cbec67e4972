/* Heaps and threads: birth, death, orphans, fork.
 *
 * When a thread exits, its heap gives back what is empty; the spans in which blocks live on become *orphans*: they belong to
 * heap_orphans, which works like any heap, but under a lock and for everybody. A thread whose bin needs another span first
 * looks for an orphan that has blocks to give. A thread that frees blocks of orphans does the orphans' work: it takes them in,
 * and gives back spans that have become empty. The heap itself is *idle* until the next thread starts.
 *
 * Threads beyond `lockless_threads` share heaps (shared.c): who gets a heap of its own is decided here, when a thread first
 * needs one; when it exits its place is free. Where there are many threads already, one that comes shares at first, too, and gets
 * its own when it has allocated `share_first` times: most threads of thousands never do.
 *
 * After fork() the child has the forking thread only. The heaps of the others are *left behind*: their threads may have been in the
 * middle of anything. Their blocks stay usable, freeing them is safe, and inherit.c takes their memory over when it is needed.
 *
 * A fork holds the locks of what any thread may use, the shared heaps, the orphans and the space, so that they are whole in the
 * child. Since the forking thread may wait for any other meanwhile (space/fork.c), none waits for it:
 *
 *     a thread that shares       borrows a heap for each call
 *     blocks of such heaps       wait in their inboxes, until the fork ends
 *     a thread that exits        leaves its heap as it is if blocks live in it, for whoever comes by when the fork has ended
 *
 * The registry's lock no fork holds, nor do those of caches: what they protect the child can put in order. In its own heap the
 * forking thread is inside all the time, so that none claims it meanwhile; the claims of others are lost with their heaps.
 */
#include "heap.h"

#include <string.h>

__thread struct heap *thread_heap __attribute__((tls_model("initial-exec"))) = &heap_none;

/* How often this thread's exit hook has run. */
static __thread unsigned thread_exits __attribute__((tls_model("initial-exec")));

/* POSIX promises that destructors run at least four times over (PTHREAD_DESTRUCTOR_ITERATIONS). The hook asks for each of these
 * rounds. So a thread that allocates after its heap is gone may have another, of whose end the hook will be told. In the last
 * round and after it, when the C library frees what it has of the thread, it borrows one for each call. */
enum { THREAD_EXITS_MAX = 4 };

#define FOUR(x) x, x, x, x
#define TWENTY_FOUR(x) FOUR(x), FOUR(x), FOUR(x), FOUR(x), FOUR(x), FOUR(x)
#define SEVENTY_TWO(x) TWENTY_FOUR(x), TWENTY_FOUR(x), TWENTY_FOUR(x)
#ifdef HEAPFIT_POOLS
_Static_assert(HEAP_BINS == 240, "heap_none's bins are all empty");
#define ALL_EMPTY {SEVENTY_TWO(LIST_END), SEVENTY_TWO(LIST_END), SEVENTY_TWO(LIST_END), TWENTY_FOUR(LIST_END)}
#else
_Static_assert(HEAP_BINS == 72, "heap_none's bins are all empty");
#define ALL_EMPTY {SEVENTY_TWO(LIST_END)}
#endif
struct heap heap_none = {.free = ALL_EMPTY};
struct heap heap_diverted = {.free = ALL_EMPTY};
struct heap heap_sharing = {.free = ALL_EMPTY};
struct heap heap_lent = {.free = ALL_EMPTY};

__thread struct heap *thread_heap_kept __attribute__((tls_model("initial-exec"))) = &heap_none;
__thread struct heap *thread_heap_lent __attribute__((tls_model("initial-exec"))) = &heap_none;

/* The heap that the calling thread shares, while heap_sharing stands in its place, and how often it has allocated there. */
static __thread struct heap *thread_shared __attribute__((tls_model("initial-exec")));
static __thread uint32_t thread_shared_calls __attribute__((tls_model("initial-exec")));

__thread volatile unsigned heap_hands __attribute__((tls_model("initial-exec")));

struct heap heap_orphans = {.state = HEAP_SHARED};

static struct {
    platform_lock lock;
    bool started;
    struct heap *idle; /* doubly linked */
    struct heap *leaving; /* whose threads are gone, but which are not idle yet; linked by `next` */
    struct heap *youngest; /* of all heaps ever made, chained by made_before */
    uint32_t numbers; /* given to heaps */
    uint32_t forks; /* from the first process to this one */
    size_t made; /* for one thread at a time each */
    size_t idle_count;
    size_t lockless; /* threads that have one */
    struct heap *looked_at; /* the heap that was last asked whether its thread is gone */
    uint64_t process; /* platform_process_identity of that in which the heaps' threads are, since so many forks */
    uint32_t process_forks;
    size_t sharing; /* threads that have none */
} registry;

struct heap *const *const heap_list_at = &registry.youngest;

/* ---- start ---------------------------------------------------------------------------------------------------------------- */

static void thread_exit_hook(void *unused);

uint8_t heap_classes[FAST_MAX + 1];

static void classes_set_up(void)
{
    size_t size = 0;
    for (unsigned class = 0; size <= FAST_MAX; class++) {
        size_t end = size_class_bytes(class) + 1;
        unsigned bin = HARDENED && class == 0 ? (unsigned)CLASS_MIN : class;
        if (heap_settings.cache_line_align) bin = size_class_of_lines(bin, CACHE_LINE);
        memset(heap_classes + size, (int)bin, end - size);
        size = end;
    }
}

static void heap_set_up_bins(struct heap *heap)
{
    for (unsigned bin = 0; bin < HEAP_BINS; bin++) {
        heap->free[bin] = bin_nothing(heap);
        heap->bins[bin] = (struct bin){.listed = SPAN_NONE};
    }
    memset(heap->hands, 0, sizeof heap->hands);
    heap->owned = heap->sparse = (struct span_chain){.first = SPAN_NONE, .last = SPAN_NONE};
    heap->sparse_bytes = 0;
}

static void heap_set_up(struct heap *heap)
{
    heap_see_space(heap);
    heap->link_key = space.link_key;
    heap->fast_sizes = FAST_MAX - OBJECT_TAIL - OBJECT_MIN + 1;
    heap_set_up_bins(heap);
    cache_start(&heap->cache);
    if (HARDENED) hardened_heap_start(heap);
}

static bool start(void)
{
    if (LIKELY(registry.started)) return true;
    heap_configure();
    if (!space_start()) return false;
    do space.link_key = link_key_of(platform_random());
    while (space.link_key == 0);
    classes_set_up();
    if (HARDENED) hardened_start();
    heap_set_up(&heap_orphans);
    platform_thread_exit_hook(thread_exit_hook);
    registry.started = true;
    return true;
}

bool heap_is_started(void)
{
    platform_lock_acquire(&registry.lock);
    bool started = registry.started;
    platform_lock_release(&registry.lock);
    return started;
}

bool heap_registry_is_awaited(void)
{
    return platform_lock_is_awaited(&registry.lock);
}

READS_RACILY bool heap_threads_are_many(void)
{
    return __atomic_load_n(&registry.made, __ATOMIC_RELAXED) + __atomic_load_n(&registry.sharing, __ATOMIC_RELAXED) > 1;
}

READS_RACILY size_t heap_threads_now(void)
{
    return __atomic_load_n(&registry.lockless, __ATOMIC_RELAXED) + __atomic_load_n(&registry.sharing, __ATOMIC_RELAXED);
}

/* Release: who reads it under the registry's lock (lent.c) finds the thread's number, which came before it. */
static void place_set(struct heap *heap, struct heap **place)
{
    __atomic_store_n(&heap->place, place, __ATOMIC_RELEASE);
}

/* ---- idle heaps: under the registry's lock ------------------------------------------------------------------------------------- */

static void idle_add(struct heap *heap)
{
    heap->prev = NULL;
    heap->next = registry.idle;
    if (registry.idle != NULL) registry.idle->prev = heap;
    registry.idle = heap;
    registry.idle_count++;
    place_set(heap, NULL);
    atomic_store_explicit(&heap->thread, 0, memory_order_relaxed);
    /* Sequentially consistent: see inbox_put in remote.c. */
    atomic_store_explicit(&heap->state, HEAP_IDLE, memory_order_seq_cst);
}

static void idle_remove(struct heap *heap)
{
    if (heap->next != NULL) heap->next->prev = heap->prev;
    if (heap->prev != NULL) heap->prev->next = heap->next;
    else registry.idle = heap->next;
    registry.idle_count--;
    heap->forks = registry.forks;
    atomic_store_explicit(&heap->state, HEAP_OWNED, memory_order_relaxed);
}

/* ---- making and taking: under the registry's lock ---------------------------------------------------------------------------------- */

struct heap *heap_make(enum heap_state state)
{
    struct heap *heap = space_metadata(sizeof *heap);
    if (heap == NULL) return NULL;
    heap_set_up(heap);
    atomic_store_explicit(&heap->state, state, memory_order_relaxed); /* nobody else knows of it yet */
    atomic_store_explicit(&heap->thread, state == HEAP_SHARED ? THREADS_MANY : 0, memory_order_relaxed);
    heap->forks = registry.forks;
    heap->made_before = registry.youngest;
    /* Pairs with heap_youngest; and for a fork's child: see registry_mend. */
    __atomic_store_n(&registry.youngest, heap, __ATOMIC_RELEASE);
    heap->number = ++registry.numbers; /* 0 is heap_orphans */
    return heap;
}

struct heap *heap_youngest(void)
{
    return __atomic_load_n(&registry.youngest, __ATOMIC_ACQUIRE);
}

/* A thread may end without the hook: it got its heap when its destructors had run, and the C library freed what it had of
 * another thread; or it ended by a system call of its own; or there is no hook, for want of a key. What it had is taken over as
 * it stands by the next thread that would have a heap made. So many heaps are looked at each time, with a system call for each. */
enum { LOOKED_AT = 4 };

/* A child that shares our memory without being of our process (vfork, clone) does not see the threads of the others. */
static bool is_process_of_heaps(void)
{
    uint64_t process = platform_process_identity();
    if (registry.process == 0 || registry.process_forks != registry.forks) {
        registry.process = process;
        registry.process_forks = registry.forks;
    }
    return registry.process == process;
}

static bool is_abandoned(const struct heap *heap)
{
    uint32_t claimed = atomic_load_explicit(&heap->claimed, memory_order_acquire);
    if (claimed == CLAIMED || claimed == CLAIMED_OWNER_WAITS) return false; /* who claims it has it still (lent.c) */
    /* Relaxed: both are written under the lock. */
    int32_t thread = atomic_load_explicit(&heap->thread, memory_order_relaxed);
    return atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_OWNED && thread != 0 &&
           heap->forks == registry.forks && !platform_thread_exists(thread);
}

static struct heap *take_abandoned(void)
{
    if (!is_process_of_heaps()) return NULL;
    for (int i = 0; i < LOOKED_AT; i++) {
        struct heap *heap = registry.looked_at != NULL ? registry.looked_at->made_before : NULL;
        if (heap == NULL) heap = registry.youngest;
        if (heap == NULL) return NULL;
        registry.looked_at = heap;
        if (!is_abandoned(heap)) continue;
        atomic_store_explicit(&heap->inside, 0, memory_order_relaxed); /* wherever its thread was when it ended */
        atomic_store_explicit(&heap->claimed, CLAIM_NONE, memory_order_relaxed); /* it may have been lent */
        atomic_store_explicit(&heap->is_lent, false, memory_order_relaxed);
        place_set(heap, NULL);
        atomic_store_explicit(&heap->thread, platform_thread_number(), memory_order_relaxed);
        return heap;
    }
    return NULL;
}

static struct heap *take_own(void)
{
    struct heap *heap = registry.idle;
    if (heap != NULL) {
        idle_remove(heap);
    } else {
        heap = heap_make(HEAP_OWNED);
        if (heap != NULL) registry.made++;
    }
    if (heap == NULL) return NULL;
    registry.lockless++;
    atomic_store_explicit(&heap->thread, platform_thread_number(), memory_order_relaxed);
    return heap;
}

/* For the thread's life. So late in it that it would not be told of its end, for one call. */
static bool thread_takes_for_life(void)
{
    return thread_exits < THREAD_EXITS_MAX;
}

bool heap_thread_is_late(void)
{
    return !thread_takes_for_life();
}

static struct heap *take_shared(void)
{
    struct heap *heap = shared_choose();
    if (heap != NULL && thread_takes_for_life()) registry.sharing++;
    return heap;
}

/* Threads for each processor that get a heap of their own at once: more cannot run anyway, and most of more allocate little. */
enum { OWN_AT_ONCE = 4 };

static size_t own_at_once(void)
{
    static unsigned processors; /* asked once: a system call */
    if (processors == 0) processors = platform_processors();
    return (size_t)processors * OWN_AT_ONCE;
}

/* Whether this thread may have a heap of its own. */
static bool has_place(void)
{
    uint32_t most = atomic_load_explicit(&heap_settings.lockless_threads, memory_order_relaxed);
    if (registry.lockless >= most) return false;
    uint32_t first = atomic_load_explicit(&heap_settings.share_first, memory_order_relaxed);
    /* Most processes never have so many that the kernel has to be asked for processors. */
    return registry.lockless < OWN_AT_ONCE || thread_shared_calls >= first || registry.lockless < own_at_once();
}

static struct heap *take_abandoned_or_own(bool own)
{
    bool any_may = atomic_load_explicit(&heap_settings.lockless_threads, memory_order_relaxed) != 0;
    struct heap *heap = any_may && (!own || registry.idle == NULL) ? take_abandoned() : NULL;
    return heap == NULL && own ? take_own() : heap;
}

/* A heap for this thread: of its own, which it then owns, or, when it may not have one, one to share. */
static struct heap *heap_take(void)
{
    platform_lock_acquire(&registry.lock);
    struct heap *heap = NULL;
    if (start()) {
        bool own = has_place();
        heap = take_abandoned_or_own(own);
        if (heap == NULL && !own) heap = take_shared();
    }
    platform_lock_release(&registry.lock);
    return heap;
}

/* ---- giving up --------------------------------------------------------------------------------------------------------------------- */

bool heap_orphan_spans(struct heap *heap)
{
    if (heap_spans(heap) == 0) return true;
    if (!platform_lock_enter(&heap_orphans.lock)) return false;
    heap_take_spans(&heap_orphans, heap);
    if (heap_orphans.sparse.spans != 0 && !heap_orphans.chores) heap_chores_expect(&heap_orphans);
    platform_lock_release(&heap_orphans.lock);
    return true;
}

static void places_become_free(size_t places)
{
    registry.lockless -= places < registry.lockless ? places : registry.lockless; /* see heap_fork_end_in_child */
}

static void leaving_retire(void);

/* A fork has the orphans. When it has ended, whoever ended it sees the heap, or we see that it has. */
static void heap_park(struct heap *heap, size_t places)
{
    platform_lock_acquire(&registry.lock);
    heap->next = registry.leaving;
    __atomic_store_n(&registry.leaving, heap, __ATOMIC_RELEASE);
    place_set(heap, NULL);
    atomic_store_explicit(&heap->thread, 0, memory_order_relaxed);
    places_become_free(places);
    platform_lock_release(&registry.lock);
    leaving_retire();
}

/* Leave nothing in a heap that the calling thread owns, and make it idle. `places` of threads with a heap of their own become
 * free: 1, or 0 when the thread is none of these for having settled it. */
static void heap_retire(struct heap *heap, size_t places)
{
    bool late;
    do {
        uint32_t entered = heap_enter(heap);
        if (HARDENED) hardened_hand_down(heap);
        remote_inbox_take(heap);
        remote_outbox_flush(heap);
        heap_flush(heap);
        bool orphaned = heap_orphan_spans(heap);
        heap_leave(heap, entered); /* first: a claim has the registry's lock */
        if (!orphaned) {
            heap_park(heap, places);
            return;
        }
        platform_lock_acquire(&registry.lock);
        idle_add(heap);
        late = atomic_load_explicit(&heap->inbox, memory_order_seq_cst) != 0 || /* see inbox_put */
               atomic_load_explicit(&heap->suspects, memory_order_seq_cst) != 0;
        if (late) idle_remove(heap);
        else places_become_free(places);
        platform_lock_release(&registry.lock);
    } while (late);
}

static struct heap *leaving_take(void)
{
    platform_lock_acquire(&registry.lock);
    struct heap *heap = registry.leaving;
    if (heap != NULL) registry.leaving = heap->next;
    platform_lock_release(&registry.lock);
    return heap;
}

static void leaving_retire(void)
{
    struct heap *heap;
    heap_hands++;
    while (!platform_lock_is_held_by_fork(&heap_orphans.lock) && (heap = leaving_take()) != NULL) heap_retire(heap, 0);
    heap_hands--;
}

static void share_no_more(void)
{
    platform_lock_acquire(&registry.lock);
    bool last = registry.sharing <= 1;
    registry.sharing -= registry.sharing != 0; /* see heap_fork_end_in_child */
    platform_lock_release(&registry.lock);
    if (last) shared_hand_down(); /* should another thread begin to share meanwhile, it finds its heap empty */
}

/* ---- threads ------------------------------------------------------------------------------------------------------------------ */

static void thread_exit_hook(void *unused)
{
    (void)unused;
    struct heap *heap = thread_heap_own();
    heap_hands++;
    thread_exits++;
    thread_heap = &heap_none; /* what retiring frees on the way goes straight to its owners */
    if (thread_takes_for_life()) platform_thread_exit_arm(&heap_none); /* the next round is ours too */
    if (heap == &heap_sharing) share_no_more();
    else if (heap != &heap_none) heap_retire(heap, 1);
    heap_hands--;
    heap_background_thread_leaves();
}

/* From now on the thread has the heap. */
static void thread_gets(struct heap *heap)
{
    bool diverted = thread_heap == &heap_diverted;
    if (heap_is_shared(heap)) thread_shared = heap;
    /* Before arming, which may allocate: for the thread's life, so not where it is diverted to. */
    thread_heap = heap_is_shared(heap) ? &heap_sharing : heap;
    bool tells = platform_thread_exit_arm(thread_heap);
    if (diverted) heap_divert(true);
    if (heap_is_shared(heap)) return;
    thread_heap_lent = heap;
    /* Its address is good until the thread ends, which the hook tells us: after that nobody writes there. */
    if (tells) place_set(heap, &thread_heap);
}

/* A heap for a thread that has none. */
static struct heap *thread_join(void)
{
    struct heap *heap = heap_take();
    if (heap != NULL && thread_takes_for_life()) thread_gets(heap);
    return heap;
}

/* A heap for a thread that has shared one for so long that one of its own is worth its memory; if it may have it. */
static COLD struct heap *thread_shares_no_more(void)
{
    platform_lock_acquire(&registry.lock);
    struct heap *heap = has_place() ? take_abandoned_or_own(true) : NULL;
    platform_lock_release(&registry.lock);
    if (heap == NULL) return thread_shared;
    thread_gets(heap);
    share_no_more();
    return heap;
}

/* The heap that the thread shares, or what it gets in its place. It asks for that once: each time would be a lock for all. */
static struct heap *shared_heap_of_thread(void)
{
    uint32_t first = atomic_load_explicit(&heap_settings.share_first, memory_order_relaxed);
    if (UNLIKELY(thread_shared_calls++ == first) && first != 0) return thread_shares_no_more();
    return thread_shared;
}

/* A heap for one call, though as many threads as may have one: rather one that cannot become idle yet, and has room, than
 * another. */
static struct heap *heap_borrow(void)
{
    platform_lock_acquire(&registry.lock);
    struct heap *heap = registry.leaving;
    if (heap != NULL) {
        registry.leaving = heap->next;
        registry.lockless++;
    } else {
        heap = take_own();
    }
    platform_lock_release(&registry.lock);
    return heap;
}

static struct heap *thread_enter(void)
{
    struct heap *own = thread_heap_own();
    if (own->size != 0) return own; /* it was lent */
    struct heap *heap = own == &heap_sharing ? shared_heap_of_thread() : thread_join();
    if (heap == NULL || !heap_is_shared(heap) || platform_lock_enter(&heap->lock)) return heap;
    return heap_borrow();
}

struct heap *heap_thread_enter(void)
{
    heap_hands++;
    struct heap *heap = thread_enter();
    if (heap == NULL) heap_hands--;
    return heap;
}

void heap_thread_leave(struct heap *heap)
{
    if (heap_is_shared(heap)) platform_lock_release(&heap->lock);
    else if (UNLIKELY(thread_heap_own() != heap)) heap_retire(heap, 1); /* it was only borrowed */
    heap_hands--;
}

void heap_divert(bool diverted)
{
    if (diverted == (thread_heap == &heap_diverted)) return;
    if (diverted) {
        thread_heap_kept = thread_heap_own();
        thread_heap = &heap_diverted;
    } else {
        thread_heap = thread_heap_kept;
    }
}

void heap_thread_early(void)
{
    if (thread_heap != NULL) return; /* it is no more, or not yet, so early */
    thread_heap = thread_heap_kept = thread_heap_lent = &heap_none;
    thread_exits = THREAD_EXITS_MAX + 1;
}

/* As a thread near its end: it borrows one for each call. */
struct heap *heap_set_aside(void)
{
    struct heap *heap = thread_heap;
    heap_hands++;
    thread_heap = &heap_none;
    thread_exits += THREAD_EXITS_MAX + 1;
    return heap;
}

void heap_take_up(struct heap *heap)
{
    thread_exits -= THREAD_EXITS_MAX + 1;
    thread_heap = heap;
    heap_hands--;
}

/* ---- heaps without a thread ---------------------------------------------------------------------------------------------------- */

static void settle_idle(struct heap *heap)
{
    heap_hands++;
    platform_lock_acquire(&registry.lock);
    bool ours = atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_IDLE;
    if (ours) idle_remove(heap);
    platform_lock_release(&registry.lock);
    /* Otherwise somebody else has taken it, after our blocks went in: they will look. */
    if (ours) heap_retire(heap, 0);
    heap_hands--;
}

void heap_settle(struct heap *heap)
{
    if (heap_is_shared(heap)) shared_settle(heap);
    else settle_idle(heap);
}

/* Orphans of a bin to choose from: the fullest of so many is taken, so that the others may become empty. */
enum { ORPHANS_COMPARED = 8 };

static struct span *fullest_orphan(unsigned bin)
{
    struct span *fullest = NULL;
    uint32_t index = heap_orphans.bins[bin].listed;
    for (int i = 0; i < ORPHANS_COMPARED && index != SPAN_NONE; i++) {
        struct span *span = span_at(index);
        if (fullest == NULL || span->countdown > fullest->countdown) fullest = span;
        index = span->next;
    }
    return fullest;
}

bool heap_adopt_span(struct heap *heap, unsigned bin)
{
    heap_orphans_pass();
    heap_inherit_pass();
    /* Racy on purpose: a hint, the lock decides. */
    if (LIKELY(__atomic_load_n(&heap_orphans.bins[bin].listed, __ATOMIC_RELAXED) == SPAN_NONE)) return false;
    if (!platform_lock_enter(&heap_orphans.lock)) return false;
    struct span *span = fullest_orphan(bin);
    if (span != NULL) heap_take_span(heap, &heap_orphans, span);
    platform_lock_release(&heap_orphans.lock);
    return span != NULL;
}

/* ---- all heaps: fork, statistics ---------------------------------------------------------------------------------------------- */

/* Whether threads of this process have the heap. Those without a thread keep nothing. Of those whose thread a fork left behind
 * the locks may be held for ever, and what they keep is lost with the rest of them. */
static bool may_keep_spans(const struct heap *heap)
{
    return atomic_load_explicit(&heap->state, memory_order_relaxed) != HEAP_IDLE && heap->forks == registry.forks;
}

void heap_caches_empty(void)
{
    uint32_t chain = SPAN_NONE;
    platform_lock_acquire(&registry.lock);
    for (struct heap *heap = registry.youngest; heap != NULL; heap = heap->made_before)
        if (may_keep_spans(heap)) chain = cache_detach(heap, chain);
    platform_lock_release(&registry.lock);
    cache_growth_rests();
    cache_release(chain);
}

/* Heaps whose caches are looked into while the registry's lock is held. */
enum { CACHES_STEP = 16 };

static bool has_thread(const struct heap *heap)
{
    /* Relaxed: written under the lock. */
    return atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_OWNED &&
           atomic_load_explicit(&heap->thread, memory_order_relaxed) != 0 && heap->forks == registry.forks;
}

enum chores_left heap_all_release_old(uint64_t now, uint32_t age_ms, enum resting resting)
{
    enum chores_left left = CHORES_NONE;
    platform_lock_acquire(&registry.lock);
    struct heap *heap = registry.youngest; /* none is ever taken out of the list */
    while (heap != NULL) {
        uint32_t chain = SPAN_NONE;
        struct heap *lent = NULL;
        for (int i = 0; i < CACHES_STEP && heap != NULL && lent == NULL; i++, heap = heap->made_before) {
            if (may_keep_spans(heap)) left = chores_more_urgent(left, cache_detach_old(heap, now, age_ms, &chain));
            if (resting == RESTING_LEFT || !has_thread(heap)) continue;
            struct heap **may_be_lent = resting == RESTING_LENT ? &lent : NULL;
            left = chores_more_urgent(left, idle_tend(heap, now, age_ms, &chain, may_be_lent));
        }
        platform_lock_release(&registry.lock);
        cache_release(chain);
        if (lent != NULL) left = chores_more_urgent(left, idle_tend_lent(lent, now));
        platform_lock_acquire(&registry.lock);
    }
    platform_lock_release(&registry.lock);
    return left;
}
/* The calling thread's own heap is not rested, and says so: or a signal's handler would wait here for the thread that it has
 * interrupted. Threads that go on may leave more behind as often as we look, so no more rounds than what there is can need. */
void heap_all_give_back(void)
{
    struct heap *own = thread_heap_own();
    bool has_own = own->size != 0; /* not heap_none or heap_sharing */
    if (has_own && !heap_threads_are_many()) return;
    enum resting resting = heap_background_may_interrupt_others() ? RESTING_CLAIMED : RESTING_LEFT;
    uint32_t entered = has_own ? heap_enter(own) : 0;
    for (uint32_t rounds = 1 + space_spans(); rounds > 0; rounds--)
        if (heap_all_release_old(platform_clock_ms(), AT_ONCE, resting) != CHORES_NOW) break;
    if (has_own) heap_leave(own, entered);
}

/* Forks of this thread that are under way: more than one when a signal's handler forks in another's fork. The first holds the
 * locks, unless the thread was interrupted with one of them: then it cannot have all, see platform_lock_fork_end_in_child. */
static __thread unsigned thread_forks __attribute__((tls_model("initial-exec")));
static __thread bool thread_fork_holds __attribute__((tls_model("initial-exec")));
static __thread bool thread_child_mended
    __attribute__((tls_model("initial-exec"))); /* by child_mend, before our handler ran */
/* The heap that it keeps claims out of; NULL: none. */
static __thread struct heap *thread_fork_inside __attribute__((tls_model("initial-exec")));
static __thread uint32_t thread_fork_entered __attribute__((tls_model("initial-exec"))); /* as heap_leave wants it */

/* Whoever has claimed the thread's heap (idle.c) ends first, so that the child finds it whole. He waits for no lock that a fork
 * holds, and this thread has none. */
static void claims_keep_out(void)
{
    struct heap *own = thread_heap_own();
    if (own->size == 0) return; /* heap_none or heap_sharing */
    thread_fork_inside = own;
    thread_fork_entered = heap_enter(own);
    /* Again: a signal may have interrupted heap_enter before it looked. */
    if (atomic_load_explicit(&own->claimed, memory_order_acquire) != CLAIM_NONE) heap_wait_for_claim(own);
}

static void claims_let_in(void)
{
    struct heap *heap = thread_fork_inside;
    thread_fork_inside = NULL;
    if (heap != NULL) heap_leave(heap, thread_fork_entered);
}

static void child_mend(void);

void heap_watch_copies(void)
{
    platform_copy_watch(child_mend);
}

void heap_fork_begin(void)
{
    platform_copy_look();
    thread_child_mended = false; /* it was, in a copy that had no handlers */
    platform_fork_watch(child_mend);
    if (thread_forks != 0) {
        thread_forks++;
        return;
    }
    thread_fork_holds = !platform_lock_is_any_own();
    thread_forks = 1;
    if (!thread_fork_holds) return;
    claims_keep_out();
    shared_fork_begin();
    platform_lock_fork_begin(&heap_orphans.lock);
    space_fork_begin();
}

static bool any_thread_shares(void)
{
    platform_lock_acquire(&registry.lock);
    bool any = registry.sharing != 0;
    platform_lock_release(&registry.lock);
    return any;
}

/* What others have left for after the fork. */
static void fork_settle(void)
{
    shared_fork_settle();
    if (!any_thread_shares()) shared_hand_down();
    leaving_retire();
}

/* A handler that forks before the end is reached still finds a fork under way, and holds nothing itself: it would lose what this one
 * notes of what it holds. */
void heap_fork_end(void)
{
    if (thread_forks == 1) platform_fork_watch(NULL);
    bool is_last = thread_forks == 1 && thread_fork_holds;
    if (is_last) {
        claims_let_in();
        space_fork_end();
        platform_lock_fork_end(&heap_orphans.lock);
        shared_fork_end();
    }
    thread_forks--;
    if (is_last) fork_settle();
}

/* The threads that the child does not have, have no heaps; and the one that it has, has another number. */
static void thread_numbers_correct(void)
{
    const struct heap *own = thread_heap_own();
    for (struct heap *heap = registry.youngest; heap != NULL; heap = heap->made_before) {
        if (heap_is_shared(heap)) continue;
        atomic_store_explicit(&heap->thread, heap == own ? platform_thread_number() : 0, memory_order_relaxed);
    }
}

/* The heaps that go on in the child are its thread's, and those that any thread may use. A thread that the child does not have
 * may have been in the middle of a cache: then what is in it is lost. Of all heaps, since this thread may have been interrupted
 * while it waited for another's to empty it. */
static void heaps_go_on(const struct heap *own)
{
    if (platform_lock_mend(&heap_orphans.cache.lock)) cache_start(&heap_orphans.cache); /* in no list of heaps */
    for (struct heap *heap = registry.youngest; heap != NULL; heap = heap->made_before) {
        if (platform_lock_mend(&heap->cache.lock)) cache_start(&heap->cache);
        if (heap == own || heap_is_shared(heap)) heap->forks = registry.forks;
    }
}

/* Of all others it inherits what they have, but for those whose threads had ended and left them in order; and but for such as it has
 * in hand itself. Then it does without. */
static void heaps_stay_behind(const struct heap *own)
{
    if (heap_hands != 0) return;
    for (struct heap *heap = registry.youngest; heap != NULL; heap = heap->made_before)
        heap->left_behind = heap != own && atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_OWNED;
    for (struct heap *heap = registry.leaving; heap != NULL; heap = heap->next) heap->left_behind = false;
    heap_inherit_expect();
}

/* Another thread was in the middle of something, which went no further. All heaps can be found, since they are put before the
 * first when they are complete; those that are idle say so. */
static void registry_mend(void)
{
    registry.leaving = registry.idle = NULL;
    registry.idle_count = 0;
    for (struct heap *heap = registry.youngest; heap != NULL; heap = heap->made_before)
        if (atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_IDLE) idle_add(heap);
}

/* Whose blocks are usable, and never used again: as those of a thread that the child does not have. */
static struct heap heap_lost;

void heap_lose_span(struct span *span)
{
    atomic_store_explicit(&span->owner, &heap_lost, memory_order_relaxed);
}

void heap_retire_left_behind(struct heap *heap)
{
    heap->left_behind = false;
    heap_set_up_bins(heap);
    remote_outbox_forget(heap);
    pick_forget_all(&heap->guard);
    pick_forget_all(&heap->sample);
    atomic_store_explicit(&heap->inside, 0, memory_order_relaxed); /* wherever its thread was, here and below */
    atomic_store_explicit(&heap->claimed, CLAIM_NONE, memory_order_relaxed);
    atomic_store_explicit(&heap->claim_holds, false, memory_order_relaxed);
    atomic_store_explicit(&heap->is_lent, false, memory_order_relaxed);
    place_set(heap, NULL);
    heap_retire(heap, 0);
}

/* Begin anew with a heap whose lists somebody was in the middle of. */
static void heap_lose_spans(struct heap *heap)
{
    for (uint32_t index = 0; index < space_spans(); index++) {
        struct span *span = span_at(index);
        if (atomic_load_explicit(&span->owner, memory_order_relaxed) == heap) heap_lose_span(span);
    }
    heap_set_up_bins(heap);
}

/* The heap of the child's thread. The claim of a thread that is no more has done nothing if it had not found the owner outside.
 * It may have, where the thread has got its heap during the fork, was interrupted with a lock, or was copied without handlers. */
static struct heap *heap_of_child(void)
{
    struct heap *own =
        thread_heap == &heap_lent ? thread_heap_lent : thread_heap_own(); /* nobody would end the claim */
    if (own->size == 0 || atomic_load_explicit(&own->claimed, memory_order_relaxed) == CLAIM_NONE) return own;
    /* Relaxed: nobody else is there. */
    bool holds = atomic_load_explicit(&own->claim_holds, memory_order_relaxed);
    atomic_store_explicit(&own->claim_holds, false, memory_order_relaxed);
    atomic_store_explicit(&own->claimed, CLAIM_NONE, memory_order_relaxed);
    atomic_store_explicit(&own->is_lent, false,
                          memory_order_relaxed); /* the thread fetches it when it finds heap_lent */
    if (holds) heap_lose_spans(own);
    return own;
}

/* What other threads had in hand. Where the thread was interrupted with the registry's lock, or comes from the midst of an
 * allocation (platform_fork_watch), it goes on to change these numbers, by one at most. */
static void child_mend(void)
{
    struct heap *own = heap_of_child();
    thread_child_mended = true;
    if (HARDENED) hardened_fork_child(own);
    platform_fork_watch(NULL);
    space_fork_child();
    platform_lock_fork_end_in_child(&heap_orphans.lock);
    shared_fork_end_in_child();
    if (platform_lock_mend(&registry.lock)) registry_mend();
    registry.sharing = own == &heap_sharing;
    registry.lockless = own->size != 0; /* not heap_none or heap_sharing */
    registry.forks++;
    heaps_go_on(own);
    heaps_stay_behind(own);
    thread_numbers_correct();
    heap_pressure_fork_child();
    heap_background_fork_child();
}

uint32_t heap_forks(void)
{
    return registry.forks;
}

void heap_fork_end_in_child(void)
{
    platform_copy_look();
    if (!thread_child_mended) child_mend(); /* the kernel does not tell of copies */
    thread_child_mended = false;
    if (thread_forks <= 1) claims_let_in(); /* first, as in heap_fork_end */
    thread_forks -= thread_forks != 0;
    if (thread_fork_holds) fork_settle();
}

void heap_visit_all(void (*visit)(const struct heap *heap, void *argument), void *argument)
{
    platform_lock_acquire(&registry.lock);
    if (registry.started) visit(&heap_orphans, argument);
    for (const struct heap *heap = registry.youngest; heap != NULL; heap = heap->made_before) visit(heap, argument);
    platform_lock_release(&registry.lock);
}

READS_RACILY static void add_heap(const struct heap *heap, void *argument)
{
    struct heap_figures *figures = argument;
    figures->cached += cache_bytes(heap);
    figures->refills += __atomic_load_n(&heap->refills, __ATOMIC_RELAXED);
    figures->zeroed_hits += __atomic_load_n(&heap->zeroed_hits, __ATOMIC_RELAXED);
    figures->zeroed_misses += __atomic_load_n(&heap->zeroed_misses, __ATOMIC_RELAXED);
    figures->remote_batches += __atomic_load_n(&heap->remote_batches, __ATOMIC_RELAXED);
    figures->remote_blocks += __atomic_load_n(&heap->remote_blocks, __ATOMIC_RELAXED);
}

void heap_figures(struct heap_figures *figures)
{
    *figures = (struct heap_figures){.remote_batches = remote_sent_alone(), .remote_blocks = remote_sent_alone()};
    heap_visit_all(add_heap, figures);
    platform_lock_acquire(&registry.lock);
    figures->made = registry.made;
    figures->idle = registry.idle_count;
    figures->sharing = registry.sharing;
    platform_lock_release(&registry.lock);
    bool entered = platform_lock_enter(&heap_orphans.lock); /* or a fork has them: then nobody changes their number */
    figures->orphans = heap_spans(&heap_orphans);
    if (entered) platform_lock_release(&heap_orphans.lock);
}
