// The pool layer's own headers for C++ tests that look inside; as heap_internals.h, of the library with pools.
#ifndef HEAPFIT_TESTS_POOLS_INTERNALS_H
#define HEAPFIT_TESTS_POOLS_INTERNALS_H

#include "heap_internals.h"

#include <cstring>

using std::memory_order_release;

#define __CLANG_STDATOMIC_H
#define _Atomic(type) std::atomic<type>
#define _Static_assert static_assert
#define _Noreturn [[noreturn]]
#define class size_class_of_pool // a word of C++'s
extern "C" {
#include "pools/group.h"
}
#undef class
#undef _Atomic
#undef _Static_assert
#undef _Noreturn

#endif
