/* How the range coder's programs say that they cannot go on: one line on standard error, exit code 1. */
#ifndef RANGE_FAILURE_H
#define RANGE_FAILURE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noreturn, cold, format(printf, 1, 2))) static inline void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("range coder: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(EXIT_FAILURE);
}

#endif
