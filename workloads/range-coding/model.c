/* The tree of tables; model.h says what it is. */
#include "model.h"

/* ------------------------------------------------------------------ tables */

/* A table moves by 1/2^RATE towards certainty of what it has just seen: slow enough to be precise, fast
 * enough to learn within a block. */
enum { MODEL_RATE = 5 };

static model_table *table_start(model_table *table)
{
    for (int half = 0; half < MODEL_HALVES; half++) table->start[half] = (int16_t)(half * (CODER_TOTAL / MODEL_HALVES));
    return table;
}

static uint32_t table_width(const model_table *table, int half)
{
    int end = half + 1 < MODEL_HALVES ? table->start[half + 1] : CODER_TOTAL;
    return (uint32_t)(end - table->start[half]);
}

/* Every start moves towards where it would stand if `seen` were all but certain and each other half had
 * one part. Those places rise strictly, as the starts do, and a step of x + floor((place - x) / 2^RATE)
 * keeps it so: no half ever loses its last part. The loop is one that compilers turn into vectors. */
static void table_learn(model_table *table, int seen)
{
    for (int16_t half = 0; half < MODEL_HALVES; half++) {
        int16_t place = (int16_t)(half + (half > seen ? CODER_TOTAL - MODEL_HALVES : 0));
        int16_t distance = (int16_t)(place - table->start[half]);
        table->start[half] = (int16_t)(table->start[half] + (distance >> MODEL_RATE));
    }
}

static void table_encode(model_table *table, coder_encoder *encoder, int half)
{
    coder_encode(encoder, (uint32_t)table->start[half], table_width(table, half));
    table_learn(table, half);
}

/* The last half that starts at `part` or before it. */
static int table_find(const model_table *table, uint32_t part)
{
    int16_t started = 0;
    for (int half = 0; half < MODEL_HALVES; half++)
        started = (int16_t)(started + (table->start[half] <= (int16_t)part));
    return started - 1;
}

static int table_decode(model_table *table, coder_decoder *decoder)
{
    int half = table_find(table, coder_peek(decoder));
    coder_decode(decoder, (uint32_t)table->start[half], table_width(table, half));
    table_learn(table, half);
    return half;
}

/* -------------------------------------------------------------------- tree */

model *model_create(void)
{
    model *self = memory_take(sizeof *self);
    *self = (model){0};
    return self;
}

static void context_destroy(model_context *context)
{
    if (!context) return;
    for (int half = 0; half < MODEL_HALVES; half++) free(context->lower[half]);
    free(context);
}

void model_destroy(model *self)
{
    for (int byte = 0; byte < MODEL_BYTES; byte++) context_destroy(self->contexts[byte]);
    free(self);
}

static model_context *context_create(void)
{
    model_context *context = memory_take(sizeof *context);
    *context = (model_context){0};
    table_start(&context->upper);
    return context;
}

/* What is known after the byte before. */
static model_context *model_present(model *self)
{
    model_context **context = &self->contexts[self->before];
    if (!*context) *context = context_create();
    return *context;
}

static model_table *context_lower(model_context *context, int upper)
{
    model_table **table = &context->lower[upper];
    if (!*table) *table = table_start(memory_take(sizeof **table));
    return *table;
}

/* ------------------------------------------------------------------- bytes */

void model_encode(model *self, coder_encoder *encoder, uint8_t byte)
{
    int upper = byte >> 4, lower = byte & 15;
    model_context *context = model_present(self);
    table_encode(&context->upper, encoder, upper);
    table_encode(context_lower(context, upper), encoder, lower);
    self->before = byte;
}

uint8_t model_decode(model *self, coder_decoder *decoder)
{
    model_context *context = model_present(self);
    int upper = table_decode(&context->upper, decoder);
    int lower = table_decode(context_lower(context, upper), decoder);
    return self->before = (uint8_t)(upper << 4 | lower);
}
