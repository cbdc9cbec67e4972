// The C layers' own headers for C++ tests that look inside. They are C17, where atomics are a type qualifier: here
// std::atomic stands in, which has the same size and representation in every compiler that we build with.
#ifndef HEAPFIT_TESTS_HEAP_INTERNALS_H
#define HEAPFIT_TESTS_HEAP_INTERNALS_H

#include "system.h"

using std::atomic_load_explicit;
using std::atomic_signal_fence;
using std::atomic_store_explicit;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

// Clang's and libstdc++'s <stdatomic.h> would define macros of the names above.
#define __CLANG_STDATOMIC_H
#define _GLIBCXX_STDATOMIC_H
#define _Atomic(type) std::atomic<type>
#define _Static_assert static_assert
#define _Noreturn [[noreturn]]
extern "C" {
#include "heap/fast.h"
}
#undef _Atomic
#undef _Static_assert
#undef _Noreturn

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && sizeof(std::atomic<void *>) == sizeof(void *),
              "std::atomic adds nothing");

#endif
