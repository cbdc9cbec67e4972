/* What is said of a mistake with a guarded object: what happened, where that was, where the object was allocated and where freed.
 * Some of it in a signal's handler: nothing here allocates, takes a lock, or needs more than a kilobyte or two of stack. */
#include "heap.h"

/* ---- lines ------------------------------------------------------------------------------------------------------------------ */

static void print_trace(const struct trace *trace)
{
    for (uint32_t i = 0; i < trace->count; i++) {
        char place[TRACE_PLACE_MAX];
        trace_describe(trace, i, place);
        platform_message("    %s", place);
    }
}

/* Who did something with the object, if anybody has. Returns the files that its places are in (trace.h). */
static uint64_t print_act(const char *act, int32_t thread, const struct trace *trace)
{
    if (thread == 0) return 0;
    platform_message("  %s by thread %zu%s", act, (size_t)thread, trace->count != 0 ? ":" : "");
    print_trace(trace);
    return trace_files(trace);
}

static uint64_t print_history(const struct guard_slot *slot)
{
    uint64_t files = print_act("allocated", slot->allocated_by, &slot->allocated);
    return files | print_act("freed", slot->freed_by, &slot->freed);
}

/* At the end, so that whoever looks the places up later can tell whether the files are still those. */
static void print_files(uint64_t files)
{
    char text[TRACE_PLACE_MAX];
    for (unsigned file = 0; files != 0; file++, files >>= 1)
        if ((files & 1) != 0 && trace_describe_file(file, text)) platform_message("  %s", text);
}

static enum guard_state state_of(const struct guard_slot *slot)
{
    return (enum guard_state)atomic_load_explicit(&slot->state, memory_order_acquire);
}

/* ---- accesses that were refused ------------------------------------------------------------------------------------------------- */

static uintptr_t end_of(const struct guard_slot *slot)
{
    return slot->object + slot->size;
}

/* How far the address is from the object. */
static size_t distance_to(const struct guard_slot *slot, uintptr_t address)
{
    if (address < slot->object) return slot->object - address;
    return address >= end_of(slot) ? address - end_of(slot) + 1 : 0;
}

/* Of two slots beside an inaccessible page: the one with a live object rather than that with a freed one, then the nearer. */
static const struct guard_slot *likelier(const struct guard_slot *a, const struct guard_slot *b, uintptr_t address)
{
    if (a == NULL || state_of(a) == GUARD_UNUSED) return b;
    if (b == NULL || state_of(b) == GUARD_UNUSED) return a;
    bool a_lives = state_of(a) == GUARD_LIVE, b_lives = state_of(b) == GUARD_LIVE;
    if (a_lives != b_lives) return a_lives ? a : b;
    return distance_to(a, address) <= distance_to(b, address) ? a : b;
}

/* The slot that an access was meant for, probably; NULL: none. Before the first page of all lies ordinary memory, beyond which a
 * program may reach, too. And the page of a live object refuses what the program forbids, by mprotect, or what no page of the heap
 * allows: execution. */
static const struct guard_slot *slot_meant(uintptr_t address)
{
    if (address < guard.start + guard.page / 2) return NULL;
    const struct guard_slot *slot = guard_slot_of(address);
    if (slot != NULL && state_of(slot) == GUARD_LIVE) return NULL;
    if (slot == NULL)
        slot = likelier(guard_slot_of(address - guard.page), guard_slot_of(address + guard.page), address);
    return slot == NULL || state_of(slot) == GUARD_UNUSED ? NULL : slot;
}

static void print_fault(const struct platform_fault *fault, const struct guard_slot *slot)
{
    static const char *const accesses[] = {[FAULT_ACCESS] = "access to",
                                           [FAULT_READ] = "read of",
                                           [FAULT_WRITE] = "write to",
                                           [FAULT_EXECUTION] = "execution of"};
    const char *access = accesses[fault->access], *when = state_of(slot) == GUARD_LIVE ? "" : ", which was freed";
    const void *address = (const void *)fault->address, *object = (const void *)slot->object;
    size_t distance = distance_to(slot, fault->address);
    if (fault->address < slot->object)
        platform_message("underflow: %s %p, byte %zu before the block at %p of %zu bytes%s", access, address, distance,
                         object, slot->size, when);
    else if (distance != 0)
        platform_message("overflow: %s %p, byte %zu past the end of the block at %p of %zu bytes%s", access, address,
                         distance, object, slot->size, when);
    else
        platform_message("use after free: %s %p, byte %zu of the block at %p of %zu bytes", access, address,
                         fault->address - slot->object + 1, object, slot->size);
}

static bool is_ours(uintptr_t address)
{
    size_t offset = space_offset((const void *)address);
    return !space_offset_is_foreign(offset) && span_kind_read(span_of_offset(offset)) == SPAN_GUARD;
}

