/*
 * Makes a preloaded allocator reach PHP's extensions.
 *
 * PHP opens its extensions with RTLD_DEEPBIND, so that they look for malloc and free in their own
 * libraries first, find the C library's, and give them blocks that php-fpm took from the preloaded
 * allocator: "free(): invalid pointer". Preloaded behind the allocator, this takes that flag away.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

void *dlopen(const char *file, int mode)
{
    static void *(*next)(const char *, int);
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    }
    return next(file, mode & ~RTLD_DEEPBIND);
}
