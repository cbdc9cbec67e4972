// Objects in pools, for tests that allocate at random: in turn in the ordinary heap, in a pool of blocks of their size, and
// among objects of many sizes. They go the way that malloc's go, from callers that do not exist.
#ifndef HEAPFIT_TESTS_POOLS_SUBJECT_H
#define HEAPFIT_TESTS_POOLS_SUBJECT_H

#include "pools_internals.h"

#include <cstdlib>

namespace pools_subject
{

enum : unsigned { CLASSES = 32, MIXED = 3 }; // classes up to FAST_MAX
enum : uintptr_t { ORDINARY_SITE = 0x100, MIXED_SITE = 0x200, CLASS_SITE = 0x300 };

inline bool make_pools()
{
    struct verdict ordinary = {};
    ordinary.kind = VERDICT_ORDINARY;
    chain_set_site(ORDINARY_SITE, ordinary);
    uint32_t pool;
    for (unsigned i = 0; i < MIXED; i++) {
        if (!place_mixed(&pool)) std::abort();
        chain_set_site(MIXED_SITE + i, place_verdict(pool));
    }
    for (unsigned i = 0; i < CLASSES; i++) {
        if (!place_pool(&pool, size_class_bytes(i))) std::abort();
        chain_set_site(CLASS_SITE + i, place_verdict(pool));
    }
    return true;
}

inline void *allocate(size_t size)
{
    static bool made = make_pools();
    static thread_local unsigned turn;
    struct frame caller = {};
    caller.return_address = ORDINARY_SITE;
    turn += made;
    if (turn % 3 == 1 && size <= FAST_MAX) caller.return_address = CLASS_SITE + size_class(size);
    if (turn % 3 == 2) caller.return_address = MIXED_SITE + turn % MIXED;
    void *object = pools_pop(size, thread_heap, caller.return_address);
    return object != nullptr ? object : pools_malloc_at(size, thread_heap, &caller);
}

} // namespace pools_subject

#endif
