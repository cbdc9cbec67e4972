// The header of the layer pools/ for C++ tests, as heap_internals.h.
#ifndef HEAPFIT_TESTS_POOLS_INTERNALS_H
#define HEAPFIT_TESTS_POOLS_INTERNALS_H

#include "heap_internals.h"
#include "system.h"

#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wkeyword-macro"
#endif
#define _Atomic(type) std::atomic<type>
#define class class_of_objects // a keyword here
extern "C" {
#include "pools/pools.h"
}
#undef class
#undef _Atomic
#ifdef __clang__
#pragma clang diagnostic pop
#endif

#endif
