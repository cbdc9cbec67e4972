/* record/: writes down what a program does with its heap, whichever allocator it has.
 *
 * libheapfit-record.so is preloaded in front of the program's allocator: it defines the malloc family, passes each call on to
 * the next library that defines it (RTLD_NEXT: another preloaded allocator, or libc), and notes it in a ring of the calling
 * thread. One thread of the library's own takes the events out of all rings, encodes and compresses them, and writes the file
 * (format.h). It has a table of descriptors of its own, so that nothing the program closes, opens or changes its root to
 * concerns the file.
 *
 *     program's threads                                   the recorder's thread
 *     malloc ─► next malloc ─► event in the ring ──┐
 *     free ─► event in the ring ─► next free       ├────► encode.c ─► block.c (zstd, CRC) ─► file
 *                                     ... rings ───┘
 *
 * Which file does what: intercept.c the malloc family; next.c the functions that its calls are passed on to; note.h, ring.c a
 * thread's ring; site.c who called, with python.c where a Python program did; sample.c which allocations are noted when not all
 * are; process.c, interrupted.c, exits.c and signals.c how a process starts, forks and ends; writer.c the recorder's thread;
 * recording.c, whole.c, sleep.c and leave.c how it meets the program's (writer.h); stream.c how events get from rings into
 * blocks; file.c the file; facts.c what the kernel knows of the process; request.c what other processes may ask; settings.c
 * what the environment says; attach.c, slots.c, startup.c how it comes into a program that runs already; encode.c and block.c
 * the format, which the lab's trace tools use too. It needs platform/ and nothing else of the allocator. Nothing here calls
 * malloc.
 */
#ifndef HEAPFIT_RECORD_H
#define HEAPFIT_RECORD_H

#include "platform/platform.h"
#include "record/format.h"

/* What every call looks at is in this library, and found without a table. */
#define HERE __attribute__((visibility("hidden")))

/* ---- settings (settings.c) ----------------------------------------------------------------------------------------- */

/* HEAPFIT_RECORD=PATH names the file; %p in it becomes the process's number. HEAPFIT_RECORD_OPTIONS="name:value,..." */
struct record_settings {
    char path[4096]; /* absolute; empty: no recording */
    size_t sample; /* `sample:SIZE`: mean bytes between noted allocations; 0: each is noted */
    unsigned sites; /* `sites:N`: return addresses that are followed, 0 to 64; 0: none */
    bool later; /* `start:later`: record only when told to */
    bool children; /* `children:on`: forked and exec'ed processes too, each into a file of its own: PATH.PID */
    uint32_t
        process; /* `process:N`: which one is the main process, whose file has the plain name; by itself the first */
    bool first; /* nothing was recorded before this, so that a file of this name is of another time */
    unsigned seconds; /* `seconds:N`: stop by itself after so long; 0: never */
    unsigned lasts_s; /* the same of the present recording: a start may name another time */
    uint64_t passed_ms; /* of that, before the file that is being written was begun */
    unsigned flush_ms; /* `flush_ms:N`: an event is in the file after about so long; 100 */
    bool quiet; /* nothing is said on stderr: who has brought the recorder in is told */
};
extern struct record_settings record_settings HERE;
void record_settings_read(void); /* reports unknown names and bad values once on stderr, as HEAPFIT_OPTIONS does */
bool record_settings_give(const char *options, const char *path); /* in place of that; false: too long */
bool record_settings_apply(void); /* whether this process, new or forked, is to be recorded */

/* ---- rings (ring.c) ------------------------------------------------------------------------------------------------ */

/* One event as its thread notes it. A realloc takes two in a row: REALLOC with the old address when it is called, then
 * RECORD_RESULT with the new one when it has returned (address 0: failed, the old block stays), or RECORD_ENDED when the new
 * one is not of the sample that the old one is of: together a free. */
struct record_event {
    uint64_t tick;
    uint64_t address; /* 0: the allocation failed */
    uint64_t size;
    uint32_t site;
    unsigned kind : 4; /* enum trace_kind, or RECORD_RESULT */
    unsigned alignment : 6; /* binary logarithm; 0: none was asked for */
    unsigned slack : 22; /* usable size less size; its largest value when more */
};
_Static_assert(sizeof(struct record_event) == 32, "two events fill a cache line");
enum { RECORD_RESULT = TRACE_KIND_MASK, RECORD_ENDED = RECORD_RESULT - 1, RECORD_RING_EVENTS = 4096 };

/* Of one thread, which alone writes events and moves `head`; the recorder's thread reads them and moves `tail`. Rings are made
 * by platform_reserve/commit, stay in the list for good, and serve another thread when theirs is no more and they are empty:
 * so all that is between `tail` and `head` is always of one thread. */
