// Objects in pools, for tests that allocate at random: in turn in the ordinary heap, in a pool of blocks of their size, and
// among objects of many sizes. They go the way that malloc's go, from callers that do not exist.
#ifndef HEAPFIT_TESTS_POOLS_SUBJECT_H
#define HEAPFIT_TESTS_POOLS_SUBJECT_H

#include "pools_internals.h"
#include "system.h"

namespace pools_subject
{

enum : unsigned { CLASSES = 32, MIXED = 3 }; // classes up to FAST_MAX
enum Site : unsigned { ORDINARY_SITE = 1, MIXED_SITE = 2, CLASS_SITE = MIXED_SITE + MIXED };

inline uintptr_t address_of(unsigned site)
{
    return site * sizeof(struct site); // each has a place of its own in the table
}

inline bool make_pools()
{
    struct verdict ordinary = {};
    ordinary.kind = VERDICT_ORDINARY;
    site_put(address_of(ORDINARY_SITE), verdict_word(ordinary));
    uint32_t pool;
    for (unsigned i = 0; i < MIXED; i++) {
        if (!place_mixed(&pool)) std::abort();
        site_put(address_of(MIXED_SITE + i), verdict_word(place_verdict(pool)));
    }
    for (unsigned i = 0; i < CLASSES; i++) {
        if (!place_pool(&pool, size_class_bytes(i))) std::abort();
        site_put(address_of(CLASS_SITE + i), verdict_word(place_verdict(pool)));
    }
    return true;
}

// Before main. The first allocation would be too late: in fork_test.cpp it may be another thread's than the one that forks just
// then, and a child waits for ever for who initialises a static variable of a function and is not there.
inline const bool pools_are_made = make_pools();

inline void *allocate(size_t size)
{
    static thread_local unsigned turn;
    unsigned site = ORDINARY_SITE;
    turn += pools_are_made; // not before that: there are no sites to be found
    if (turn % 3 == 1 && size <= FAST_MAX) site = CLASS_SITE + size_class(size);
    if (turn % 3 == 2) site = MIXED_SITE + turn / 3 % MIXED;
    struct frame caller = {};
    caller.return_address = address_of(site);
    void *object = pools_pop(size, thread_heap, caller.return_address);
    return object != nullptr ? object : pools_malloc_at(size, thread_heap, &caller);
}

} // namespace pools_subject

#endif
