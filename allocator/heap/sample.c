/* Which objects are sampled, and the table of those that are: see sample.h. */
#include "heap.h"
#include "numbered.h"

#include "../platform/probe.h"

_Atomic(size_t) sample_mean;

/* ---- samples ---------------------------------------------------------------------------------------------------------------------- */

/* `next` and what it starts from belong to the span's owner, the rest to who has taken the sample; others read it by its turn.
 * All relaxed, but for the turn. */
struct sample {
    _Atomic(uint32_t) turn; /* odd: it is changing */
    _Atomic(uint32_t) next; /* of its span, or of those unused; 0: none */
    _Atomic(uintptr_t) object; /* 0: none */
    _Atomic(size_t) bytes, mean;
    _Atomic(uint64_t) since_ms;
    _Atomic(uint32_t) site;
    _Atomic(bool) large;
};

/* At 512k they are enough for 64 GiB that live, and take 6 MiB then. Numbers begin with 1. */
enum { SAMPLES_MAX = 1 << 17 };

static struct numbered samples = {.each = SAMPLES_MAX / NUMBERED_CHUNKS, .size = sizeof(struct sample)};
static _Atomic(uint64_t)
    unused; /* the number of the first; above 32 bits how often that was taken, so that none is taken twice */
static _Atomic(size_t) taken, missed; /* for figures */

static struct sample *sample_at(uint32_t number)
{
    return numbered_at(&samples, number);
}

/* One that is the caller's from now on; 0: there is none. */
static uint32_t number_take(void)
{
    /* Acquire: pairs with the release in number_put_back, so that `next` is that of then, or the exchange fails. */
    uint64_t head = atomic_load_explicit(&unused, memory_order_acquire);
    while ((uint32_t)head != 0) {
        uint32_t next = atomic_load_explicit(&sample_at((uint32_t)head)->next, memory_order_relaxed);
        uint64_t rest = ((head >> 32) + 1) << 32 | next;
        if (atomic_compare_exchange_weak_explicit(&unused, &head, rest, memory_order_acquire, memory_order_acquire))
            return (uint32_t)head;
    }
    return numbered_make(&samples, SAMPLES_MAX);
}

static void number_put_back(uint32_t number)
{
    struct sample *sample = sample_at(number);
    uint64_t head = atomic_load_explicit(&unused, memory_order_relaxed), with;
    do {
        atomic_store_explicit(&sample->next, (uint32_t)head, memory_order_relaxed);
        with = (head & ~(uint64_t)UINT32_MAX) | number;
    } while (!atomic_compare_exchange_weak_explicit(&unused, &head, with, memory_order_release, memory_order_relaxed));
}

/* ---- changing, and reading meanwhile ------------------------------------------------------------------------------------------------ */

/* Only one thread changes a sample. What a reader finds between two turns that are the same and even is of one moment: the fence
 * keeps what is changed behind the odd turn, the release before the even one. */
