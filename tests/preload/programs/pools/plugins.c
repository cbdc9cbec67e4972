/* Loads and unloads plugins in turn, whose code comes to lie where the other's was. Objects outlive who made them. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 60, OBJECTS = 300 };

static unsigned char *objects[ROUNDS * OBJECTS];

int main(int count, char **arguments)
{
    uint64_t sum = 0;
    int same_place = 0;
    void *place = NULL;
    if (count != 3) return 2;
    for (int round = 0; round < ROUNDS; round++) {
        void *plugin = dlopen(arguments[1 + round % 2], RTLD_NOW | RTLD_LOCAL);
        void *(*make_object)(int) = plugin != NULL ? (void *(*)(int))dlsym(plugin, "make_object") : NULL;
        if (make_object == NULL) return 1;
        same_place += place == (void *)make_object;
        place = (void *)make_object;
        for (int i = 0; i < OBJECTS; i++) objects[round * OBJECTS + i] = make_object(i % 251);
        dlclose(plugin);
        for (int i = 0; round > 0 && i < OBJECTS; i++) free(objects[(round - 1) * OBJECTS + i]);
    }
    for (int i = 0; i < OBJECTS; i++) sum = sum * 3 + objects[(ROUNDS - 1) * OBJECTS + i][15];
    printf("%016llx\n", (unsigned long long)sum);
    return same_place == 0 ? 3 : 0;
}
