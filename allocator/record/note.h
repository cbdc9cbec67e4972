/* The way of an event into its thread's ring, and what else each noted call does: written into intercept.c's functions.
 *
 * What makes the file's times right (format.h: a block's free never comes before its allocation, nor the next allocation of its
 * address before its free):
 *
 * - An allocation is stamped when the real call has returned and published before ours returns. Who is handed the block
 *   afterwards, in whatever thread, stamps its free later.
 * - A free is stamped and published before the real call. Whoever gets the address again gets it from that call's doing,
 *   and stamps later.
 * - Later by the clock is meant: record_ticks.
 *
 * So in both ways an event is in its ring before one that it is the cause of is in another: the recorder's thread, which
 * looks at the rings one after the other, can miss a cause only in a ring that it has just looked at, and finds it
 * there the next time (format.h, complete_tick).
 */
#ifndef HEAPFIT_RECORD_NOTE_H
#define HEAPFIT_RECORD_NOTE_H

#include "platform/frame.h"
#include "record/record.h"

/* ---- threads ------------------------------------------------------------------------------------------------------------- */

/* What a thread notes with: its own alone. */
struct record_thread {
    struct record_ring *ring; /* NULL: none yet */
    size_t until_sample; /* bytes that pass before the next point falls (sample.c) */
    size_t mean; /* with which that was drawn; RECORD_NOT_DRAWN */
    uint64_t random;
    uint32_t ringless; /* events that were lost one after the other */
    /* In a call that is noted: what the real one calls in turn is its own affair (operator new calls malloc). The same for a
     * signal's handler that interrupts us: it may allocate if the real allocator bears it, and finds no half-written event. */
    bool inside;
};
#define RECORD_NOT_DRAWN SIZE_MAX /* no value of record_settings.sample, 0 included */
extern __thread struct record_thread record_thread __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Who sees that something is recorded has to see the tables that were made for it before (sample.c), or finds none, or those of the
 * recording before. A processor may else read them early: on aarch64 a branch keeps no load behind another. Where nothing is
 * recorded nothing of it is paid, as it would be for an acquire of the flag itself. On x86-64 it is no instruction at all. No test
 * shows it: x86-64, and an emulator on it, read in order, and ThreadSanitizer does not know fences. */
ALWAYS_INLINE bool is_recording(void)
{
    if (LIKELY(!atomic_load_explicit(&recording, memory_order_relaxed))) return false;
    atomic_thread_fence(memory_order_acquire); /* pairs with the release in recording_begin */
    return true;
}

/* The fences keep the compiler from moving what happens within out of it; against handlers in the same thread no more is
 * needed. */
ALWAYS_INLINE void thread_enter(void)
{
    record_thread.inside = true;
    atomic_signal_fence(memory_order_seq_cst);
}

ALWAYS_INLINE void thread_leave(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    record_thread.inside = false;
}

/* ---- rings (ring.c) --------------------------------------------------------------------------------------------------------- */

/* Called by intercept_start. */
void rings_start(void);

/* The thread's ring, with room for an event; waits for it. NULL: the event is lost. */
struct record_ring *ring_with_room(void);

enum { SLACK_MAX = (1 << 22) - 1 };

/* One more event of this thread. */
ALWAYS_INLINE void note(unsigned kind, uint64_t address, uint64_t size, uint64_t slack, unsigned alignment,
                        uint32_t site)
{
    struct record_ring *ring = record_thread.ring;
    /* Relaxed: only this thread writes it. */
    if (UNLIKELY(ring == NULL || atomic_load_explicit(&ring->head, memory_order_relaxed) == ring->look_at)) {
        ring = ring_with_room();
        if (ring == NULL) return;
    }
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    ring->events[head % RECORD_RING_EVENTS] = (struct record_event){
        .tick = record_ticks(), /* after what may have waited: an event is in its ring soon after its time */
        .address = address,
        .size = size,
        .site = site,
        .kind = kind & TRACE_KIND_MASK,
        .alignment = alignment & 63,
        .slack = (uint32_t)(slack < SLACK_MAX ? slack : SLACK_MAX) & SLACK_MAX,
    };
    /* Release: pairs with the acquire of the recorder's thread, which reads the event then. */
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* ---- samples (sample.c) -------------------------------------------------------------------------------------------------------- */

/* Whether no point falls into an allocation of this size, as far as is known: there are points, and the next one is drawn. */
ALWAYS_INLINE bool sample_passes(size_t size)
{
    if (record_thread.mean != record_settings.sample || UNLIKELY(size > record_thread.until_sample)) return false;
    record_thread.until_sample -= size;
    return true;
}

/* Whether one does, where it did not pass: but for a thread's first, or first of another mean. */
bool sample_falls(size_t size);

ALWAYS_INLINE bool sample_takes(size_t size)
{
    return !sample_passes(size) && sample_falls(size);
}

/* The object at this address is noted, so that its free will be; false: there is no room. */
bool sample_remember(uintptr_t address);
/* Whether it was; it is no more. */
bool sample_forget_found(uintptr_t address);

/* How many noted objects there are in each of some sets of pages: most often none, which ends the search for most frees. */
enum { SAMPLE_FILTER_LOG = 16 };
extern _Atomic(uint8_t) sample_filter[1 << SAMPLE_FILTER_LOG] HERE;

/* Neighbouring pages have neighbouring counters: a small program touches few lines of them. */
ALWAYS_INLINE _Atomic(uint8_t) *sample_counter(uintptr_t address)
{
    enum { PAGE_LOG = 12 };
    uintptr_t page = address >> PAGE_LOG;
    return &sample_filter[(page ^ page >> SAMPLE_FILTER_LOG) % (1 << SAMPLE_FILTER_LOG)];
}

ALWAYS_INLINE bool sample_forget(uintptr_t address)
{
    /* Relaxed: who frees an object has been told of it by the thread that counted it. */
    if (LIKELY(atomic_load_explicit(sample_counter(address), memory_order_relaxed) == 0)) return false;
    return sample_forget_found(address);
}

/* ---- sites (site.c) --------------------------------------------------------------------------------------------------------------- */

/* The site of a call whose caller goes on at `frame`; 0: there are too many. */
uint32_t site_find(const struct frame *frame);

/* Whether it is a signal's handler, or has been called by one, that has interrupted the next library's malloc (interrupted.c). */
bool interrupted_is_malloc(struct frame frame);

/* Code may have been unmapped. */
void sites_forget(void);

void sites_fork_child(void);

/* Of the function that this is written in, when sites are wanted. */
ALWAYS_INLINE uint32_t site_of_caller(void)
{
    if (LIKELY(record_settings.sites == 0)) return 0;
    struct frame caller = frame_of_caller();
    return site_find(&caller);
}

#endif
