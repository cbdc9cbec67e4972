/* Whether the process is in a sandbox of its own making, and whether a thread may do what its first one may.
 *
 * A filter of system calls (seccomp) that a container or a service manager has put around a whole group of processes knows nothing
 * of this program, and lets through what programs commonly do. One that the program has put around itself may end it for
 * whatever is not on its list. The kernel says how many filters a process is behind; the first process of its namespace is
 * behind those of the container alone.
 *
 * Asked of /proc, since prctl, which could say it in one call, is itself what some of these filters kill for (Chromium's). Where
 * /proc says nothing it may be one of them that refuses to let it be opened.
 */
#define _GNU_SOURCE
#include "lines.h"
#include "platform.h"

#include <errno.h>
#include <string.h>

/* Filters of the process that an open `status` is of, or before Linux 5.9 whether there are any; SIZE_MAX: unknown. */
static uint64_t filters_in(struct lines *lines)
{
    static const char ANY[] = "Seccomp:\t", COUNT[] = "Seccomp_filters:\t";
    uint64_t filters = SIZE_MAX;
    while (lines_next(lines)) {
        if (strncmp(lines->line, ANY, strlen(ANY)) == 0) filters = number_at(lines->line + strlen(ANY)) != 0;
        if (strncmp(lines->line, COUNT, strlen(COUNT)) == 0) filters = number_at(lines->line + strlen(COUNT));
    }
    return filters;
}

static uint64_t filters_of(const char *path)
{
    struct lines lines;
    if (!lines_open(&lines, path)) return SIZE_MAX;
    uint64_t filters = filters_in(&lines);
    lines_close(&lines);
    return filters;
}

#define OWN_STATUS "/proc/thread-self/status"

static bool is_more_than_around(uint64_t own)
{
    uint64_t around = own == 0 ? 0 : filters_of("/proc/1/status");
    return own == SIZE_MAX || around == SIZE_MAX || own > around;
}

bool platform_is_in_own_sandbox(void)
{
    int saved = errno;
    bool is = is_more_than_around(filters_of(OWN_STATUS));
    errno = saved;
    return is;
}

bool platform_sandbox_watch_begin(struct platform_sandbox_watch *watch)
{
    struct lines lines;
    int saved = errno;
    bool open = lines_open(&lines, OWN_STATUS);
    watch->file = open ? lines.file : -1;
    watch->filters = open ? filters_in(&lines) : SIZE_MAX;
    bool is = is_more_than_around(watch->filters);
    errno = saved;
    return is;
}

bool platform_sandbox_watch_again(const struct platform_sandbox_watch *watch)
{
    struct lines lines = {.file = watch->file};
    int saved = errno;
    bool changed = platform_call(SYS_lseek, watch->file, 0, SEEK_SET) != 0 || filters_in(&lines) != watch->filters;
    errno = saved;
    return changed;
}

/* ---- a thread and the first one ----------------------------------------------------------------------------------------- */

static bool says_what_it_may(const char *line)
{
    static const char *const names[] = {"Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(line, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* Both files have the same lines in the same order, or differ. */
static bool may_the_same(struct lines *own, struct lines *first)
{
    for (;;) {
        bool more = lines_next(own), as_many = lines_next(first) == more;
        if (!as_many) return false;
        if (!more) return true;
        if (says_what_it_may(own->line) && strcmp(own->line, first->line) != 0) return false;
    }
}

/* The name of the namespace; false: there is none, or the first thread, which is gone, has none any more. */
static bool namespace_of(const char *who, const char *kind, char *name, size_t size)
{
    char path[64];
    platform_format(path, sizeof path, "/proc/%s/ns/%s", who, kind);
    return link_says(path, name, size);
}

static bool is_in_the_same(const char *kind)
{
    char own[64], first[64];
    return !namespace_of("thread-self", kind, own, sizeof own) || !namespace_of("self", kind, first, sizeof first) ||
           strcmp(own, first) == 0;
}

static bool is_like_first(void)
{
    static const char *const kinds[] = {"cgroup", "ipc", "mnt", "net", "pid_for_children", "time", "user", "uts"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!is_in_the_same(kinds[i])) return false;
    struct lines own, first;
    if (!lines_open(&own, OWN_STATUS)) return true;
    bool open = lines_open(&first, "/proc/self/status");
    bool same = !open || may_the_same(&own, &first);
    if (open) lines_close(&first);
    lines_close(&own);
    return same;
}

bool platform_thread_is_like_first(void)
{
    int saved = errno;
    bool is = is_like_first();
    errno = saved;
    return is;
}
