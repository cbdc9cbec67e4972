/* unshare and setns: what the kernel grants only to a process of one thread. */
#ifndef HEAPFIT_PLATFORM_NAMESPACES_H
#define HEAPFIT_PLATFORM_NAMESPACES_H

#include <sched.h>
#include <stdbool.h>

#ifndef CLONE_NEWTIME /* Linux 5.6; absent from older headers */
#define CLONE_NEWTIME 0x80
#endif

/* No memory or signal handlers may be shared with another thread. */
static inline bool platform_unshares_alone(int flags)
{
    return (flags & (CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM)) != 0;
}

/* Nor may the state of the file system. Without a type it is what the descriptor says. */
static inline bool platform_enters_alone(int type)
{
    return type == 0 || (type & (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWTIME)) != 0;
}

#endif
