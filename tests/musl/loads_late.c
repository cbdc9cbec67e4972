/* Loads the library that is named, when the program has long begun, and prints what the dynamic linker says. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words)
{
    if (count != 2) return 2;
    void *library = dlopen(words[1], RTLD_NOW);
    puts(library == NULL ? dlerror() : "loaded");
    return library == NULL;
}
