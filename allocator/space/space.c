/* The frontier, and handing out runs: from the free ones (run.c) or beyond the frontier. */
#include "state.h"

struct space space;
struct space_state space_state = {.nodes = 1};
/* Until the options are read: what a user gets is in api/options_table.c. */
struct space_settings space_settings = {.huge_pages = HUGE_PAGES_AUTO,
                                        .huge_page_price = 200,
                                        .reservation = 0,
                                        .decay_ms = 500,
                                        .shared_dirty_max = SIZE_MAX};

/* ---- constants -------------------------------------------------------------------------------------- */

/* Spans made accessible at a time: an eighth of what is in use, within these bounds and up to the end of a huge
 * page, so that mprotect is rare and strict limits are not used up for nothing. */
enum { COMMIT_SPANS_MIN = 16, COMMIT_SPANS_MAX = 1024, COMMIT_SHARE = 8 };
/* Descriptors made accessible at a time: 64 KiB of them. */
enum { COMMIT_DESCRIPTORS = 1024 };

/* ---- start ------------------------------------------------------------------------------------------ */

/* Where there is one node, or nobody cares, nobody asks again: see node_here. */
static uint32_t nodes_wanted(void)
{
    unsigned nodes = space_settings.numa ? platform_node_count() : 1;
    return nodes < NODES_MAX ? nodes : NODES_MAX;
}

bool space_start(void)
{
    if (space.base != 0) return true;
    if (!reservation_start()) return false;
    space_state.nodes = nodes_wanted();
    huge_pages_start();
    pools_start();
    return true;
}

/* ---- the frontier ----------------------------------------------------------------------------------- */

static bool commit(void *start, size_t size)
{
    space_state.commit_calls++;
    return platform_commit(start, size);
}

bool space_commit_descriptors(uint32_t up_to)
{
    if (up_to <= space_state.descriptors_committed) return true;
    uint32_t target = (up_to + COMMIT_DESCRIPTORS - 1) / COMMIT_DESCRIPTORS * COMMIT_DESCRIPTORS;
    char *low = (char *)((struct span *)space.base - target);
    char *high = (char *)((struct span *)space.base - space_state.descriptors_committed);
    if (!commit(low, (size_t)(high - low))) return false;
    space_state.descriptors_committed = target;
    return true;
}

void space_end_at(uint32_t index)
{
    space_state.capacity = index;
    if (space_state.reserved > index) space_state.reserved = index;
    if (space_state.committed > index) space_state.committed = index;
}

static bool commit_spans(uint32_t up_to)
{
    if (up_to <= space_state.committed) return true;
    uint32_t before = space_state.committed;
    uint32_t step = space_state.frontier / COMMIT_SHARE;
    if (step < COMMIT_SPANS_MIN) step = COMMIT_SPANS_MIN;
    if (step > COMMIT_SPANS_MAX) step = COMMIT_SPANS_MAX;
    uint64_t generous = ((uint64_t)up_to + step + HUGE_PAGE_SPANS - 1) & ~(uint64_t)(HUGE_PAGE_SPANS - 1);
    if (generous > space_state.reserved) generous = space_state.reserved;
    char *start = (char *)space.base + (size_t)before * SPAN_SIZE;
    /* Where limits leave no room for the generous step, the least that is needed. */
    if (commit(start, ((size_t)generous - before) * SPAN_SIZE)) space_state.committed = (uint32_t)generous;
    else if (commit(start, ((size_t)up_to - before) * SPAN_SIZE)) space_state.committed = up_to;
    if (space_state.committed > before) huge_pages_committed(before, space_state.committed);
    return up_to <= space_state.committed;
}

bool frontier_prepare(uint32_t end)
{
    /* The spans first: what the kernel refuses is refused there, before descriptors for it have been made. */
    return reservation_reach(end) && commit_spans(end) && space_commit_descriptors(end);
}

/* Move the frontier up by `spans`; the new spans are clean. */
static bool frontier_raise(uint32_t spans)
{
    if (spans > space_state.capacity - space_state.frontier) return false;
    uint32_t raised = space_state.frontier + spans;
    if (!frontier_prepare(raised)) return false;
    space_state.frontier = raised;
    return true;
}

