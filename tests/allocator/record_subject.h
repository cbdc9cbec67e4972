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

/* What a thread that finds its ring full is to wait for: that it is emptied, or the end of the recording. */
void subject_full_ends(bool ends);

struct subject_figures {
    unsigned rings, wakes, waits, leaves;
    uint64_t lost;
};
struct subject_figures subject_figures(void);

/* The start, and what a fork's child does, as the writer would. */
void subject_begin(void);
void subject_fork_child(void);
void subject_ignore_thread(void);
const char *subject_allocator(void);

/* What intercept.c does with its parts. */
void subject_note(unsigned kind, uint64_t address, uint64_t size, uint64_t slack, unsigned alignment, uint32_t site);
bool subject_takes(size_t size);
void subject_until_sample(size_t size); /* the calling thread's next sample falls behind so many bytes */
bool subject_remember(uint64_t address);
bool subject_forget(uint64_t address);
uint32_t subject_site(uintptr_t return_address, uintptr_t stack, uintptr_t base);
void subject_forget_sites(void);
bool subject_is_inside(void); /* a call is not noted */
bool subject_has_lock(void); /* the calling thread has one */
/* How many sites there are; of one, its caller and its address. */
size_t subject_sites(void);
uint32_t subject_caller(uint32_t site);
uintptr_t subject_address(uint32_t site);
/* enum sites_limit */
int subject_sites_limit(void);

#ifdef __cplusplus
}
#endif

#endif
