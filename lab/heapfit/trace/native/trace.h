/* Reading traces (allocator/record/format.h): a C library that Python calls by ctypes, and the replayer links.
 *
 * A file is read in one pass, from its start, in memory that does not grow with it but for the blocks that are live,
 * and for its marks, threads and sites. reader.c finds and checks blocks; decode.c and order.c give the threads'
 * events in the order of their time; objects.c makes objects of them. One thread at a time may use one reader.
 * Nothing here trusts the file.
 */
#ifndef HEAPFIT_TRACE_H
#define HEAPFIT_TRACE_H

#include "record/format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_API __attribute__((visibility("default")))

/* ---- what a file holds (reader.c) -------------------------------------------------------------------------------- */

struct trace_reader;

/* Past the recorder's limit, the sites of chains that had none yet are their innermost address alone; or there are none. */
enum trace_sites_limit { TRACE_SITES_ALL, TRACE_SITES_INNERMOST, TRACE_SITES_NONE };

/* What is wrong with a file, or was. Texts are for a person, one clause without a full stop, and live as long as the
 * reader. */
struct trace_problems {
    uint64_t damaged_bytes; /* passed over between whole blocks */
    uint64_t damaged_blocks; /* a wrong checksum, or a payload that does not decode */
    uint64_t unknown_blocks; /* of types that this reader does not know */
    uint64_t late_events; /* came when what follows them had been given out: given out at once, with the time of that */
    uint64_t backward_clocks; /* events or marks whose clock is before one of the same thread */
    uint64_t lost_events; /* that the recorder says it could not keep */
    uint64_t missing_blocks; /* by their numbers, whether damaged or not there at all */
    uint8_t cut_short; /* there is no TRACE_END */
    uint8_t sites_limit; /* enum trace_sites_limit: what became of chains of calls, which were too many */
    /* errno that ended the reading before the file's end, which what was given out then counts as: EIO and the like, or ENOMEM or
     * EFBIG (trace_stopped). 0: none */
    int32_t error;
};

/* Opens a trace and reads its first block. NULL when it is none, or none that this library can read: `why` (256
 * bytes) then says so. */
TRACE_API struct trace_reader *trace_open(const char *path, char *why);
TRACE_API void trace_close(struct trace_reader *reader);

TRACE_API const char *trace_info(const struct trace_reader *reader); /* JSON of TRACE_INFO; "{}" if that is damaged */
TRACE_API const char *trace_end(const struct trace_reader *reader); /* JSON of TRACE_END; "" if none so far */
TRACE_API struct trace_problems trace_problems(const struct trace_reader *reader);
/* Whether the reading has been stopped because the file would cost more than is allowed (reader.h, limits): `why` (256 bytes) then says
 * what to do, as in trace_open. What was given out is not all. */
TRACE_API bool trace_stopped(const struct trace_reader *reader, char *why);
TRACE_API uint64_t trace_position(const struct trace_reader *reader); /* bytes of the file read so far, for progress */

/* Nanoseconds since the trace's first tick; exact at marks, by proportion between them. */
TRACE_API uint64_t trace_nanoseconds(const struct trace_reader *reader, uint64_t tick);

/* Marks read so far. `tick` and `complete_tick` are nanoseconds since the trace's first tick, the rest is as in the
 * file. */
TRACE_API size_t trace_marks(const struct trace_reader *reader, const struct trace_mark **marks);

/* Tables that grow while the file is read, and are complete at its end; pointers hold until the next call that reads.
 * Whatever thread or site an event or an object has is in them; a site's caller is a site before it. */
struct trace_thread {
    uint32_t index;
    int32_t tid;
    char name[16];
    uint64_t events, first_ns, last_ns;
};
struct trace_site {
    uint32_t caller;
    uint32_t depth; /* sites from the outermost caller to this one */
    uint64_t address;
}; /* of site i: element i; 0 is none */
TRACE_API size_t trace_threads(const struct trace_reader *reader, const struct trace_thread **threads);
TRACE_API size_t trace_sites(const struct trace_reader *reader, const struct trace_site **sites);
TRACE_API const char *trace_modules(const struct trace_reader *reader); /* all lines of all TRACE_MODULES, each once */

/* ---- events in the order of their time (order.c) ----------------------------------------------------------------- */

/* Columns of up to `capacity` elements, which the caller owns; a NULL column is left out. */
struct trace_events {
    size_t capacity;
    uint64_t *ns, *address, *old, *size, *usable, *lasted_ns;
    uint32_t *thread, *site;
    uint8_t *kind, *alignment; /* kind as enum trace_kind, plus TRACE_FAILED; alignment: binary logarithm */
};
/* The next events: how many, 0 at the end. Do not mix with trace_next_objects. Of one thread's events none comes
 * before an earlier one. Within one tick those of other threads that free come before those that allocate. */