/* ---- handing out ------------------------------------------------------------------------------------ */

uint32_t index_aligned(uint32_t index, uint32_t alignment)
{
    uintptr_t number = (space.base >> SPAN_SHIFT) + index;
    uintptr_t aligned = (number + alignment - 1) & ~(uintptr_t)(alignment - 1);
    return index + (uint32_t)(aligned - number);
}

/* Free runs are accessible, but for clean ones that purging has taken off the kernel's account. False: the kernel refuses. */
static bool commit_again(uint32_t index, uint32_t spans)
{
    if (LIKELY(!space_state.uncommits)) return true;
    return commit((char *)span_start(span_at(index)), (size_t)spans * SPAN_SIZE);
}

static uint32_t acquire_from_pool(uint32_t spans, uint32_t alignment, unsigned pool)
{
    struct span *run = run_find(spans, alignment, pool);
    if (run == NULL) return SPAN_NONE;
    uint32_t index = index_aligned(span_index(run), alignment);
    run_cut(run, index, spans);
    if (pool == CLEAN && UNLIKELY(!commit_again(index, spans))) {
        run_free(index, spans, CLEAN, 0);
        return SPAN_NONE;
    }
    return index;
}

static uint32_t acquire_from_frontier(uint32_t spans, uint32_t alignment)
{
    uint32_t start = space_state.frontier;
    uint32_t index = index_aligned(start, alignment);
    uint64_t needed = (uint64_t)(index - start) + spans;
    if (needed > space_state.capacity || !frontier_raise((uint32_t)needed)) return SPAN_NONE;
    span_at(index)->kind = SPAN_METADATA; /* as in run_cut */
    if (index > start) run_free(start, index - start, CLEAN, 0);
    return index;
}

static uint32_t acquire_from_other_nodes(uint32_t spans, uint32_t alignment, unsigned own)
{
    for (unsigned pool = DIRTY; pool < pools_end(); pool++) {
        uint32_t index = pool == own ? SPAN_NONE : acquire_from_pool(spans, alignment, pool);
        if (index == SPAN_NONE) continue;
        space_state.pools[pool].crossings++;
        return index;
    }
    return SPAN_NONE;
}

/* What has been found for a request. */
struct place {
    uint32_t index; /* SPAN_NONE: nothing */
    bool zeroed; /* it reads as zeros */
    bool is_foreign; /* its pages are another node's and must go first */
    bool breaks; /* see huge_pages_purged */
    struct huge_trial trial; /* of its huge pages, once the lock is free */
};

/* Where address space is short, the free run before the frontier is the beginning of a longer one. */
static struct place acquire_over_frontier(uint32_t spans, uint32_t alignment, unsigned own)
{
    struct place nothing = {.index = SPAN_NONE};
    uint32_t end = space_state.frontier;
    const struct span *last = span_at(end - 1);
    if (end == 0 || span_kind_read(last) != SPAN_FREE || (last->pool != CLEAN && last->pool != own)) return nothing;
    struct span *run = span_at(end - last->run_spans);
    bool is_clean = last->pool == CLEAN;
    uint32_t index = index_aligned(span_index(run), alignment);
    uint64_t wanted = (uint64_t)index + spans;
    if (index >= end || wanted <= end || wanted > space_state.capacity) return nothing;
    if (!frontier_raise((uint32_t)wanted - end)) return nothing;
    run_cut(run, index, end - index);
    span_at(end - 1)->kind = SPAN_FREE; /* inside now */
    if (is_clean && UNLIKELY(!commit_again(index, end - index))) {
        run_free(index, spans, CLEAN, 0);
        return nothing;
    }
    return (struct place){.index = index, .zeroed = is_clean};
}

/* Dirty memory of the own node costs nothing, clean memory and new address space cost page faults; a run of another
 * node costs a system call on top, and takes from that node what its threads are about to use again. So it comes
 * last: as long as there is address space, what lies dirty elsewhere takes up memory of that node only, which is not
 * ours, and shared_dirty_max and decay_ms bound it. */
