/* The modules that a program was started with (startup.c). */
#ifndef HEAPFIT_RECORD_STARTUP_H
#define HEAPFIT_RECORD_STARTUP_H

#include <link.h>

#include "record/record.h"

/* Once, before the others. */
void startup_find(void);

/* The module with these program headers is one. */
bool startup_has(const ElfW(Phdr) * module);

/* Where the first one behind the program defines it; NULL: none does. */
void *startup_symbol(const char *name);

/* A handle of a module that is loaded. dlopen is looked up: as a name of glibc's it would be 2.34's, and this library runs with older
 * ones. */
void *startup_open(const char *name);

/* A table whose address is in a module's dynamic section: the dynamic linker adds the bias to it in its place, unless that is
 * read-only. `start` is where the module begins. */
uintptr_t startup_table(uintptr_t bias, uintptr_t start, ElfW(Addr) address);

#endif
