/* Functions that allocate, and what follow.c should say of them. */
#ifndef HEAPFIT_TESTS_FOLLOW_SUBJECT_H
#define HEAPFIT_TESTS_FOLLOW_SUBJECT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum expected { USED, PASSED_ON, UNKNOWN }; /* as enum follow */

struct subject {
    const char *name; /* NULL: the end of a list */
    void (*run)(void); /* calls it; NULL: it cannot be called */
    const char *start, *returns, *end; /* where it is, if it cannot */
    int expected;
    int arrives; /* how the object reaches it: -1 by return, else the argument's number */
    int passing; /* how it passes it on */
};

/* What subjects allocate by: these ask follow.c about their caller. */
void *allocate(size_t size);
void allocate_into(void **place);
int allocate_second(size_t size, void **place);

/* What subjects call besides. */
void die(const char *message) __attribute__((noreturn));
void lock_heap(void);
void unlock_heap(void);
void initialise(void *object);
void initialise_at(void **object);
int is_ready(void);

#ifdef __cplusplus
}
#endif

#endif