static struct place place_find(uint32_t spans, uint32_t alignment, unsigned own)
{
    uint32_t index = acquire_from_pool(spans, alignment, own);
    if (index == SPAN_NONE && space_state.spans_zeroing != 0 && zeroed_return_job(spans + alignment - 1))
        index = acquire_from_pool(spans, alignment, own);
    if (index != SPAN_NONE) return (struct place){.index = index};
    index = acquire_from_pool(spans, alignment, CLEAN);
    if (index == SPAN_NONE) index = acquire_from_frontier(spans, alignment);
    if (index != SPAN_NONE) return (struct place){.index = index, .zeroed = true};
    struct place over = acquire_over_frontier(spans, alignment, own);
    if (over.index != SPAN_NONE) return over;
    index = acquire_from_other_nodes(spans, alignment, own);
    return (struct place){.index = index, .is_foreign = index != SPAN_NONE};
}

/* What is given back lies before the frontier: more spans than were ever handed out it never makes room for. */
static bool room_can_be_made(uint32_t spans, uint32_t alignment)
{
    return (uint64_t)spans + alignment - 1 <= space_state.frontier;
}

static struct place place_find_or_make(uint32_t spans, uint32_t alignment, unsigned own)
{
    struct place place = place_find(spans, alignment, own);
    if (LIKELY(place.index != SPAN_NONE) || !room_can_be_made(spans, alignment)) return place;
    if (zeroed_release()) place = place_find(spans, alignment, own);
    if (place.index == SPAN_NONE && spans_dirty() != 0) {
        /* Dirty and clean neighbours merge once both are clean: they may be long enough together. */
        purge_all();
        if (space_is_whole(SPACE_WHOLE)) place = place_find(spans, alignment, own);
    }
    return place;
}

/* The node of the calling thread, whose pages what it gets will be. It may be moved to another at any time: then they
 * are far from it, as all that it has is. */
unsigned node_here(void)
{
    return LIKELY(space_state.nodes == 1) ? 0 : platform_node() % space_state.nodes;
}

struct span *run_hand_out(uint32_t index, uint32_t spans, enum span_kind kind, unsigned pool)
{
    struct span *first = span_at(index);
    span_at(index + spans - 1)->kind = SPAN_TAIL;
    first->kind = (uint8_t)kind;
    first->run_spans = spans;
    first->pool = (uint8_t)pool;
    run_use_set(first, RUN_ON_ITS_WAY);
    return first;
}

static struct span *acquire(uint32_t spans, uint32_t alignment, enum span_kind kind, struct place *place)
{
    unsigned own = DIRTY + node_here();
    uint32_t used_before = space_state.frontier;
    *place = place_find_or_make(spans, alignment, own);
    if (place->index == SPAN_NONE) return NULL;
    if (place->zeroed) patience_taken(spans);
    if (place->zeroed && place->index < used_before) patience_taken_again(spans);
    struct span *first = run_hand_out(place->index, spans, kind, own);
    if (UNLIKELY(place->is_foreign)) place->breaks = huge_pages_purged(place->index, spans);
    bool is_new_block = place->zeroed && kind == SPAN_LARGE && spans >= SPACE_BLOCK_SPANS;
    enum run_fill fill = !is_new_block ? FILL_AS_OTHERS : alignment < HUGE_PAGE_SPANS ? FILL_AS_BLOCKS : FILL_APART;
    place->trial = huge_pages_of_run(place->index, place->index + spans, fill);
    return first;
}

/* There was no memory, beside a fork or while others purge what is free; when they are done there may be enough. But we wait only so long:
 * others may purge all the time, and the fork may wait for us, however often we come. */
static COLD bool others_are_done(enum space_access access, uint32_t spans, unsigned *waited_ms)
{
    enum { FORK_MS = 100, PURGE_MS = 100 };
    _Atomic(uint32_t) never = 0;
    if (spans > space_spans()) return false; /* as room_can_be_made */
    bool may_help = access == SPACE_BESIDE
                        ? platform_lock_fork_passes(&space_state.lock) && space_fork_age_ms() < FORK_MS
                    : access == SPACE_WHOLE ? space_is_being_purged() && (*waited_ms)++ < PURGE_MS
                                            : false;
    if (may_help) platform_wait(&never, 0, 1000);
    return may_help;
}

