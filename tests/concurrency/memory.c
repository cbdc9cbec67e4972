/* See memory.h. Of every location the stores of this execution are kept; memory itself always has the latest. */
#include "memory.h"

#include "interleave.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANGES_MAX = 16,
    SLOTS_MAX = 64,    /* atomic locations that threads share */
    STORES_MAX = 64,   /* to one of them, in an execution */
    TABLE_SIZE = 4096, /* of addresses; a power of two, and much more than there are */
    REPORT_BYTES = 160
};

/* ---- views ------------------------------------------------------------------------------------------------------------- */

struct view {
    uint8_t oldest[SLOTS_MAX]; /* the oldest store of a location that may still be read */
    uint32_t clock
        [INTERLEAVE_THREADS_MAX]; /* of each thread, how many of its releases are known: what it did before is, too */
};

static void join(struct view *view, const struct view *other)
{
    for (int i = 0; i < SLOTS_MAX; i++)
        if (other->oldest[i] > view->oldest[i]) view->oldest[i] = other->oldest[i];
    for (int i = 0; i < INTERLEAVE_THREADS_MAX; i++)
        if (other->clock[i] > view->clock[i]) view->clock[i] = other->clock[i];
}

static struct view views[INTERLEAVE_THREADS_MAX]; /* of the threads */

static struct view *own_view(void)
{
    return &views[interleave_self()];
}

/* What this thread does from here on is not known to those who know what it did before. */
static void released(void)
{
    own_view()->clock[interleave_self()]++;
}

/* ---- what is watched ------------------------------------------------------------------------------------------------------- */

static struct {
    const char *name;
    uintptr_t start, end;
} ranges[RANGES_MAX];
static int ranges_count;

void memory_watch(const char *name, const void *start, size_t size)
{
    uintptr_t address = (uintptr_t)start;
    ranges[ranges_count].name = name;
    ranges[ranges_count].start = address;
    ranges[ranges_count++].end = address + size;
}

static int range_of(uintptr_t address)
{
    for (int i = 0; i < ranges_count; i++)
        if (address - ranges[i].start < ranges[i].end - ranges[i].start) return i;
    return -1;
}

static bool is_watched(uintptr_t address)
{
    return interleave_runs() && range_of(address) >= 0;
}

/* ---- locations ------------------------------------------------------------------------------------------------------------- */

struct store {
    uint64_t value;
    bool carries; /* a view, to be had by acquire */
    struct view view;
};

/* A location that several threads access, and some write. */
struct history {
    int count; /* stores so far, the value at the start among them; 0: not accessed in this execution */
    int last_consistent; /* the last sequentially consistent access was to this one */
    bool unknown; /* the value of the last one, which is being written plainly: it is what memory has afterwards */
    struct store stores[STORES_MAX];
};

static struct history histories[SLOTS_MAX];
static int slots;

/* An address, in all executions of an exploration. */
static struct location {
    uintptr_t address; /* 0: a free entry */
    unsigned readers, writers; /* masks of threads that were ever seen to be so, atomically */
    unsigned plain_writers; /* and that wrote it plainly */
    size_t size; /* as it is accessed atomically; 0: never */
    int slot; /* -1: as far as is known, no other thread can tell when it is accessed */
} locations[TABLE_SIZE];
static bool learned;

static size_t entry_of(uintptr_t address)
{
    return (size_t)((address >> 2) * UINT64_C(0x9E3779B97F4A7C15) >> 32) % TABLE_SIZE;
}

static struct location *location_of(uintptr_t address)
{
    size_t entry = entry_of(address);
    while (locations[entry].address != 0 && locations[entry].address != address) entry = (entry + 1) % TABLE_SIZE;
    if (locations[entry].address == 0) locations[entry] = (struct location){.address = address, .slot = -1};
    return &locations[entry];
}

static bool is_shared(const struct location *location)
{
    unsigned writers = location->writers | location->plain_writers;
    unsigned all = location->readers | writers;
    return location->size != 0 && writers != 0 && (all & (all - 1)) != 0;
}

/* Other threads may come first, if they can tell. */
static struct location *visit(uintptr_t address, size_t size, bool writes)
{
    struct location *location = location_of(address);
    location->size = size;
    *(writes ? &location->writers : &location->readers) |= 1u << interleave_self();
    if (location->slot >= 0) interleave();
    else if (is_shared(location)) learned = true;
    return location;
}

static void slots_assign(void)
{
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        if (locations[i].address == 0 || locations[i].slot >= 0 || !is_shared(&locations[i])) continue;
        if (slots == SLOTS_MAX) {
            fputs("too many locations are shared: enlarge SLOTS_MAX\n", stderr);
            abort();
        }
        locations[i].slot = slots++;
    }
}

/* ---- stores ------------------------------------------------------------------------------------------------------------------ */

