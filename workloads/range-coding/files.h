/* Files by system calls, past the C library's buffers: those would be memory that the coder does not need. */
#ifndef RANGE_FILES_H
#define RANGE_FILES_H

#include "failure.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static inline int file_open(const char *path, int flags)
{
    int file = open(path, flags, 0666);
    if (file < 0) fail("%s: %s", path, strerror(errno));
    return file;
}

/* Reads `size` bytes, fewer only at the end of the file. */
static inline size_t file_read(int file, uint8_t *to, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t count = read(file, to + done, size - done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail("cannot read: %s", strerror(errno));
        if (count == 0) break;
        done += (size_t)count;
    }
    return done;
}

static inline void file_write(int file, const uint8_t *from, size_t size)
{
    while (size > 0) {
        ssize_t count = write(file, from, size);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail("cannot write: %s", strerror(errno));
        from += count;
        size -= (size_t)count;
    }
}

static inline void file_rewind(int file)
{
    if (lseek(file, 0, SEEK_SET) < 0) fail("cannot read again from the start: %s", strerror(errno));
}

#endif