struct span *space_acquire(uint32_t spans, uint32_t alignment, enum span_kind kind, bool *zeroed)
{
    if ((uint64_t)spans + alignment - 1 > space.window / SPAN_SIZE) return NULL;
    struct place place = {.zeroed = false};
    struct span *first = NULL;
    unsigned waited = 0;
    for (;;) {
        enum space_access access = space_enter();
        if (LIKELY(access == SPACE_WHOLE)) first = acquire(spans, alignment, kind, &place);
        else if (access == SPACE_BESIDE) {
            place.zeroed = false; /* as is wanted, not as the round before has left it */
            first = acquire_beside(spans, alignment, kind, &place.zeroed);
        }
        bool lost = access == SPACE_WHOLE && !space_is_whole(access);
        space_leave(access);
        if (LIKELY(first != NULL) || !(lost || others_are_done(access, spans, &waited))) break;
    }
    huge_pages_say();
    huge_pages_try(&place.trial);
    /* Without the lock: it is ours, and nobody else knows of it. */
    if (UNLIKELY(place.is_foreign)) place.zeroed = purge_spans(place.index, spans, place.breaks);
    if (zeroed != NULL) *zeroed = place.zeroed;
    return first;
}

bool space_room_can_be_made(uint32_t spans, uint32_t alignment)
{
    enum space_access access = space_enter();
    bool can = room_can_be_made(spans, alignment);
    space_leave(access);
    return can;
}

uint32_t run_take(uint32_t spans, unsigned pool)
{
    return acquire_from_pool(spans, 1, pool);
}

uint32_t run_take_clean(uint32_t spans)
{
    uint32_t index = run_take(spans, CLEAN);
    return index != SPAN_NONE ? index : acquire_from_frontier(spans, 1);
}

/* So many spans are free again, and dirty. */
static void tend_after_release(unsigned pool, uint32_t spans, uint64_t now)
{
    zeroed_tend(); /* has the first choice */
    purge_after_release(pool, spans, now);
}

static void take_back(const struct span *first, uint64_t now)
{
    uint32_t spans = first->run_spans;
    unsigned pool = first->pool;
    struct span *run = run_free(span_index(first), spans, pool, now);
    if (!purge_spent(run, spans, now)) tend_after_release(pool, spans, now);
}

void space_release(struct span *first)
{
    uint64_t now = platform_clock_ms();
    enum space_access access = space_enter();
    if (UNLIKELY(access != SPACE_WHOLE)) run_defer(first);
    else take_back(first, now);
    space_leave(access);
}

/* Every span of a run gets the kind, so that any address in it can be told. */
static void set_kind(struct span *first, uint32_t spans, void *guest, enum span_kind kind)
{
    for (uint32_t i = 0; i < spans; i++) {
        (first - i)->free = (uintptr_t)guest;
        /* Release: whoever asks what an address is, and sees the kind, sees the guest. */
        __atomic_store_n(&(first - i)->kind, (uint8_t)kind, __ATOMIC_RELEASE);
    }
}

struct span *space_set_apart(uint32_t spans, uint32_t alignment)
{
    struct span *first = NULL;
    enum space_access access = space_enter();
    uint32_t index = access == SPACE_WHOLE ? acquire_from_frontier(spans, alignment) : SPAN_NONE;
    if (index != SPAN_NONE) {
        first = run_hand_out(index, spans, SPAN_METADATA, DIRTY + node_here());
        huge_pages_of_run(index, index + spans, FILL_SPARSE);
    }
    space_leave(access);
    huge_pages_say();
    if (first != NULL) set_kind(first, spans, NULL, SPAN_GUARD);
    return first;
}

