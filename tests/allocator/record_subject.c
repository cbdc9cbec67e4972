/* Stands where settings.c and the recorder's thread (writer.h) would be, and shows tests what was noted. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "record_subject.h"

#include "record/note.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Exported where this is part of a library. */
#pragma GCC visibility push(default)

struct record_settings record_settings;
_Atomic(bool) recording;

/* ---- what was taken out of rings ---------------------------------------------------------------------------------------- */

enum { KEPT_MAX = 1 << 22 };
static struct {
    _Atomic(bool) taken; /* a lock that works in a fork's child */
    struct subject_event *events; /* of memory that no test sees */
    size_t count;
} kept;

static void lock(void)
{
    while (atomic_exchange(&kept.taken, true)) sched_yield();
}

static void unlock(void)
{
    atomic_store(&kept.taken, false);
}

static void keep(const struct record_ring *ring, uint32_t number, const struct record_event *event)
{
    if (kept.events == NULL) {
        size_t size = KEPT_MAX * sizeof *kept.events;
        kept.events = platform_reserve(size, platform_page_size());
        if (!platform_commit(kept.events, size)) abort();
    }
    if (kept.count == KEPT_MAX) abort();
    kept.events[kept.count++] = (struct subject_event){
        .tick = event->tick,
        .address = event->address,
        .size = event->size,
        .slack = event->slack,
        .site = event->site,
        .kind = event->kind,
        .alignment = event->alignment,
        .tid = atomic_load(&ring->tid),
        .ring = number,
    };
}

static unsigned rings_count(void)
{
    unsigned count = 0;
    for (struct record_ring *ring = atomic_load(&record_rings); ring != NULL; ring = ring->next) count++;
    return count;
}

/* As the recorder's thread does: under the lock, for there is one of it. */
static void take_all(void)
{
    uint32_t number = rings_count();
    for (struct record_ring *ring = atomic_load_explicit(&record_rings, memory_order_acquire); ring != NULL;
         ring = ring->next) {
        number--;
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        for (; tail != head; tail++) keep(ring, number, &ring->events[tail % RECORD_RING_EVENTS]);
        atomic_store_explicit(&ring->tail, tail, memory_order_release);
    }
}

size_t subject_take(struct subject_event *events, size_t capacity)
{
    lock();
    take_all();
    size_t count = kept.count;
    if (count != 0 && capacity != 0)
        memcpy(events, kept.events, (count < capacity ? count : capacity) * sizeof *events);
    unlock();
    return count;
}

/* ---- the writer -------------------------------------------------------------------------------------------------------------- */

void writer_wake(void) {}

void writer_wait(struct record_ring *ring)
{
    (void)ring;
    lock();
    take_all();
    unlock();
}

void writer_thread_leaves(void) {}

/* ---- for tests ---------------------------------------------------------------------------------------------------------------- */

void subject_start(size_t sample, unsigned sites)
{
    record_settings.sample = sample;
    record_settings.sites = sites;
    lock();
    take_all();
    kept.count = 0;
    unlock();
    if (!sample_begin()) abort();
    atomic_store(&recording, true);
}

void subject_stop(void)
{
    atomic_store(&recording, false);
}

void subject_fork_child(void)
{
    atomic_store(&recording, false);
    kept.taken = false;
    kept.count = 0;
    rings_fork_child();
}

/* Inside, as every noted call is. */
void subject_note(unsigned kind, uint64_t address, uint64_t size, uint64_t slack, unsigned alignment, uint32_t site)
{
    thread_enter();
    note(kind, address, size, slack, alignment, site);
    thread_leave();
}

void subject_until_sample(size_t size)
{
    record_thread.until_sample = size;
}

bool subject_takes(size_t size)
{
    return sample_takes(size);
}

#ifdef HEAPFIT_TEST_IN_FRONT /* with intercept.c, as a library in front of the allocator */

const char *subject_allocator(void)
{
    return intercept_allocator();
}

/* Programs that are not written for this are recorded when the environment says so: nobody looks at what was noted. */
__attribute__((constructor)) void subject_begin(void)
{
    intercept_start();
    if (getenv("HEAPFIT_TEST_RECORD") != NULL) subject_start(strtoul(getenv("HEAPFIT_TEST_RECORD"), NULL, 0), 8);
}

#else

void subject_begin(void)
{
    rings_start();
}

#endif

#ifdef HEAPFIT_TEST_GREEDY /* dlsym allocates, as it may */

void *__real_dlsym(void *handle, const char *symbol);
void *__wrap_dlsym(void *handle, const char *symbol);

void *__wrap_dlsym(void *handle, const char *symbol)
{
    static char *before; /* freed when malloc is known, or goes on */
    char *more = calloc(3, 11), *grown = realloc(malloc(5), 50);
    for (int i = 0; i < 33; i++)
        if (more[i] != 0) abort();
    memset(grown, 1, 50);
    before = realloc(before, 100);
    memset(before, 2, 100);
    free(more);
    free(grown);
    void *found = __real_dlsym(handle, symbol);
    return found;
}

#endif
