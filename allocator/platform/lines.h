/* Small text files of the kernel's, line by line.
 *
 * Read by bare system calls, since open and read are points at which a thread can be cancelled and which libraries replace; into
 * memory on the stack.
 */
#ifndef HEAPFIT_LINES_H
#define HEAPFIT_LINES_H

#include "platform.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

/* All on the stack of whoever allocates. Paths of containers have some two hundred bytes. */
enum { LINE_MAX_BYTES = 512, CHUNK_BYTES = 256 };

struct lines {
    long file;
    size_t at, size; /* of the chunk */
    bool cut; /* the line is longer than there is room for */
    char line[LINE_MAX_BYTES];
    char chunk[CHUNK_BYTES];
};

static inline bool lines_open(struct lines *lines, const char *path)
{
    lines->at = lines->size = 0;
    lines->file = platform_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return lines->file >= 0;
}

static inline int next_byte(struct lines *lines)
{
    if (lines->at == lines->size) {
        long got = platform_call(SYS_read, lines->file, lines->chunk, sizeof lines->chunk);
        if (got <= 0) return -1;
        lines->at = 0;
        lines->size = (size_t)got;
    }
    return (unsigned char)lines->chunk[lines->at++];
}

static inline bool lines_next(struct lines *lines)
{
    size_t length = 0;
    int byte = next_byte(lines);
    if (byte < 0) return false;
    for (lines->cut = false; byte >= 0 && byte != '\n'; byte = next_byte(lines)) {
        if (length < sizeof lines->line - 1) lines->line[length++] = (char)byte;
        else lines->cut = true;
    }
    lines->line[length] = '\0';
    return true;
}

static inline void lines_close(const struct lines *lines)
{
    platform_call(SYS_close, lines->file);
}

/* What a link of the kernel's says, as long as there is room; false: there is none. No file is opened. */
static inline bool link_says(const char *path, char *text, size_t size)
{
    long length = platform_call(SYS_readlinkat, AT_FDCWD, path, text, size - 1);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* The digits at `text`; SIZE_MAX when there are none ("max"), or too many. */
static inline uint64_t number_at(const char *text)
{
    uint64_t number = 0;
    if (*text < '0' || *text > '9') return SIZE_MAX;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (__builtin_mul_overflow(number, 10, &number)) return SIZE_MAX;
        if (__builtin_add_overflow(number, (uint64_t)(*text - '0'), &number)) return SIZE_MAX;
    }
    return number;
}

#endif
