/* Slots for guarded objects: see guard.h. */
#include "heap.h"

#include <string.h>

/* So many objects are guarded at a time at most, in four pages for each of these kilobytes of records. With larger pages fewer,
 * which then take up this much memory. A quarter of the slots stays to what was freed: else a program with many long-lived objects
 * would leave none to find uses after free in. */
enum { SLOTS_MAX = 255, SLOTS_LEAST = 16, QUARANTINE_SHARE = 4 };
#define MEMORY_MAX ((size_t)4 << 20)

struct guard guard;

enum { START_NEVER = 0, START_UNDER_WAY, START_DONE, START_FAILED };
static _Atomic(uint32_t) started;

/* Figures, and a bound: relaxed. */
static _Atomic(size_t) live, samples, missed;
static _Atomic(uint64_t) frees;

/* ---- start ---------------------------------------------------------------------------------------------------------------- */

/* Pages of the kernel's pool of huge pages are only made inaccessible as a whole. */
static uint32_t alignment_in_spans(void)
{
    return space_settings.huge_pages == HUGE_PAGES_HUGETLB ? PLATFORM_HUGE_PAGE / SPAN_SIZE : 1;
}

/* As many slots, with the pages between them, as whole spans hold. */
static bool make_slots(uint32_t slots)
{
    size_t page = platform_page_size(), unit = alignment_in_spans() * SPAN_SIZE;
    size_t size = ((2 * (size_t)slots + 1) * page + unit - 1) & ~(unit - 1);
    struct guard_slot *records = platform_borrow(slots * sizeof *records);
    if (records == NULL) return false;
    struct span *run = space_set_apart((uint32_t)(size / SPAN_SIZE), alignment_in_spans());
    if (run == NULL || !platform_seal((void *)span_start(run), size)) {
        platform_give_back(records, slots * sizeof *records);
        return false;
    }
    guard = (struct guard){.start = span_start(run), .page = page, .slots = slots, .records = records};
    return true;
}

static bool make(void)
{
    size_t most = MEMORY_MAX / platform_page_size();
    for (uint32_t slots = most < SLOTS_MAX ? (uint32_t)most : SLOTS_MAX; slots >= SLOTS_LEAST; slots /= 2)
        if (make_slots(slots)) return true;
    return false;
}

static bool has_started(void)
{
    /* Acquire: pairs with the release in start. */
    return atomic_load_explicit(&started, memory_order_acquire) == START_DONE;
}

/* Whoever comes first; the others do without meanwhile. */
static COLD bool start(void)
{
    uint32_t never = START_NEVER;
    if (!atomic_compare_exchange_strong_explicit(&started, &never, START_UNDER_WAY, memory_order_relaxed,
                                                 memory_order_relaxed))
        return false;
    bool done = make();
    /* Release: pairs with has_started. */
    atomic_store_explicit(&started, done ? START_DONE : START_FAILED, memory_order_release);
    if (done && HARDENED) hardened_watch_faults();
    else if (done) platform_fault_watch(guard_report_fault);
    return done;
}

/* ---- slots ------------------------------------------------------------------------------------------------------------------ */

static uintptr_t page_of(const struct guard_slot *slot)
{
    return guard.start + (2 * (size_t)(slot - guard.records) + 1) * guard.page;
}

struct guard_slot *guard_slot_of(uintptr_t address)
{
    if (!has_started() || address < guard.start) return NULL;
    size_t page = (address - guard.start) / guard.page;
    return page % 2 == 1 && page / 2 < guard.slots ? &guard.records[page / 2] : NULL;
}