struct span *space_lend(uint32_t spans, uint32_t alignment, void *guest, bool huge_pages)
{
    struct span *first = space_acquire(spans, alignment, SPAN_METADATA, NULL);
    if (first == NULL) return NULL;
    set_kind(first, spans, guest, SPAN_GUEST);
    if (huge_pages && space_settings.huge_pages != HUGE_PAGES_NEVER) {
        enum space_access access = space_enter();
        if (access == SPACE_WHOLE) huge_pages_advise(span_index(first), span_index(first) + spans);
        space_leave(access);
    }
    return first;
}

void space_take_back(struct span *first)
{
    /* Only the ends of a run have a kind; what lies between must not be found by an address. */
    for (uint32_t i = 1; i + 1 < first->run_spans; i++) span_kind_write(first - i, SPAN_FREE);
    space_release(first);
}

/* ---- in place ------------------------------------------------------------------------------------------ */

/* How many of the `spans` that follow span `end` lie in free runs; the rest would be beyond the frontier. SPAN_NONE
 * when one of them is in use. */
static uint32_t spans_free_at(uint32_t end, uint32_t spans)
{
    uint32_t found = 0;
    while (found < spans && end + found < space_state.frontier) {
        const struct span *run = span_at(end + found);
        if (span_kind_read(run) != SPAN_FREE) return SPAN_NONE;
        found += run->run_spans;
    }
    return found < spans ? found : spans;
}

/* Take [from, to) out of the free runs that it lies in, to become the inside of the run before it. True when pages of
 * other nodes than `own` are among them; *clean counts those that had been purged. */
static bool take_free_runs(uint32_t from, uint32_t to, unsigned own, uint32_t *clean)
{
    bool foreign = false;
    while (from < to) {
        struct span *run = span_at(from);
        uint32_t length = run->run_spans < to - from ? run->run_spans : to - from;
        if (run->pool == CLEAN) {
            *clean += length;
        } else if (pool_dirty(run->pool) != own) {
            foreign = true;
            space_state.pools[run->pool].crossings++;
        }
        run_cut(run, from, length);
        span_at(from)->kind = SPAN_FREE;
        span_at(from + length - 1)->kind = SPAN_FREE;
        from += length;
    }
    return foreign;
}

/* All or nothing. Sets *foreign to whether pages of other nodes are among what has come to the run, which then stays
 * one of the node that it was: to purge them costs less than to move to another place. */
static bool run_grow(struct span *first, uint32_t spans, bool *foreign, bool *breaks)
{
    uint32_t old = first->run_spans;
    uint32_t end = span_index(first) + old;
    uint32_t more = spans - old;
    uint32_t from_runs = spans_free_at(end, more);
    if (from_runs == SPAN_NONE || !commit_again(end, from_runs)) return false;
    if (from_runs < more && !frontier_raise(more - from_runs)) return false;
    uint32_t clean = 0;
    *foreign = take_free_runs(end, end + from_runs, first->pool, &clean);
    *breaks = *foreign && huge_pages_purged(end, more);
    patience_taken(clean);
    patience_taken_again(clean);
    if (old > 1) span_at(end - 1)->kind = SPAN_FREE; /* no longer the end */
    return true;
}

bool space_resize(struct span *first, uint32_t spans, bool filled)
{
    uint32_t index = span_index(first);
    uint32_t old = first->run_spans;
    if (spans == old) return true;
    bool foreign = false, breaks = false;
    struct huge_trial trial = {.to = 0};
    enum space_access access = space_enter();
    bool done = access == SPACE_WHOLE && (spans < old || run_grow(first, spans, &foreign, &breaks));
    if (done) {
        enum run_fill fill = spans < SPACE_BLOCK_SPANS ? FILL_AS_OTHERS : filled ? FILL_WHOLE : FILL_SPARSE;
        if (spans > old) trial = huge_pages_of_run(index + old, index + spans, fill);
        first->run_spans = spans;
        if (spans > 1) span_at(index + spans - 1)->kind = SPAN_TAIL;
        if (spans < old) {
            uint64_t now = platform_clock_ms();
            run_free(index + spans, old - spans, first->pool, now);
            tend_after_release(first->pool, old - spans, now);
        }
    }
    space_leave(access);
    huge_pages_say();
    huge_pages_try(&trial);
    /* As in space_acquire. Should the kernel refuse, they stay where they are. */
    if (UNLIKELY(foreign)) purge_spans(index + old, spans - old, breaks);
    return done;
}

