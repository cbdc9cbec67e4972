/* What comes before everything else, in the shared libraries.
 *
 * The dynamic linker writes what thread-local variables begin with when it has relocated all libraries and the program. Before, it calls
 * the resolvers of functions that are chosen at run time (IFUNC), and one of the program's may allocate. To malloc the variables are
 * zero then. So one function of this library is chosen at run time itself, and its resolver, which runs when the library has been
 * relocated, writes them. What is written here is overwritten later: until then the thread borrows a heap for each call.
 */
#include "api.h"

static void nothing(void) {}

__attribute__((used)) static void (*choose(void))(void)
{
    heap_thread_early();
    return nothing;
}

/* Not static: clang would make it a name that others see. */
void chosen(void) __attribute__((ifunc("choose"), visibility("hidden")));

__attribute__((constructor)) static void start(void)
{
    chosen(); /* what is called is relocated, and what is relocated calls the resolver */
}
