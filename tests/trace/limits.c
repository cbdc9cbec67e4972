/* The reader's limits, set so low that a test meets them. */
#include "reader.h"

void limit_held(struct trace_reader *reader, size_t bytes);
void limit_live(struct trace_reader *reader, uint32_t blocks);
void limit_memory(struct trace_reader *reader, uint64_t bytes);
uint64_t memory_used(const struct trace_reader *reader);

void limit_held(struct trace_reader *reader, size_t bytes)
{
    reader->order.held_max = bytes;
}

void limit_live(struct trace_reader *reader, uint32_t blocks)
{
    reader->objects.live.max = blocks;
}

void limit_memory(struct trace_reader *reader, uint64_t bytes)
{
    reader->limits.memory_max = bytes;
}

uint64_t memory_used(const struct trace_reader *reader)
{
    return reader->limits.memory;
}
