/* The memory that the threads of interleave.h share, as C11 lets them see it: an atomic load may find a value that is no longer
 * the latest, a weak compare-and-swap may fail for no reason, and what two threads do to the same plain memory must be in an
 * order that their atomics and locks make. So orders that are too weak show, on whatever processor this runs.
 *
 * The program is compiled with -fsanitize=thread, and the functions that the compiler then calls at every access are those of
 * memory.c: so the sources are checked as they are, with the orders that they ask for, and a plain access that should be atomic
 * is seen, too.
 *
 * It is a machine of views (Kang, Hur, Lahav, Vafeiadis, Dreyer: A promising semantics for relaxed-memory concurrency, POPL
 * 2017; without the promises). The stores to a location stand in one order, that in which they are run. A thread's view says of
 * every location which is the oldest store that it may still read. A store with release carries its thread's view; a load with
 * acquire that reads it, or what read-modify-writes have made of it since, joins that into its own. Sequentially consistent
 * accesses of a location never read what is older than the last such store to it. Each deviation from what a processor would do
 * most often, an older store read or a failure for no reason, counts as much as a preemption.
 *
 * The same bytes may be accessed atomically and plainly, which hints are on purpose, and is no race here: a plain store is one
 * without release, and a plain load finds the latest.
 *
 * What it cannot see: a store that comes, in the order of its location, before one that was run earlier; a load that reads a
 * store of the future (of relaxed accesses alone); and fences, which nobody here uses: one ends the exploration.
 */
#ifndef HEAPFIT_TESTS_MEMORY_H
#define HEAPFIT_TESTS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Of a function that stands for the machine rather than for the allocator: memory.c is not told of its accesses. */
#ifdef __clang__ /* which tells of atomics all the same */
#define UNTOLD __attribute__((disable_sanitizer_instrumentation, noinline))
#else
#define UNTOLD __attribute__((no_sanitize("thread"), noinline))
#endif

/* What threads share, by the name that a report calls it. Accesses to all other memory are neither reordered nor checked. */
void memory_watch(const char *name, const void *start, size_t size);

/* In this execution, from now on: the program itself makes an error that is a race, such as to free a block twice. */
void memory_races_expected(void);

/* For what stands for a lock: around taking and releasing it. `memory_lock_wanted` is a place to change threads. */
void memory_lock_wanted(const void *lock);
void memory_lock_taken(const void *lock);
void memory_lock_released(const void *lock);

/* For interleave.c: before an exploration, before each execution, and after it: whether it has shown locations to be shared that
 * were taken for private, so that changing threads there was left out, and the exploration has to start again. */
void memory_explore(void);
void memory_execute(int threads);
bool memory_learned(void);
/* The running thread sees all that was done so far: the child of a fork has a copy of it. */
void memory_see_all(void);
/* Every thread does: the kernel has had each pass a barrier. */
void memory_barrier_everywhere(void);

#endif