/* ---- the rest --------------------------------------------------------------------------------------- */

/* In the library that is hardened, bytes at either end of such a run that nobody can access: it may have objects for neighbours, as
 * the table of descriptors has the first run. */
static size_t metadata_guard(void)
{
#ifdef HEAPFIT_HARDENED
    if (space_settings.huge_pages != HUGE_PAGES_HUGETLB) return platform_page_size();
#endif
    return 0;
}

static void metadata_set_guards(char *start, char *end, size_t guard)
{
    if (guard == 0) return;
    platform_open(start, guard, false);
    platform_open(end - guard, guard, false);
}

/* Always from the clean: it must read as zeros. What is left of the last run is given up. */
static bool metadata_extend(size_t size)
{
    size_t guard = metadata_guard();
    uint32_t spans = (uint32_t)((size + 2 * guard + SPAN_SIZE - 1) / SPAN_SIZE);
    uint32_t index = run_take_clean(spans);
    for (unsigned pool = pools_end(); index == SPAN_NONE && pool < pools_zeroed_end(); pool++)
        index = acquire_from_pool(spans, 1, pool);
    if (index == SPAN_NONE) return false;
    span_at(index + spans - 1)->kind = SPAN_TAIL;
    span_at(index)->kind = SPAN_METADATA;
    span_at(index)->run_spans = spans;
    run_use_set(span_at(index), RUN_OF_TABLES);
    space_state.spans_metadata += spans;
    char *start = (char *)span_start(span_at(index)), *end = start + (size_t)spans * SPAN_SIZE;
    metadata_set_guards(start, end, guard);
    space_state.metadata_next = start + guard;
    space_state.metadata_end = end - guard;
    return true;
}

static void *metadata_take(size_t size)
{
    if ((size_t)(space_state.metadata_end - space_state.metadata_next) < size && !metadata_extend(size)) return NULL;
    void *memory = space_state.metadata_next;
    space_state.metadata_next += size;
    return memory;
}

/* A run of its own. */
static void *metadata_beside(size_t size)
{
    bool zeroed = true;
    struct span *first = acquire_beside((uint32_t)((size + SPAN_SIZE - 1) / SPAN_SIZE), 1, SPAN_METADATA, &zeroed);
    if (first == NULL) return NULL;
    run_use_set(first, RUN_OF_TABLES);
    space_state.spans_metadata += first->run_spans;
    return (void *)span_start(first);
}

