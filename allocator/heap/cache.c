/* The free runs of spans that a heap keeps for itself: whole spans that its bins have emptied, and those of large objects
 * that its thread has freed. Whoever takes one from here asks neither the lock that all threads share nor the kernel, and gets
 * memory that is resident, and perhaps in the processor's cache.
 *
 * How much. A heap keeps LEAST_SPANS at first. A run that is asked for in vain after others had to leave is one that a larger
 * cache would still have. So where this happens often, the cache may hold so much more from then on, up to thread_span_threshold,
 * and all heaps together as much as is otherwise in use. What nobody has asked for during the decay time was too much: it goes,
 * and the cache may hold so much less. So a thread whose blocks of middle size come and go keeps them, however many threads
 * there are, and others keep little.
 *
 * To the space layer a kept run is handed out: its descriptors are the heap's, which links it by length (next, prev) and by
 * age (owned_next, owned_prev). Its kind is SPAN_METADATA: nobody's object, whoever frees it a second time. What it was
 * before can still be told: a span that was cut into blocks has its `bin`, and is not cut again for the same one; a large
 * object's run has BIN_NONE. It goes on to count among the dense spans if it did so in use, which is when `uncarved` is 0.
 *
 * In front. Of each short length the runs that were freed last stand before the lists. Only the owner puts one there, so for that it
 * needs no lock; anybody may take one, by an atomic exchange. It counts against the room as all do. Whoever looks for old runs
 * moves it to the lists, where its age begins.
 *
 * The lock. The heap's owner alone comes here, but for a thread that empties the caches of all (heap_caches_empty), so it
 * costs two atomic instructions on a line that the owner has anyway, where a span's worth of blocks or a large object
 * begins or ends. Nothing is locked under it. In a fork's child it may be found held by a thread that emptied it (registry.c).
 */
#include "heap.h"

/* A run may be longer than is wanted by this share, so that objects of similar sizes take each other's. To cut the rest off
 * would take the lock of the space, and leave ends that fit nothing. */
enum { WASTE_SHARE = 8 };

/* A heap may keep so many spans to begin with, or, if that is more, this share of the threshold. */
enum { LEAST_SPANS = 4, LEAST_SHARE = 16 };

/* So many of the youngest are looked at where the first may not be the right one. */
enum { COMPARED_MAX = 32 };

/* ---- lists: under the lock ---------------------------------------------------------------------------------------- */

/* Relaxed: written under the lock. Without it, the owner may rely on 0, since nobody else puts runs in. */
static uint32_t cache_spans(const struct span_cache *cache)
{
    return atomic_load_explicit(&cache->spans, memory_order_relaxed);
}

static void cache_count(struct span_cache *cache, uint32_t spans)
{
    atomic_store_explicit(&cache->spans, spans, memory_order_relaxed);
}

/* How much a heap may keep at most. Read under the lock: who sets it to 0 and then empties the cache, under the same lock, knows
 * that it stays empty, but for a run that its owner is just about to put in front. */
static uint32_t threshold(void)
{
    return atomic_load_explicit(&heap_settings.thread_spans_cached, memory_order_relaxed);
}

/* How much it may keep now, of the threshold that was just read. Where there can be no background thread, threads that sleep would
 * keep it all. */
static uint32_t room(const struct span_cache *cache, uint32_t most)
{
    uint32_t least = most / LEAST_SHARE > LEAST_SPANS ? most / LEAST_SHARE : LEAST_SPANS;
    uint64_t spans = (uint64_t)least + (heap_background_is_possible() ? cache->grown : 0);
    return spans < most ? (uint32_t)spans : most;
}

/* What all caches have grown by, in spans. And until when none grows, since memory has run out. Relaxed: numbers. */
static _Atomic(int32_t) grown_of_all;
static _Atomic(uint64_t) not_before_ms;

static void set_grown(struct span_cache *cache, uint32_t grown)
{
    atomic_fetch_add_explicit(&grown_of_all, (int32_t)(grown - cache->grown), memory_order_relaxed);
    cache->grown = grown;
}

