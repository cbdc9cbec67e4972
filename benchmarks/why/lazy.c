/* Memory that was given back with MADV_FREE: the kernel has not yet needed it. */
#include "ready.h"

int main(void)
{
    char *memory = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 'x', MUCH);
    madvise(memory, MUCH, MADV_FREE);
    ready();
}