void *space_metadata(size_t size)
{
    size = (size + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
    unsigned waited = 0;
    for (;;) {
        enum space_access access = space_enter();
        void *memory = access == SPACE_WHOLE    ? metadata_take(size)
                       : access == SPACE_BESIDE ? metadata_beside(size)
                                                : NULL;
        space_leave(access);
        if (LIKELY(memory != NULL) || !others_are_done(access, 1, &waited)) return memory;
    }
}

READS_RACILY uint32_t space_spans(void)
{
    return __atomic_load_n(&space_state.frontier, __ATOMIC_RELAXED);
}

READS_RACILY size_t space_kept(void)
{
    uint32_t clean = __atomic_load_n(&space_state.pools[CLEAN].spans, __ATOMIC_RELAXED) +
                     __atomic_load_n(&space_state.clean_aside, __ATOMIC_RELAXED);
    uint32_t kept = space_spans();
    return kept > clean ? (size_t)(kept - clean) * SPAN_SIZE : 0;
}

READS_RACILY struct space_load space_load(void)
{
    uint32_t dirty = 0;
    for (unsigned pool = DIRTY; pool < pools_end(); pool++)
        dirty += __atomic_load_n(&space_state.pools[pool].spans, __ATOMIC_RELAXED);
    return (struct space_load){
        .kept = space_kept(), .dirty = (size_t)dirty * SPAN_SIZE, .is_locked = purge_is_hopeless()};
}

/* Where entering is denied, the calling thread is in the middle of changing what is read: some figure may be off. */

void space_figures(struct space_figures *figures)
{
    enum space_access access = space_enter();
    *figures = (struct space_figures){
        .reserved = (size_t)space_state.reserved * SPAN_SIZE,
        .committed = (size_t)space_state.committed * SPAN_SIZE,
        .handed_out = (size_t)spans_handed_out() * SPAN_SIZE,
        .dirty = (size_t)spans_dirty() * SPAN_SIZE,
        .clean = (size_t)(space_state.pools[CLEAN].spans + space_state.clean_aside) * SPAN_SIZE,
        .metadata = (size_t)space_state.spans_metadata * SPAN_SIZE,
        .purged = atomic_load_explicit(&space_state.purged_bytes, memory_order_relaxed),
        .advice_calls = space_state.advice_calls,
        .huge = (size_t)(space_state.units[UNIT_ADVISED] + space_state.units[UNIT_TAKEN]) * PLATFORM_HUGE_PAGE,
        .purge_calls = atomic_load_explicit(&space_state.purge_calls, memory_order_relaxed),
        .commit_calls = space_state.commit_calls,
        .zeroed = (size_t)spans_zeroed() * SPAN_SIZE,
        .nodes = space_state.nodes,
    };
    space_leave(access);
}

size_t space_node_figures(struct space_node_figures *figures, size_t count)
{
    enum space_access access = space_enter();
    for (size_t node = 0; node < count && node < space_state.nodes; node++) {
        const struct pool *pool = &space_state.pools[DIRTY + node];
        figures[node] = (struct space_node_figures){
            .dirty = (size_t)pool->spans * SPAN_SIZE,
            .zeroed = (size_t)space_state.pools[pool_zeroed(DIRTY + (unsigned)node)].spans * SPAN_SIZE,
            .crossings = pool->crossings,
        };
    }
    size_t nodes = space_state.nodes;
    space_leave(access);
    return nodes;
}

/* A fork's child that works beside the space for good may find a run that another thread was about to describe, below the frontier
 * that it had raised (fork.c): its spans count as runs of one, so that the walk comes to its end, and to what lies behind. */
static uint32_t run_step(const struct span *first)
{
    return first->run_spans != 0 ? first->run_spans : 1;
}

void space_visit(void (*visit)(const struct span *span, void *argument), void *argument)
{
    enum space_access access = space_enter();
    uint32_t end = access == SPACE_DENIED ? 0 : space_state.frontier;
    for (uint32_t index = 0; index < end;) {
        const struct span *span = span_at(index);
        if (span_kind_read(span) != SPAN_FREE) visit(span, argument);
        index += run_step(span);
    }
    space_leave(access);
}

static enum run_state run_state(const struct span *first)
{
    if (span_kind_read(first) != SPAN_FREE) return RUN_HANDED_OUT;
    if (first->pool == CLEAN) return RUN_CLEAN;
    return pool_is_dirty(first->pool) ? RUN_DIRTY : RUN_ZEROED;
}

uint32_t space_visit_runs(uint32_t from, uint32_t to, void (*visit)(const struct space_run *run, void *argument),
                          void *argument)
{
    enum space_access access = space_enter();
    uint32_t end = access == SPACE_DENIED ? 0 : space_state.frontier;
    for (uint32_t index = 0; index < end && index < to;) {
        const struct span *first = span_at(index);
        struct space_run run = {.first = first, .index = index, .spans = run_step(first)};
        index += run.spans;
        if (index <= from) continue;
        run.state = run_state(first);
        visit(&run, argument);
    }
    space_leave(access);
    return end;
}

struct space_bounds space_bounds(void)
{
    enum space_access access = space_enter();
    struct space_bounds bounds = {
        .table = space.base - space_state.table_reserved,
        .base = space.base,
        .committed = space.base + (size_t)space_state.committed * SPAN_SIZE,
        .end = space.base + (size_t)space_state.reserved * SPAN_SIZE,
    };
    space_leave(access);
    return bounds;
}
