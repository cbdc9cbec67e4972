/* Prints the commonest of the words given as arguments: main LIMIT WORD... */
#include "words.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s LIMIT WORD...\n", argv[0]);
        return 2;
    }
    struct words *words = words_create();
    if (words == NULL) return 1;
    for (int place = 2; place < argc; place++)
        if (words_add(words, argv[place]) != 0) return 1;
    printf("%zu different\n", words_print(words, strtoul(argv[1], NULL, 10)));
    words_destroy(words);
    return 0;
}
