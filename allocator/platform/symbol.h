/* Functions of objects that are loaded (symbol.c). */
#ifndef HEAPFIT_SYMBOL_H
#define HEAPFIT_SYMBOL_H

#include <link.h>
#include <stddef.h>
#include <stdint.h>

/* The tables by which the dynamic linker finds an object's symbols. */
struct symbols {
    const ElfW(Sym) * all;
    const char *names;
    const uint32_t *hash; /* of DT_GNU_HASH; NULL: none of this */
};

/* `base` is what is to be added to the addresses that the object has by its own account. */
struct symbols symbols_of(uintptr_t base, const ElfW(Phdr) * parts, size_t count);

/* Its address; 0: the object has none of this name. */
uintptr_t symbol_find(const struct symbols *symbols, uintptr_t base, const char *name);

/* The same in an object that the kernel has mapped at `start`: the dynamic linker, or the kernel's own. 0 too where there is none. */
uintptr_t kernel_mapped_symbol(uintptr_t start, const char *name);

#endif
