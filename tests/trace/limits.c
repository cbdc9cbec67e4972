/* The reader's limits, set so low that a test meets them. */
#include "reader.h"

void limit_held(struct trace_reader *reader, size_t bytes);
void limit_live(struct trace_reader *reader, uint32_t blocks);

void limit_held(struct trace_reader *reader, size_t bytes)
{
    reader->order.held_max = bytes;
}

void limit_live(struct trace_reader *reader, uint32_t blocks)
{
    reader->objects.live.max = blocks;
}
