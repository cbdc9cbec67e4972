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

HAS_NEXT(void *, new, (size_t));
HAS_NEXT(void *, new_array, (size_t));
HAS_NEXT(void *, new_aligned, (size_t, size_t));
HAS_NEXT(void *, new_array_aligned, (size_t, size_t));
HAS_NEXT(void *, new_nothrow, (size_t, const struct nothrow *));
HAS_NEXT(void *, new_array_nothrow, (size_t, const struct nothrow *));
HAS_NEXT(void *, new_aligned_nothrow, (size_t, size_t, const struct nothrow *));
HAS_NEXT(void *, new_array_aligned_nothrow, (size_t, size_t, const struct nothrow *));

HAS_NEXT(void, delete, (void *));
HAS_NEXT(void, delete_array, (void *));
HAS_NEXT(void, delete_sized, (void *, size_t));
HAS_NEXT(void, delete_array_sized, (void *, size_t));
HAS_NEXT(void, delete_aligned, (void *, size_t));
HAS_NEXT(void, delete_array_aligned, (void *, size_t));
HAS_NEXT(void, delete_sized_aligned, (void *, size_t, size_t));
HAS_NEXT(void, delete_array_sized_aligned, (void *, size_t, size_t));
HAS_NEXT(void, delete_nothrow, (void *, const struct nothrow *));
HAS_NEXT(void, delete_array_nothrow, (void *, const struct nothrow *));
HAS_NEXT(void, delete_aligned_nothrow, (void *, size_t, const struct nothrow *));
HAS_NEXT(void, delete_array_aligned_nothrow, (void *, size_t, const struct nothrow *));

/* NOLINTEND(bugprone-macro-parentheses) */

/* The parameters and arguments of C++'s operators, by which next.c and intercept.c define theirs. */
#define SIZE (size_t size), (size)
#define SIZE_ALIGNMENT (size_t size, size_t alignment), (size, alignment)
#define SIZE_NOTHROW (size_t size, const struct nothrow *nothrow), (size, nothrow)
#define ALL_THREE (size_t size, size_t alignment, const struct nothrow *nothrow), (size, alignment, nothrow)
#define POINTER (void *pointer), (pointer)
#define POINTER_WITH (void *pointer, size_t number), (pointer, number)
#define POINTER_WITH_BOTH (void *pointer, size_t size, size_t alignment), (pointer, size, alignment)
#define POINTER_NOTHROW (void *pointer, const struct nothrow *nothrow), (pointer, nothrow)
#define POINTER_ALIGNMENT_NOTHROW                                                                                      \
    (void *pointer, size_t alignment, const struct nothrow *nothrow), (pointer, alignment, nothrow)

/* Looks for all of them, whether or not a call has done so before. */
void next_find_all(void);

#endif
