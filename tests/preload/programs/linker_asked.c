/* Prints how often the objects of the process were gone through, under the dynamic linker's lock, while it allocated. */
#include "system.h"

#include <link.h>

static volatile int asked; /* malloc is declared not to call what is here */

/* In front of the C library's: nothing else here needs it. */
int dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *argument)
{
    static int (*next)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
    asked++;
    if (next == NULL) next = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return next(visit, argument);
}

int main(void)
{
    free(malloc(40)); /* whatever is found out once */
    asked = 0;
    for (int i = 0; i < 1000; i++) free(malloc(40));
    printf("%d\n", asked);
    return 0;
}
