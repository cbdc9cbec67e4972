/* As many mappings as are wanted, a page each: `mappings NUMBER` */
#include "ready.h"

int main(int count, char **arguments)
{
    size_t pages = count > 1 ? strtoul(arguments[1], NULL, 10) : 0, page = 4 * KIB;
    char *memory = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < pages; i++) {
        memory[i * page] = 1;
        if (i % 2 && mprotect(memory + i * page, page, PROT_READ) != 0) return 1;
    }
    ready();
}