TRACE_API size_t trace_next_events(struct trace_reader *reader, const struct trace_events *columns);

/* ---- objects (objects.c) ----------------------------------------------------------------------------------------- */

/* An object is a block from birth to death. A realloc that succeeds is, at its return, the death of one and the birth of
 * another, in place too, whose `previous` is its number. Given out at its death; at the trace's end those that live, in
 * order of birth, with died_ns = UINT64_MAX. */
struct trace_objects {
    size_t capacity; /* at least 2: so many may die at once */
    uint64_t *id; /* number by order of birth, from 1 */
    uint64_t *previous; /* 0: none */
    uint64_t *address, *size, *usable;
    uint64_t *born_ns, *died_ns;
    uint64_t *born_bytes,
        *died_bytes; /* the same on the clock of bytes: how many had been asked for when it was born, its own
                                        * included, or died; UINT64_MAX: lives at the end */
    uint32_t *born_thread, *died_thread; /* index; died_thread UINT32_MAX: lives at the end */
    uint32_t *site;
    uint8_t *born_kind, *died_kind; /* enum trace_kind; died_kind 255: lives at the end */
    uint8_t *alignment;
};
TRACE_API size_t trace_next_objects(struct trace_reader *reader, const struct trace_objects *columns);

/* The course of memory, complete at the end: a point per step of time in which anything happened, and one per mark,
 * of marks in one step the first. A step is 1 ms at first and doubles, and points are dropped, when there are more
 * than 2^16. Other than at a mark, where it was not known either, `resident` is 0. The rest is as in trace_totals
 * until then. */
struct trace_memory {
    uint64_t ns, live_bytes, live_objects, resident, resident_anonymous, allocated_bytes, allocations, frees,
        unmatched_frees;
};
TRACE_API size_t trace_memory(const struct trace_reader *reader, const struct trace_memory **points);

/* What a pass over all events counts and no object tells. Complete at the end. */
struct trace_totals {
    uint64_t events; /* a realloc is one */
    uint64_t allocations; /* that succeeded, reallocs among them: as many as there are objects */
    uint64_t frees; /* reallocs are not among them, unmatched ones are */
    uint64_t reallocs, reallocs_in_place; /* that succeeded; the second, of those: at the same address */
    uint64_t failed; /* allocations and reallocs */
    uint64_t bytes; /* asked for by `allocations` */
    uint64_t
        unmatched_frees; /* and reallocs, of blocks that were born before the recording began, or in what is lost */
    /* Allocations at an address where a block lived: its free is lost. That object's death is then, with the allocation's thread
     * and kind; trace_flow leaves it out. */
    uint64_t replaced;
    uint64_t peak_bytes, peak_objects, peak_ns; /* most bytes live, and when; objects live then */
    uint64_t end_bytes, end_objects;
};
TRACE_API struct trace_totals trace_totals(const struct trace_reader *reader);

/* Of site i: among allocations of one thread in one context (trace_context), how many came after one of another site.
 * Interleaving = switches / allocations. */
struct trace_site_totals {
    uint64_t allocations, bytes, switches, live_bytes, live_objects, peak_live_bytes;
};
TRACE_API size_t trace_site_totals(const struct trace_reader *reader, const struct trace_site_totals **totals);

/* Blocks that one thread allocated and one freed or reallocated, and their bytes: the pairs of threads that have any,
 * ordered. Past 2^22 pairs all others are one, with UINT32_MAX for both. Complete at the end. */
struct trace_flow {
    uint32_t born_thread, died_thread;
    uint64_t blocks, bytes;
};
TRACE_API size_t trace_flow(struct trace_reader *reader, const struct trace_flow **pairs);

/* ---- writing (writer.c): for cut, merge, anonymise and the tests ------------------------------------------------- */

struct trace_writer;
/* `info` is JSON. NULL when the file cannot be made: `why` says so. */
TRACE_API struct trace_writer *trace_create(const char *path, const char *info, char *why);
TRACE_API bool trace_write_thread(struct trace_writer *, uint32_t thread, int32_t tid, const char *name);
TRACE_API bool trace_write_site(struct trace_writer *, uint32_t caller, uint64_t address);
TRACE_API bool trace_write_modules(struct trace_writer *, const char *lines);
TRACE_API bool trace_write_event(struct trace_writer *, uint32_t thread,
                                 const struct trace_event *event); /* ticks are ns */
/* Events as trace_next_events gives them, in that order, which a reader of the new file finds again: one at the same
 * nanosecond as the one before, but of another thread, is set a nanosecond later. Marks are made meanwhile, so that a
 * reader need not hold back much. */
TRACE_API bool trace_write_events(struct trace_writer *, const struct trace_events *columns, size_t count);
TRACE_API bool trace_write_mark(struct trace_writer *, const struct trace_mark *mark);
TRACE_API bool trace_finish(struct trace_writer *, const char *end); /* closes; false: the file is not whole */

#endif
