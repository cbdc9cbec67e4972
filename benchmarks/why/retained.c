/* A peak that is over: all of it is freed but what was allocated last. */
#include "ready.h"

struct node {
    struct node *next;
    char content[1000];
};

int main(void)
{
    struct node *list = NULL;
    for (size_t i = 0; i < MUCH / sizeof *list; i++) {
        struct node *node = malloc(sizeof *node);
        memset(node->content, 'x', sizeof node->content);
        node->next = list;
        list = node;
    }
    for (struct node *node = list->next, *next; node != NULL; node = next) {
        next = node->next;
        free(node);
    }
    ready();
}
