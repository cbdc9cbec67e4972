/* The plan of a replay: what each recorded thread does, laid out such that the replayer can do it from memory that it only
 * maps, with next to no work of its own between two calls of the allocator.
 *
 *     file = struct plan_header, chunks of operations, course, struct plan_stream for each thread
 *
 * A thread's operations stand in chunks; the last operation of a chunk leads to the next. A live block has a slot: a small
 * number that serves another block when this one is dead. Every operation on a slot has its turn there, counted from 0,
 * so that whoever comes too early, in whichever thread, waits until it is its turn. All operations have a place in one
 * order, that of the recording, in which an operation depends on earlier ones alone.
 *
 * A plan is made by heapfit-plan for heapfit-replay on the same machine, in that machine's byte order; it is no format to
 * keep anything in.
 */
#ifndef HEAPFIT_PLAN_H
#define HEAPFIT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_MAGIC "hfplan\x1a" /* eight bytes */

enum {
    PLAN_VERSION = 1,

    /* Events between two PLAN_PACE of a thread at most, and between two points of the course. Few enough that a peak is
     * seen where it is; so many that what happens there costs nothing by comparison. */
    PLAN_STEP = 1024,

    /* Nanoseconds of the recording, likewise, for a replay at the recorded speed. */
    PLAN_STEP_NS = 1000 * 1000,

    /* Events by which threads drift apart in a replay, at most and at least. Of threads that run free, one that allocates
     * for another would be through with all of it at once, and hold memory that the program never held; threads that go
     * in step would show how fast they wait. So: a 128th of the recording, that is less than a hundredth of what it
     * allocates; at least two steps, below which the slowest could not see that it is the slowest; and at most so many
     * as keep a processor busy for about a millisecond, against the microseconds that a change of threads takes. */
    PLAN_DRIFT_SHARE = 128,
    PLAN_DRIFT_MIN = 2 * PLAN_STEP,
    PLAN_DRIFT_MAX = 15 * PLAN_STEP,

    /* Part by which the bytes live must exceed those at the last look for another look to be worth it. */
    PLAN_PEAK_SHARE = 128,

    /* Operations that the replayer may look ahead, past the end of a chunk, too. */
    PLAN_AHEAD = 16,
};

/* The first eight are those of enum trace_kind. */
enum plan_kind {
    PLAN_FREE,
    PLAN_MALLOC,
    PLAN_CALLOC,
    PLAN_REALLOC,
    PLAN_ALIGNED,
    PLAN_NEW,
    PLAN_NEW_ALIGNED,
    PLAN_DELETE,
    PLAN_START, /* of the thread `slot` */
    PLAN_PACE, /* its place and time: plan_order, plan_ns. Before a thread's first event, and within PLAN_STEP of any; and after
                * an event that makes a peak */
    PLAN_JUMP, /* to the operation number `size` */
    PLAN_END, /* of the thread */
};

struct plan_op {
    uint32_t slot;
    uint32_t turn; /* that the slot must have; this operation makes it one more */
    uint64_t size : 48; /* of what is allocated; of a free, of the block that dies */
    uint64_t kind : 8; /* enum plan_kind */
    uint64_t alignment : 8; /* binary logarithm; of a PLAN_DELETE, of the block that dies, where `new` was told
                              * one; of a PLAN_PACE, 1: after a peak */
};
_Static_assert(sizeof(struct plan_op) == 16, "four operations fill a cache line");

#define PLAN_SIZE_MAX ((UINT64_C(1) << 48) - 1)

/* Of PLAN_PACE: how many events come before, and when that was, to a microsecond or so. */
static inline uint64_t plan_order(const struct plan_op *op)
{
    return (uint64_t)op->turn << 32 | op->slot;
}
static inline uint64_t plan_ns(const struct plan_op *op)
{
    return (uint64_t)op->size << 10;
}

struct plan_stream {
    uint64_t first; /* number of its first operation, counted from the header's end */
    uint64_t events;
    uint32_t recorded; /* index of the thread in the trace */
    uint32_t reserved;
};

struct plan_header {
    char magic[8];
    uint32_t version;
    uint32_t streams; /* threads */
    uint32_t main; /* the stream of the process's first thread; where that did nothing, of the first thread that did */
    uint32_t slots;
    uint64_t ops; /* numbers of operations given out; not all of them are used */
    uint64_t course; /* offset in the file: live bytes when 0, PLAN_STEP, 2 * PLAN_STEP ... events had happened */
    uint64_t course_points;
    uint64_t streams_at; /* offset in the file */
    uint64_t file_size;
    uint64_t checksum; /* plan_checksum of all that follows the header */

    uint64_t events, allocations, frees, reallocs;
    uint64_t bytes; /* asked for */
    uint64_t duration_ns; /* from the first event to the last */
    uint64_t peak_bytes, peak_blocks, peak_order; /* most bytes live, blocks live then, events before */
    uint64_t peak_look; /* the place of a PLAN_PACE that comes as soon as all but a PLAN_PEAK_SHARE of the peak lives */
    uint64_t left_blocks, left_bytes; /* live at the end, and left there */
    uint64_t unmatched_frees; /* of blocks that were born before: left out */
    uint64_t unmatched_reallocs; /* likewise: played as allocations */
    uint64_t lost_frees; /* made up: a block's address was given out again */
    uint64_t failed; /* allocations that failed when they were recorded: left out */
};

/* Of `size` bytes, a multiple of 8: continues `sum`, at first 0. Not against malice: a plan is ours. */
static inline uint64_t plan_checksum(uint64_t sum, const void *bytes, size_t size)
{
    const uint64_t *words = bytes;
    for (size_t i = 0; i < size / sizeof *words; i++) {
        sum = (sum ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 29;
    }
    return sum;
}

/* ---- making one (plan.c), in memory that grows with the live blocks and the threads alone --------------------------- */

struct plan_event {
    uint64_t ns, lasted_ns, address, old, size;
    uint32_t thread;
    uint8_t kind; /* enum trace_kind, plus TRACE_FAILED */
    uint8_t alignment; /* binary logarithm */
};

struct plan_maker;
/* NULL: no memory, or the file cannot be made; errno says why. With `one_thread` all that happens is one thread's. */
struct plan_maker *plan_create(const char *path, bool one_thread);
/* In the order of time. False: errno says why. */
bool plan_add(struct plan_maker *maker, const struct plan_event *event);
/* That an event of this address will come soon. */
void plan_foresee(const struct plan_maker *maker, uint64_t address);
/* Completes and closes the file; `main_thread` is the index of the process's first thread. False: errno says why. */
bool plan_finish(struct plan_maker *maker, uint32_t main_thread, struct plan_header *header);

#endif
