/* -DSHARES: a library that is linked with the allocator, and frees what it gets by C++'s delete, which is found there; else the
 * program, which loads it with dlopen, for itself alone. */
#include <dlfcn.h>
#include <stdlib.h>

#ifdef SHARES
extern void operator_delete(void *object) __asm__("_ZdlPv");

void release(void *object)
{
    operator_delete(object);
}
#else
int main(int count, char **words)
{
    void (*release)(void *);
    void *library = dlopen(words[count - 1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 2;
    *(void **)&release = dlsym(library, "release");
    release(malloc(100));
    return 0;
}
#endif
