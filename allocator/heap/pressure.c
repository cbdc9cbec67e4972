/* Memory runs short: what the allocator does before the kernel ends the process for its control group's limit.
 *
 * Free memory waits to be used again, for decay_ms and up to some thresholds, since to give it back and get it anew costs time.
 * In a group with a limit (a container) that may be the memory that is missing in the next moment. So the allocator looks, now
 * and then, how much is left:
 *
 *     PRESSURE_NONE    the options hold
 *     PRESSURE_NEAR    if all that has been handed out and kept were touched, little would be left: caches are bounded as while the
 *                      footprint is shrunk (hf_footprint_shrink), and no more huge pages are asked for
 *     PRESSURE_AT      little is left: what is free goes back at once, but for a share of what is little, which may be used again
 *                      within tens of milliseconds
 *
 * "Little" is margin_of. A level is left again when twice that is there, so that it does not come and go. When the kernel says
 * that it has met a limit, or stalled the group's processes, all that is free goes back once, whatever the level.
 *
 * When it looks. Not before the heap has LOOK_FROM: most programs never do, and their starts pay nothing. From then on when heaps
 * have got as much memory as is a share of what was left (heap_pressure_grown), so that it looks the more often the less there
 * is; and after some time while there are chores (heap_pressure_pass), that is while free memory waits. A program in a steady
 * state does neither. A look reads some files, see platform/cgroup.c.
 *
 * No lock is waited for. Two threads that look at once come to the same, and what they write are numbers that each stand
 * for themselves: so all of them are relaxed.
 */
#include "heap.h"

#define MIB ((size_t)1 << 20)

/* ---- when to look ---------------------------------------------------------------------------------------------------- */

#define LOOK_FROM (16 * MIB)
/* What heaps get between two looks: a share of what is left, but no less than a look is worth. With no limit, or while the heap is
 * small, there is nothing to be seen for a while. */
enum { GOT_SHARE = 4 };
#define GOT_MIN (2 * MIB)
#define GOT_NO_LIMIT (256 * MIB)

/* Milliseconds between two looks because of the time: with no limit, which somebody may set; with one that is far; and with one
 * that is not. */
enum { REST_NO_LIMIT_MS = 10000, REST_FAR_MS = 2000, REST_NEAR_MS = 200 };

_Atomic(size_t) heap_pressure_got, heap_pressure_look_at = LOOK_FROM;
_Atomic(uint64_t) heap_pressure_look_after_ms;

/* ---- what is seen ------------------------------------------------------------------------------------------------------ */

/* Little is less than this: room for what threads take between two looks. A large group needs no more of it than a smaller one. */
enum { MARGIN_SHARE = 8 };
#define MARGIN_MAX (256 * MIB)

static size_t margin_of(size_t limit)
{
    size_t margin = limit / MARGIN_SHARE;
    return margin < MARGIN_MAX ? margin : MARGIN_MAX;
}

struct view {
    struct platform_memory memory;
    uint64_t stall_us, window_us; /* what is worth acting upon */
};

/* As systemd's own services have it when nobody says anything else. */
enum { STALL_US = 200000, STALL_WINDOW_US = 2000000 };

static struct platform_stall_watch watch;
static _Atomic(bool) watch_known;
static platform_lock watch_lock; /* who finds out; others go on without */

static const struct platform_stall_watch *watch_find(void)
{
    /* Acquire: pairs with the release below. */
    if (LIKELY(atomic_load_explicit(&watch_known, memory_order_acquire))) return &watch;
    if (!platform_lock_try(&watch_lock)) return NULL;
    platform_stall_watch_find(&watch);
    atomic_store_explicit(&watch_known, true, memory_order_release);
    platform_lock_release(&watch_lock);
    return &watch;
}

/* A thread that the child does not have may have been finding out: it is begun anew, since `watch_known`, by which alone others look
 * at `watch`, is what that thread would have set last. */
void heap_pressure_fork_child(void)
{
    platform_lock_mend(&watch_lock);
}

/* With no limit of the groups', one of the user's for this process. */
static void view_of(size_t limit, struct view *view)
{
    *view = (struct view){.stall_us = STALL_US, .window_us = STALL_WINDOW_US};
    if (limit != MEMORY_LIMIT_AUTO) {
        view->memory = (struct platform_memory){.limit = limit, .used = platform_resident_own()};
        return;
    }
    platform_memory_read(&platform_memory_files_here, &view->memory);
    const struct platform_stall_watch *said = watch_find();
    if (said == NULL) return;
    if (said->is_off) view->memory.events = view->memory.stalled_us = 0;
    if (said->path[0] != '\0') view->memory.stalled_us = platform_stalled_us(said);
    if (said->window_us == 0) return;
    view->stall_us = said->stall_us;
    view->window_us = said->window_us;
}

