// pools.h for C++ tests: as heap_internals.h, and `class` is a field's name there.
#ifndef HEAPFIT_TESTS_POOLS_INTERNALS_H
#define HEAPFIT_TESTS_POOLS_INTERNALS_H

#include "heap_internals.h"

#define _Atomic(type) std::atomic<type>
#define class size_class
extern "C" {
#include "pools/pools.h"
}
#undef class
#undef _Atomic

#endif
