/* What is known at one point of a function that is followed, and what instructions make of it (follow_state.c). For
 * follow.c, which takes it along the function's ways. */
#ifndef HEAPFIT_POOLS_FOLLOW_STATE_H
#define HEAPFIT_POOLS_FOLLOW_STATE_H

#include <Zydis/Zydis.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- what is known at one point ---------------------------------------------------------------------------------- */

/* Slots of the stack with something known: what wrappers need, twice. */
enum { SLOTS_MAX = 24 };

enum kind {
    OTHER, /* nothing that matters */
    UNSEEN, /* what was before the call in register `number`, or in memory (REGISTERS), plus `offset` */
    STACK, /* an address in the frame: `offset` from the stack pointer at the first instruction followed */
    PARAMETER, /* parameter `number`, plus `offset` */
    OBJECT, /* the new object's address, plus `offset` */
    SHIFTED, /* the same, plus `offset` and something that is not known: it has been aligned, or is another element */
};

struct value {
    uint16_t kind;
    uint16_t number;
    int32_t offset;
};

static const struct value nothing = {OTHER, 0, 0};

struct slot {
    int32_t offset;
    struct value value;
};

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, REGISTERS = 16, NO_REGISTER = REGISTERS };
enum { ARGUMENTS = 6, NOT_PASSED = ARGUMENTS };
static const uint8_t argument_registers[ARGUMENTS] = {RDI, RSI, RDX, RCX, R8, R9};

/* One way through the function. Compared and hashed by its bytes: there is no padding. */
struct way {
    uintptr_t next; /* the instruction to go on with */
    struct value registers[REGISTERS];
    struct slot slots[SLOTS_MAX];
    struct value passed; /* what has been stored where parameter `passing` points */
    int16_t passing; /* a parameter's number, or NOT_PASSED */
    int16_t written; /* the object has been written to up to here */
    int16_t shifted_written; /* the same of its shifted address, which may be negative; INT16_MIN: nowhere */
    uint8_t slot_count;
    uint8_t tests_null; /* the zero flag is set exactly if there is no object */
};

/* ---- the way that is followed ------------------------------------------------------------------------------------ */

/* What instructions read and change; follow.c has the rest. */
struct follow_state {
    ZydisDecodedInstruction instruction; /* the one that is done */
    struct way way;
    bool began_known; /* what is not noted does not matter; else it may be UNSEEN */
    bool used, unknown, began_matters; /* what has come out on any way so far */
};
extern struct follow_state follow_state;

static inline bool is_object(struct value value)
{
    return value.kind == OBJECT || value.kind == SHIFTED;
}

/* The way ends here; or it goes on, but cannot be followed any further, and something stays unknown. */
void end_way(void);
void give_up_way(void);

/* Slots of the stack are told by their offset, as STACK has it. */
struct value slot_load(int32_t offset);
void slot_store(int32_t offset, struct value value);

/* The object's address, `value`, is stored at `address`, outside of the frame. */
void object_store(struct value address, struct value value);

struct value read_operand(const ZydisDecodedOperand *operand);

/* Before an instruction is done: whether it tests for NULL. */
void note_test(ZydisDecodedOperand *operands);

/* Any instruction behind which the next one follows; but for calls, of functions and of the kernel. */
void do_data(ZydisDecodedOperand *operands);

#endif
