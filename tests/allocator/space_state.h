// What the parts of space/ share, for tests that look there.
#ifndef HEAPFIT_TESTS_SPACE_STATE_H
#define HEAPFIT_TESTS_SPACE_STATE_H

#include "heap_internals.h"

#define _Atomic(type) std::atomic<type>
#define _Static_assert static_assert
extern "C" {
#include "space/state.h"
}
#undef _Atomic
#undef _Static_assert

#endif
