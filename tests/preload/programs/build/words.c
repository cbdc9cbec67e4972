/* A hash table of words that doubles when it is full; printing sorts by count, then by word. */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include "words.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char *word;
    size_t count;
};

struct words {
    struct entry *entries;
    size_t capacity, used;
};

enum { FIRST_CAPACITY = 4 };

struct words *words_create(void)
{
    struct words *words = calloc(1, sizeof *words);
    if (words == NULL) return NULL;
    words->entries = calloc(FIRST_CAPACITY, sizeof *words->entries);
    words->capacity = FIRST_CAPACITY;
    if (words->entries == NULL) {
        free(words);
        return NULL;
    }
    return words;
}

static uint64_t hash(const char *word)
{
    uint64_t value = 14695981039346656037u; /* FNV-1a */
    for (; *word != '\0'; word++) value = (value ^ (unsigned char)*word) * 1099511628211u;
    return value;
}

static struct entry *place_of(const struct words *words, const char *word)
{
    size_t place = hash(word) & (words->capacity - 1);
    while (words->entries[place].word != NULL && strcmp(words->entries[place].word, word) != 0)
        place = (place + 1) & (words->capacity - 1);
    return &words->entries[place];
}

static int grow(struct words *words)
{
    struct words larger = {.capacity = words->capacity * 2, .used = words->used};
    larger.entries = calloc(larger.capacity, sizeof *larger.entries);
    if (larger.entries == NULL) return -1;
    for (size_t place = 0; place < words->capacity; place++)
        if (words->entries[place].word != NULL) *place_of(&larger, words->entries[place].word) = words->entries[place];
    free(words->entries);
    *words = larger;
    return 0;
}

int words_add(struct words *words, const char *word)
{
    if (words->used * 4 >= words->capacity * 3 && grow(words) != 0) return -1;
    struct entry *entry = place_of(words, word);
    if (entry->word == NULL) {
        entry->word = strdup(word);
        if (entry->word == NULL) return -1;
        words->used++;
    }
    entry->count++;
    return 0;
}

static int by_count(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    return strcmp(a->word, b->word);
}

size_t words_print(const struct words *words, size_t limit)
{
    struct entry *sorted = malloc((words->used + 1) * sizeof *sorted);
    if (sorted == NULL) return 0;
    size_t count = 0;
    for (size_t place = 0; place < words->capacity; place++)
        if (words->entries[place].word != NULL) sorted[count++] = words->entries[place];
    qsort(sorted, count, sizeof *sorted, by_count);
    for (size_t place = 0; place < count && place < limit; place++)
        printf("%zu %s\n", sorted[place].count, sorted[place].word);
    free(sorted);
    return count;
}

void words_destroy(struct words *words)
{
    for (size_t place = 0; place < words->capacity; place++) free(words->entries[place].word);
    free(words->entries);
    free(words);
}
