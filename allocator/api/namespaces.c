/* unshare and setns: what the kernel grants only to a process of one thread.
 *
 * The background thread (heap/background.c) outlives the program's threads, for which it was started, by a second or so. A program
 * that has joined them is of one thread as it sees it, and may go on to make a user namespace, or to enter one or another
 * mount namespace. So the thread ends first. Whoever calls the kernel without the C library is not seen here.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "platform/namespaces.h"
#include "api.h"

#include <sys/syscall.h>
#include <unistd.h>

EXPORT int unshare(int flags)
{
    if (platform_unshares_alone(flags)) heap_background_leave();
    return (int)platform_call(SYS_unshare, flags);
}

EXPORT int setns(int descriptor, int type)
{
    if (platform_enters_alone(type)) heap_background_leave();
    return (int)platform_call(SYS_setns, descriptor, type);
}
