/* The recorder's life in a process: its start, forks, its end.
 *
 * It begins with the library's constructor: what other libraries' constructors have allocated before is not recorded. It ends
 * with the destructor, or where a process is left without one: exits.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "record.h"

#include <pthread.h>
#include <stdlib.h>

static void quick_exit_begins(void)
{
    writer_finish("quick_exit");
}

__attribute__((constructor)) static void process_start(void)
{
    intercept_start();
    exits_start();
    record_settings_read();
    if (!record_settings_apply()) return;
    intercept_check();
    pthread_atfork(NULL, NULL, writer_fork_child);
    at_quick_exit(quick_exit_begins); /* the first that is registered is the last that runs */
    writer_start(!record_settings.later);
}

__attribute__((destructor)) static void process_end(void)
{
    writer_finish("exit");
}
