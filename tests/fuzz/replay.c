/* Runs a fuzz target on the files that are named: for an input that libFuzzer has found, and for the corpus wherever
 * libFuzzer is not (another compiler, another processor). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 20 };

static int replay(const char *path)
{
    static uint8_t input[INPUT_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return EXIT_FAILURE;
    }
    size_t size = fread(input, 1, sizeof input, file);
    fclose(file);
    printf("%s: %zu bytes\n", path, size);
    return LLVMFuzzerTestOneInput(input, size);
}

int main(int count, char **paths)
{
    if (count < 2) {
        fprintf(stderr, "usage: %s INPUT...\n", paths[0]);
        return 2;
    }
    for (int i = 1; i < count; i++)
        if (replay(paths[i]) != 0) return EXIT_FAILURE;
    return EXIT_SUCCESS;
}