struct record_ring {
    _Alignas(CACHE_LINE) _Atomic(uint64_t) head; /* events noted so far. Release: what is before it is written */
    uint64_t look_at; /* the owner's own: when `head` gets here it looks at `tail` */
    _Atomic(int32_t) tid; /* the owner's; 0: nobody's */
    _Atomic(bool) left; /* the owner has begun to end. Until it has, it may still note events */
    struct record_ring *next; /* stays as it is from when the ring is in the list */
    _Alignas(CACHE_LINE) _Atomic(uint64_t) tail; /* events taken so far. Release: their places may be written again */
    _Atomic(uint32_t)
        thread; /* index in the file, given by the recorder's thread; a new owner sets RECORD_THREAD_NEW */
    _Atomic(uint32_t) waiting; /* 1: the owner waits for room */
    struct record_stream *stream; /* the recorder's thread's own: what it has encoded of these events */
    _Alignas(CACHE_LINE) struct record_event events[RECORD_RING_EVENTS];
};
#define RECORD_THREAD_NEW UINT32_MAX
extern _Atomic(struct record_ring *) record_rings; /* the newest first */

/* There are many, and one more has been made: threads are short, and the rings of those that have ended are to be emptied at once. Set
 * by a thread before it wakes the recorder's (writer_wake), which takes it back. */
extern _Atomic(bool) record_rings_many;

/* Events that could not be kept: there was no memory for a ring. */
extern _Atomic(uint64_t) record_lost;

/* ---- what each side calls of the other ----------------------------------------------------------------------------- */

/* Whether events are noted; some at the edges may or may not be. Written by the recorder's thread: with release when it becomes
 * true, for what sample_begin has written, else relaxed. */
extern _Atomic(bool) recording HERE;

/* The clock of events: the processor's counter (x86-64: TSC; aarch64: CNTVCT). It is read after all that stands before it has been
 * done: a processor would else read it early, while what told this thread of a block is still on its way from another
 * core, and so before the other has read it. Nothing must keep it from being read late: no store that stands behind it is
 * seen by others before it is done. */
ALWAYS_INLINE uint64_t record_ticks(void)
{
#if defined(__x86_64__)
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks) : : "memory");
    return ticks;
#endif
}

/* writer.c, sleep.c, leave.c, whole.c, called by the program's threads. They may be anywhere, with any lock held: nothing here takes
 * one. */
uint64_t recording_passed_ms(void); /* since the first file was begun, while something is recorded */
/* All sites so far, and then what is mapped where, go into the file before this returns, if R gets to it soon. */
void recording_note_modules(void);
void writer_start(bool begin); /* at the start, and in a fork's child: makes the thread and, if so, the file */
void writer_wake(void); /* a ring is half full */
void writer_wait(struct record_ring *ring); /* it is full: until there is room, or nothing is recorded any more */
void writer_thread_leaves(void); /* a thread with a ring is about to end */

/* When all that was noted is in the file, after 10 s at most: for good, or with the file's end, until the resumption, which has to
 * follow where pausing returned true. All may be called in a signal handler. */
void writer_finish(const char *why);
bool writer_pause(const char *why);
void writer_resume(void);
void writer_fork_child(bool may_allocate); /* nothing of the parent's goes on here; it begins anew, if it may */

/* site.c, called by the recorder's thread: how many sites there are, which are elements 1 to that; element 0 is no site. Nothing
 * moves, and caller and address do not change. Who asks after taking events out of a ring is told of all sites that they name. */
struct record_site {
    uint32_t caller; /* 0: none, or not followed so far */
    uint32_t forgotten; /* site.c's own: its code is unmapped, so that it is not found any more */
    uint64_t address; /* where the caller goes on */
};
size_t sites_published(const struct record_site **all);

/* The same of lines of a Python program, which sites have as addresses: how many bytes of text, as it stands in TRACE_MODULES. */
size_t places_told(const char **text);

/* Which sites new chains get: all that they are made of; their innermost address alone; or none. */
enum sites_limit { SITES_ALL, SITES_ALONE, SITES_NO_MORE };
enum sites_limit sites_limit(void);

/* Called by process.c and writer.c: */
void intercept_start(void); /* intercept.c: finds the next library's functions. Before all else, by one thread */
bool intercept_check(void); /* whether calls come here; says so if they do not */
size_t intercept_live_before(void); /* bytes that other libraries' constructors allocated before ours; 0: not known */
const char *intercept_allocator(void); /* path of the library that calls go to */
bool sample_begin(void); /* sample.c: before `recording` becomes true. False: no memory, so nothing can be recorded */
void record_ignore_thread(void); /* ring.c: nothing that the calling thread does is ever noted */
bool record_is_inside(void); /* the calling thread is in a call that is noted: a signal has interrupted malloc */
void signals_find(void); /* signals.c: finds the functions that it stands in front of */
void signals_start(
    void); /* signals.c: where a signal would end the process by its default action, the file is made whole first */