static size_t left_of(size_t limit, size_t used)
{
    return limit > used ? limit - used : 0;
}

/* Programs that never touch most of what they ask for are not short of memory. */
static bool is_far(const struct platform_memory *memory)
{
    return left_of(memory->limit, memory->used) > memory->limit / 2;
}

/* What would be used if all that the heap has of the kernel were touched. `heap`: how much that is. */
static size_t used_at_most(const struct platform_memory *memory, size_t heap)
{
    size_t own = platform_resident_own();
    return heap > own ? memory->used + (heap - own) : memory->used;
}

static enum pressure level_of(const struct platform_memory *memory, size_t heap, size_t wanted, enum pressure before)
{
    size_t margin = margin_of(memory->limit);
    if (memory->limit == SIZE_MAX) return PRESSURE_NONE;
    if (left_of(memory->limit, memory->used + wanted) < (before == PRESSURE_AT ? 2 * margin : margin))
        return PRESSURE_AT;
    if (is_far(memory)) return PRESSURE_NONE;
    size_t most = used_at_most(memory, heap);
    return left_of(memory->limit, most) < (before != PRESSURE_NONE ? 2 * margin : margin) ? PRESSURE_NEAR
                                                                                          : PRESSURE_NONE;
}

/* ---- what the kernel says of itself -------------------------------------------------------------------------------------- */

static _Atomic(uint64_t) events_seen, stalled_seen, stalled_at_ms;
static _Atomic(bool) seen; /* so that there is something to compare with */

static bool has_stalled(const struct view *view, uint64_t now)
{
    uint64_t before = atomic_exchange_explicit(&stalled_seen, view->memory.stalled_us, memory_order_relaxed);
    uint64_t since = atomic_exchange_explicit(&stalled_at_ms, now, memory_order_relaxed);
    if (view->memory.stalled_us <= before || now <= since) return false;
    uint64_t stalled = view->memory.stalled_us - before, passed = (now - since) * 1000;
    /* Of a longer time than the window, at the rate that is meant. */
    return passed <= view->window_us ? stalled >= view->stall_us : stalled * view->window_us >= view->stall_us * passed;
}

/* Whether limits have been met or processes been stalled since the last look. */
static bool is_warned(const struct view *view, uint64_t now)
{
    uint64_t before = atomic_exchange_explicit(&events_seen, view->memory.events, memory_order_relaxed);
    bool stalled = has_stalled(view, now);
    bool compared = atomic_exchange_explicit(&seen, true, memory_order_relaxed);
    return compared && (stalled || view->memory.events > before);
}

/* ---- what is done ------------------------------------------------------------------------------------------------------------ */

/* Because of warnings, what is easily had goes back so often; while hardly anything is left, all that is free, which takes
 * longer the larger the heaps are. */
enum { WARNED_REST_MS = 1000, TRIM_REST_MS = 5000, HARDLY_SHARE = 2 /* of the margin */ };
static _Atomic(uint64_t) warned_at_ms, trimmed_at_ms;

