// What the judging part of the layer pools/ keeps to itself, for C++ tests; as pools_internals.h.
#ifndef HEAPFIT_TESTS_POOLS_GROUP_INTERNALS_H
#define HEAPFIT_TESTS_POOLS_GROUP_INTERNALS_H

#include "pools_internals.h"

#define _Atomic(type) std::atomic<type>
#define _Static_assert static_assert
extern "C" {
#include "pools/group.h"
}
#undef _Atomic
#undef _Static_assert

#endif
