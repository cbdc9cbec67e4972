/* The reservation: the address space that spans come from.
 *
 * It must be one range, so that an address says by a subtraction whether it is ours, and where its descriptor is; and as large as
 * memory could ever be used. But what is reserved counts where a process's address space is limited (RLIMIT_AS) or locked
 * (mlockall compares all of it with RLIMIT_MEMLOCK), and a user sees it as VIRT. So of a *window* that is as large as needed, only
 * the beginning is reserved, and more as the heap grows:
 *
 *          table, grows downwards        base        frontier      reserved                         end of the window
 *     ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┬────────────────────┬────────────┬─────────────┬╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┐
 *                    │ readable           │ spans      │ inaccessible│ not mapped                  ╎
 *     ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┴────────────────────┴────────────┴─────────────┴╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┘
 *
 * Nobody else must come to lie in the window. It is far from where the kernel puts what may lie anywhere, and is found empty
 * at the start; a mapping that asks for its own address is unlikely to ask for one of these. Where there is no such place (an
 * emulator, a sanitizer's own ideas of where things lie) all is reserved at the start, wherever the kernel puts it.
 *
 * What is reserved stays in proportion to what is used, however large the heap is: a process may limit its address space later. The
 * kernel is asked for that limit at the start alone, since a sandbox may end the process for asking; a limit that comes later is
 * noticed when the kernel refuses to reserve more, and then no more than is needed is reserved.
 */
#include "state.h"

#define MIB ((size_t)1 << 20)

/* The window is this many times the physical memory: a span may have only one of its sixteen 4 KiB pages touched, so that
 * address space runs out only when memory does. */
enum { WINDOW_PER_MEMORY = 16 };
#define WINDOW_MIN ((size_t)1 << 40)
#define WINDOW_MAX ((size_t)1 << 44)
/* The smallest that is worth trying, where limits forbid more. */
#define WINDOW_TINY (16 * MIB)
/* Spans start at multiples of a huge page. */
#define ALIGNMENT (2 * MIB)

/* At first: what a small program needs, so that it may lock its memory under the usual limit of 8 MiB. */
#define SPANS_FIRST ((uint32_t)(ALIGNMENT / SPAN_SIZE))
/* Descriptors are reserved in steps of what is made accessible at a time. */
#define TABLE_STEP ((size_t)64 << 10)
/* Below this twice as much is reserved each time, so that a growing heap seldom asks; from there on a quarter more. */
#define DOUBLE_BELOW ((uint32_t)((size_t)1 << 30 >> SPAN_SHIFT))
/* Where address space is limited it is not to be had at once: an empty window is looked for in so many pieces. */
enum { LOOKS_UNDER_LIMIT = 8 };

/* Whether address space was limited when the process started. Written there, under the lock of whoever starts the heap. */
static bool is_limited;

/* ---- how large it may be ------------------------------------------------------------------------------- */

static size_t round_up_power_of_two(size_t value)
{
    return value <= 1 ? 1 : (size_t)1 << (64 - __builtin_clzl(value - 1));
}

static size_t window_wanted(void)
{
    size_t wanted = space_settings.reservation;
    if (wanted == 0) {
        wanted = round_up_power_of_two(platform_physical_memory() * WINDOW_PER_MEMORY);
        if (wanted < WINDOW_MIN) wanted = WINDOW_MIN;
    }
    size_t limit = platform_address_space_limit();
    is_limited = limit != SIZE_MAX;
    if (wanted > WINDOW_MAX) wanted = WINDOW_MAX;
    if (wanted > limit) wanted = limit;
    if (wanted < WINDOW_TINY) wanted = WINDOW_TINY;
    return wanted & ~(ALIGNMENT - 1);
}

/* Bytes of the table for so many spans. */
static size_t table_size(uint32_t spans)
{
    return (spans * sizeof(struct span) + TABLE_STEP - 1) & ~(TABLE_STEP - 1);
}

/* ---- start ------------------------------------------------------------------------------------------------- */

/* Where the system gives everybody huge pages, a small program would get one on its first malloc. */
static void decline_huge_pages(void *start, size_t size)
{
    if (space_settings.huge_pages < HUGE_PAGES_ALWAYS) platform_advise_huge_pages(start, size, false);
}

/* The window is [base, base+data), the table below it; so many spans are reserved, with their descriptors. */
static bool begin(uintptr_t base, size_t data, uint32_t spans)
{
    char *table = (char *)base - table_size(spans);
    if (!platform_make_readable(table, table_size(spans))) return false;
    decline_huge_pages(table, table_size(spans) + (size_t)spans * SPAN_SIZE);
    space_state.capacity = (uint32_t)(data / SPAN_SIZE);
    space_state.reserved = spans;
    space_state.table_reserved = table_size(spans);
    space.base = base;
    space.window = data;
    space.size = (size_t)spans * SPAN_SIZE;
    return true;
}