static void change_begin(struct sample *sample)
{
    uint32_t turn = atomic_load_explicit(&sample->turn, memory_order_relaxed);
    atomic_store_explicit(&sample->turn, turn + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void change_end(struct sample *sample)
{
    uint32_t turn = atomic_load_explicit(&sample->turn, memory_order_relaxed);
    atomic_store_explicit(&sample->turn, turn + 1, memory_order_release);
}

static void sample_begin(struct sample *sample, const struct sample_now *now)
{
    change_begin(sample);
    atomic_store_explicit(&sample->bytes, now->bytes, memory_order_relaxed);
    atomic_store_explicit(&sample->mean, now->mean, memory_order_relaxed);
    atomic_store_explicit(&sample->since_ms, now->since_ms, memory_order_relaxed);
    atomic_store_explicit(&sample->site, now->site, memory_order_relaxed);
    atomic_store_explicit(&sample->large, now->large, memory_order_relaxed);
    atomic_store_explicit(&sample->object, now->object, memory_order_relaxed);
    change_end(sample);
}

static void sample_end(struct sample *sample)
{
    change_begin(sample);
    atomic_store_explicit(&sample->object, 0, memory_order_relaxed);
    change_end(sample);
    /* Who sees what the block's next user writes to it, sees this too: see sample_is_unchanged. */
    atomic_thread_fence(memory_order_release);
}

uint32_t sample_last(void)
{
    uint32_t last = atomic_load_explicit(&samples.made, memory_order_relaxed);
    /* Who makes one makes its chunk before, but another's look at the number may come first. */
    while (last != 0 && numbered_chunk(&samples, last) == 0) last = (last - 1) / samples.each * samples.each;
    return last;
}

bool sample_read(uint32_t number, struct sample_now *now)
{
    const struct sample *sample = sample_at(number);
    now->turn = atomic_load_explicit(&sample->turn, memory_order_acquire); /* pairs with change_end */
    now->object = atomic_load_explicit(&sample->object, memory_order_relaxed);
    now->bytes = atomic_load_explicit(&sample->bytes, memory_order_relaxed);
    now->mean = atomic_load_explicit(&sample->mean, memory_order_relaxed);
    now->since_ms = atomic_load_explicit(&sample->since_ms, memory_order_relaxed);
    now->site = atomic_load_explicit(&sample->site, memory_order_relaxed);
    now->large = atomic_load_explicit(&sample->large, memory_order_relaxed);
    return now->object != 0 && now->turn % 2 == 0 && sample_is_unchanged(number, now);
}

bool sample_is_unchanged(uint32_t number, const struct sample_now *now)
{
    atomic_thread_fence(memory_order_acquire); /* pairs with the fences in change_begin and sample_end */
    return atomic_load_explicit(&sample_at(number)->turn, memory_order_relaxed) == now->turn;
}

struct sample_figures sample_figures(void)
{
    return (struct sample_figures){.taken = atomic_load_explicit(&taken, memory_order_relaxed),
                                   .missed = atomic_load_explicit(&missed, memory_order_relaxed)};
}

/* ---- where a span's samples begin ------------------------------------------------------------------------------------------------ */

/* Of spans that are neighbours: a page of numbers. */
enum { LEAF_SPANS = 1 << 10 };
struct leaf {
    _Atomic(uint32_t) first[LEAF_SPANS]; /* the span's owner's */
};
static _Atomic(_Atomic(struct leaf *) *)
    leaves; /* for all address space that may be reserved; both release: they read as zeros */

/* What two threads make at the same time is the first one's; the other's stays unused. */
static COLD _Atomic(struct leaf *) *leaves_make(void)
{
    size_t count = (space.window / SPAN_SIZE + LEAF_SPANS - 1) / LEAF_SPANS;
    _Atomic(struct leaf *) *new = space_metadata(count * sizeof *new), *none = NULL;
    if (new == NULL) return NULL;
    bool ours =
        atomic_compare_exchange_strong_explicit(&leaves, &none, new, memory_order_acq_rel, memory_order_acquire);
    return ours ? new : none;
}

static COLD struct leaf *leaf_make(_Atomic(struct leaf *) *place)
{
    struct leaf *new = space_metadata(sizeof *new), *none = NULL;
    if (new == NULL) return NULL;
    bool ours = atomic_compare_exchange_strong_explicit(place, &none, new, memory_order_acq_rel, memory_order_acquire);
    return ours ? new : none;
}

/* NULL: there is no memory for it. */
static _Atomic(uint32_t) *first_of(const struct span *span)
{
    _Atomic(struct leaf *) *table = atomic_load_explicit(&leaves, memory_order_acquire);
    if (table == NULL) table = leaves_make();
    if (table == NULL) return NULL;
    _Atomic(struct leaf *) *place = &table[span_index(span) / LEAF_SPANS];
    struct leaf *leaf = atomic_load_explicit(place, memory_order_acquire);
    if (leaf == NULL) leaf = leaf_make(place);
    if (leaf == NULL) return NULL;
    return &leaf->first[span_index(span) % LEAF_SPANS];
}

static bool sample_add(struct span *span, const struct sample_now *now)
{
    _Atomic(uint32_t) *first = first_of(span);
    uint32_t number = first == NULL ? 0 : number_take();
    if (number == 0) return false;
    struct sample *sample = sample_at(number);
    sample_begin(sample, now);
    /* In this order: at any moment, a fork's child can follow the list. */
    atomic_store_explicit(&sample->next, atomic_load_explicit(first, memory_order_relaxed), memory_order_relaxed);
    atomic_store_explicit(first, number, memory_order_relaxed);
    span->sampled = true;
    return true;
}

/* ---- what ceases to be sampled ------------------------------------------------------------------------------------------------------ */

/* Those in units of the mask, and, where these cease too, those whose blocks look free. Racily: what a live block begins with is the
 * program's. */
READS_RACILY static void forget(struct span *span, uint32_t units, bool free_ones)
{
    _Atomic(uint32_t) *first = first_of(span); /* it is there: the span is sampled */
    _Atomic(uint32_t) *link = first;
    for (uint32_t number = atomic_load_explicit(link, memory_order_relaxed); number != 0;) {
        struct sample *sample = sample_at(number);
        uint32_t next = atomic_load_explicit(&sample->next, memory_order_relaxed);
        uintptr_t object = atomic_load_explicit(&sample->object, memory_order_relaxed);
        bool in_units = (units >> ((object & (SPAN_SIZE - 1)) >> CARVE_UNIT_LOG2) & 1) != 0;
        if (in_units || (free_ones && block_looks_free(object))) {
            atomic_store_explicit(link, next, memory_order_relaxed);
            sample_end(sample);
            if (probe_free_is_heard()) probe_free(object);
            number_put_back(number);
        } else {
            link = &sample->next;
        }
        number = next;
    }
    span->sampled = atomic_load_explicit(first, memory_order_relaxed) != 0;
}

void sample_forget_all_of(struct span *span)
{
    forget(span, UINT32_MAX, false);
}

void sample_forget_units(struct span *span, uint32_t units)
{
    forget(span, units, false);
}

void sample_forget_free(struct span *span)
{
    forget(span, 0, true);
}

/* ---- picking ------------------------------------------------------------------------------------------------------------------------ */

bool sample_is_due(struct heap *heap, unsigned bin, size_t bytes)
{
    size_t mean = sample_mean_now();
    if (mean == 0 || !pick_falls(&heap->sample, mean, bin, bytes)) return false;
    pick_pass(&heap->sample, bytes);
    return true;
}

size_t sample_cut(struct heap *heap, unsigned bin, size_t bytes, size_t count)
{
    size_t mean = sample_mean_now();
    return mean == 0 ? count : pick_cut(&heap->sample, mean, bin, bytes, count);
}

/* Bytes that a sampled object stands for: bytes / (1 - exp(-bytes / mean)). The denominator is had for a part of the exponent from
 * the first terms of its series, which leave out a millionth, and then for twice as much at a time: 1 - (1 - p)^2 = p * (2 - p). */
static COLD size_t weighted_bytes(size_t bytes, size_t mean)
{
    enum { CERTAIN = 64 }; /* of so many means: 1 - exp(-64) is 1 to a double */
    if (bytes / mean >= CERTAIN) return bytes;
    double part = (double)bytes / (double)mean;
    unsigned doublings = 0;
    for (; part > 1.0 / 16; doublings++) part /= 2;
    double p = part * (1 - part / 2 * (1 - part / 3 * (1 - part / 4)));
    while (doublings-- > 0) p *= 2 - p;
    return (size_t)((double)bytes / p + 0.5);
}

/* One has been picked. What has no room is not told to listeners either, who would never hear of its end. */
static void count_one(bool noted, const struct sample_now *now)
{
    atomic_fetch_add_explicit(noted ? &taken : &missed, 1, memory_order_relaxed);
    if (noted && probe_alloc_is_heard()) probe_alloc(now->object, now->bytes, weighted_bytes(now->bytes, now->mean));
}

/* What is known of the object but for who asked for it, which is found out here. */
static NOINLINE COLD struct sample_now described(void *object, size_t bytes, size_t mean)
{
    struct trace trace;
    trace_take(&trace);
    return (struct sample_now){.site = call_site_of(&trace),
                               .object = (uintptr_t)object,
                               .bytes = bytes,
                               .mean = mean,
                               .since_ms = platform_clock_ms()};
}

COLD void sample_note(struct heap *heap, void *object, size_t bytes)
{
    struct sample_now now = described(object, bytes, heap->sample.mean);
    uint32_t entered = heap_enter(heap); /* or another thread may be at the span's samples (idle.c) */
    bool noted = sample_add(span_of_offset(space_offset(object)), &now);
    heap_leave(heap, entered);
    count_one(noted, &now);
}

/* A thread that has no heap of its own draws each time. Nobody but who frees or resizes a large object touches its span. */
COLD void sample_large(struct heap *heap, void *object)
{
    struct picker own = {.random = 0};
    struct picker *picker = heap->size != 0 ? &heap->sample : &own;
    struct span *span = span_of_offset(space_offset(object));
    size_t mean = sample_mean_now(), bytes = large_told_size(span);
    if (mean == 0 || !pick_takes(picker, mean, bytes)) return;
    struct sample_now now = described(object, bytes, mean);
    now.large = true;
    count_one(sample_add(span, &now), &now);
}