/* Relaxed: the owner's alone, but for a thread that empties the cache, and a hint. */
static void set_missing(struct span_cache *cache, bool missing)
{
    atomic_store_explicit(&cache->missing, missing, memory_order_relaxed);
}

/* Relaxed: written under the lock; the owner reads it without, as a hint. */
static void set_room(struct span_cache *cache, uint32_t spans)
{
    atomic_store_explicit(&cache->room, spans, memory_order_relaxed);
}

static uint32_t last_room(const struct span_cache *cache)
{
    return atomic_load_explicit(&cache->room, memory_order_relaxed);
}

void cache_start(struct span_cache *cache)
{
    cache_count(cache, 0);
    set_grown(cache, 0);
    set_missing(cache, false);
    cache->youngest = cache->oldest = SPAN_NONE;
    set_room(cache, 0);
    for (unsigned length = 0; length < CACHE_FRONT; length++)
        for (unsigned depth = 0; depth < CACHE_DEPTH; depth++)
            atomic_store_explicit(&cache->front[length][depth], 0, memory_order_relaxed);
    cache->front_most = 0;
    for (unsigned list = 0; list < CACHE_LISTS; list++) cache->lists[list] = SPAN_NONE;
}

static uint32_t *list_of_length(struct span_cache *cache, uint32_t spans)
{
    return &cache->lists[spans <= CACHE_EXACT ? spans - 1 : CACHE_EXACT];
}

static void cache_add(struct span_cache *cache, struct span *run, uint32_t heap_number)
{
    uint32_t index = span_index(run);
    run_use_set(run, heap_number + 1);
    uint32_t *list = list_of_length(cache, run->run_spans);
    run->prev = SPAN_NONE;
    run->next = *list;
    if (*list != SPAN_NONE) span_at(*list)->prev = index;
    *list = index;
    run->owned_prev = SPAN_NONE;
    run->owned_next = cache->youngest;
    if (cache->youngest != SPAN_NONE) span_at(cache->youngest)->owned_prev = index;
    else cache->oldest = index;
    cache->youngest = index;
    cache_count(cache, cache_spans(cache) + run->run_spans);
}

static void cache_remove(struct span_cache *cache, struct span *run)
{
    run_use_set(run, RUN_ON_ITS_WAY);
    if (run->next != SPAN_NONE) span_at(run->next)->prev = run->prev;
    if (run->prev != SPAN_NONE) span_at(run->prev)->next = run->next;
    else *list_of_length(cache, run->run_spans) = run->next;
    if (run->owned_next != SPAN_NONE) span_at(run->owned_next)->owned_prev = run->owned_prev;
    else cache->oldest = run->owned_prev;
    if (run->owned_prev != SPAN_NONE) span_at(run->owned_prev)->owned_next = run->owned_next;
    else cache->youngest = run->owned_next;
    cache_count(cache, cache_spans(cache) - run->run_spans);
}

/* Move the oldest run to a chain of those that are to be released once the lock is. */
static void cache_detach_oldest(struct span_cache *cache, uint32_t *chain)
{
    struct span *run = span_at(cache->oldest);
    cache_remove(cache, run);
    run->next = *chain;
    *chain = span_index(run);
}

static void cache_detach_beyond(struct span_cache *cache, uint32_t spans, uint32_t *chain)
{
    while (cache_spans(cache) > spans) cache_detach_oldest(cache, chain);
}

/* ---- in front --------------------------------------------------------------------------------------------------------- */

/* Relaxed: only the owner changes it from 0, and for others it is a hint. */
ALWAYS_INLINE uint32_t front_at(const struct span_cache *cache, uint32_t spans, unsigned depth)
{
    return atomic_load_explicit(&cache->front[spans - 1][depth], memory_order_relaxed);
}

