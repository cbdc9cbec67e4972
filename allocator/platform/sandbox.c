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

/* Filters of the process that `path` is the status of, or before Linux 5.9 whether there are any; SIZE_MAX: unknown. */
static uint64_t filters_of(const char *path)
{
    static const char ANY[] = "Seccomp:\t", COUNT[] = "Seccomp_filters:\t";
    struct lines lines;
    uint64_t filters = SIZE_MAX;
    if (!lines_open(&lines, path)) return SIZE_MAX;
    while (lines_next(&lines)) {
        if (strncmp(lines.line, ANY, strlen(ANY)) == 0) filters = number_at(lines.line + strlen(ANY)) != 0;
        if (strncmp(lines.line, COUNT, strlen(COUNT)) == 0) filters = number_at(lines.line + strlen(COUNT));
    }
    lines_close(&lines);
    return filters;
}

bool platform_is_in_own_sandbox(void)
{
    int saved = errno;
    uint64_t own = filters_of("/proc/thread-self/status");
    uint64_t around = own == 0 ? 0 : filters_of("/proc/1/status");
    errno = saved;
    return own == SIZE_MAX || around == SIZE_MAX || own > around;
}
