/* Fuzz target: the input is the segment of an object with .eh_frame_hdr at its start, between pages that cannot be read. Rules are
 * looked for at many addresses, and steps taken by them on a small stack: whatever the tables say, nothing else is read. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "pattern.h"
#include "platform/frame.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADER, BEFORE_TABLES, TABLES, BEFORE_STACK, STACK, STACK_2, BEYOND, PAGES };
enum { ADDRESSES = 16, ADDRESSES_APART = 53 };

static char *pages; /* PAGES of them */
static size_t page;
static struct link_map object; /* loaded where it was linked for */
static char *tables;

int __wrap__dl_find_object(void *address, struct dl_find_object *result);
int __wrap__dl_find_object(void *address, struct dl_find_object *result)
{
    *result = (struct dl_find_object){
        .dlfo_map_start = pages,
        .dlfo_map_end = pages + PAGES * page,
        .dlfo_link_map = &object,
        .dlfo_eh_frame = tables,
    };
    return address == NULL ? -1 : 0;
}

static void make_pages(void)
{
    page = platform_page_size();
    pages = mmap(NULL, PAGES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(pages != MAP_FAILED, "no memory");
    static const int used[] = {HEADER, TABLES, STACK, STACK_2};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        require(mprotect(pages + used[i] * page, page, PROT_READ | PROT_WRITE) == 0, "no memory");
    ElfW(Ehdr) *header = (void *)pages;
    *header = (ElfW(Ehdr)){.e_phoff = sizeof *header, .e_phentsize = sizeof(ElfW(Phdr)), .e_phnum = 1};
    memcpy(header->e_ident, ELFMAG, SELFMAG);
}

static void place_tables(char *start, const uint8_t *data, size_t size)
{
    tables = start;
    memcpy(tables, data, size);
    ElfW(Phdr) *segment = (void *)(pages + sizeof(ElfW(Ehdr)));
    *segment = (ElfW(Phdr)){.p_type = PT_LOAD, .p_flags = PF_R, .p_vaddr = (uintptr_t)tables, .p_filesz = size};
}

static void steps(const struct frame_rule *rule)
{
    uintptr_t bottom = (uintptr_t)(pages + STACK * page), top = bottom + 2 * page;
    for (uintptr_t from = bottom + 64; from < top; from += 1000) {
        for (uintptr_t base = bottom - 64; base <= top; base += 1512) {
            struct frame frame = {.return_address = 1, .stack = from, .base = base};
            if (!frame_step(rule, &frame)) continue;
            require(frame.stack > from && frame.stack <= top, "a step out of the stack");
        }
    }
}

static void look(void)
{
    for (uintptr_t i = 0; i < ADDRESSES; i++) {
        uintptr_t address = (uintptr_t)tables + i * ADDRESSES_APART, start, end;
        struct frame_rule rule = frame_rule_find(address, &start, &end);
        require((start == 0 && end == 0) || (start < address && address <= end), "of another function");
        require(rule.known == FRAME_UNKNOWN || start != 0, "a rule of no function");
        if (rule.known == FRAME_KNOWN) steps(&rule);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (pages == NULL) make_pages();
    if (size > page) return 0;
    char *first = pages + TABLES * page;
    place_tables(first + page - size, data, size);
    look();
    place_tables(first, data, size);
    look();
    return 0;
}
