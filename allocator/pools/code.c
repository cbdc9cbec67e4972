/* Which code can be read, and where its calls end up.
 *
 * _dl_find_object tells without locks which mapped object an address lies in, and its program headers tell which
 * parts of that are mapped: between two of them there may be a hole. Where the dynamic linker has mapped an object,
 * it is one piece, and begins with its headers. The program itself has been mapped by the kernel, perhaps in pieces
 * that are found one by one; the kernel says where its headers are. */
#include "code.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* The page that begins with an object's headers, as linkers lay it out. */
enum { HEADERS_MAX = 4096 };

/* ---- parts of a mapped object ------------------------------------------------------------------------------------ */

static const ElfW(Phdr) * headers_find(const struct dl_find_object *object, size_t *count)
{
    if (object->dlfo_link_map->l_name[0] == 0) { /* the program */
        *count = getauxval(AT_PHNUM);
        return (const ElfW(Phdr) *)getauxval(AT_PHDR);
    }
    const ElfW(Ehdr) *file = object->dlfo_map_start;
    if ((uintptr_t)object->dlfo_map_end - (uintptr_t)file < HEADERS_MAX) return NULL;
    if (memcmp(file->e_ident, ELFMAG, SELFMAG) != 0 || file->e_phentsize != sizeof(ElfW(Phdr))) return NULL;
    size_t size = file->e_phnum * sizeof(ElfW(Phdr));
    if (size > HEADERS_MAX || file->e_phoff > HEADERS_MAX - size) return NULL;
    *count = file->e_phnum;
    return (const ElfW(Phdr) *)((const char *)file + file->e_phoff);
}

/* The loaded part of an object that `address` lies in, if it has all of `flags`. */
static bool part_find(uintptr_t address, uint32_t flags, struct code *part, struct dl_find_object *object)
{
    size_t count = 0;
    if (_dl_find_object((void *)address, object) != 0) return false;
    uintptr_t least = (uintptr_t)object->dlfo_map_start, most = (uintptr_t)object->dlfo_map_end;
    const ElfW(Phdr) *headers = headers_find(object, &count);
    if (headers == NULL) return false;
    for (const ElfW(Phdr) *header = headers; header < headers + count; header++) {
        uintptr_t start = object->dlfo_link_map->l_addr + header->p_vaddr, end = start + header->p_filesz;
        if (header->p_type != PT_LOAD || address - start >= header->p_filesz) continue;
        *part = (struct code){start > least ? start : least, end < most ? end : most};
        return (header->p_flags & flags) == flags;
    }
    return false;
}

bool code_find(uintptr_t address, struct code *code)
{
    struct dl_find_object object;
    return part_find(address, PF_R | PF_X, code, &object);
}

/* Another thread may be binding the entry meanwhile; it reads as before or after that. Relaxed: what it points at
 * was mapped before. */
uintptr_t code_slot(uintptr_t slot)
{
    struct code part;
    struct dl_find_object object;
    if (slot % sizeof slot != 0 || !part_find(slot, PF_R, &part, &object)) return 0;
    if (part.end - slot < sizeof slot) return 0;
    return __atomic_load_n((const uintptr_t *)slot, __ATOMIC_RELAXED);
}

/* ---- well-known functions ---------------------------------------------------------------------------------------- */

/* What a program is compiled to call besides or instead, when it checks itself: _FORTIFY_SOURCE, -fstack-protector. */
extern void *__memset_chk(void *, int, size_t, size_t);
extern void *__memcpy_chk(void *, const void *, size_t, size_t);
extern void *__memmove_chk(void *, const void *, size_t, size_t);
extern char *__strcpy_chk(char *, const char *, size_t);
extern void __stack_chk_fail(void);
extern void __assert_fail(const char *, const char *, unsigned, const char *);

struct known {
    const char *name;
    uintptr_t address;
    enum code_function function;
};

