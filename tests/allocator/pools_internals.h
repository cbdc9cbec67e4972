// The pool layer's own headers for C++ tests that look inside; as heap_internals.h, of the library with pools.
#ifndef HEAPFIT_TESTS_POOLS_INTERNALS_H
#define HEAPFIT_TESTS_POOLS_INTERNALS_H

#include <cstring>

// They are C, and some of it is not C++'s, but understood.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wextra"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wc++20-extensions"
#endif

#include "heap_internals.h"

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
#pragma GCC diagnostic pop

#endif
