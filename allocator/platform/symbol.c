/* Functions of objects that are loaded, found without the dynamic linker: it may not be ready, or its lock may be taken. */
#define _GNU_SOURCE
#include "symbol.h"

#include <string.h>

/* Where an object's parts lie by its own account, which need not begin at 0: old kernels link theirs at an address. */
struct extent {
    uintptr_t start, size;
};

static struct extent extent_of(const ElfW(Phdr) * parts, size_t count)
{
    uintptr_t start = UINTPTR_MAX, end = 0;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].p_type != PT_LOAD) continue;
        if (parts[i].p_vaddr < start) start = parts[i].p_vaddr;
        if (parts[i].p_vaddr + parts[i].p_memsz > end) end = parts[i].p_vaddr + parts[i].p_memsz;
    }
    return (struct extent){start, end - start};
}

/* The dynamic linker makes addresses of what stands in these entries, but not in its own and in the kernel's object. */
static uintptr_t address_in(uintptr_t base, struct extent extent, uintptr_t value)
{
    return value - (base + extent.start) < extent.size ? value : base + value;
}

struct symbols symbols_of(uintptr_t base, const ElfW(Phdr) * parts, size_t count)
{
    struct symbols symbols = {0};
    struct extent extent = extent_of(parts, count);
    for (size_t i = 0; i < count; i++) {
        if (parts[i].p_type != PT_DYNAMIC) continue;
        for (const ElfW(Dyn) *entry = (const void *)(base + parts[i].p_vaddr); entry->d_tag != DT_NULL; entry++) {
            const void *at = (const void *)address_in(base, extent, entry->d_un.d_ptr);
            if (entry->d_tag == DT_SYMTAB) symbols.all = at;
            if (entry->d_tag == DT_STRTAB) symbols.names = at;
            if (entry->d_tag == DT_GNU_HASH) symbols.hash = at;
        }
    }
    if (symbols.all == NULL || symbols.names == NULL) symbols.hash = NULL;
    return symbols;
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != 0; name++) hash = hash * 33 + (uint8_t)*name;
    return hash;
}

uintptr_t symbol_find(const struct symbols *symbols, uintptr_t base, const char *name)
{
    enum { BUCKETS, FIRST, FILTER_WORDS, HEADER = 4 };
    if (symbols->hash == NULL || symbols->hash[BUCKETS] == 0) return 0;
    const uint32_t *buckets =
        symbols->hash + HEADER + symbols->hash[FILTER_WORDS] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + symbols->hash[BUCKETS];
    uint32_t hash = hash_of(name), at = buckets[hash % symbols->hash[BUCKETS]];
    if (at < symbols->hash[FIRST]) return 0;
    for (;; at++) {
        uint32_t other = chain[at - symbols->hash[FIRST]];
        const ElfW(Sym) *symbol = &symbols->all[at];
        if ((other | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            strcmp(symbols->names + symbol->st_name, name) == 0)
            return base + symbol->st_value;
        if ((other & 1) != 0) return 0; /* the last of its bucket */
    }
}

uintptr_t kernel_mapped_symbol(uintptr_t start, const char *name)
{
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)start;
    if (start == 0) return 0;
    const ElfW(Phdr) *parts = (const ElfW(Phdr) *)(start + header->e_phoff);
    uintptr_t base = start - extent_of(parts, header->e_phnum).start;
    struct symbols symbols = symbols_of(base, parts, header->e_phnum);
    return symbol_find(&symbols, base, name);
}