/* By its name, or where that is NULL by its address. */
static enum code_function known_find(const char *name, uintptr_t address)
{
    const struct known known[] = {
        {"memset", (uintptr_t)memset, FUNCTION_FILLS},
        {"memcpy", (uintptr_t)memcpy, FUNCTION_FILLS},
        {"memmove", (uintptr_t)memmove, FUNCTION_FILLS},
        {"strcpy", (uintptr_t)strcpy, FUNCTION_FILLS},
        {"__memset_chk", (uintptr_t)__memset_chk, FUNCTION_FILLS},
        {"__memcpy_chk", (uintptr_t)__memcpy_chk, FUNCTION_FILLS},
        {"__memmove_chk", (uintptr_t)__memmove_chk, FUNCTION_FILLS},
        {"__strcpy_chk", (uintptr_t)__strcpy_chk, FUNCTION_FILLS},
        {"__stack_chk_fail", (uintptr_t)__stack_chk_fail, FUNCTION_ENDS},
        {"__assert_fail", (uintptr_t)__assert_fail, FUNCTION_ENDS},
        {"abort", (uintptr_t)abort, FUNCTION_ENDS},
        {"exit", (uintptr_t)exit, FUNCTION_ENDS},
    };
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        if (name != NULL ? strcmp(name, known[i].name) == 0 : address == known[i].address) return known[i].function;
    }
    return FUNCTION_OTHER;
}

/* ---- stubs ------------------------------------------------------------------------------------------------------- */

static const unsigned char *skip_landing_mark(const unsigned char *at)
{
    static const unsigned char ENDBR64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    return memcmp(at, ENDBR64, sizeof ENDBR64) == 0 ? at + sizeof ENDBR64 : at;
}

static int32_t number_at(const unsigned char *at)
{
    int32_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

/* [endbr64] [bnd] jmp *slot(%rip): how a call leaves an object. 0: `at` is no such stub. */
static uintptr_t stub_slot(const unsigned char *at)
{
    at = skip_landing_mark(at);
    if (*at == 0xf2) at++;
    return at[0] == 0xff && at[1] == 0x25 ? (uintptr_t)(at + 6) + (uintptr_t)(intptr_t)number_at(at + 2) : 0;
}

/* [endbr64] push $index; [bnd] jmp: where a linkage table's entry points until its first use. False: `at` is none. */
static bool is_unbound(const unsigned char *at, uint32_t *index)
{
    at = skip_landing_mark(at);
    if (at[0] != 0x68) return false;
    *index = (uint32_t)number_at(at + 1);
    return at[5] == 0xe9 || (at[5] == 0xf2 && at[6] == 0xe9);
}

/* The name that the object asks for in the entry `index` of its linkage table. */
static const char *name_wanted(const struct dl_find_object *object, uint32_t index)
{
    const ElfW(Rela) *entries = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    size_t size = 0;
    for (const ElfW(Dyn) *dynamic = object->dlfo_link_map->l_ld; dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_JMPREL) entries = (const void *)dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_SYMTAB) symbols = (const void *)dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_STRTAB) names = (const void *)dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_PLTRELSZ) size = dynamic->d_un.d_val;
    }
    /* The dynamic linker has made addresses of these; where it did not (the kernel's own object), they are too small. */
    uintptr_t least = object->dlfo_link_map->l_addr;
    if (entries == NULL || symbols == NULL || names == NULL) return NULL;
    if ((uintptr_t)entries < least || (uintptr_t)symbols < least || (uintptr_t)names < least) return NULL;
    if (index >= size / sizeof *entries) return NULL;
    return names + symbols[ELF64_R_SYM(entries[index].r_info)].st_name;
}

enum code_function code_function(uintptr_t target)
{
    enum { STUBS_MAX = 3, STUB_BYTES = 16 }; /* stub, unbound stub, and one to spare */
    for (unsigned hops = 0; hops < STUBS_MAX && target != 0; hops++) {
        struct code code;
        struct dl_find_object object;
        uint32_t index;
        enum code_function function = known_find(NULL, target);
        if (function != FUNCTION_OTHER) return function;
        if (!part_find(target, PF_R | PF_X, &code, &object) || code.end - target < STUB_BYTES) return FUNCTION_OTHER;
        if (is_unbound((const unsigned char *)target, &index)) {
            const char *name = name_wanted(&object, index);
            return name != NULL ? known_find(name, 0) : FUNCTION_OTHER;
        }
        uintptr_t slot = stub_slot((const unsigned char *)target);
        target = slot != 0 ? code_slot(slot) : 0;
    }
    return FUNCTION_OTHER;
}
