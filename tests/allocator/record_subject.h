/* The recorder without its writer: what was noted is handed to the test. Built into a test program, or into a library that stands
 * in front of its allocator (record_subject.c). */
#ifndef HEAPFIT_TESTS_RECORD_SUBJECT_H
#define HEAPFIT_TESTS_RECORD_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of record/format.h and record/record.h, which are not for C++. */
enum {
    SUBJECT_FREE,
    SUBJECT_MALLOC,
    SUBJECT_CALLOC,
    SUBJECT_REALLOC,
    SUBJECT_ALIGNED,
    SUBJECT_NEW,
    SUBJECT_NEW_ALIGNED,
    SUBJECT_DELETE,
    SUBJECT_ENDED = 14,
    SUBJECT_RESULT = 15,
    SUBJECT_RING_EVENTS = 4096,
};

struct subject_event {
    uint64_t tick, address, size, slack;
    uint32_t site;
    unsigned kind, alignment;
    int32_t tid; /* of the ring's owner */
    uint32_t ring; /* which: the oldest is 0 */
};

/* Nothing of before is kept. */
void subject_start(size_t sample, unsigned sites);
void subject_stop(void);

/* Empties all rings: how many events there were in all since the start, and the first `capacity` of them, ring by ring. */
size_t subject_take(struct subject_event *events, size_t capacity);

/* The start, and what a fork's child does, as the writer would. */
void subject_begin(void);
void subject_fork_child(void);
const char *subject_allocator(void);

/* What intercept.c does with its parts. */
void subject_note(unsigned kind, uint64_t address, uint64_t size, uint64_t slack, unsigned alignment, uint32_t site);
bool subject_takes(size_t size);
void subject_until_sample(size_t size); /* the calling thread's next sample falls behind so many bytes */

#ifdef __cplusplus
}
#endif

#endif
