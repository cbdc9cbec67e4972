/* Preloaded into php-fpm beside the allocator under study, so that it is in all of PHP or in none.
 *
 * PHP loads its extensions with RTLD_DEEPBIND: their malloc and free are then the C library's,
 * whatever is preloaded, while PHP itself has the preloaded ones. A block of the one freed by the
 * other ends the process before it has served anything (in mbstring, pdo, mysqlnd, intl, gd). */
#define _GNU_SOURCE
#include <dlfcn.h>

void *dlopen(const char *file, int mode)
{
    static void *(*next)(const char *, int);
    if (!next) { /* in PHP's single-threaded start first of all */
        *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    }
    return next(file, mode & ~RTLD_DEEPBIND);
}
