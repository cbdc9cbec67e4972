/* Where the C libraries differ that heapfit works with: glibc, and musl, which deliberately has no macro to be known by. */
#ifndef HEAPFIT_C_LIBRARY_H
#define HEAPFIT_C_LIBRARY_H

#include <features.h>
#include <stdbool.h>

#ifdef __GLIBC__

#include <sched.h>

/* realloc(p, 0) frees p and returns NULL. */
enum { C_LIBRARY_REALLOC_FREES = true };

static inline int c_library_node(unsigned *node)
{
    return getcpu(NULL, node);
}

#else /* musl */

#include "platform.h"

#include <stddef.h>
#include <sys/syscall.h>

/* realloc(p, 0) returns an object, as malloc(0) does: a program that takes NULL for want of memory is right to do so. */
enum { C_LIBRARY_REALLOC_FREES = false };

static inline int c_library_node(unsigned *node)
{
    return (int)platform_call(SYS_getcpu, NULL, node, NULL); /* it has no function for it */
}

#endif

#endif
