/* A recorder that comes into a program that runs already (attach.c), and the addresses by which the program calls it (slots.c). */
#ifndef HEAPFIT_RECORD_ATTACH_H
#define HEAPFIT_RECORD_ATTACH_H

#include "record/record.h"

/* attach.c, for process.c: */
bool attach_is_late(void); /* this library was loaded by a running program */
void attach_fork_prepare(void);
void attach_fork_parent(void);
void attach_fork_child(void);

/* process.c: all that has to be done once before anything is recorded. */
void process_prepare(void);

/* slots.c: */
bool slots_start(void); /* once */
bool slots_are_new(void); /* modules have come or gone, or something was left to look at again */
void slots_take(void); /* calls lead to us */
void slots_give_back(void); /* and back */

#endif
