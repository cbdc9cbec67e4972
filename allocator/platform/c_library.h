/* Where the C libraries differ that heapfit works with: glibc, and musl, which deliberately has no macro to be known by. */
#ifndef HEAPFIT_C_LIBRARY_H
#define HEAPFIT_C_LIBRARY_H

#include <features.h>
#include <stdbool.h>

#ifdef __GLIBC__

#include <gnu/libc-version.h>
#include <sched.h>
#include <string.h>

/* realloc(p, 0) frees p and returns NULL. */
enum { C_LIBRARY_REALLOC_FREES = true };

/* aligned_alloc takes any alignment, and rounds it up as memalign does: before 2.38. */
static inline bool c_library_aligns_to_any(void)
{
    const char *version = gnu_get_libc_version();
    return strncmp(version, "2.", 2) == 0 && (version[2] < '3' || (version[2] == '3' && version[3] < '8'));
}

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

static inline bool c_library_aligns_to_any(void)
{
    return false;
}

static inline int c_library_node(unsigned *node)
{
    return (int)platform_call(SYS_getcpu, NULL, node, NULL); /* it has no function for it */
}

#endif

#endif