static bool take(struct guard_slot *slot, uint32_t state)
{
    /* Acquire: pairs with the release in let_go. */
    return atomic_compare_exchange_strong_explicit(&slot->state, &state, GUARD_BUSY, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void let_go(struct guard_slot *slot, enum guard_state state)
{
    atomic_store_explicit(&slot->state, state, memory_order_release);
}

/* The one that has been free for longest. */
static struct guard_slot *oldest_free(uint32_t *its_state)
{
    struct guard_slot *oldest = NULL;
    uint64_t oldest_at = UINT64_MAX;
    for (uint32_t i = 0; i < guard.slots; i++) {
        struct guard_slot *slot = &guard.records[i];
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);
        uint64_t at = atomic_load_explicit(&slot->freed_at, memory_order_relaxed);
        if ((state != GUARD_UNUSED && state != GUARD_FREED) || at >= oldest_at) continue;
        oldest = slot;
        oldest_at = at;
        *its_state = state;
    }
    return oldest;
}

/* Take one for an object, which is counted; NULL: too many live. */
static struct guard_slot *take_free(uint32_t *was)
{
    struct guard_slot *slot;
    if (atomic_fetch_add_explicit(&live, 1, memory_order_relaxed) < guard.slots - guard.slots / QUARANTINE_SHARE)
        while ((slot = oldest_free(was)) != NULL)
            if (take(slot, *was)) return slot;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    return NULL;
}

/* ---- allocating -------------------------------------------------------------------------------------------------------------- */

/* At the end of the page as near to its edge as alignment lets it come, or at its start. */
static uintptr_t place(uintptr_t page, size_t size, size_t alignment, bool at_end)
{
    size_t room = size == 0 ? 1 : size;
    return at_end ? (page + guard.page - room) & ~(uintptr_t)(alignment - 1) : page;
}

static void put(struct guard_slot *slot, size_t size, size_t alignment, uint64_t chance)
{
    uintptr_t page = page_of(slot);
    slot->size = size;
    slot->object = place(page, size, alignment, (chance & 1) != 0);
    slot->pattern = (uint8_t)(chance >> 8 | 1); /* not 0, which is written most often */
    memset((void *)page, slot->pattern, guard.page);
    memset((void *)slot->object, 0, size);
}

void *guard_allocate(size_t size, size_t alignment, void *owner, uint64_t chance)
{
    if (!has_started() && !start()) return NULL;
    if (size > guard.page || alignment > guard.page) return NULL;
    uint32_t was = GUARD_UNUSED;
    struct guard_slot *slot = take_free(&was);
    if (slot == NULL || !platform_open((void *)page_of(slot), guard.page, true)) {
        if (slot != NULL) let_go(slot, was);
        if (slot != NULL) atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&missed, 1, memory_order_relaxed);
        return NULL;
    }
    put(slot, size, alignment, chance);
    slot->allocated_by = platform_thread_number();
    trace_take(&slot->allocated);
    slot->freed_by = 0;
    atomic_store_explicit(&slot->owner, owner, memory_order_relaxed);
    atomic_fetch_add_explicit(&samples, 1, memory_order_relaxed);
    let_go(slot, GUARD_LIVE);
    return (void *)slot->object;
}

/* ---- freeing ------------------------------------------------------------------------------------------------------------------ */

/* The first byte of [from, to) that is not as it was left; NULL: there is none. */
static const uint8_t *first_changed(const struct guard_slot *slot, uintptr_t from, uintptr_t to)
{
    for (; from < to; from++)
        if (*(const uint8_t *)from != slot->pattern) return (const uint8_t *)from;
    return NULL;
}

static const uint8_t *last_changed(const struct guard_slot *slot, uintptr_t from, uintptr_t to)
{
    for (; to > from; to--)
        if (*(const uint8_t *)(to - 1) != slot->pattern) return (const uint8_t *)(to - 1);
    return NULL;
}

static void check_rest(const char *function, const struct guard_slot *slot)
{
    uintptr_t page = page_of(slot);
    const uint8_t *behind = first_changed(slot, slot->object + slot->size, page + guard.page);
    if (UNLIKELY(behind != NULL)) guard_report_mistake(GUARD_OVERFLOWN, function, behind);
    const uint8_t *before = last_changed(slot, page, slot->object);
    if (UNLIKELY(before != NULL)) guard_report_mistake(GUARD_UNDERFLOWN, function, before);
}

