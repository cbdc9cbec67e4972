/* Keeps orders with their notes, and a journal of what happened to them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORDERS = 20000 };

struct order {
    struct order *next;
    char *note;
    long id, price, amount, trader;
};

struct entry {
    struct entry *next;
    long order, time, kind, price, amount;
};

static struct order *orders;
static struct entry *journal;

static void *checked_malloc(size_t size)
{
    void *object = malloc(size);
    if (object == NULL) exit(1);
    return object;
}

static void fill(struct order *order, long id, long price)
{
    *order = (struct order){orders, NULL, id, price, id % 100, id % 50};
    order->note = checked_malloc(24);
    snprintf(order->note, 24, "order %ld", id);
    orders = order;
}

static void buy(long id)
{
    struct order *order = checked_malloc(sizeof *order);
    fill(order, id, 100 + id % 7);
}

static void sell(long id)
{
    struct order *order = checked_malloc(sizeof *order);
    fill(order, id, -100 - id % 7);
}

static void record(long order, long kind)
{
    struct entry *entry = checked_malloc(sizeof *entry);
    *entry = (struct entry){journal, order, order * 10, kind, 100, order % 100};
    journal = entry;
}

static long quote(long id)
{
    long *prices = checked_malloc(6 * sizeof *prices);
    for (int i = 0; i < 6; i++) prices[i] = id * i;
    long best = prices[5];
    free(prices);
    return best;
}

int main(void)
{
    long sum = 0;
    for (long id = 0; id < ORDERS; id++) {
        if (id % 10 != 0)
            buy(id);
        else
            sell(id);
        record(id, id % 10);
        sum += quote(id);
    }
    for (struct order *order = orders; order != NULL; order = order->next) sum += order->price + (long)strlen(order->note);
    for (struct entry *entry = journal; entry != NULL; entry = entry->next) sum += entry->time;
    printf("%ld\n", sum);
    return 0;
}
