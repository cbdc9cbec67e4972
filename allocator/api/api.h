/* api/: what programs call: heapfit.h, the malloc family, C++ new and delete, options, statistics.
 *
 * Which file does what: malloc.c the malloc family; glibc.c the C library's extensions that report and tune;
 * operators.c C++ new and delete; heapfit.c the names with the hf_ prefix; options_table.c the table of options and
 * options.c its readers; statistics.c figures; ledger.c what each resident page is for; profile.c what sampled objects say; report.c figures as text and as JSON (json.c); process.c what happens
 * when a process starts, forks and ends; control.c the socket by which other processes steer this one, request.c what
 * they may ask; version.c; in the shared libraries dlopen.c; and in the library with pools explain.c, what was decided about
 * groups of objects, and dlclose.c. malloc.c, glibc.c, operators.c, dlopen.c and dlclose.c define names that are not heapfit's
 * own, and the library works without them.
 */
#ifndef HEAPFIT_API_H
#define HEAPFIT_API_H

#include "../context/context.h"
#include "heapfit/heapfit.h"

/* ---- how objects are made -------------------------------------------------------------------------------------- */

/* What the malloc family and operator new call, by this library's way: straight from the heap, or past the pools. `slow` is
 * called as the last thing that is done; it may call object_malloc_slow. */
#ifdef HEAPFIT_POOLS
#include "../pools/pools.h"
#define object_malloc pools_malloc
#define object_malloc_or pools_malloc_or
#define object_malloc_slow pools_malloc_slow_here
#define object_malloc_aligned pools_malloc_aligned
#define object_calloc pools_calloc

/* ---- what pools did (explain.c) --------------------------------------------------------------------------------- */

struct json;
void explain_json(struct json *json);
/* To the file that HEAPFIT_POOLS_EXPLAIN names, if it does. */
void explain_at_exit(void);
/* Among the other statistics. */
void explain_statistics(struct json *json);
void explain_print(int file);
#else
#define object_malloc heap_malloc
#define object_malloc_or heap_malloc_or
#define object_malloc_slow heap_malloc_slow
#define object_malloc_aligned heap_malloc_aligned
#define object_calloc heap_calloc
#define explain_at_exit() ((void)0)
#define explain_statistics(json) ((void)0)
#define explain_print(file) ((void)0)
#define pools_fork_child() ((void)0)
#endif

/* malloc as this library defines it, whichever is in force; weak, since malloc.c may be left out. */
extern void *own_malloc(size_t size) __attribute__((weak, visibility("hidden")));

/* ---- options (options.c) --------------------------------------------------------------------------------------- */

/* What is wanted when the process ends; the numbers are those of the option's words. */
enum stats_at_exit { STATS_OFF, STATS_TEXT, STATS_JSON };
enum stats_at_exit options_stats_at_exit(void);
bool options_control(void);
bool options_deepbind(void); /* whether dlopen keeps RTLD_DEEPBIND */

/* Have 0 in force for all options that keep free memory, or their values again; hf_option_set and _get speak of the values
 * at any time. */
void options_shrink(bool now);
bool options_shrunk(void);

/* In a fork's child. */
void options_fork_child(void);

/* The value of an option as a person writes it. */
enum { OPTION_TEXT_MAX = 40 };
struct option_text {
    char text[OPTION_TEXT_MAX + 1];
};
struct option_text options_text(const hf_option *option, uint64_t value);

/* What is wrong with a name or a value, in words that end without a full stop. */
struct option_mistake {
    char text[320];
};

/* hf_option_get and hf_option_set; false with the mistake explained. */
bool options_get(const char *name, struct option_text *value, struct option_mistake *mistake);
bool options_set(const char *name, const char *value, struct option_mistake *mistake);
/* The same for what is in force of an option that exists, which is less while the footprint is shrunk. */
struct option_text options_in_force(const char *name);

/* ---- giving back (heapfit.c) ----------------------------------------------------------------------------------- */

/* As hf_trim, for all heaps. */
size_t trim_everywhere(void);

/* ---- statistics (statistics.c) --------------------------------------------------------------------------------- */

struct statistics {
    hf_stats total; /* all but `resident` */
    hf_class_stats classes[BIN_COUNT];
};

void statistics_collect(struct statistics *statistics);

/* hf_stats.resident: looks at all committed memory, piece by piece. */
size_t statistics_resident(void);

/* All heaps, as they are now, in one look at all spans: one after the other out of an iteration.
 *
 *     struct heap_rows rows;
 *     for (const struct heap_row *row = heap_rows_begin(&rows); row != NULL; row = heap_rows_next(&rows)) ...
 *
 * which must go on to the end. Allocates nothing. Where the kernel has no pages for so many, a few are looked at at a time. */
struct heap_row {
    hf_heap_stats stats;
    uint32_t free_objects[BIN_COUNT];
};

enum { HEAP_ROWS_FEW = 16 };
struct heap_rows {
    size_t heaps; /* how many there are in all */
    size_t first, count, next; /* of the heaps in `rows`: number of the first; how many; which is next */
    size_t capacity;
    struct heap_row *rows; /* `few`, or borrowed from the kernel */
    struct heap_row few[HEAP_ROWS_FEW];
};

const struct heap_row *heap_rows_begin(struct heap_rows *rows);
const struct heap_row *heap_rows_next(struct heap_rows *rows);

/* One node; false when there are not so many. */
bool statistics_node(size_t place, hf_node_stats *node);

/* ---- reports (report.c) ---------------------------------------------------------------------------------------- */

struct json;

/* All statistics as one JSON object. */
void report_json(struct json *json);

/* ---- the live heap profile (profile.c) -------------------------------------------------------------------------- */

/* The sampled objects that live and their call sites, as one JSON object. One thread at a time. */
void profile_json(struct json *json);

/* ---- control (request.c, control.c) ---------------------------------------------------------------------------- */

/* Do what a request says, a line without its end, of any bytes, and write the answer, a JSON object without its line's end. */
void request_answer(const char *line, size_t length, struct json *json);

/* If the option says so, serve requests from now on; may be called again. */
void control_start(void);
/* The same in the child of a fork, which has inherited that the parent did. */
void control_fork_child(void);

#endif
