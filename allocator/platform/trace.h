/* Who called: stacks, as places in files, which stay what they were when the code is unloaded. */
#ifndef HEAPFIT_TRACE_H
#define HEAPFIT_TRACE_H

#include "fault.h"

enum { TRACE_MAX = 16 };

struct trace {
    uint32_t count;
    uint8_t modules[TRACE_MAX]; /* the file that the code comes from, as a number */
    uintptr_t addresses[TRACE_MAX]; /* where calls return to; the first of a fault: the instruction itself */
};

/* The calling thread's, from the first caller on that is not of this library, if it is a file of its own. A few microseconds; takes
 * no locks, does not allocate. */
void trace_take(struct trace *trace);
/* That of an access which was refused. */
void trace_of_fault(struct trace *trace, const struct platform_fault *fault);

/* One place as FILE+0xOFFSET, for addr2line and its kin: the call itself, not what it returns to. What is of no file that we know
 * is an address alone. */
enum { TRACE_PLACE_MAX = 352 };
void trace_describe(const struct trace *trace, uint32_t index, char text[TRACE_PLACE_MAX]);

/* The files that the places are in: the bit of each one's number. */
uint64_t trace_files(const struct trace *trace);
/* "build ID of FILE: HEXADECIMAL", by which it is told whether the file is another now; false for a file that has none. */
bool trace_describe_file(unsigned file, char text[TRACE_PLACE_MAX]);

#endif
