/* Pages, mappings and threads of the process, see pages.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define PAGEMAP_SWAPPED (UINT64_C(1) << 62)
#define PAGEMAP_EXCLUSIVE (UINT64_C(1) << 56)

static bool pagemap_read(const struct platform_pages *pages, uintptr_t start, size_t count, uint64_t *entries)
{
    if (pages->file < 0) return false;
    size_t size = count * sizeof *entries;
    off_t at = (off_t)(start / pages->page * sizeof *entries);
    return platform_call(SYS_pread64, pages->file, entries, size, at) == (long)size;
}

/* Whether it tells of our memory: an emulator shows that of its own. */
static bool pagemap_knows(const struct platform_pages *pages)
{
    volatile char here = 1; /* resident */
    uint64_t entry;
    return pagemap_read(pages, (uintptr_t)&here, 1, &entry) && (entry & PAGEMAP_PRESENT) != 0;
}

void platform_pages_open(struct platform_pages *pages)
{
    int saved = errno;
    pages->page = platform_page_size();
    pages->file = platform_call(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pages->file >= 0 && !pagemap_knows(pages)) {
        platform_pages_close(pages);
        pages->file = -1;
    }
    errno = saved;
}

void platform_pages_close(const struct platform_pages *pages)
{
    int saved = errno;
    if (pages->file >= 0) platform_call(SYS_close, pages->file);
    errno = saved;
}

static uint8_t state_of(uint64_t entry)
{
    if ((entry & PAGEMAP_SWAPPED) != 0) return PAGE_SWAPPED;
    if ((entry & PAGEMAP_PRESENT) == 0) return 0;
    return (entry & PAGEMAP_EXCLUSIVE) != 0 ? PAGE_RESIDENT : PAGE_RESIDENT | PAGE_DOUBTFUL;
}

void platform_pages_look(const struct platform_pages *pages, uintptr_t start, size_t count, uint8_t *states)
{
    uint64_t entries[PAGES_AT_ONCE];
    int saved = errno;
    if (pagemap_read(pages, start, count, entries)) {
        for (size_t i = 0; i < count; i++) states[i] = state_of(entries[i]);
    } else if (mincore((void *)start, count * pages->page, states) == 0) {
        for (size_t i = 0; i < count; i++) states[i] = (states[i] & 1) != 0 ? PAGE_RESIDENT | PAGE_DOUBTFUL : 0;
    } else {
        memset(states, 0, count);
    }
    errno = saved;
}

