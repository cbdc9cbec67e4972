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
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where statistics go ------------------------------------------------------------------------------------------- */

/* Many programs close stderr before they end (all of coreutils do, to notice write errors): a second descriptor of it is
 * kept, where programs do not look for theirs, when statistics at the end are wanted. */
enum { KEPT_AT_LEAST = 200 };

static int kept = -1;
static struct stat kept_file;
static bool had_stderr;

static void stderr_keep(void)
{
    int saved = errno;
    had_stderr = fstat(STDERR_FILENO, &kept_file) == 0;
    if (had_stderr) kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, KEPT_AT_LEAST);
    errno = saved;
}

static bool is_stderr_of_start(int file)
{
    struct stat now;
    return had_stderr && file >= 0 && fstat(file, &now) == 0 && now.st_dev == kept_file.st_dev &&
           now.st_ino == kept_file.st_ino;
}

/* The program may have closed either descriptor and got its number for a file of its own: that one is left alone. -1: both. */
static int stderr_kept(void)
{
    return is_stderr_of_start(kept) ? kept : is_stderr_of_start(STDERR_FILENO) ? STDERR_FILENO : -1;
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
    platform_overcommit_learn();
    if (HARDENED) hardened_large_prepare();
    platform_thread_prepare();
    space_zeroed_allow();
    heap_background_allow();
    control_start();
}

/* In pieces that a pipe has room for, and only while somebody takes them. */
static void pass_on(int from, int to)
{
    char piece[PIPE_BUF];
    ssize_t size;
    lseek(from, 0, SEEK_SET);
    while ((size = read(from, piece, sizeof piece)) > 0)
        if (!platform_takes_more(to) || !platform_write(to, piece, (size_t)size)) return;
}

static void print_statistics(int file, bool as_text)
{
    if (as_text) hf_stats_print(file);
    else hf_stats_json(file);
}

/* By way of a file in memory: whoever reads our stderr, or has ceased to, must not change how the program ends. Where no file can be
 * had, as when all descriptors are taken, as far as can be told before. */
__attribute__((destructor)) static void process_end(void)
{
    enum stats_at_exit wanted = options_stats_at_exit();
    explain_at_exit();
    int file = LIKELY(wanted == STATS_OFF) ? -1 : stderr_kept();
    if (file < 0 || !platform_takes_more(file)) return;
    int statistics = memfd_create("heapfit-statistics", MFD_CLOEXEC);
    print_statistics(statistics >= 0 ? statistics : file, wanted == STATS_TEXT);
    if (statistics < 0) return;
    pass_on(statistics, file);
    close(statistics);
}