/* The one that was put there last, as far as others have taken none. */
static struct span *take_from_front(struct span_cache *cache, uint32_t spans)
{
    if (spans > CACHE_FRONT) return NULL;
    for (unsigned depth = CACHE_DEPTH; depth-- > 0;) {
        if (front_at(cache, spans, depth) == 0) continue;
        /* Acquire: pairs with the release in cache_put_in_front, for who is not the owner. */
        uint32_t index = atomic_exchange_explicit(&cache->front[spans - 1][depth], 0, memory_order_acquire);
        if (index == 0) continue;
        run_use_set(span_at(index - 1), RUN_ON_ITS_WAY);
        return span_at(index - 1);
    }
    return NULL;
}

static struct span *own_from_front(struct span_cache *cache, uint32_t spans)
{
    struct span *run = take_from_front(cache, spans);
    /* In a fork's child it may have been set to 0 meanwhile. */
    if (run != NULL) cache->front_most -= spans < cache->front_most ? spans : cache->front_most;
    return run;
}

static uint32_t spans_in_front(const struct span_cache *cache)
{
    uint32_t sum = 0;
    for (uint32_t spans = 1; spans <= CACHE_FRONT; spans++)
        for (unsigned depth = 0; depth < CACHE_DEPTH; depth++)
            if (front_at(cache, spans, depth) != 0) sum += spans;
    return sum;
}

/* Under the lock, the owner. The room that there is now, and how much of it is left for the lists, at least. */
static uint32_t room_in_lists(struct span_cache *cache, uint32_t most)
{
    uint32_t front = cache->front_most, spans = room(cache, most);
    set_room(cache, spans);
    return spans > front ? spans - front : 0;
}

/* Whether so many more may stand in front. Without the lock, so that the lists may have become shorter meanwhile, but not longer.
 * `room` was right when the owner last had the lock; that of heap_orphans, which keeps nothing, is 0. */
ALWAYS_INLINE bool has_room(const struct span_cache *cache, uint32_t spans)
{
    uint32_t all = cache_spans(cache) + cache->front_most + spans;
    return all <= last_room(cache) && all <= threshold();
}

bool cache_put_in_front(struct heap *heap, struct span *run)
{
    struct span_cache *cache = &heap->cache;
    uint32_t spans = run->run_spans;
    if (spans > CACHE_FRONT) return false;
    /* More than one only where the cache has grown: in little room they would have to make way for each other all the time. */
    unsigned depth = 0, most = last_room(cache) > LEAST_SPANS ? CACHE_DEPTH : 1;
    while (front_at(cache, spans, depth) != 0) /* nobody else puts one there */
        if (++depth >= most) return false;
    if (!has_room(cache, spans)) {
        if (cache_spans(cache) + spans > last_room(cache)) return false; /* whatever is in front */
        cache->front_most = spans_in_front(cache);
        if (!has_room(cache, spans)) return false;
    }
    cache->front_most += spans;
    run_use_set(run, heap->number + 1);
    /* Release: pairs with the acquire in take_from_front. */
    atomic_store_explicit(&cache->front[spans - 1][depth], span_index(run) + 1, memory_order_release);
    return true;
}

/* Under the lock, any thread. */
static void move_to_lists(struct span_cache *cache, uint32_t heap_number, uint64_t now)
{
    for (uint32_t spans = 1; spans <= CACHE_FRONT; spans++) {
        struct span *run;
        while ((run = take_from_front(cache, spans)) != NULL) {
            span_since_set(run, now);
            cache_add(cache, run, heap_number);
        }
    }
}

/* ---- putting in --------------------------------------------------------------------------------------------------- */

static void release(struct span *run)
{
    int32_t dense = run_dense_spans(run);
    if (dense != 0) space_dense_spans_add(-dense);
    space_release(run);
}

void cache_release(uint32_t chain)
{
    while (chain != SPAN_NONE) {
        struct span *run = span_at(chain);
        chain = run->next;
        release(run);
    }
}

