/* The library's life in a process: its start, forks, its end.
 *
 * Nothing that allocating needs happens here, because other libraries' constructors may allocate before ours runs and
 * their destructors after: the heap starts itself with the first call.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "api.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where statistics go ------------------------------------------------------------------------------------------- */

/* Many programs close stderr before they end (all of coreutils do, to notice write errors): a second descriptor of it is
 * kept, where programs do not look for theirs, when statistics at the end are wanted. */
enum { KEPT_AT_LEAST = 200 };

static int kept = -1;
static struct stat kept_file;

static void stderr_keep(void)
{
    int saved = errno;
    kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, KEPT_AT_LEAST);
    if (kept >= 0 && fstat(kept, &kept_file) != 0) kept = -1;
    errno = saved;
}

/* The program may have closed our descriptor and got its number for a file of its own: that one is left alone. */
static int stderr_kept(void)
{
    struct stat now;
    bool same = kept >= 0 && fstat(kept, &now) == 0 && now.st_dev == kept_file.st_dev && now.st_ino == kept_file.st_ino;
    return same ? kept : STDERR_FILENO;
}

/* ---- start and end ----------------------------------------------------------------------------------------------------- */

static void fork_end_in_child(void)
{
    heap_fork_end_in_child();
    pools_fork_child();
    chunk_fork_child();
    options_fork_child();
    /* Last: it allocates, which a signal's handler may have interrupted. */
    if (platform_lock_is_any_own()) return;
    struct heap *heap = heap_set_aside();
    control_fork_child();
    heap_take_up(heap);
}

__attribute__((constructor)) static void process_start(void)
{
    /* In case that nothing has been allocated yet. Before any handler can run: from now on no heap that starts waits for the
     * options' lock. */
    heap_configure();
    /* Those of other libraries run before and after ours, and may allocate and wait for other threads: see registry.c. */
    pthread_atfork(heap_fork_begin, heap_fork_end, fork_end_in_child);
    if (UNLIKELY(options_stats_at_exit() != STATS_OFF)) stderr_keep();
    platform_thread_prepare();
    space_zeroed_allow();
    heap_background_allow();
    control_start();
}

__attribute__((destructor)) static void process_end(void)
{
    enum stats_at_exit wanted = options_stats_at_exit();
    explain_at_exit();
    if (UNLIKELY(wanted == STATS_TEXT)) hf_stats_print(stderr_kept());
    if (UNLIKELY(wanted == STATS_JSON)) hf_stats_json(stderr_kept());
}