/* It is written to a pipe, which may have room for no more than a page, and read from it. */
static bool copy_through_pipe(void *to, uintptr_t start, size_t page)
{
    int ends[2];
    if (platform_call(SYS_pipe2, ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    bool copied = platform_call(SYS_write, ends[1], start, page) == (long)page &&
                  platform_call(SYS_read, ends[0], to, page) == (long)page;
    platform_call(SYS_close, ends[0]);
    platform_call(SYS_close, ends[1]);
    return copied;
}

bool platform_page_copy(void *to, uintptr_t start, size_t page)
{
    struct iovec there = {.iov_base = (void *)start, .iov_len = page}, here = {.iov_base = to, .iov_len = page};
    int saved = errno;
    long copied = platform_call(SYS_process_vm_readv, platform_process_number(), &here, 1L, &there, 1L, 0L);
    bool done = copied == (long)page;
    if (copied < 0 && errno != EFAULT) done = copy_through_pipe(to, start, page);
    errno = saved;
    return done;
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

static const char *after_field(const char *text)
{
    while (*text != ' ' && *text != '\0') text++;
    while (*text == ' ') text++;
    return text;
}

static uintptr_t hexadecimal(const char **text)
{
    uintptr_t number = 0;
    for (;; ++*text) {
        char digit = **text;
        if (digit >= '0' && digit <= '9') number = number << 4 | (uintptr_t)(digit - '0');
        else if (digit >= 'a' && digit <= 'f') number = number << 4 | (uintptr_t)(digit - 'a' + 10);
        else return number;
    }
}

/* Addresses, permissions, offset, device, inode, name. The lines that follow begin with a capital letter. */
static bool header_read(const char *line, struct platform_mapping *mapping)
{
    const char *at = line;
    mapping->start = hexadecimal(&at);
    if (at == line || *at != '-') return false;
    at++;
    mapping->end = hexadecimal(&at);
    if (*at != ' ' || strlen(at) < 5) return false;
    at++;
    mapping->writable = at[1] == 'w';
    mapping->executable = at[2] == 'x';
    mapping->shared = at[3] == 's';
    const char *inode = after_field(after_field(after_field(at)));
    mapping->has_file = *inode >= '1' && *inode <= '9';
    platform_format(mapping->name, sizeof mapping->name, "%s", after_field(inode));
    return true;
}

static size_t kibibytes(const char *line)
{
    return (size_t)number_at(after_field(line)) << 10;
}

static void figure_read(const char *line, struct platform_mapping *mapping)
{
    static const char resident[] = "Rss:", private_pool[] = "Private_Hugetlb:", shared_pool[] = "Shared_Hugetlb:";
    static const char swapped[] = "Swap:";
    if (strncmp(line, resident, sizeof resident - 1) == 0 ||
        strncmp(line, private_pool, sizeof private_pool - 1) == 0 ||
        strncmp(line, shared_pool, sizeof shared_pool - 1) == 0)
        mapping->resident += kibibytes(line);
    else if (strncmp(line, swapped, sizeof swapped - 1) == 0) mapping->swapped = kibibytes(line);
}

bool platform_mappings_open(struct platform_mappings *mappings)
{
    int saved = errno;
    bool opened = lines_open(&mappings->lines, "/proc/self/smaps");
    mappings->ended = !opened || !lines_next(&mappings->lines);
    errno = saved;
    return opened;
}

bool platform_mappings_next(struct platform_mappings *mappings, struct platform_mapping *mapping)
{
    int saved = errno;
    mapping->resident = mapping->swapped = 0;
    bool found = !mappings->ended && header_read(mappings->lines.line, mapping);
    struct platform_mapping next;
    while (found && (mappings->ended = !lines_next(&mappings->lines)) == false) {
        if (header_read(mappings->lines.line, &next)) break;
        figure_read(mappings->lines.line, mapping);
    }
    errno = saved;
    return found;
}

void platform_mappings_close(const struct platform_mappings *mappings)
{
    int saved = errno;
    lines_close(&mappings->lines);
    errno = saved;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* The line is the number of the call that the thread is in, its six arguments, then the stack pointer; or -1 and the stack pointer,
 * in no call; or a word, while it runs. */
static uintptr_t stack_in_line(const char *line)
{
    enum { BEFORE_STACK = 7 };
    int fields = *line == '-' ? 1 : BEFORE_STACK;
    if (*line != '-' && (*line < '0' || *line > '9')) return 0;
    for (; fields > 0; fields--) line = after_field(line);
    if (strncmp(line, "0x", 2) != 0) return 0;
    line += 2;
    return hexadecimal(&line);
}

static uintptr_t stack_of(const char *number)
{
    char path[64], line[256];
    platform_format(path, sizeof path, "/proc/self/task/%s/syscall", number);
    long file = platform_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    long size = platform_call(SYS_read, file, line, sizeof line - 1);
    platform_call(SYS_close, file);
    line[size > 0 ? size : 0] = '\0';
    return stack_in_line(line);
}

/* As getdents64 writes them. */
struct directory_entry {
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

void platform_threads_visit(void (*visit)(int32_t number, uintptr_t stack, void *argument), void *argument)
{
    char entries[1024] __attribute__((aligned(8)));
    int saved = errno;
    long folder = platform_call(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long size;
    while (folder >= 0 && (size = platform_call(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
        for (long at = 0; at < size;) {
            const struct directory_entry *entry = (const struct directory_entry *)(entries + at);
            uint64_t number = number_at(entry->name);
            if (number <= INT32_MAX) visit((int32_t)number, stack_of(entry->name), argument);
            at += entry->size;
        }
    }
    if (folder >= 0) platform_call(SYS_close, folder);
    errno = saved;
}
