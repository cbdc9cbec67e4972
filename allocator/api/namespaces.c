/* unshare and setns: what the kernel grants only to a process of one thread.
 *
 * The background thread (heap/background.c) outlives the program's threads, for which it was started, by a second or so. A program
 * that has joined them is of one thread as it sees it, and may go on to make a user namespace, or to enter one or another
 * mount namespace. So the thread ends first. Whoever calls the kernel without the C library is not seen here.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "api.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME /* Linux 5.6; absent from older headers */
#define CLONE_NEWTIME 0x80
#endif

/* For these no memory, signal handlers or (setns) file system state may be shared with another thread. */
enum {
    UNSHARED_ALONE = CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM,
    ENTERED_ALONE = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWTIME
};

EXPORT int unshare(int flags)
{
    if ((flags & UNSHARED_ALONE) != 0) heap_background_leave();
    return (int)platform_call(SYS_unshare, flags);
}

/* Without a type it is what the descriptor says. */
EXPORT int setns(int descriptor, int type)
{
    if (type == 0 || (type & ENTERED_ALONE) != 0) heap_background_leave();
    return (int)platform_call(SYS_setns, descriptor, type);
}
