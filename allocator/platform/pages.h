/* What the kernel says of the process's own memory: which pages are there, and what its mappings are. All is read by bare system
 * calls into memory on the stack, since what is looked at must not change by looking.
 */
#ifndef HEAPFIT_PAGES_H
#define HEAPFIT_PAGES_H

#include "lines.h"
#include "platform.h"

/* ---- pages ------------------------------------------------------------------------------------------------------- */

enum page_state {
    PAGE_RESIDENT = 1,
    PAGE_SWAPPED = 2,
    /* Resident, but perhaps the kernel's one page of zeros, which it counts for nobody: the process has read there and never
     * written. Pages that it shares with a child look the same. */
    PAGE_DOUBTFUL = 4,
};

struct platform_pages {
    long file; /* /proc/self/pagemap; negative: it cannot be had or says nothing, and mincore has to do */
    size_t page;
};

void platform_pages_open(struct platform_pages *pages);
void platform_pages_close(const struct platform_pages *pages);

/* The states of at most PAGES_AT_ONCE pages from `start` on: by one system call. mincore knows nothing of what is swapped, and all
 * that it finds is doubtful. */
enum { PAGES_AT_ONCE = 512 };
void platform_pages_look(const struct platform_pages *pages, uintptr_t start, size_t count, uint8_t *states);

/* Copy a page as it is at this moment; false: it cannot be read. By the kernel, so that nothing happens when another thread makes it
 * inaccessible meanwhile. */
bool platform_page_copy(void *to, uintptr_t start, size_t page);

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

struct platform_mapping {
    uintptr_t start, end;
    bool writable, executable, shared;
    bool has_file; /* an inode: of shared memory, too */
    size_t resident; /* with pages of the kernel's pool of huge pages, which it does not count elsewhere */
    size_t swapped;
    char name[LINE_MAX_BYTES]; /* a path, or a name in brackets that the kernel or the program has given; "": none */
};

/* One mapping after the other, in the order of their addresses, as /proc/self/smaps has them. */
struct platform_mappings {
    bool ended;
    struct lines lines; /* the first line of the next mapping, unless it has ended */
};

bool platform_mappings_open(struct platform_mappings *mappings);
bool platform_mappings_next(struct platform_mappings *mappings, struct platform_mapping *mapping);
void platform_mappings_close(const struct platform_mappings *mappings);

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Calls `visit` with the number of each thread of the process and its stack pointer, 0: it runs, or the kernel does not say. */
void platform_threads_visit(void (*visit)(int32_t number, uintptr_t stack, void *argument), void *argument);

#endif
