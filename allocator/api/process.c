/* The library's life in a process: fork. */
#include "api.h"

#include <pthread.h>

/* Handlers that other libraries register after this one run around ours: theirs may allocate while we hold the locks,
 * which platform_lock_fork_begin allows. */
__attribute__((constructor)) static void process_start(void)
{
    pthread_atfork(heap_fork_begin, heap_fork_end, heap_fork_end);
}