bool cache_put(struct heap *heap, struct span *run)
{
    struct span_cache *cache = &heap->cache;
    uint32_t chain = SPAN_NONE;
    if (heap == &heap_orphans) { /* everybody's: it would keep what no thread asks it for */
        release(run);
        return false;
    }
    span_since_set(run, platform_clock_ms());
    platform_lock_acquire(&cache->lock);
    uint32_t most = threshold(), now = room_in_lists(cache, most);
    if (cache_spans(cache) + run->run_spans > now && cache->front_most != 0) { /* they may be older than all */
        move_to_lists(cache, heap->number, span_since(run));
        cache->front_most = 0;
        now = last_room(cache);
    }
    bool kept = run->run_spans <= now;
    if (kept) cache_add(cache, run, heap->number);
    cache_detach_beyond(cache, now, &chain);
    bool all_kept = kept && chain == SPAN_NONE;
    if (!all_kept && run->run_spans <= most) set_missing(cache, true);
    platform_lock_release(&cache->lock);
    if (all_kept) return true;
    if (!kept) release(run);
    cache_release(chain);
    return false;
}

/* ---- taking ------------------------------------------------------------------------------------------------------- */

/* The shortest of the youngest runs that are longer than CACHE_EXACT, within [spans, most]; NULL: none. */
static struct span *find_long(const struct span_cache *cache, uint32_t spans, uint32_t most)
{
    struct span *best = NULL;
    uint32_t index = cache->lists[CACHE_EXACT];
    for (unsigned i = 0; i < COMPARED_MAX && index != SPAN_NONE; i++) {
        struct span *run = span_at(index);
        index = run->next;
        if (run->run_spans < spans || run->run_spans > most) continue;
        if (best == NULL || run->run_spans < best->run_spans) best = run;
    }
    return best;
}

static struct span *find_run(const struct span_cache *cache, uint32_t spans)
{
    uint32_t most = spans + spans / WASTE_SHARE;
    for (uint32_t length = spans; length <= most && length <= CACHE_EXACT; length++) {
        uint32_t index = cache->lists[length - 1];
        if (index != SPAN_NONE) return span_at(index);
    }
    return most > CACHE_EXACT ? find_long(cache, spans, most) : NULL;
}

/* Of the single spans one that is cut for the bin, else any. */
static struct span *find_span(const struct span_cache *cache, uint32_t bin)
{
    uint32_t youngest = cache->lists[0];
    uint32_t index = youngest;
    for (unsigned i = 0; i < COMPARED_MAX && index != SPAN_NONE; i++) {
        if (span_at(index)->bin == bin) return span_at(index);
        index = span_at(index)->next;
    }
    return youngest == SPAN_NONE ? NULL : span_at(youngest);
}

/* Often enough: so many times in so many ms that the lock of the space would be felt. And all caches together may grow by so much,
 * or by this share of the heap, if that is more: it includes what they hold. */
enum { OFTEN = 16, OFTEN_MS = 100, GROWN_SPANS = 1024, GROWN_SHARE = 2 };

static bool may_grow(struct span_cache *cache, uint32_t spans)
{
    uint64_t now = platform_clock_ms();
    if (now - cache->vain_since > OFTEN_MS) {
        cache->vain_since = now;
        cache->vain_times = 0;
    }
    if (++cache->vain_times < OFTEN || now < atomic_load_explicit(&not_before_ms, memory_order_relaxed)) return false;
    int64_t share = (int64_t)(space_kept() / SPAN_SIZE / GROWN_SHARE), most = share > GROWN_SPANS ? share : GROWN_SPANS;
    return atomic_load_explicit(&grown_of_all, memory_order_relaxed) + (int64_t)spans <= most;
}

/* `spans` were wanted since some had to leave. While there is but one thread, the lock of the space is one that nobody else takes,
 * and what is there serves any need of its own. */
