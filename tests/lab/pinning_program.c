/* A program in which it is known whose objects pin free memory: those of one of eight functions, each a call site. It is told a
 * number, from which follow which function that is, the sizes of objects, and how they are spread; it says the function's name when
 * all is in place, and ends when its standard input does.
 *
 * The culprit's objects are a few among many that other functions allocate and that are freed, so that pages are left with one or
 * two of them. Two more functions make it hard to see: one whose objects live, dense and in large numbers; and one that pins too, a
 * quarter as much. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profile_sites.h"

enum { SITES = 8, PAGE = 4096, PINNED_PAGES = 3000, DENSE_BYTES = 6 << 20 };

SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7) typedef void *(*site)(size_t size);
static const site sites[SITES] = {site_0, site_1, site_2, site_3, site_4, site_5, site_6, site_7};

static uint64_t state;

static uint32_t drawn(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth, MMIX */
    return (uint32_t)(state >> 33) % below;
}

/* So many pages of objects, one of which is kept on nearly every `step`-th page. */
static void pin(site keeper, unsigned first_other, size_t size, unsigned pages, unsigned step)
{
    size_t per_step = PAGE / size * step, count = per_step * (pages / step);
    void **others = calloc(count, sizeof *others);
    if (others == NULL) abort();
    size_t kept_at = drawn((uint32_t)per_step);
    for (size_t i = 0; i < count; i++) {
        if (i % per_step == 0) kept_at = i + drawn((uint32_t)per_step);
        if (i == kept_at) keeper(size);
        else others[i] = sites[(first_other + i % 3) % SITES](size);
    }
    for (size_t i = 0; i < count; i++) free(others[i]);
    free(others);
}

static void *plant(void *argument)
{
    static const size_t sizes[] = {48, 64, 112, 200, 256, 400, 640, 1000};
    unsigned number = *(const unsigned *)argument, culprit = drawn(SITES);
    size_t size = sizes[number % 8];
    unsigned dense = culprit + 1, lesser = culprit + 2, other = culprit + 3;
    for (size_t bytes = 0; bytes < DENSE_BYTES; bytes += size) sites[dense % SITES](size);
    pin(sites[lesser % SITES], other, sizes[(number + 3) % 8], PINNED_PAGES / 4, 1);
    pin(sites[culprit], other, size, PINNED_PAGES, 1 + number % 2);
    pin(sites[culprit], other, sizes[(number + 1) % 8], PINNED_PAGES / 2, 1);
    for (size_t bytes = 0; bytes < DENSE_BYTES; bytes += 300) sites[dense % SITES](300);
    printf("site_%u\n", culprit);
    fflush(stdout);
    return NULL;
}

int main(int count, char **arguments)
{
    unsigned number = count > 1 ? (unsigned)strtoul(arguments[1], NULL, 10) : 0;
    pthread_t thread;
    state = number;
    for (int i = 0; i < 8; i++) drawn(2);
    /* Half of them by another thread, which is gone by then. */
    if (number % 4 >= 2) {
        if (pthread_create(&thread, NULL, plant, &number) != 0) return 1;
        pthread_join(thread, NULL);
    } else {
        plant(&number);
    }
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}
