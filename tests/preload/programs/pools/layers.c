/* Lists, trees and strings that are allocated in turn through layers of wrappers, walked, and given back in another order.
 * Prints what it has counted: never an address. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 20000, KEYS = 4096, THREADS = 4 };

struct record {
    struct record *next;
    char *name;
    uint64_t number;
};

struct tree {
    struct tree *left, *right;
    uint64_t key, count;
};

static void *checked_malloc(size_t size)
{
    void *object = malloc(size);
    if (object == NULL) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return object;
}

static void *cleared_malloc(size_t size)
{
    void *object = checked_malloc(size);
    return memset(object, 0, size);
}

static char *copied(const char *text)
{
    return strcpy(checked_malloc(strlen(text) + 1), text);
}

static int allocate_record(struct record **place)
{
    *place = cleared_malloc(sizeof **place);
    return *place == NULL;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static struct tree *insert(struct tree *tree, uint64_t key)
{
    if (tree == NULL) {
        tree = cleared_malloc(sizeof *tree);
        tree->key = key;
    }
    if (key == tree->key) tree->count++;
    else if (key < tree->key) tree->left = insert(tree->left, key);
    else tree->right = insert(tree->right, key);
    return tree;
}

static uint64_t sum_tree(struct tree *tree)
{
    if (tree == NULL) return 0;
    uint64_t sum = tree->key * tree->count + 3 * sum_tree(tree->left) + 5 * sum_tree(tree->right);
    free(tree);
    return sum;
}

static uint64_t sum_list(struct record *list, int keep)
{
    uint64_t sum = 0;
    while (list != NULL) {
        struct record *next = list->next;
        for (const char *at = list->name; *at != 0; at++) sum = sum * 31 + (unsigned char)*at;
        sum += list->number;
        if (!keep) free(list->name), free(list);
        list = next;
    }
    return sum;
}

static void *work(void *argument)
{
    uint64_t state = 88172645463325252u + *(uint64_t *)argument;
    struct record *first = NULL, *second = NULL;
    struct tree *tree = NULL;
    for (int i = 0; i < RECORDS; i++) {
        char text[32];
        struct record *record;
        if (allocate_record(&record) != 0) exit(1);
        record->number = next_random(&state);
        snprintf(text, sizeof text, "record %llu", (unsigned long long)(record->number % 1000));
        record->name = copied(text);
        struct record **list = record->number % 3 ? &first : &second;
        record->next = *list;
        *list = record;
        tree = insert(tree, record->number % KEYS);
    }
    uint64_t sum = sum_list(first, 1) ^ sum_list(second, 0);
    *(uint64_t *)argument = sum ^ sum_list(first, 0) ^ sum_tree(tree);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    uint64_t results[THREADS];
    for (int i = 0; i < THREADS; i++) {
        results[i] = (uint64_t)i;
        if (pthread_create(&threads[i], NULL, work, &results[i]) != 0) return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        printf("thread %d: %016llx\n", i, (unsigned long long)results[i]);
    }
    return 0;
}
