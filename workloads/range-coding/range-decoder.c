/* Does the allocator matter to a range decoder? Decodes what range-encoder wrote and compares each
 * block with its digest; job.h has the usage.
 */
#include "job.h"
#include "stream.h"

/* The next block of content, starting over at the stream's end when there is to be more. */
static bool next_block(job *self, stream_block *content)
{
    if (stream_decode(self->input, content)) return true;
    if (!self->repeat || self->content == 0) return false;
    file_rewind(self->input);
    return stream_decode(self->input, content);
}

/* False when there is nothing more to decode. */
static bool decode_block(job *self)
{
    stream_block content;
    if (!next_block(self, &content)) return false;
    job_write(self, content.bytes, content.size);
    bool more = job_count_content(self, content.digest, content.size);
    free(content.bytes);
    return more;
}

int main(int argc, char **argv)
{
    job work = job_start(argc, argv);
    while (decode_block(&work)) continue;
    return job_report(&work);
}
