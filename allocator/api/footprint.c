/* Stands where the switch of speed for memory will be, until it is built. */
#include "api.h"

static _Atomic(bool) shrunk;

EXPORT size_t hf_footprint_shrink(void)
{
    atomic_store_explicit(&shrunk, true, memory_order_relaxed);
    return trim_everywhere();
}

EXPORT void hf_footprint_restore(void)
{
    atomic_store_explicit(&shrunk, false, memory_order_relaxed);
}

bool heap_footprint_is_shrunk(void)
{
    return atomic_load_explicit(&shrunk, memory_order_relaxed);
}
