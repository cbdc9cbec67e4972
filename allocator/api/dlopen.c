/* dlopen, in the shared libraries: RTLD_DEEPBIND is left out while malloc is ours.
 *
 * A library that is opened with RTLD_DEEPBIND (PHP opens its extensions so) looks for functions in itself and in what it is linked
 * with before it looks in the program. It finds the C library's malloc and free there, and an object that it shares with the program
 * is made by one allocator and freed by the other. AddressSanitizer refuses the flag for the same reason. Without it such a library
 * is bound as by any other dlopen; the option `deepbind` is for programs that need the flag more.
 *
 * The dynamic linker knows by the return address who calls: that caller's DT_RUNPATH is searched, $ORIGIN is its folder, and its
 * namespace is the one. So the C library's function is called by a jump (CMakeLists.txt: this file is always optimised).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "api.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef void *open_function(const char *file, int mode);

/* Not by the address: a program that is linked at a fixed place has one of its own for malloc. What another one has given is kept, since
 * `free` may be ours all the same, and where tools that look for leaks find it. */
__attribute__((constructor)) static void learn_whose_malloc_is(void)
{
    static void *volatile object;
    object = malloc(1);
    heap_settings.malloc_is_another = object != NULL && !hf_is_ours(object);
    if (heap_settings.malloc_is_another) return;
    free(object);
    object = NULL;
}

static int mode_in_force(int mode)
{
    bool leave_out = (mode & RTLD_DEEPBIND) != 0 && !options_deepbind() && !heap_settings.malloc_is_another;
    return leave_out ? mode & ~RTLD_DEEPBIND : mode;
}

EXPORT void *dlopen(const char *file, int mode)
{
    open_function *next;
    *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    /* Before glibc 2.34, in a program without libdl: it has not meant to call it. */
    return next == NULL ? NULL : next(file, mode_in_force(mode));
}