static uint64_t fetch(const volatile void *address, size_t size)
{
    uint64_t value = 0;
    memcpy(&value, (const void *)address, size);
    return value;
}

static struct store *store_add(struct history *history, uint64_t value)
{
    if (history->count == STORES_MAX) interleave_fail("too many stores to one location");
    struct store *store = &history->stores[history->count++];
    store->value = value;
    store->carries = false;
    return store;
}

static uint8_t *oldest_of(const struct history *history)
{
    return &own_view()->oldest[history - histories];
}

/* The stores of a location that threads share, until now. */
static struct history *history_of(const struct location *location)
{
    struct history *history = &histories[location->slot];
    uint64_t value = fetch((const void *)location->address, location->size);
    if (history->count == 0) {
        history->last_consistent = 0;
        store_add(history, value);
    }
    struct store *last = &history->stores[history->count - 1];
    if (history->unknown) last->value = value;
    else if (last->value != value) store_add(history, value); /* by what memory.c is not told of */
    history->unknown = false;
    return history;
}

/* ---- plain accesses: FastTrack, reduced (Flanagan, Freund, PLDI 2009) -------------------------------------------------------- */

/* By the address that accesses begin at: the same bytes are always accessed as the same field. */
static struct cell {
    uintptr_t address;
    unsigned execution; /* otherwise the entry is free */
    int writer;
    uint32_t written, read[INTERLEAVE_THREADS_MAX]; /* the threads' clocks when they last did; 0: never */
} cells[TABLE_SIZE];
static unsigned execution;
static bool races_expected;

void memory_races_expected(void)
{
    races_expected = true;
}

static struct cell *cell_of(uintptr_t address)
{
    size_t entry = entry_of(address);
    while (cells[entry].execution == execution && cells[entry].address != address) entry = (entry + 1) % TABLE_SIZE;
    if (cells[entry].execution != execution) cells[entry] = (struct cell){.address = address, .execution = execution};
    return &cells[entry];
}

static _Noreturn void race(uintptr_t address, bool writes, int other)
{
    static char report[REPORT_BYTES];
    int range = range_of(address);
    snprintf(report, sizeof report,
             "a race: thread %d %s %s, at byte %zu, and nothing orders it after what thread %d did there",
             interleave_self(), writes ? "writes" : "reads", ranges[range].name,
             (size_t)(address - ranges[range].start), other);
    interleave_fail(report);
}

static void plain_piece(uintptr_t address, bool writes)
{
    struct cell *cell = cell_of(address);
    const struct view *view = own_view();
    int self = interleave_self();
    if (cell->written > view->clock[cell->writer]) race(address, writes, cell->writer);
    if (!writes) {
        cell->read[self] = view->clock[self];
        return;
    }
    for (int i = 0; i < INTERLEAVE_THREADS_MAX; i++)
        if (cell->read[i] > view->clock[i]) race(address, true, i);
    cell->writer = self;
    cell->written = view->clock[self];
}

/* What atomic loads may find: a plain access finds the latest store, and a plain store carries nothing. It is no place to change
 * threads: who loads an older store has come before it. */
static void plain_of_atomic(uintptr_t address, bool writes)
{
    struct location *location = location_of(address);
    if (writes) location->plain_writers |= 1u << interleave_self();
    if (location->slot < 0) {
        if (is_shared(location)) learned = true;
        return;
    }
    struct history *history = history_of(location);
    if (writes) store_add(history, 0);
    history->unknown = writes;
    *oldest_of(history) = (uint8_t)(history->count - 1);
}

static void plain(const void *start, size_t size, bool writes)
{
    if (!is_watched((uintptr_t)start)) return;
    for (size_t offset = 0; offset < size; offset += sizeof(uint64_t)) {
        uintptr_t address = (uintptr_t)start + offset;
        if (!races_expected) plain_piece(address, writes);
        plain_of_atomic(address, writes);
    }
}

/* ---- atomic accesses ------------------------------------------------------------------------------------------------------- */

static bool acquires(int order)
{
    return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE;
}