void exits_start(void); /* exits.c: finds the functions that it stands in front of */
void rings_fork_child(void); /* ring.c: nobody else is there, nor is anything recorded: rings are empty and nobody's */

/* ---- the recorder's thread's own ------------------------------------------------------------------------------------ */

/* file.c: one file after the other. A block is in the file after file_flush. The first error ends a file: then it is cut to its
 * whole blocks and closed. */
struct record_file {
    bool open;
    uint32_t number; /* 1, or what was free; 0: none has been opened */
    char path[4096 + 32]; /* of this one, or the last */
    uint64_t events, bytes; /* of it */
    uint64_t lost_before; /* record_lost when it was begun */
    const char *error; /* why it was ended; NULL: by nothing bad */
};
extern struct record_file record_file;
static inline uint64_t file_lost(void)
{
    return atomic_load_explicit(&record_lost, memory_order_relaxed) - record_file.lost_before;
}
bool file_prepare(void); /* finds the folder, while the process sees it */
bool file_open(void); /* the first block has to follow */
void file_block(enum trace_block type, uint32_t thread, const void *raw, size_t size);
void file_events(const struct trace_block_header *header, const void *raw, size_t size);
bool file_flush(void);
void file_end(const char *reason); /* says so, and is whole then */
void file_reopen(void); /* takes the last end back: blocks may follow */
void file_close(void);

/* facts.c: read through descriptors that stay open, so that it goes on when the process changes its root or closes all. Texts are
 * without a terminating zero, into TRACE_RAW_MAX bytes; their size is returned. */
void facts_prepare(void);
size_t facts_info(char *text, uint64_t tick, uint64_t ns); /* the clocks some time ago */
size_t facts_modules(char *text); /* 0: cannot be read */
bool facts_is_code(uint64_t address); /* in one of the modules, when they were last read */
size_t facts_sites_limit(char *text, enum sites_limit limit);
size_t facts_thread(char *text, uint32_t thread, int32_t tid, char *name);
bool facts_thread_name(int32_t tid, char name[16]); /* false: there is no such thread any more */
size_t facts_threads(void); /* of the process, this one and a main thread that has left included; 0: not known */
/* Of these, those that libheapfit has started, and that end when they are the last: not this one, nor the recorder's other one. As far as
 * the program may open files. */
size_t facts_threads_of_heapfit(int32_t other);
bool facts_main_has_left(void);
void facts_memory(uint64_t *resident, uint64_t *anonymous); /* bytes; 0: not known */
uint64_t facts_resident_most(void); /* since the program began, as the kernel knows it; bytes; 0: not known */

char *facts_text(char *name); /* makes it valid UTF-8, where it stands */

/* stream.c */
void streams_begin(void); /* for a new file: what is in the rings so far does not belong to it */
uint64_t streams_take(void); /* empties all rings: all events before this tick that were there are taken */
void streams_flush(void); /* all that was taken goes into the file's blocks */
bool streams_strange(void); /* whether calls came from code that is in no module that is known, since last asked */
bool streams_call(void); /* whether rings are to be emptied now: one is half full, or they are many */
void streams_wake(void); /* all threads that wait for room */

/* recording.c, for request.c: NULL, or what is wrong. */
const char *recording_begin(void);
void recording_end(const char *why);

/* request.c */
struct json;
void record_answer(const char *line, size_t length, struct json *json);

/* ---- the format (encode.c, block.c): no state, no platform, shared with the lab ------------------------------------- */

/* Appends `event` at `out`, which has TRACE_EVENT_MAX bytes of room: how many it took. `coder` is as format.h says. */
size_t trace_encode(struct trace_coder *coder, const struct trace_event *event, uint8_t *out);

/* A section of a TRACE_SHARED block at `out`, which has TRACE_SECTION_MAX bytes more room than `size`: how many it took. `ticks` are
 * from the block's first tick to that of the events in `raw`. */
size_t trace_section(uint32_t thread, uint64_t ticks, const void *raw, size_t size, uint8_t *out);

/* CRC-32 (IEEE 802.3), to be continued from `crc`, at first 0. */
uint32_t trace_crc(uint32_t crc, const void *bytes, size_t size);

/* A block as it stands in the file, compressed if that makes it smaller, into `out` of trace_block_bound(raw) bytes: its size. The
 * header's type, thread, events, ticks and sequence are given; the rest is filled in. `workspace` is of trace_workspace_size() bytes
 * and may be used again; nothing is allocated. */
size_t trace_workspace_size(void);
size_t trace_block_bound(size_t raw);
size_t trace_block_make(struct trace_block_header *header, const void *raw, size_t raw_size, void *workspace,
                        uint8_t *out);

#endif
