/* A list of words with their counts: what the compilers of these tests compile. */
#ifndef WORDS_H
#define WORDS_H

#include <stddef.h>

struct words;

struct words *words_create(void);
int words_add(struct words *words, const char *word);
size_t words_print(const struct words *words, size_t limit);
void words_destroy(struct words *words);

#endif