/* Whether it was not done for so long; then it is now. */
static bool is_time(_Atomic(uint64_t) *done_at_ms, uint64_t now, uint64_t rest_ms)
{
    uint64_t before = atomic_load_explicit(done_at_ms, memory_order_relaxed);
    if (before != 0 && now - before < rest_ms) return false;
    return atomic_compare_exchange_strong_explicit(done_at_ms, &before, now, memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* What is free goes back now; `blocks`: also what is free within spans, by the owners when they next fill a bin, and as far as can
 * be had of those that sleep. The caller may
 * have a heap's lock or be on its own heap's slow path: what needs the registry's lock or another heap's must then wait. */
static void give_back(bool blocks)
{
    if (blocks) atomic_fetch_add_explicit(&heap_trims_asked, 1, memory_order_relaxed);
    if (!platform_lock_is_any_own()) {
        if (blocks) shared_trim();
        if (blocks) heap_locked_give_back(&heap_orphans);
        heap_caches_empty();
        if (blocks) heap_all_give_back();
    }
    space_zeroed_release();
    space_purge_all();
}

static _Atomic(uint32_t) level; /* enum pressure */

/* Of the margin, what free runs may hold while little is left. */
enum { KEPT_SHARE = 4 };

static _Atomic(size_t) kept_at; /* as much, when the level was last changed, or the limit of a group that is at it */

/* The level that is in force. While somebody else is setting options, it stays until the next look. */
static enum pressure level_change(enum pressure before, enum pressure now, size_t limit)
{
    size_t kept = margin_of(limit) / KEPT_SHARE;
    bool is_as_it_was = now != PRESSURE_AT || kept == atomic_load_explicit(&kept_at, memory_order_relaxed);
    if ((before == now && is_as_it_was) || !heap_settings_bound(now, kept)) return before;
    atomic_store_explicit(&kept_at, kept, memory_order_relaxed);
    atomic_store_explicit(&space_settings.huge_pages_stopped, now != PRESSURE_NONE, memory_order_relaxed);
    atomic_store_explicit(&level, now, memory_order_relaxed);
    return now;
}

static void look_when_got(size_t bytes)
{
    size_t got = atomic_load_explicit(&heap_pressure_got, memory_order_relaxed);
    atomic_store_explicit(&heap_pressure_look_at, got + bytes, memory_order_relaxed);
}

static void look_again(const struct platform_memory *memory, enum pressure now, uint64_t clock)
{
    bool none = memory->limit == SIZE_MAX;
    size_t bytes = none ? GOT_NO_LIMIT : left_of(memory->limit, memory->used) / GOT_SHARE;
    uint32_t rest = none ? REST_NO_LIMIT_MS : now == PRESSURE_NONE && is_far(memory) ? REST_FAR_MS : REST_NEAR_MS;
    look_when_got(bytes < GOT_MIN ? GOT_MIN : bytes);
    atomic_store_explicit(&heap_pressure_look_after_ms, clock + rest, memory_order_relaxed);
}

/* `wanted`: bytes that are about to be used. */
static COLD void look(uint64_t clock, size_t wanted)
{
    struct view view;
    size_t limit = atomic_load_explicit(&heap_settings.memory_limit, memory_order_relaxed);
    enum pressure before = (enum pressure)atomic_load_explicit(&level, memory_order_relaxed);
    if (limit == MEMORY_LIMIT_NONE) {
        level_change(before, PRESSURE_NONE, 0);
        look_again(&(struct platform_memory){.limit = SIZE_MAX}, PRESSURE_NONE, clock);
        return;
    }
    view_of(limit, &view);
    enum pressure now = level_change(before, level_of(&view.memory, space_kept(), wanted, before), view.memory.limit);
    size_t left = left_of(view.memory.limit, view.memory.used + wanted);
    bool entered = now > before, warned = is_warned(&view, clock) && is_time(&warned_at_ms, clock, WARNED_REST_MS);
    bool hardly = now == PRESSURE_AT && left < margin_of(view.memory.limit) / HARDLY_SHARE;
    bool blocks = (entered && now == PRESSURE_AT) || (hardly && is_time(&trimmed_at_ms, clock, TRIM_REST_MS));
    if (blocks || entered || warned) give_back(blocks);
    look_again(&view.memory, now, clock);
}

COLD void heap_pressure_look(size_t wanted)
{
    /* Others that come by meanwhile go on; should one of them be in a fork's child, it looks when it has got as much again. */
    size_t at = atomic_load_explicit(&heap_pressure_look_at, memory_order_relaxed);
    if (atomic_load_explicit(&heap_pressure_got, memory_order_relaxed) < at ||
        !atomic_compare_exchange_strong_explicit(&heap_pressure_look_at, &at, at + LOOK_FROM, memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    if (space_kept() >= LOOK_FROM) look(platform_clock_ms(), wanted);
}

COLD void heap_pressure_look_in_time(uint64_t clock)
{
    uint64_t after = atomic_load_explicit(&heap_pressure_look_after_ms, memory_order_relaxed);
    bool ours = clock >= after &&
                atomic_compare_exchange_strong_explicit(&heap_pressure_look_after_ms, &after, clock + REST_NEAR_MS,
                                                        memory_order_relaxed, memory_order_relaxed);
    if (ours && space_kept() >= LOOK_FROM) look(clock, 0);
}

void heap_pressure_limit(size_t limit)
{
    atomic_store_explicit(&heap_settings.memory_limit, limit, memory_order_relaxed);
    look_when_got(LOOK_FROM);
    atomic_store_explicit(&heap_pressure_look_after_ms, 0, memory_order_relaxed);
}
