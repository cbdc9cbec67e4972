/* What C++ owes to an allocation that fails, for operators that are written in C: it lives in the C++ run-time library, which is
 * looked for only then. */
#ifndef HEAPFIT_CXX_H
#define HEAPFIT_CXX_H

#include "platform.h"

typedef void (*cxx_new_handler)(void);

/* The one that is installed; NULL: none, or no C++ run-time library. */
cxx_new_handler cxx_installed_new_handler(void);

/* Ends the program where there is no C++ run-time library. `size`: what was asked for. */
_Noreturn void cxx_throw_bad_alloc(size_t size);

/* A function of the C++ run-time library if one has been loaded, by whomever; NULL otherwise. It stays loaded from then on:
 * an exception of its kind may be under way. */
void *cxx_find(const char *symbol);

#endif
