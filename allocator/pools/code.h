/* Where machine code may be read, and which well-known function a call goes to (code.c). For follow.c.
 *
 * Everything here looks at mapped objects of the process: it takes no locks, does not allocate, and reads only what the
 * object's own headers say is mapped. */
#ifndef HEAPFIT_POOLS_CODE_H
#define HEAPFIT_POOLS_CODE_H

#include "pools.h"

/* The executable part of a mapped object. */
struct code {
    uintptr_t start;
    uintptr_t end;
};

/* The code that `address` lies in; false: it is in no object that the dynamic linker knows, or its headers are not
 * to be trusted. The caller stands in that object or is about to call it, so that it stays mapped. */
bool code_find(uintptr_t address, struct code *code);

/* Well-known functions that tell little of who calls them. */
enum code_function {
    FUNCTION_OTHER,
    FUNCTION_FILLS, /* fills what its first argument points at, and returns that: memset, memcpy and the like */
    FUNCTION_ENDS, /* never returns */
};

/* What a call to `target` reaches, through stubs of the linkage table too. */
enum code_function code_function(uintptr_t target);

/* The address in `slot`, an entry of an object's linkage table,; 0: not mapped. */
uintptr_t code_slot(uintptr_t slot);

#endif
