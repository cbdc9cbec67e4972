/* Fuzz target: the input is the machine code of a function, between pages that cannot be read, with a linkage table behind it.
 * What a call in it does with the object is asked of every way of passing it: whatever the code is, nothing else is read, and the
 * work is bounded.
 *
 * The first byte says after which of those from the third on the call is to return; the second, whether the object has
 * headers that cannot be: more than fit in front of its code. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "pattern.h"
#include "pools/code.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADER, BEFORE_CODE, CODE, BEFORE_TABLE, TABLE, BEYOND, PAGES };
enum { PARAMETERS = 6 }; /* that a pointer to the object may be passed as */
/* As follow.c has it: the function from its beginning once, from the call on twice. */
enum { DECODED_MAX = 128 + 2 * 400 };
enum { NAMED_ENTRIES = 2, SEGMENTS = 2, SEGMENTS_TOO_MANY = 80, WITHOUT_HEADERS = UINT8_MAX };

static char *pages; /* PAGES of them */
static size_t page;
static char object_name[] = "fuzzed";
static struct link_map object;

int __wrap__dl_find_object(void *address, struct dl_find_object *result);
int __wrap__dl_find_object(void *address, struct dl_find_object *result)
{
    *result = (struct dl_find_object){
        .dlfo_map_start = pages,
        .dlfo_map_end = pages + PAGES * page,
        .dlfo_link_map = &object,
    };
    return (uintptr_t)address - (uintptr_t)pages < PAGES * page ? 0 : -1;
}

/* Addresses of known functions, of none, and of the code itself: from the table's start, and up to its end. */
static void fill_table(char *code)
{
    const uintptr_t slots[] = {
        (uintptr_t)memset, (uintptr_t)abort, (uintptr_t)code, 0, (uintptr_t)strlen, (uintptr_t)code + 8,
    };
    char *table = pages + TABLE * page;
    for (size_t at = 0; at + sizeof slots <= page; at += sizeof slots) memcpy(table + at, slots, sizeof slots);
    memcpy(table + page - sizeof slots, slots, sizeof slots);
}

/* What the dynamic linker has found in order: functions that are called by name when they are first called. */
static void name_entries(void)
{
    static ElfW(Rela) entries[NAMED_ENTRIES];
    static ElfW(Sym) symbols[NAMED_ENTRIES + 1];
    static char names[] = "\0memset\0other";
    static ElfW(Dyn) dynamic[] = {
        {.d_tag = DT_JMPREL}, {.d_tag = DT_SYMTAB}, {.d_tag = DT_STRTAB}, {.d_tag = DT_PLTRELSZ}, {.d_tag = DT_NULL},
    };
    symbols[1].st_name = 1;
    symbols[2].st_name = 8;
    for (size_t i = 0; i < NAMED_ENTRIES; i++) entries[i].r_info = ELF64_R_INFO(i + 1, 0);
    dynamic[0].d_un.d_ptr = (uintptr_t)entries;
    dynamic[1].d_un.d_ptr = (uintptr_t)symbols;
    dynamic[2].d_un.d_ptr = (uintptr_t)names;
    dynamic[3].d_un.d_val = sizeof entries;
    object.l_ld = dynamic;
}

static void make_pages(void)
{
    page = platform_page_size();
    pages = mmap(NULL, PAGES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(pages != MAP_FAILED, "no memory");
    static const int used[] = {HEADER, CODE, TABLE};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        require(mprotect(pages + used[i] * page, page, PROT_READ | PROT_WRITE) == 0, "no memory");
    ElfW(Ehdr) *header = (void *)pages;
    *header = (ElfW(Ehdr)){.e_phoff = sizeof *header, .e_phentsize = sizeof(ElfW(Phdr))};
    memcpy(header->e_ident, ELFMAG, SELFMAG);
    object.l_name = object_name; /* l_addr 0: loaded where it was linked for */
    name_entries();
}

static void place_code(char *start, const uint8_t *data, size_t size, bool has_headers)
{
    memcpy(start, data, size);
    ((ElfW(Ehdr) *)(void *)pages)->e_phnum = has_headers ? SEGMENTS : SEGMENTS_TOO_MANY;
    uint32_t type = has_headers ? PT_LOAD : PT_NULL;
    ElfW(Phdr) *segments = (void *)(pages + sizeof(ElfW(Ehdr)));
    segments[0] = (ElfW(Phdr)){.p_type = type, .p_flags = PF_R | PF_X, .p_vaddr = (uintptr_t)start, .p_filesz = size};
    segments[1] =
        (ElfW(Phdr)){.p_type = type, .p_flags = PF_R, .p_vaddr = (uintptr_t)(pages + TABLE * page), .p_filesz = page};
    fill_table(start);
}

static void follow_all(char *start, size_t size, size_t before_return)
{
    for (int way = PASSED_BY_RETURN; way < PARAMETERS; way++) {
        int passing = way;
        unsigned decoded;
        uintptr_t address = (uintptr_t)start;
        enum follow follow = follow_pointer(address + before_return, address, address + size, &passing, &decoded);
        require(decoded <= DECODED_MAX, "more work than is allowed");
        require(follow == FOLLOW_UNKNOWN || follow == FOLLOW_USED || follow == FOLLOW_PASSED_ON, "no answer");
        if (follow == FOLLOW_PASSED_ON)
            require(passing >= PASSED_BY_RETURN && passing < PARAMETERS, "passed on nowhere");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (pages == NULL) make_pages();
    if (size < 4 || size > page) return 0;
    bool has_headers = data[1] != WITHOUT_HEADERS;
    const uint8_t *code = data + 2;
    size -= 2;
    size_t before_return = 1 + data[0] % (size - 1);
    char *first = pages + CODE * page, *last = first + page - size;
    place_code(last, code, size, has_headers);
    follow_all(last, size, before_return);
    place_code(first, code, size, has_headers);
    follow_all(first, size, before_return);
    return 0;
}
