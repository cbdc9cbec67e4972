/* The C++ run-time library, if there is one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cxx.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Weak: NULL in a program without a C++ run-time library, and in one that got it by dlopen. */
extern cxx_new_handler get_new_handler(void) __asm__("_ZSt15get_new_handlerv") __attribute__((weak));
extern void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));

/* Weak, because a static executable need not have it. It may be used to find dlopen too: where that is named outright, the
 * linker warns whoever links statically of a dependence that is none. */
#pragma weak dlsym

COLD void *cxx_find(const char *symbol)
{
    static const char *const libraries[] = {"libstdc++.so.6", "libc++.so.1"};
    if (dlsym == NULL) return NULL;
    void *(*open)(const char *, int);
    *(void **)&open = dlsym(RTLD_DEFAULT, "dlopen");
    if (open == NULL) return NULL;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        void *library = open(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        void *function = library == NULL ? NULL : dlsym(library, symbol);
        if (function != NULL) return function;
    }
    return NULL;
}

COLD cxx_new_handler cxx_installed_new_handler(void)
{
    cxx_new_handler (*get)(void) = get_new_handler;
    if (get == NULL) *(void **)&get = cxx_find("_ZSt15get_new_handlerv");
    return get == NULL ? NULL : get();
}

_Noreturn COLD void cxx_throw_bad_alloc(size_t size)
{
    void (*throw)(void) = throw_bad_alloc;
    if (throw == NULL) *(void **)&throw = cxx_find("_ZSt17__throw_bad_allocv");
    if (throw != NULL) throw();
    platform_message(
        "operator new cannot allocate %zu bytes, and there is no C++ run-time library to throw std::bad_alloc", size);
    platform_abort();
}
