/* 10,000 calls deep, an object at each, made through a wrapper; 20 times. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEPTH = 10000, TIMES = 20 };

struct link {
    struct link *outer;
    uint64_t depth;
};

__attribute__((noinline)) static struct link *allocate_link(void)
{
    struct link *link = malloc(sizeof *link);
    if (link == NULL) abort();
    return link;
}

__attribute__((noinline)) static uint64_t descend(struct link *outer, uint64_t depth)
{
    struct link *link = allocate_link();
    link->outer = outer;
    link->depth = depth;
    uint64_t below = depth < DEPTH ? descend(link, depth + 1) : 0;
    uint64_t sum = below * 3 + link->depth + (outer != NULL ? outer->depth : 0);
    free(link);
    return sum;
}

int main(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < TIMES; i++) sum = sum * 7 + descend(NULL, 0);
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
