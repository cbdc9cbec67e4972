/* A C program that loads the C++ library named as its argument, uses it, unloads it, and does so again. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static int load_and_check(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW);
    if (plugin == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*check)(void);
    *(void **)&check = dlsym(plugin, "plugin_check");
    int failed = check == NULL ? -1 : check();
    if (failed != 0) fprintf(stderr, "step %d of the plug-in failed\n", failed);
    dlclose(plugin);
    free(malloc(100));
    return failed == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    for (int i = 0; i < 5; i++)
        if (load_and_check(argv[1]) != 0) return 1;
    return 0;
}
