/* A program with a malloc of its own, which it exports: nobody else's is used, and it takes nothing back. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { OBJECTS = 10000 };

static _Alignas(16) char memory[64 << 20];
static size_t used;

void *malloc(size_t size)
{
    size_t start = __atomic_fetch_add(&used, (size + 31) / 16 * 16, __ATOMIC_RELAXED);
    if (size > sizeof memory || start > sizeof memory - size - 32) {
        errno = ENOMEM;
        return NULL;
    }
    memcpy(memory + start, &size, sizeof size);
    return memory + start + 16;
}

void free(void *object)
{
    (void)object;
}

void *calloc(size_t count, size_t size)
{
    void *object = malloc(count * size);
    return object != NULL ? memset(object, 0, count * size) : NULL;
}

void *realloc(void *old, size_t size)
{
    size_t old_size = 0;
    void *object = malloc(size);
    if (old == NULL || object == NULL) return object;
    memcpy(&old_size, (char *)old - 16, sizeof old_size);
    return memcpy(object, old, old_size < size ? old_size : size);
}

int main(void)
{
    uint64_t sum = 0;
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length); /* libc allocates, too */
    for (int i = 0; i < OBJECTS; i++) {
        char *object = calloc(1, 40);
        uintptr_t offset = (uintptr_t)(object - memory);
        sum += (offset < sizeof memory) + (unsigned char)object[39];
        fprintf(file, "%d\n", i);
        free(object);
    }
    fclose(file);
    printf("%llu objects of its own, %zu bytes of text\n", (unsigned long long)sum, length);
    return sum == OBJECTS ? 0 : 1;
}
