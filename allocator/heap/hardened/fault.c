/* What is said of an access that the kernel refuses because of us, in the library that is hardened: to what stands beside a large
 * object, or was one, and to an object of no bytes. In a signal's handler, from which the signal goes on. */
#include "../heap.h"

/* The first span of the large object, live or freed, that the address belongs to, with what cannot be accessed around it; NULL: of
 * none. Walks back over the inner spans of a run. */
static const struct span *large_run_of(size_t offset)
{
    for (size_t index = offset >> SPAN_SHIFT;; index--) {
        const struct span *span = span_at((uint32_t)index);
        enum span_kind kind = span_kind_read(span);
        if (kind == SPAN_LARGE || (kind == SPAN_METADATA && hardened_large_is_kept(span)))
            return span->run_spans > (offset >> SPAN_SHIFT) - index ? span : NULL;
        if (index == 0 || (kind != SPAN_FREE && kind != SPAN_TAIL)) return NULL;
    }
}

static void report_large(const struct span *span, uintptr_t address)
{
    uintptr_t start = large_start(span), end = start + large_usable_size(span);
    const void *at = (const void *)address, *object = (const void *)start;
    bool is_live = span_kind_read(span) == SPAN_LARGE;
    if (is_live && address >= start && address < end) return; /* what the program itself has forbidden */
    if (!guard_report_is_due()) return;
    if (!is_live)
        platform_message("use after free: access to %p, in the object at %p of %zu bytes, which was freed", at, object,
                         large_usable_size(span));
    else if (address >= end)
        platform_message("overflow: access to %p, %zu bytes behind the object at %p of %zu bytes", at,
                         address - end + 1, object, large_usable_size(span));
    else
        platform_message("underflow: access to %p, %zu bytes before the object at %p of %zu bytes", at, start - address,
                         object, large_usable_size(span));
}

static void report_empty(const void *address)
{
    if (guard_report_is_due()) platform_message("access to %p, an object of no bytes", address);
}

static void report(const struct platform_fault *fault)
{
    size_t offset = fault->address - space.base;
    if (space_offset_is_foreign(offset)) return;
    const struct span *span = large_run_of(offset);
    if (span != NULL) report_large(span, fault->address);
    else if (empty_is_one((const void *)fault->address)) report_empty((const void *)fault->address);
    else guard_report_fault(fault);
}

void hardened_watch_faults(void)
{
    /* Relaxed: whoever comes first does it. */
    static _Atomic(bool) done;
    if (!atomic_load_explicit(&done, memory_order_relaxed) &&
        !atomic_exchange_explicit(&done, true, memory_order_relaxed))
        platform_fault_watch(report);
}
