/* The range coder: turns intervals of probability into bytes, and bytes into intervals again.
 *
 * After Martin, "Range encoding: an algorithm for removing redundancy from a digitised message" (1979),
 * the carrying kind: the encoder keeps the low end and the width of the interval that the message so far
 * stands for. Whenever the width has become small, the top byte of the low end is put out and both are
 * shifted. A later addition can still overflow into bytes put out before; since those are in memory, the
 * carry is simply added to them.
 *
 * Nothing here allocates but `coder_output`, which grows as bytes come.
 */
#ifndef RANGE_CODER_H
#define RANGE_CODER_H

#include "memory.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    CODER_TOTAL_BITS = 15, /* probabilities are parts of 2^15 */
    CODER_TOTAL = 1 << CODER_TOTAL_BITS,
    CODER_WORD = 4, /* bytes that the encoder ends with and the decoder starts with */
};

/* Below this width a byte is shifted out, so that a part of it is always 2^9 units at least. */
static const uint32_t CODER_NARROW = (uint32_t)1 << 24;

/* ------------------------------------------------------------------ output */

/* Encoded bytes. How many a block needs is known only when it is encoded, so the buffer starts small. */
typedef struct {
    uint8_t *bytes;
    size_t used, size;
} coder_output;

enum { CODER_OUTPUT_START = 4096 };

static inline coder_output coder_output_start(void)
{
    return (coder_output){memory_take(CODER_OUTPUT_START), 0, CODER_OUTPUT_START};
}

static inline void coder_put(coder_output *output, uint8_t byte)
{
    if (output->used == output->size) {
        output->size *= 2;
        output->bytes = memory_grow(output->bytes, output->size);
    }
    output->bytes[output->used++] = byte;
}

/* Adds one to the number that the bytes so far are. It cannot run over the first of them: the whole
 * message is a number below 1. */
static inline void coder_carry(coder_output *output)
{
    uint8_t *byte = output->bytes + output->used;
    while (++*--byte == 0) continue;
}

/* ----------------------------------------------------------------- encoder */

typedef struct {
    uint32_t low, range;
    coder_output output;
} coder_encoder;

static inline coder_encoder coder_encoder_start(void)
{
    return (coder_encoder){0, UINT32_MAX, coder_output_start()};
}

static inline void coder_shift_out(coder_encoder *encoder)
{
    coder_put(&encoder->output, (uint8_t)(encoder->low >> 24));
    encoder->low <<= 8;
}

/* Narrows the interval to the part [first, first + width) of CODER_TOTAL; width is not 0. */
static inline void coder_encode(coder_encoder *encoder, uint32_t first, uint32_t width)
{
    uint32_t unit = encoder->range >> CODER_TOTAL_BITS;
    uint32_t low = encoder->low + unit * first;
    if (low < encoder->low) coder_carry(&encoder->output);
    encoder->low = low;
    encoder->range = unit * width;
    while (encoder->range < CODER_NARROW) {
        coder_shift_out(encoder);
        encoder->range <<= 8;
    }
}

/* Puts out what is left; the bytes are in `output` then, the caller's. */
static inline coder_output coder_encoder_end(coder_encoder *encoder)
{
    for (int i = 0; i < CODER_WORD; i++) coder_shift_out(encoder);
    return encoder->output;
}

/* ----------------------------------------------------------------- decoder */

/* `code` is the message's number less the low end of the interval. Behind the end of the bytes it reads
 * zeros and counts them: a whole message leaves `overrun` at 0. */
typedef struct {
    uint32_t code, range;
    const uint8_t *next, *end;
    size_t overrun;
} coder_decoder;

static inline uint32_t coder_take(coder_decoder *decoder)
{
    if (decoder->next < decoder->end) return *decoder->next++;
    decoder->overrun++;
    return 0;
}

static inline coder_decoder coder_decoder_start(const uint8_t *bytes, size_t size)
{
    coder_decoder decoder = {0, UINT32_MAX, bytes, bytes + size, 0};
    for (int i = 0; i < CODER_WORD; i++) decoder.code = decoder.code << 8 | coder_take(&decoder);
    return decoder;
}

/* The part of CODER_TOTAL that the next interval holds. Bytes that no encoder made can lie above the
 * last part; they are taken for it. */
static inline uint32_t coder_peek(const coder_decoder *decoder)
{
    uint32_t part = decoder->code / (decoder->range >> CODER_TOTAL_BITS);
    return part < CODER_TOTAL ? part : CODER_TOTAL - 1;
}

/* Follows the encoder into the part [first, first + width), which holds what `coder_peek` told. */
static inline void coder_decode(coder_decoder *decoder, uint32_t first, uint32_t width)
{
    uint32_t unit = decoder->range >> CODER_TOTAL_BITS;
    decoder->code -= unit * first;
    decoder->range = unit * width;
    while (decoder->range < CODER_NARROW) {
        decoder->code = decoder->code << 8 | coder_take(decoder);
        decoder->range <<= 8;
    }
}

/* Tells whether the decoder stands where an encoder's message ends. */
static inline bool coder_decoder_at_end(const coder_decoder *decoder)
{
    return decoder->next == decoder->end && decoder->overrun == 0;
}

#endif
