/* Does the allocator matter to a range encoder? Encodes a file block by block; job.h has the usage. */
#include "job.h"
#include "memory.h"
#include "stream.h"

static void put_out(job *self, stream_block block)
{
    job_write(self, block.bytes, block.size);
    self->stream += block.size;
    self->stream_digest = digest_add(self->stream_digest, digest_of(block.bytes, block.size));
    free(block.bytes);
}

/* Fills `content` from the input, starting over at its end when there is to be more. */
static size_t read_content(job *self, uint8_t *content)
{
    size_t wanted = self->repeat && self->left < STREAM_BLOCK ? self->left : STREAM_BLOCK;
    size_t size = file_read(self->input, content, wanted);
    if (size == 0 && self->repeat && self->content > 0) {
        file_rewind(self->input);
        size = file_read(self->input, content, wanted);
    }
    return size;
}

/* False when there is nothing more to encode. */
static bool encode_block(job *self)
{
    uint8_t *content = memory_take(STREAM_BLOCK);
    size_t size = read_content(self, content);
    bool more = false;
    if (size > 0) {
        stream_block block = stream_encode(content, size);
        more = job_count_content(self, block.digest, size);
        put_out(self, block);
    }
    free(content);
    return more;
}

int main(int argc, char **argv)
{
    job work = job_start(argc, argv);
    while (encode_block(&work)) continue;
    put_out(&work, stream_end());
    return job_report(&work);
}
