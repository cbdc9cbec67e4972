/* A compiler at run time: each function is written to memory of its own, and then sealed. */
#include "ready.h"

int main(void)
{
    for (size_t had = 0, size = 256 * KIB; had < MUCH; had += size) {
        char *code = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(code, 0xc3, size);
        mprotect(code, size, PROT_READ | PROT_EXEC);
    }
    ready();
}
