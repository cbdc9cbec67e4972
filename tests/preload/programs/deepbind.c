/* A program, a library of its own that opens plug-ins, and a plug-in, which shares objects with the program. The library finds the
 * plug-in by its DT_RUNPATH alone, which the dynamic linker knows only if it sees who calls dlopen. */
#include "system.h"

#if defined(PLUGIN)
void *plugin_make(void)
{
    return strcpy(malloc(20), "made");
}

void plugin_free(void *object)
{
    free(object);
}
#elif defined(OPENER)
void *open_plugin(const char *name, int mode)
{
    return dlopen(name, mode); /* by a call or by a jump, as the compiler likes */
}
#else
void *open_plugin(const char *name, int mode);

int main(void)
{
    int flags = RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND;
    if (open_plugin("libplugin.so", flags | RTLD_NOLOAD) != NULL) return 2; /* it is not there yet */
    void *plugin = open_plugin("libplugin.so", flags);
    if (plugin == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    if (open_plugin("libplugin.so", flags | RTLD_NOLOAD) != plugin) return 4;
    if (dlopen("libplugin-that-is-not-there.so", flags) != NULL || dlerror() == NULL) return 5;
    void *(*make)(void);
    void (*release)(void *);
    *(void **)&make = dlsym(plugin, "plugin_make");
    *(void **)&release = dlsym(plugin, "plugin_free");
    void *volatile object = malloc(20);
    release(object);
    free(make());
    puts("done");
    return 0;
}
#endif
