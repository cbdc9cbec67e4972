/* Prints where the calls in it return to, and where the program lies: what symbols.py is to turn into lines. */
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>

static __attribute__((noinline)) void *inner(void)
{
    return __builtin_return_address(0);
}

static __attribute__((noinline)) void outer(void)
{
    void *volatile at = inner(); /* line 13 */
    printf("inner %p\n", at);
}

static int print_base(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    printf("base 0x%lx\n", (unsigned long)info->dlpi_addr);
    return 1; /* the program comes first */
}

int main(void)
{
    outer();
    dl_iterate_phdr(print_base, NULL);
    return 0;
}
