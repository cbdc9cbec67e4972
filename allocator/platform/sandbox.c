/* Whether the process is in a sandbox of its own making.
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
