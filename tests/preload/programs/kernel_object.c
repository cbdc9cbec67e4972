/* Maps an object as the kernel does it, its parts as they are in the file, and calls the function `wanted` of it. */
#define _GNU_SOURCE
#include "symbol.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROOM = 1 << 20, PARTS_MAX = 16 };

int main(int count, char **words)
{
    int file = open(words[1], O_RDONLY);
    char *start = mmap(NULL, ROOM, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ElfW(Ehdr) header;
    ElfW(Phdr) parts[PARTS_MAX];
    if (count != 2 || pread(file, &header, sizeof header, 0) != sizeof header || header.e_phnum > PARTS_MAX) return 1;
    if (pread(file, parts, header.e_phnum * sizeof *parts, (off_t)header.e_phoff) < 0) return 1;
    uintptr_t linked_at = 0;
    for (int i = header.e_phnum - 1; i >= 0; i--)
        if (parts[i].p_type == PT_LOAD) linked_at = parts[i].p_vaddr; /* the first is the lowest */
    for (int i = 0; i < header.e_phnum; i++)
        if (parts[i].p_type == PT_LOAD &&
            pread(file, start + (parts[i].p_vaddr - linked_at), parts[i].p_filesz, (off_t)parts[i].p_offset) < 0)
            return 1;
    uintptr_t found = kernel_mapped_symbol((uintptr_t)start, "wanted");
    return found == 0 ? 2 : ((int (*)(void))found)();
}