/* Whether nothing lies there, which is found out by reserving it. */
static bool is_empty(uintptr_t start, size_t size)
{
    size_t piece = (is_limited ? size / LOOKS_UNDER_LIMIT : size) & ~(ALIGNMENT - 1);
    if (piece == 0) piece = ALIGNMENT;
    for (size_t at = 0; at < size; at += piece) {
        if (piece > size - at) piece = size - at;
        if (!platform_reserve_at((void *)(start + at), piece)) return false;
        if (!platform_give_back((void *)(start + at), piece)) return false;
    }
    return true;
}

/* A window of which only the first spans are reserved. */
static bool begin_small(size_t data)
{
    size_t first = (size_t)SPANS_FIRST * SPAN_SIZE;
    size_t table_first = table_size(SPANS_FIRST), table = table_size((uint32_t)(data / SPAN_SIZE));
    uintptr_t base = platform_far_place(table + data + ALIGNMENT, ALIGNMENT);
    if (base == 0) return false;
    base += (table + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    if (!platform_reserve_at((void *)(base - table_first), table_first + first)) return false;
    if (is_empty(base + first, data - first) && begin(base, data, SPANS_FIRST)) return true;
    platform_give_back((void *)(base - table_first), table_first + first);
    return false;
}

static bool begin_whole(size_t data)
{
    uint32_t spans = (uint32_t)(data / SPAN_SIZE);
    size_t table = (table_size(spans) + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    char *start = platform_reserve(table + data, ALIGNMENT);
    return start != NULL && begin((uintptr_t)start + table, data, spans);
}

bool reservation_start(void)
{
    for (size_t data = window_wanted(); data >= WINDOW_TINY; data = data / 2 & ~(ALIGNMENT - 1))
        if (begin_small(data) || begin_whole(data)) return true;
    return false;
}

/* ---- growth ------------------------------------------------------------------------------------------------ */

static bool table_grow(uint32_t spans)
{
    size_t size = table_size(spans);
    if (size <= space_state.table_reserved) return true;
    char *low = (char *)space.base - size;
    size_t more = size - space_state.table_reserved;
    if (!platform_reserve_at(low, more)) return false;
    if (!platform_make_readable(low, more)) {
        platform_give_back(low, more);
        return false;
    }
    decline_huge_pages(low, more);
    __atomic_store_n(&space_state.table_reserved, size, __ATOMIC_RELEASE); /* as in grow */
    return true;
}

static bool grow(uint32_t spans)
{
    char *start = (char *)space.base + (size_t)space_state.reserved * SPAN_SIZE;
    size_t more = (size_t)(spans - space_state.reserved) * SPAN_SIZE;
    if (!table_grow(spans) || !platform_reserve_at(start, more)) return false;
    decline_huge_pages(start, more);
    __atomic_store_n(&space_state.reserved, spans, __ATOMIC_RELEASE);
    /* Release: who sees that an address is ours finds its descriptor. */
    __atomic_store_n(&space.size, (size_t)spans * SPAN_SIZE, __ATOMIC_RELEASE);
    return true;
}

/* The calling thread may be interrupted by a signal whose handler forks: then it goes on with it in the child. */
static __thread bool thread_grows __attribute__((tls_model("initial-exec")));

/* A fork's child may find another thread in the midst of it: so what is about to be mapped is said before. The kernel lets nobody
 * map or write while it copies, so that the child sees these stores in their order; release, for the processor. */
static bool grow_noted(uint32_t spans)
{
    thread_grows = true;
    __atomic_store_n(&space_state.growing, spans, __ATOMIC_RELEASE);
    bool done = grow(spans);
    __atomic_store_n(&space_state.growing, 0, __ATOMIC_RELEASE);
    thread_grows = false;
    return done;
}

/* What a thread that the child does not have has mapped and not noted, is unmapped: or it would be in the way for ever. */
void reservation_fork_child(void)
{
    uint32_t spans = space_state.growing;
    if (spans == 0 || thread_grows) return;
    if (table_size(spans) > space_state.table_reserved)
        platform_give_back((char *)space.base - table_size(spans), table_size(spans) - space_state.table_reserved);
    if (spans > space_state.reserved)
        platform_give_back((char *)space.base + (size_t)space_state.reserved * SPAN_SIZE,
                           (size_t)(spans - space_state.reserved) * SPAN_SIZE);
    space.size = (size_t)space_state.reserved * SPAN_SIZE;
    space_state.growing = 0;
}

/* How many spans are reserved if `end` are needed, and so much room is left for more. */
static uint32_t grown(uint64_t end, uint64_t room)
{
    uint64_t wanted = space_state.reserved + room;
    if (wanted < end) wanted = end;
    wanted = (wanted + SPANS_FIRST - 1) & ~(uint64_t)(SPANS_FIRST - 1);
    return wanted < space_state.capacity ? (uint32_t)wanted : space_state.capacity;
}

bool reservation_reach(uint32_t end)
{
    if (LIKELY(end <= space_state.reserved)) return true;
    if (end > space_state.capacity) return false;
    uint64_t room = space_state.reserved < DOUBLE_BELOW ? space_state.reserved : space_state.reserved / 4;
    /* Where address space is limited, others need it as well. */
    if (!is_limited && grow_noted(grown(end, room))) return true;
    return grow_noted(grown(end, 0));
}
