/* What the planted programs share: sizes, and the line that says that their memory is there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };
static const size_t MUCH = 192 * (size_t)MIB;

static void ready(void)
{
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
}
