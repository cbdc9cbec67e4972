/* A program whose objects are known, for tests of live profiles: six functions allocate, each its own size, as many as is written
 * below, beside others that are freed again. It says "ready" when they are there. A line on its standard input has it free all of
 * them and allocate them anew; it ends with its standard input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profile_sites.h"

enum { SITES = 6, MOST = 60000 };

SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) typedef void *(*site)(size_t size);
static const site sites[SITES] = {site_0, site_1, site_2, site_3, site_4, site_5};
static const size_t sizes[SITES] = {32, 112, 512, 3072, 20480, 262144};
static const int counts[SITES] = {60000, 15000, 6000, 700, 100, 12};
static void *objects[SITES][MOST];

int main(void)
{
    char line[16];
    do {
        for (int i = 0; i < SITES; i++) {
            for (int n = 0; n < counts[i]; n++) {
                free(objects[i][n]);
                objects[i][n] = sites[i](sizes[i]);
                if (n % 2 == 0) free(malloc(sizes[i]));
            }
        }
        puts("ready");
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin) != NULL);
    return 0;
}
