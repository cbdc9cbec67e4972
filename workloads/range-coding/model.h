/* The model: how probable each byte is after the byte before it, learnt as the bytes come.
 *
 * A byte is coded as two halves of four bits. Each decision has a table of its own: the first half
 * depends on the byte before, the second on that and on the first half. A table is made when its
 * decision occurs for the first time, so the model is a tree that grows with what it has seen: some
 * hundreds of blocks of 32 and 160 bytes for a block of text, some thousands for random bytes. Encoder
 * and decoder learn alike and thus agree without any table being sent.
 */
#ifndef RANGE_MODEL_H
#define RANGE_MODEL_H

#include "coder.h"
#include <stdint.h>

enum { MODEL_HALVES = 16, MODEL_BYTES = 256 };

/* Where each of the 16 halves starts among CODER_TOTAL parts: 0 first, strictly rising. */
typedef struct {
    int16_t start[MODEL_HALVES];
} model_table;

/* What is known about the byte after a certain one. */
typedef struct {
    model_table upper;
    model_table *lower[MODEL_HALVES]; /* by the upper half; NULL: not seen yet */
} model_context;

/* Owned by one block's encoder or decoder, and by no other thread. */
typedef struct {
    model_context *contexts[MODEL_BYTES]; /* by the byte before; NULL: not seen yet */
    uint8_t before;
} model;

model *model_create(void);
void model_destroy(model *self);

void model_encode(model *self, coder_encoder *encoder, uint8_t byte);
uint8_t model_decode(model *self, coder_decoder *decoder);

#endif