/* A program may go on after each, if it has a handler that does. */
enum { REPORTS_MAX = 64, WAIT_MS = 1000 };

bool guard_report_is_due(void)
{
    static _Atomic(uint32_t) reports;
    /* Relaxed: a bound. First a look, so that the count never comes round. */
    return atomic_load_explicit(&reports, memory_order_relaxed) < REPORTS_MAX &&
           atomic_fetch_add_explicit(&reports, 1, memory_order_relaxed) < REPORTS_MAX;
}

/* The threads that make a mistake at the same time report it one after the other: the first would end the process. Whoever comes to
 * wait for a second, since another was ended in the middle of a report, say, or a handler is in it, reports beside it. */
static _Atomic(uint32_t) reporting;

/* Whether the turn is ours, and is to be ended. */
static bool report_begin(void)
{
    uint64_t begun = platform_clock_ms();
    do {
        uint32_t nobody = 0;
        /* Acquire: pairs with the release in report_end, so that lines do not come before the others'. */
        if (atomic_compare_exchange_strong_explicit(&reporting, &nobody, 1, memory_order_acquire, memory_order_relaxed))
            return true;
        platform_wait(&reporting, 1, WAIT_MS * 1000);
    } while (platform_clock_ms() - begun < WAIT_MS);
    return false;
}

static void report_end(bool has_turn)
{
    if (!has_turn) return;
    atomic_store_explicit(&reporting, 0, memory_order_release);
    platform_wake(&reporting);
}

void guard_report_fault(const struct platform_fault *fault)
{
    if (LIKELY(!is_ours(fault->address))) return;
    const struct guard_slot *slot = slot_meant(fault->address);
    if (slot == NULL || !guard_report_is_due()) return;
    struct trace trace;
    bool has_turn = report_begin();
    print_fault(fault, slot);
    trace_of_fault(&trace, fault);
    uint64_t files = print_act("accessed", platform_thread_number(), &trace);
    print_files(files | print_history(slot));
    report_end(has_turn);
}

/* ---- what is found when an object is freed ---------------------------------------------------------------------------------------- */

static void print_pointer(const char *function, const void *pointer, const struct guard_slot *slot)
{
    uintptr_t address = (uintptr_t)pointer;
    bool is_free = slot == NULL || state_of(slot) != GUARD_LIVE;
    if (slot == NULL || state_of(slot) == GUARD_UNUSED || (is_free && slot->object != address))
        platform_message("%s of %p, which is not allocated (freed before?)", function, pointer);
    else if (is_free && function[0] == 'f')
        platform_message("double free of %p, a block of %zu bytes", pointer, slot->size);
    else if (is_free)
        platform_message("%s of %p, a block of %zu bytes, which was freed", function, pointer, slot->size);
    else if (address < slot->object)
        platform_message("%s of %p, which is %zu bytes before the block at %p of %zu bytes", function, pointer,
                         slot->object - address, (const void *)slot->object, slot->size);
    else if (address == slot->object)
        platform_message("%s of %p, a block of %zu bytes, which is not of this context", function, pointer, slot->size);
    else
        platform_message("%s of an interior pointer: %p points %zu bytes into the block at %p of %zu bytes", function,
                         pointer, address - slot->object, (const void *)slot->object, slot->size);
}

static void print_changed(const char *what, const char *where, size_t distance, const char *function,
                          const struct guard_slot *slot)
{
    platform_message("%s: byte %zu %s the block at %p of %zu bytes was written to, found by %s", what, distance, where,
                     (const void *)slot->object, slot->size, function);
}

void guard_report_mistake(enum guard_mistake mistake, const char *function, const void *pointer)
{
    const struct guard_slot *slot = guard_slot_of((uintptr_t)pointer);
    struct trace trace;
    trace_take(&trace);
    report_begin();
    if (mistake == GUARD_OVERFLOWN)
        print_changed("overflow", "past the end of", (uintptr_t)pointer - end_of(slot) + 1, function, slot);
    else if (mistake == GUARD_UNDERFLOWN)
        print_changed("underflow", "before", slot->object - (uintptr_t)pointer, function, slot);
    else print_pointer(function, pointer, slot);
    uint64_t files = print_act(function, platform_thread_number(), &trace);
    if (slot != NULL && state_of(slot) != GUARD_UNUSED) files |= print_history(slot);
    print_files(files);
    platform_abort();
}

void guard_report_object(const void *pointer)
{
    const struct guard_slot *slot = guard_slot_of((uintptr_t)pointer);
    struct trace trace;
    trace_take(&trace);
    uint64_t files = print_act("free", platform_thread_number(), &trace);
    if (slot != NULL) files |= print_history(slot);
    print_files(files);
}