/* It is ours to change. If the kernel refuses, what follows is not found, and nothing else suffers. */
static void quarantine(struct guard_slot *slot)
{
    void *page = (void *)page_of(slot);
    slot->freed_by = platform_thread_number();
    trace_take(&slot->freed);
    platform_open(page, guard.page, false);
    platform_purge(page, guard.page);
    atomic_store_explicit(&slot->owner, NULL, memory_order_relaxed);
    atomic_store_explicit(&slot->freed_at, atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    let_go(slot, GUARD_FREED);
}

/* The slot of a live object, or the end of the program. */
static struct guard_slot *live_slot(const char *function, const void *pointer)
{
    struct guard_slot *slot = guard_slot_of((uintptr_t)pointer);
    /* Acquire: pairs with the release in let_go. */
    if (UNLIKELY(slot == NULL || atomic_load_explicit(&slot->state, memory_order_acquire) != GUARD_LIVE ||
                 slot->object != (uintptr_t)pointer))
        guard_report_mistake(GUARD_POINTER, function, pointer);
    return slot;
}

void guard_free(const char *function, const void *pointer)
{
    struct guard_slot *slot = live_slot(function, pointer);
    if (UNLIKELY(!take(slot, GUARD_LIVE))) guard_report_mistake(GUARD_POINTER, function, pointer);
    check_rest(function, slot);
    quarantine(slot);
}

void guard_free_all(const void *owner)
{
    for (uint32_t i = 0; has_started() && i < guard.slots; i++) {
        struct guard_slot *slot = &guard.records[i];
        if (atomic_load_explicit(&slot->owner, memory_order_relaxed) != owner || !take(slot, GUARD_LIVE)) continue;
        check_rest("hf_context_free_all", slot);
        quarantine(slot);
    }
}

/* ---- looking up ----------------------------------------------------------------------------------------------------------------- */

size_t guard_usable_size(const char *function, const void *pointer)
{
    return live_slot(function, pointer)->size;
}

void *guard_owner(const void *pointer)
{
    const struct guard_slot *slot = guard_slot_of((uintptr_t)pointer);
    return slot == NULL ? NULL : atomic_load_explicit(&slot->owner, memory_order_relaxed);
}

/* While others allocate and free: what one of them has in hand may be counted or not. */
READS_RACILY static size_t live_bytes_of(const struct guard_slot *slot)
{
    bool is_live = atomic_load_explicit(&slot->state, memory_order_acquire) == GUARD_LIVE;
    return is_live ? __atomic_load_n(&slot->size, __ATOMIC_RELAXED) : 0;
}

size_t guard_owned_bytes(const void *owner)
{
    size_t bytes = 0;
    for (uint32_t i = 0; has_started() && i < guard.slots; i++)
        if (atomic_load_explicit(&guard.records[i].owner, memory_order_relaxed) == owner)
            bytes += live_bytes_of(&guard.records[i]);
    return bytes;
}

void guard_figures(struct guard_figures *figures)
{
    *figures = (struct guard_figures){.slots = 0};
    if (!has_started()) return;
    figures->slots = guard.slots;
    for (uint32_t i = 0; i < guard.slots; i++) {
        const struct guard_slot *slot = &guard.records[i];
        if (atomic_load_explicit(&slot->state, memory_order_relaxed) != GUARD_LIVE) continue;
        figures->live++;
        figures->live_bytes += live_bytes_of(slot);
    }
    figures->samples = atomic_load_explicit(&samples, memory_order_relaxed);
    figures->missed = atomic_load_explicit(&missed, memory_order_relaxed);
    figures->own_bytes = figures->live * guard.page - figures->live_bytes + guard.slots * sizeof(struct guard_slot);
}

size_t guard_records(uintptr_t *start)
{
    if (!has_started()) return 0;
    *start = (uintptr_t)guard.records;
    return guard.slots * sizeof *guard.records;
}