static bool releases(int order)
{
    return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static void put(volatile void *address, size_t size, uint64_t value)
{
    memcpy((void *)address, &value, size);
}

/* The stores of a location, after the others had their chance to run; NULL: it is nothing to them. */
static struct history *history_at(const volatile void *address, size_t size, bool writes)
{
    if (!is_watched((uintptr_t)address)) return NULL;
    const struct location *location = visit((uintptr_t)address, size, writes);
    if (location->slot < 0) return NULL;
    return history_of(location);
}

static int oldest_readable(const struct history *history, int order)
{
    int oldest = *oldest_of(history);
    return order == __ATOMIC_SEQ_CST && history->last_consistent > oldest ? history->last_consistent : oldest;
}

static uint64_t read_store(struct history *history, int number, int order)
{
    const struct store *store = &history->stores[number];
    *oldest_of(history) = (uint8_t)number;
    if (order == __ATOMIC_SEQ_CST) history->last_consistent = number;
    if (acquires(order) && store->carries) join(own_view(), &store->view);
    return store->value;
}

/* Writes the latest store; `after` is what a read-modify-write has read, and whose view it passes on. */
static void write_store(struct history *history, uint64_t value, int order, const struct store *after)
{
    struct store *store = store_add(history, value);
    *oldest_of(history) = (uint8_t)(history->count - 1);
    if (order == __ATOMIC_SEQ_CST) history->last_consistent = history->count - 1;
    store->carries = releases(order) || (after != NULL && after->carries);
    memset(&store->view, 0, sizeof store->view);
    if (after != NULL && after->carries) store->view = after->view;
    if (!releases(order)) return;
    join(&store->view, own_view());
    released();
}

static uint64_t load(const volatile void *address, size_t size, int order)
{
    struct history *history = history_at(address, size, false);
    if (history == NULL) return fetch(address, size);
    int last = history->count - 1;
    return read_store(history, last - interleave_deviate(last - oldest_readable(history, order)), order);
}

static void store(volatile void *address, size_t size, uint64_t value, int order)
{
    struct history *history = history_at(address, size, true);
    if (history != NULL) write_store(history, value, order, NULL);
    put(address, size, value);
}

/* Reads the latest store and writes the next one. */
static void modify(struct history *history, uint64_t value, int order)
{
    int last = history->count - 1;
    read_store(history, last, order);
    write_store(history, value, order, &history->stores[last]);
}

static uint64_t exchange(volatile void *address, size_t size, uint64_t value, int order)
{
    struct history *history = history_at(address, size, true);
    uint64_t before = fetch(address, size);
    if (history != NULL) modify(history, value, order);
    put(address, size, value);
    return before;
}

static uint64_t fetch_add(volatile void *address, size_t size, uint64_t value, int order)
{
    struct history *history = history_at(address, size, true);
    uint64_t before = fetch(address, size);
    if (history != NULL) modify(history, before + value, order);
    put(address, size, before + value);
    return before;
}

/* How it may fail besides as the latest store says: writes the numbers of the stores that it then reads. */
static int failures(const struct history *history, uint64_t expected, bool weak, int order, int *list)
{
    int last = history->count - 1, count = 0;
    if (weak && history->stores[last].value == expected) list[count++] = last;
    for (int i = last - 1; i >= oldest_readable(history, order); i--)
        if (weak || history->stores[i].value != expected) list[count++] = i;
    return count;
}

static bool compare_exchange(volatile void *address, size_t size, uint64_t *expected, uint64_t value, int order,
                             int failure_order, bool weak)
{
    struct history *history = history_at(address, size, true);
    uint64_t latest = fetch(address, size);
    if (history != NULL) {
        int list[STORES_MAX + 1];
        int deviation = interleave_deviate(failures(history, *expected, weak, failure_order, list));
        if (deviation > 0 || latest != *expected) {
            int read = deviation > 0 ? list[deviation - 1] : history->count - 1;
            *expected = read_store(history, read, failure_order);
            return false;
        }
        modify(history, value, order);
    } else if (latest != *expected) {
        *expected = latest;
        return false;
    }
    put(address, size, value);
    return true;
}

/* ---- locks ----------------------------------------------------------------------------------------------------------------- */

/* What the last holder knew when it released the lock. */
static struct lock_view {
    const void *lock; /* NULL: a free entry */
    unsigned execution;
    struct view view;
} lock_views[SLOTS_MAX];

static struct view *view_of_lock(const void *lock)
{
    int i = 0;
    while (lock_views[i].lock != NULL && lock_views[i].lock != lock)
        if (++i == SLOTS_MAX) interleave_fail("too many locks");
    if (lock_views[i].execution != execution) lock_views[i] = (struct lock_view){.lock = lock, .execution = execution};
    return &lock_views[i].view;
}

void memory_lock_wanted(const void *lock)
{
    if (interleave_runs()) visit((uintptr_t)lock, sizeof(uint32_t), true);
}

void memory_lock_taken(const void *lock)
{
    if (interleave_runs()) join(own_view(), view_of_lock(lock));
}

void memory_lock_released(const void *lock)
{
    if (!interleave_runs()) return;
    *view_of_lock(lock) = *own_view();
    released();
}

/* ---- executions ------------------------------------------------------------------------------------------------------------ */

void memory_explore(void)
{
    memset(locations, 0, sizeof locations);
    slots = 0;
    learned = false;
}

void memory_execute(int threads)
{
    execution++;
    races_expected = false;
    for (int i = 0; i < slots; i++) {
        histories[i].count = 0;
        histories[i].unknown = false;
    }
    memset(views, 0, sizeof views);
    for (int i = 0; i < threads; i++) views[i].clock[i] = 1;
}

bool memory_learned(void)
{
    bool again = learned;
    learned = false;
    if (again) slots_assign();
    return again;
}

void memory_see_all(void)
{
    for (int i = 0; i < INTERLEAVE_THREADS_MAX; i++) join(own_view(), &views[i]);
    for (int i = 0; i < slots; i++)
        if (histories[i].count > 0) own_view()->oldest[i] = (uint8_t)(histories[i].count - 1);
}

void memory_barrier_everywhere(void)
{
    interleave();
    memory_see_all();
    for (int i = 0; i < INTERLEAVE_THREADS_MAX; i++) join(&views[i], own_view());
    for (int i = 0; i < INTERLEAVE_THREADS_MAX; i++) views[i].clock[i]++;
}

/* ---- what the compiler calls (gcc/tsan.c, compiler-rt's tsan_interface.h) ----------------------------------------------------- */

/* No program declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wmissing-declarations"
#ifdef __clang__
#pragma clang diagnostic ignored "-Wreserved-identifier"
#endif

void __tsan_init(void) {}

void __tsan_func_entry(const void *caller)
{
    (void)caller;
}

void __tsan_func_exit(void) {}

#define PLAIN(size)                                                                                                    \
    void __tsan_read##size(const void *address)                                                                        \
    {                                                                                                                  \
        plain(address, size, false);                                                                                   \
    }                                                                                                                  \
    void __tsan_write##size(const void *address)                                                                       \
    {                                                                                                                  \
        plain(address, size, true);                                                                                    \
    }                                                                                                                  \
    void __tsan_unaligned_read##size(const void *address)                                                              \
    {                                                                                                                  \
        plain(address, size, false);                                                                                   \
    }                                                                                                                  \
    void __tsan_unaligned_write##size(const void *address)                                                             \
    {                                                                                                                  \
        plain(address, size, true);                                                                                    \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(const void *address, size_t size)
{
    plain(address, size, false);
}

void __tsan_write_range(const void *address, size_t size)
{
    plain(address, size, true);
}

/* Clang's. */
void *__tsan_memcpy(void *to, const void *from, size_t size)
{
    plain(from, size, false);
    plain(to, size, true);
    return memcpy(to, from, size);
}

void *__tsan_memset(void *start, int byte, size_t size)
{
    plain(start, size, true);
    return memset(start, byte, size);
}

#define ATOMIC(bits, type)                                                                                             \
    type __tsan_atomic##bits##_load(const volatile type *address, int order)                                           \
    {                                                                                                                  \
        return (type)load(address, sizeof(type), order);                                                               \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile type *address, type value, int order)                                    \
    {                                                                                                                  \
        store(address, sizeof(type), value, order);                                                                    \
    }                                                                                                                  \
    type __tsan_atomic##bits##_exchange(volatile type *address, type value, int order)                                 \
    {                                                                                                                  \
        return (type)exchange(address, sizeof(type), value, order);                                                    \
    }                                                                                                                  \
    type __tsan_atomic##bits##_fetch_add(volatile type *address, type value, int order)                                \
    {                                                                                                                  \
        return (type)fetch_add(address, sizeof(type), value, order);                                                   \
    }                                                                                                                  \
    type __tsan_atomic##bits##_fetch_sub(volatile type *address, type value, int order)                                \
    {                                                                                                                  \
        return (type)fetch_add(address, sizeof(type), -(uint64_t)value, order);                                        \
    }                                                                                                                  \
    static int compare_exchange##bits(volatile type *address, type *expected, type value, int order, int failure,      \
                                      bool weak)                                                                       \
    {                                                                                                                  \
        uint64_t word = *expected;                                                                                     \
        bool done = compare_exchange(address, sizeof(type), &word, value, order, failure, weak);                       \
        *expected = (type)word;                                                                                        \
        return done;                                                                                                   \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type *address, type *expected, type value, int order,   \
                                                      int failure)                                                     \
    {                                                                                                                  \
        return compare_exchange##bits(address, expected, value, order, failure, false);                                \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type *address, type *expected, type value, int order,     \
                                                    int failure)                                                       \
    {                                                                                                                  \
        return compare_exchange##bits(address, expected, value, order, failure, true);                                 \
    }                                                                                                                  \
    /* Clang's, for both: it does not tell which. */                                                                   \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *address, type expected, type value, int order,      \
                                                    int failure)                                                       \
    {                                                                                                                  \
        compare_exchange##bits(address, &expected, value, order, failure, false);                                      \
        return expected;                                                                                               \
    }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    if (interleave_runs()) interleave_fail("a fence: memory.c has none");
}

/* Of the compiler alone: no access is moved here but by the model, which allows no more for it. */
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}
