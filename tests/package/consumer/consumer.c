/*
 * A C program that uses heapfit as installed: consumer VERSION [MALLOC_HOME]. Fails unless the
 * library is of VERSION and malloc comes from the file whose name contains MALLOC_HOME ("program":
 * itself; a fully static program has no way to ask and is not told).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interface.h"

static int malloc_comes_from(const char *home)
{
    static const char anchor[] = "something that is surely in this program";
    Dl_info of_malloc;
    Dl_info of_program;
    if (dladdr((void *)(uintptr_t)malloc, &of_malloc) == 0) return 0;
    if (strcmp(home, "program") != 0) return strstr(of_malloc.dli_fname, home) != NULL;
    return dladdr(anchor, &of_program) != 0 && of_malloc.dli_fbase == of_program.dli_fbase;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) return 2;
    if (strcmp(hf_version(), argv[1]) != 0) {
        fprintf(stderr, "heapfit is of version %s, not %s\n", hf_version(), argv[1]);
        return 1;
    }
    if (argc == 3 && !malloc_comes_from(argv[2])) {
        fprintf(stderr, "malloc does not come from %s\n", argv[2]);
        return 1;
    }
    char *copy = strdup(argv[0]);
    if (copy == NULL || strcmp(copy, argv[0]) != 0) return 1;
    free(copy);
    return 0;
}