static void cache_grow(struct span_cache *cache, uint32_t spans, uint32_t most)
{
    set_missing(cache, false);
    if (heap_threads_now() == 1 || room(cache, most) == most || !may_grow(cache, spans)) return;
    if (heap_background_is_possible() && !heap_background_is_put_off()) set_grown(cache, cache->grown + spans);
}

static struct span *take(struct span_cache *cache, struct span *(*find)(const struct span_cache *, uint32_t),
                         uint32_t wanted, uint32_t spans)
{
    bool missing = atomic_load_explicit(&cache->missing, memory_order_relaxed);
    if (cache_spans(cache) == 0 && !missing) return NULL;
    uint32_t chain = SPAN_NONE;
    platform_lock_acquire(&cache->lock);
    uint32_t most = threshold();
    if (UNLIKELY(last_room(cache) > most))
        cache_detach_beyond(cache, room_in_lists(cache, most), &chain); /* it was lowered */
    struct span *run = find(cache, wanted);
    if (run != NULL) cache_remove(cache, run);
    else if (missing) cache_grow(cache, spans, most);
    platform_lock_release(&cache->lock);
    if (UNLIKELY(chain != SPAN_NONE)) cache_release(chain);
    return run;
}

struct span *cache_take_run(struct heap *heap, uint32_t spans)
{
    struct span *run = own_from_front(&heap->cache, spans);
    return run != NULL ? run : take(&heap->cache, find_run, spans, spans);
}

/* One in front is a large object's mostly, and not cut for the bin. */
struct span *cache_take_span(struct heap *heap, unsigned bin)
{
    struct span *span = take(&heap->cache, find_span, bin, 1);
    return span != NULL ? span : own_from_front(&heap->cache, 1);
}

/* ---- giving back -------------------------------------------------------------------------------------------------- */

/* So many at a time, since each takes the lock of the space. */
enum { RELEASED_MAX = 32 };

enum chores_left cache_detach_old(struct heap *heap, uint64_t now, uint32_t age_ms, uint32_t *chain)
{
    struct span_cache *cache = &heap->cache;
    if (cache_spans(cache) + spans_in_front(cache) == 0) return CHORES_NONE;
    platform_lock_acquire(&cache->lock);
    move_to_lists(cache, heap->number, now);
    uint32_t most = room(cache, threshold());
    bool is_due = true;
    for (unsigned i = 0; cache->oldest != SPAN_NONE; i++) {
        struct span *oldest = span_at(cache->oldest);
        is_due = cache_spans(cache) > most || span_age(oldest, now) >= age_ms;
        if (!is_due || i == RELEASED_MAX) break;
        set_grown(cache, cache->grown - (oldest->run_spans < cache->grown ? oldest->run_spans : cache->grown));
        cache_detach_oldest(cache, chain);
    }
    enum chores_left left = cache->oldest == SPAN_NONE ? CHORES_NONE : is_due ? CHORES_NOW : CHORES_LATER;
    platform_lock_release(&cache->lock);
    return left;
}

enum chores_left cache_release_old(struct heap *heap, uint64_t now, uint32_t age_ms)
{
    uint32_t chain = SPAN_NONE;
    enum chores_left left = cache_detach_old(heap, now, age_ms, &chain);
    cache_release(chain);
    return left;
}

uint32_t cache_detach(struct heap *heap, uint32_t chain)
{
    platform_lock_acquire(&heap->cache.lock);
    move_to_lists(&heap->cache, heap->number, 0);
    cache_detach_beyond(&heap->cache, 0, &chain);
    set_grown(&heap->cache, 0);
    set_room(&heap->cache, 0);
    platform_lock_release(&heap->cache.lock);
    return chain;
}

void cache_growth_rests(void)
{
    enum { REST_MS = 10000 };
    atomic_store_explicit(&not_before_ms, platform_clock_ms() + REST_MS, memory_order_relaxed);
}

size_t cache_bytes(const struct heap *heap)
{
    return (size_t)(cache_spans(&heap->cache) + spans_in_front(&heap->cache)) * SPAN_SIZE;
}
