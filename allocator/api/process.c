/* The library's life in a process: its start, forks, its end.
 *
 * Nothing that allocating needs happens here, because other libraries' constructors may allocate before ours runs and
 * their destructors after: the heap starts itself with the first call.
 */
#include "api.h"

#include <pthread.h>
#include <unistd.h>

/* Handlers that other libraries register after this one run around ours: theirs may allocate while we hold the locks,
 * which platform_lock_fork_begin allows. */
__attribute__((constructor)) static void process_start(void)
{
    pthread_atfork(heap_fork_begin, heap_fork_end, heap_fork_end);
}

__attribute__((destructor)) static void process_end(void)
{
    if (UNLIKELY(options_stats_at_exit())) hf_stats_print(STDERR_FILENO);
}
