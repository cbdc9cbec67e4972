/* Accesses to memory that the kernel refuses, for whoever makes memory inaccessible in order to see who touches it. */
#ifndef HEAPFIT_FAULT_H
#define HEAPFIT_FAULT_H

#include "platform.h"

enum platform_access { FAULT_ACCESS /* it cannot be told which */, FAULT_READ, FAULT_WRITE, FAULT_EXECUTION };

struct platform_fault {
    uintptr_t address; /* that was accessed */
    enum platform_access access;
    uintptr_t code, stack, base; /* the instruction, the stack pointer, the frame pointer register */
    uintptr_t link; /* where a function without a frame returns to, if a register says so; else 0 */
};

/* From now on `look` is called, in a signal's handler, for each access of this process that the kernel refuses; then the signal
 * goes where it would have gone. Once. False: the kernel refuses. */
bool platform_fault_watch(void (*look)(const struct platform_fault *fault));

#endif
