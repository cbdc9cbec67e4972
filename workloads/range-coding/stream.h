/* The encoded stream: blocks that stand alone, each with its lengths and the digest of its content.
 *
 *     block   'R', content's length (4 bytes), encoded length (4), content's digest (8), encoded bytes
 *     end     'E'
 *
 * Numbers are little-endian. Every block starts with a model that knows nothing, so a stream can be
 * decoded from any block on, and repeated content is as hard to encode as it was the first time.
 *
 * The heap's part in it: each block takes a buffer for its content, one for its encoded bytes (which the
 * encoder grows from small) and the tables of its model, and gives all of them back.
 */
#ifndef RANGE_STREAM_H
#define RANGE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STREAM_BLOCK = 64 * 1024, /* content of a block, the last one's excepted */
    STREAM_HEADER = 1 + 4 + 4 + 8,
    STREAM_MARK_BLOCK = 'R',
    STREAM_MARK_END = 'E',
};

/* Content of a block, or its encoded form with the header; from malloc, the holder's to free. */
typedef struct {
    uint8_t *bytes;
    size_t size;
    uint64_t digest; /* of the content */
} stream_block;

stream_block stream_encode(const uint8_t *content, size_t size);
stream_block stream_end(void);

/* Reads the next block from `file` and decodes it. False at the stream's end. A stream that is cut off
 * or was changed ends the program with a message. */
bool stream_decode(int file, stream_block *content);

#endif
