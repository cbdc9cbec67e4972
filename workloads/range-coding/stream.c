/* Blocks to bytes and back; stream.h shows the format. */
#include "stream.h"
#include "coder.h"
#include "digest.h"
#include "files.h"
#include "memory.h"
#include "model.h"
#include <string.h>

/* No half of a byte costs more than CODER_TOTAL_BITS and what rounding adds, less than one bit. */
enum { STREAM_WORST_BITS = 2 * (CODER_TOTAL_BITS + 1) };

/* Where the parts of a header stand. */
enum { AT_SIZE = 1, AT_ENCODED = AT_SIZE + 4, AT_DIGEST = AT_ENCODED + 4 };

static void write_number(uint8_t *to, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(number >> (8 * i));
}

static uint64_t read_number(const uint8_t *from, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++) number |= (uint64_t)from[i] << (8 * i);
    return number;
}

/* ------------------------------------------------------------------ encode */

stream_block stream_encode(const uint8_t *content, size_t size)
{
    coder_encoder encoder = coder_encoder_start();
    model *known = model_create();
    for (size_t i = 0; i < size; i++) model_encode(known, &encoder, content[i]);
    model_destroy(known);
    coder_output encoded = coder_encoder_end(&encoder);

    stream_block block = {memory_take(STREAM_HEADER + encoded.used), STREAM_HEADER + encoded.used,
                          digest_of(content, size)};
    block.bytes[0] = STREAM_MARK_BLOCK;
    write_number(block.bytes + AT_SIZE, size, 4);
    write_number(block.bytes + AT_ENCODED, encoded.used, 4);
    write_number(block.bytes + AT_DIGEST, block.digest, 8);
    memcpy(block.bytes + STREAM_HEADER, encoded.bytes, encoded.used);
    free(encoded.bytes);
    return block;
}

stream_block stream_end(void)
{
    stream_block block = {memory_take(1), 1, 0};
    block.bytes[0] = STREAM_MARK_END;
    return block;
}

/* ------------------------------------------------------------------ decode */

static void read_or_fail(int file, uint8_t *to, size_t size)
{
    if (file_read(file, to, size) != size) fail("the stream is cut off");
}

/* The block's content, which may be anything if the bytes were changed: its digest tells. */
static uint8_t *decode(const uint8_t *encoded, size_t encoded_size, size_t size)
{
    coder_decoder decoder = coder_decoder_start(encoded, encoded_size);
    model *known = model_create();
    uint8_t *content = memory_take(size);
    for (size_t i = 0; i < size; i++) content[i] = model_decode(known, &decoder);
    model_destroy(known);
    if (!coder_decoder_at_end(&decoder)) fail("a block is damaged: it has another length than its content needs");
    return content;
}

static void check_header(const uint8_t *header)
{
    uint64_t size = read_number(header + AT_SIZE, 4);
    uint64_t encoded = read_number(header + AT_ENCODED, 4);
    if (size == 0 || size > STREAM_BLOCK || encoded < CODER_WORD || encoded > CODER_WORD + size * STREAM_WORST_BITS / 8)
        fail("a block is damaged: its lengths cannot be");
}

bool stream_decode(int file, stream_block *content)
{
    uint8_t header[STREAM_HEADER];
    read_or_fail(file, header, 1);
    if (header[0] == STREAM_MARK_END) return false;
    if (header[0] != STREAM_MARK_BLOCK) fail("this is no stream of the range encoder, or it is damaged");
    read_or_fail(file, header + 1, STREAM_HEADER - 1);
    check_header(header);

    size_t encoded_size = read_number(header + AT_ENCODED, 4);
    uint8_t *encoded = memory_take(encoded_size);
    read_or_fail(file, encoded, encoded_size);
    content->size = read_number(header + AT_SIZE, 4);
    content->bytes = decode(encoded, encoded_size, content->size);
    content->digest = digest_of(content->bytes, content->size);
    free(encoded);
    if (content->digest != read_number(header + AT_DIGEST, 8)) fail("a block is damaged: its digest is another");
    return true;
}
