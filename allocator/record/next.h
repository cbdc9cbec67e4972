/* The next library's functions, to which calls are passed on (next.c).
 *
 * NEXT(name) is the next library's `name`, or first_NAME, which looks for it, until it has been found. So a caller asks nothing
 * first: it loads an address and jumps there.
 */
#ifndef HEAPFIT_RECORD_NEXT_H
#define HEAPFIT_RECORD_NEXT_H

#include "record/record.h"

_Static_assert(sizeof(size_t) == sizeof(unsigned long), "std::size_t is mangled as 'm', unsigned long");

/* Relaxed: all that look for them find the same. */
#define NEXT(name) atomic_load_explicit(&next_##name, memory_order_relaxed)

/* NOLINTBEGIN(bugprone-macro-parentheses): parameters come with theirs */

/* A variable that is seen in this library alone, and so found without a table. */
#define HAS_NEXT(result, name, parameters) extern _Atomic(result(*) parameters) next_##name HERE

/* An operator: the next one, and ours. */
#define OPERATOR(result, name, mangled, parameters)                                                                    \
    HAS_NEXT(result, name, parameters);                                                                                \
    EXPORT result name parameters __asm__(mangled)

struct nothrow; /* std::nothrow_t; nobody looks into one */

HAS_NEXT(void *, malloc, (size_t));
HAS_NEXT(void *, calloc, (size_t, size_t));
HAS_NEXT(void *, realloc, (void *, size_t));
HAS_NEXT(void *, reallocarray, (void *, size_t, size_t));
HAS_NEXT(int, posix_memalign, (void **, size_t, size_t));
HAS_NEXT(void *, aligned_alloc, (size_t, size_t));
HAS_NEXT(void *, memalign, (size_t, size_t));
HAS_NEXT(void *, valloc, (size_t));
HAS_NEXT(void *, pvalloc, (size_t));
HAS_NEXT(size_t, malloc_usable_size, (void *));
HAS_NEXT(void, free, (void *));
HAS_NEXT(void, cfree, (void *));
HAS_NEXT(void, free_sized, (void *, size_t));
HAS_NEXT(void, free_aligned_sized, (void *, size_t, size_t));

OPERATOR(void *, new, "_Znwm", (size_t));
OPERATOR(void *, new_array, "_Znam", (size_t));
OPERATOR(void *, new_aligned, "_ZnwmSt11align_val_t", (size_t, size_t));
OPERATOR(void *, new_array_aligned, "_ZnamSt11align_val_t", (size_t, size_t));
OPERATOR(void *, new_nothrow, "_ZnwmRKSt9nothrow_t", (size_t, const struct nothrow *));
OPERATOR(void *, new_array_nothrow, "_ZnamRKSt9nothrow_t", (size_t, const struct nothrow *));
OPERATOR(void *, new_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", (size_t, size_t, const struct nothrow *));
OPERATOR(void *, new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t",
         (size_t, size_t, const struct nothrow *));

OPERATOR(void, delete, "_ZdlPv", (void *));
OPERATOR(void, delete_array, "_ZdaPv", (void *));
OPERATOR(void, delete_sized, "_ZdlPvm", (void *, size_t));
OPERATOR(void, delete_array_sized, "_ZdaPvm", (void *, size_t));
OPERATOR(void, delete_aligned, "_ZdlPvSt11align_val_t", (void *, size_t));
OPERATOR(void, delete_array_aligned, "_ZdaPvSt11align_val_t", (void *, size_t));
OPERATOR(void, delete_sized_aligned, "_ZdlPvmSt11align_val_t", (void *, size_t, size_t));
OPERATOR(void, delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", (void *, size_t, size_t));
OPERATOR(void, delete_nothrow, "_ZdlPvRKSt9nothrow_t", (void *, const struct nothrow *));
OPERATOR(void, delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", (void *, const struct nothrow *));
OPERATOR(void, delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t", (void *, size_t, const struct nothrow *));
OPERATOR(void, delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t",
         (void *, size_t, const struct nothrow *));

/* NOLINTEND(bugprone-macro-parentheses) */

/* What they take, by which next.c and intercept.c define theirs: parameters, arguments, and of intercept.c what it is called and the
 * fields of a struct call. */
#define SIZE (size_t size), (size), size, .size = size
#define COUNT_SIZE (size_t count, size_t size), (count, size), count_size, .count = count, .size = size
#define ALIGNMENT_SIZE                                                                                                 \
    (size_t alignment, size_t size), (alignment, size), alignment_size, .alignment = alignment, .size = size
#define SIZE_ALIGNMENT                                                                                                 \
    (size_t size, size_t alignment), (size, alignment), size_alignment, .size = size, .alignment = alignment
#define SIZE_NOTHROW                                                                                                   \
    (size_t size, const struct nothrow *nothrow), (size, nothrow), size_nothrow, .size = size, .nothrow = nothrow
#define SIZE_ALIGNMENT_NOTHROW                                                                                         \
    (size_t size, size_t alignment, const struct nothrow *nothrow), (size, alignment, nothrow),                        \
        size_alignment_nothrow, .size = size, .alignment = alignment, .nothrow = nothrow
#define POINTER (void *pointer), (pointer), pointer, .pointer = pointer
#define POINTER_SIZE (void *pointer, size_t size), (pointer, size), pointer_size, .pointer = pointer, .size = size
#define POINTER_ALIGNMENT                                                                                              \
    (void *pointer, size_t alignment), (pointer, alignment), pointer_alignment, .pointer = pointer,                    \
        .alignment = alignment
#define POINTER_SIZE_ALIGNMENT                                                                                         \
    (void *pointer, size_t size, size_t alignment), (pointer, size, alignment), pointer_size_alignment,                \
        .pointer = pointer, .size = size, .alignment = alignment
#define POINTER_ALIGNMENT_SIZE                                                                                         \
    (void *pointer, size_t alignment, size_t size), (pointer, alignment, size), pointer_alignment_size,                \
        .pointer = pointer, .alignment = alignment, .size = size
#define POINTER_NOTHROW                                                                                                \
    (void *pointer, const struct nothrow *nothrow), (pointer, nothrow), pointer_nothrow, .pointer = pointer,           \
        .nothrow = nothrow
#define POINTER_ALIGNMENT_NOTHROW                                                                                      \
    (void *pointer, size_t alignment, const struct nothrow *nothrow), (pointer, alignment, nothrow),                   \
        pointer_alignment_nothrow, .pointer = pointer, .alignment = alignment, .nothrow = nothrow

/* Whether a function that starts here is one that they are, or leads on to, and may have a lock of the allocator's. */
bool next_is_allocating(uintptr_t start);

/* Looks for all of them, whether or not a call has done so before. */
void next_find_all(void);

/* Of any name that we stand in front of: where the next library has it, or the program where we came later (slots.c). NULL: nowhere. */
void *next_symbol(const char *name);

/* Before all else, where this library was loaded by a running program: no library is behind it, and none calls it. */
void next_are_of_program(void);

/* Whether it is an address in this library. */
bool next_is_ours(const void *address);

#endif
