/* api/: what programs call: heapfit.h, the malloc family, C++ new and delete, options, statistics.
 *
 * Which file does what: malloc.c the malloc family; glibc.c the C library's extensions that report and tune; operators.c
 * C++ new and delete; heapfit.c the names with the hf_ prefix; options.c the table of options and its readers;
 * statistics.c figures; process.c what happens when a process starts, forks and ends; version.c.
 * malloc.c, glibc.c and operators.c define names that are not heapfit's own, and the library works without them.
 */
#ifndef HEAPFIT_API_H
#define HEAPFIT_API_H

#include "../context/context.h"
#include "heapfit/heapfit.h"

/* ---- options (options.c) ------------------------------------------------------------------------------------------- */

/* Whether statistics are wanted when the process ends. */
bool options_stats_at_exit(void);
/* Have 0 in force for all options that keep free memory, or their values again; hf_option_set and _get speak of the values
 * at any time. */
void options_shrink(bool now);
bool options_shrunk(void);
/* For pthread_atfork handlers. */
void options_fork_begin(void);
void options_fork_end(void);

/* ---- statistics (statistics.c) --------------------------------------------------------------------------------------- */

struct statistics {
    hf_stats total;
    hf_class_stats classes[BIN_COUNT];
};

void statistics_collect(struct statistics *statistics);

#endif
