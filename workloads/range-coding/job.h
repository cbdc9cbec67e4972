/* What encoder and decoder share: their command line, and the account that they print at the end.
 *
 *     PROGRAM INPUT [MEBIBYTES [OUTPUT]]
 *
 * INPUT is coded once from start to end, or, with MEBIBYTES of content given, as often and as far as
 * that takes: a small file then stands for a large one, without the disk's part in the time. Without
 * OUTPUT what is made is only counted and digested.
 */
#ifndef RANGE_JOB_H
#define RANGE_JOB_H

#include "digest.h"
#include "files.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

enum { JOB_EXIT_USAGE = 2, JOB_MAX_MEBIBYTES = 1 << 20 };

typedef struct {
    int input, output;        /* output -1: none */
    bool repeat;              /* until `left` is 0 */
    uint64_t left;            /* content yet to be coded, when `repeat` */
    uint64_t content, stream; /* bytes so far */
    uint64_t content_digest, stream_digest;
} job;

static inline uint64_t job_mebibytes(const char *text)
{
    char *end;
    unsigned long long count = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || count > JOB_MAX_MEBIBYTES) {
        fprintf(stderr, "range coder: %s is no number of mebibytes\n", text);
        exit(JOB_EXIT_USAGE);
    }
    return count << 20;
}

static inline job job_start(int argc, char **argv)
{
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: %s INPUT [MEBIBYTES, 0: the input once [OUTPUT]]\n", argv[0]);
        exit(JOB_EXIT_USAGE);
    }
    job self = {.output = -1};
    self.left = argc > 2 ? job_mebibytes(argv[2]) : 0;
    self.repeat = self.left > 0;
    self.input = file_open(argv[1], O_RDONLY);
    if (argc > 3) self.output = file_open(argv[3], O_WRONLY | O_CREAT | O_TRUNC);
    return self;
}

/* Counts a block of content; true when there is to be more of it. */
static inline bool job_count_content(job *self, uint64_t digest, size_t size)
{
    self->content += size;
    self->content_digest = digest_add(self->content_digest, digest);
    if (self->repeat) self->left -= size < self->left ? size : self->left;
    return !self->repeat || self->left > 0;
}

static inline void job_write(job *self, const uint8_t *bytes, size_t size)
{
    if (self->output >= 0) file_write(self->output, bytes, size);
}

/* Both digests are the same whenever the content is, encoder or decoder. */
static inline int job_report(const job *self)
{
    if (self->repeat && self->left > 0) fail("the input is empty: it cannot be repeated");
    printf("content: %" PRIu64 " bytes, digest %016" PRIx64 "\n", self->content, self->content_digest);
    if (self->stream) printf("stream: %" PRIu64 " bytes, digest %016" PRIx64 "\n", self->stream, self->stream_digest);
    puts("check ok");
    if (fflush(stdout) == 0 && (self->output < 0 || close(self->output) == 0)) return EXIT_SUCCESS;
    fail("cannot write: %s", strerror(errno));
}

#endif
