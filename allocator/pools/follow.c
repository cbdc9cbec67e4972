/* What a function does with a new object: uses it, or only passes it on (3.1).
 *
 * From where the call returns, each way that the function can go is followed instruction by instruction, with a note
 * of what is known to be in each register and in slots of the stack. A way ends where the function returns, where it
 * does not go on, or where it has been before with the same notes. The first use decides; else, if the object is
 * passed on at the end of any way, it is a wrapper.
 *
 * What is a use: reading the object; writing to it; keeping its address anywhere but in this function's own frame;
 * handing it to another function. What is none:
 *  - comparing its address, and what is done when there is no object: that side of a test for NULL is not followed,
 *    so that neither messages nor calls that never return get in the way;
 *  - storing it where a parameter points: so C functions return more than one thing. But only at the very place: an
 *    offset is a field of a structure, and the object becomes part of that;
 *  - filling it as a whole by memset, memcpy and the like, or by string instructions: whoever clears or copies bytes
 *    does not know what they mean, and calloc and strdup are wrappers of malloc to those who call them;
 *  - writing only in front of what is passed on: a header, by which a wrapper keeps its books.
 *
 * Nothing here needs to be right: objects are placed by it, no more. What the compiler has moved away as unlikely is
 * left out, landing pads of exceptions too, since no instruction leads there. Hand-written code may confuse the
 * notes. But nothing may be read that is not mapped: only instructions between `start` and `end` are, if these lie
 * in the object's code.
 *
 * How the function began is looked at second, where it matters: when the object is stored by a register that was set
 * before the call. Then the code from its start to the call is followed in the same way, to learn which registers
 * and slots hold parameters, and where the frame is. */
#include "code.h"
#include "follow_state.h"

#include <string.h>

/* Bounds of the work, in instructions. A function that has shown no use after so many is unknown. Most need a few
 * dozen; one that takes all these is analysed once, as all are. */
enum { INSTRUCTIONS_MAX = 400, BEGINNING_MAX = 128 };
/* Ways not yet followed, states met at targets of jumps: what wrappers need, twice. */
enum { WAYS_MAX = 24, MET_MAX = 64 };

/* All that following needs besides follow_state, apart from the stack: there may be little of it. */
static struct {
    ZydisDecoder decoder;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    struct way waiting[WAYS_MAX];
    struct {
        uintptr_t address;
        uint64_t state;
    } met[MET_MAX];
    uintptr_t start, end;
    uintptr_t goal; /* stop before this instruction; 0: follow to the end */
    int32_t stack; /* the stack pointer where the first way began */
    struct value frame; /* the frame pointer, once it has been set up */
    struct value arguments[ARGUMENTS]; /* of the last call before the goal */
    unsigned waiting_count, met_count, decoded, decoded_max;
    int passing; /* how the object is passed on, if it is */
    bool called; /* the last instruction of this way was a call */
    bool passed_on;
    bool left; /* to code that has been moved away as unlikely */
} work;

/* ---- the ends of ways -------------------------------------------------------------------------------------------- */

/* `value` leaves the function. What has been written to the object must all lie in front of it. If it is stored for
 * the caller on one way and returned on another, the former is meant. */
static void pass_on(struct value value, int passing)
{
    const struct way *way = &follow_state.way;
    bool is_whole = value.kind == OBJECT && way->written <= value.offset && way->shifted_written == INT16_MIN;
    if (!is_whole && !(value.kind == SHIFTED && way->shifted_written <= value.offset)) follow_state.used = true;
    if (work.passed_on && work.passing >= passing) return;
    work.passed_on = true;
    work.passing = passing;
}

/* What has been stored for the caller may still be in rax, though nothing is returned. Two words may be: rax and
 * rdx. */
static void do_return(void)
{
    const struct way *way = &follow_state.way;
    if (way->passing != NOT_PASSED) pass_on(way->passed, way->passing);
    else if (is_object(way->registers[RAX])) pass_on(way->registers[RAX], PASSED_BY_RETURN);
    else if (is_object(way->registers[RDX])) pass_on(way->registers[RDX], PASSED_BY_RETURN);
    else if (way->written != 0 || way->shifted_written != INT16_MIN) follow_state.used = true;
    end_way();
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* The address that a call or jump goes to, through a linkage table's entry too; 0: only known when it happens. */
static uintptr_t target_of(const ZydisDecodedOperand *operand)
{
    if (operand->type == ZYDIS_OPERAND_TYPE_IMMEDIATE) return follow_state.way.next + operand->imm.value.u;
    if (operand->type != ZYDIS_OPERAND_TYPE_MEMORY || operand->mem.base != ZYDIS_REGISTER_RIP) return 0;
    return code_slot(follow_state.way.next + (uintptr_t)operand->mem.disp.value);
}

/* An argument is the object, or points at a variable in the frame that holds it. */
static bool is_handed_down(struct value argument)
{
    return is_object(argument) || (argument.kind == STACK && is_object(slot_load(argument.offset)));
}

/* What is returned is the object again where it has only been filled; it is not filled with its own address, or from
 * itself. */
static struct value call_with_object(const ZydisDecodedOperand *target)
{
    const struct value *arguments = work.arguments;
    enum code_function function = code_function(target_of(target));
    if (function == FUNCTION_FILLS && is_object(arguments[0]) && !is_object(arguments[1])) return arguments[0];
    if (function == FUNCTION_ENDS) end_way();
    else follow_state.used = true;
    return nothing;
}

static void do_call(ZydisDecodedOperand *operands)
{
    static const uint8_t lost[] = {RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11};
    struct value *registers = follow_state.way.registers;
    bool has_object = false;
    read_operand(&operands[0]);
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        work.arguments[i] = registers[argument_registers[i]];
        if (is_handed_down(work.arguments[i])) has_object = true;
    }
    struct value result = has_object ? call_with_object(&operands[0]) : nothing;
    for (unsigned i = 0; i < sizeof lost; i++) registers[lost[i]] = nothing;
    registers[RAX] = result;
    work.called = true;
}

/* A call that is the last instruction of all never returns: it is for errors. */
static void do_call_within(ZydisDecodedOperand *operands)
{
    if (follow_state.way.next >= work.end) end_way();
    else do_call(operands);
}

static void do_system_call(void)
{
    struct value *registers = follow_state.way.registers;
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        if (is_object(registers[argument_registers[i]])) follow_state.used = true;
    }
    registers[RAX] = registers[RCX] = registers[R11] = nothing;
}

/* ---- jumps ------------------------------------------------------------------------------------------------------- */

/* FNV's prime and offset, over words. */
static uint64_t state_hash(void)
{
    uint64_t hash = 0xcbf29ce484222325, word;
    const char *bytes = (const char *)&follow_state.way;
    _Static_assert(sizeof follow_state.way % sizeof word == 0, "hashed by words");
    for (size_t at = sizeof follow_state.way.next; at < sizeof follow_state.way; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        hash = (hash ^ word) * 0x100000001b3;
        hash ^= hash >> 29;
    }
    return hash;
}

/* Whether a way has come to `address` before, with the same notes; on the way to the goal, with any. */
static bool was_met(uintptr_t address)
{
    uint64_t state = work.goal != 0 ? 0 : state_hash();
    for (unsigned i = 0; i < work.met_count; i++) {
        if (work.met[i].address == address && work.met[i].state == state) return true;
    }
    if (work.met_count == MET_MAX) {
        follow_state.unknown = true;
        return true;
    }
    work.met[work.met_count].address = address;
    work.met[work.met_count++].state = state;
    return false;
}

static bool is_inside(uintptr_t address)
{
    return address >= work.start && address < work.end;
}

/* The frame has been given up: a jump out of the function is a call in place of a return. Every function has at
 * least 8 bytes of frame when it calls another, since the stack is aligned to 16 then. */
static bool has_left_frame(void)
{
    return follow_state.way.registers[RSP].kind != STACK || follow_state.way.registers[RSP].offset > work.stack;
}

/* A call in the function's last place. */
static void do_last_call(ZydisDecodedOperand *operands)
{
    do_call(operands);
    do_return();
}

/* The compiler has moved this side away as unlikely. It is not followed: what is rarely done does not tell what a
 * function is for. But if nothing else is seen, nothing is known. */
static void leave_out(void)
{
    work.left = true;
    end_way();
}

static void do_jump(ZydisDecodedOperand *operands)
{
    bool is_direct = operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
    bool is_indexed = operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY && operands[0].mem.index != ZYDIS_REGISTER_NONE;
    uintptr_t target = is_direct ? target_of(&operands[0]) : 0;
    if (is_inside(target)) {
        if (was_met(target)) end_way();
        else follow_state.way.next = target;
    } else if (has_left_frame() && !is_indexed) do_last_call(operands);
    else if (is_direct) leave_out();
    else give_up_way(); /* a table of targets */
}

static void wait_at(uintptr_t target)
{
    if (was_met(target)) return;
    if (work.waiting_count == WAYS_MAX) {
        follow_state.unknown = true;
        return;
    }
    work.waiting[work.waiting_count] = follow_state.way;
    work.waiting[work.waiting_count++].next = target;
}

/* Both sides, but where there is no object. */
static void do_branch(ZydisDecodedOperand *operands)
{
    uintptr_t target = target_of(&operands[0]);
    ZydisMnemonic mnemonic = follow_state.instruction.mnemonic;
    bool only_ahead = follow_state.way.tests_null && mnemonic == ZYDIS_MNEMONIC_JZ;
    bool only_target = follow_state.way.tests_null && mnemonic == ZYDIS_MNEMONIC_JNZ;
    if (only_ahead) return;
    if (is_inside(target)) wait_at(target);
    else work.left = true;
    if (only_target) end_way();
}

/* ---- one instruction after the other ----------------------------------------------------------------------------- */

static void do_by_category(ZydisDecodedOperand *operands)
{
    switch (follow_state.instruction.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
        do_branch(operands);
        return;
    case ZYDIS_CATEGORY_SYSCALL:
        do_system_call();
        return;
    default:
        do_data(operands);
        return;
    }
}

static void do_instruction(ZydisDecodedOperand *operands)
{
    note_test(operands);
    switch (follow_state.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_CALL:
        do_call_within(operands);
        return;
    case ZYDIS_MNEMONIC_JMP:
        do_jump(operands);
        return;
    case ZYDIS_MNEMONIC_RET:
        do_return();
        return;
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_HLT:
        end_way();
        return;
    default:
        do_by_category(operands);
        return;
    }
}

static void do_next(void)
{
    uintptr_t at = follow_state.way.next;
    work.called = false;
    if (!is_inside(at) || work.decoded == work.decoded_max ||
        !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&work.decoder, (const void *)at, work.end - at, &follow_state.instruction,
                                             work.operands))) {
        give_up_way();
        return;
    }
    work.decoded++;
    follow_state.way.next += follow_state.instruction.length;
    do_instruction(work.operands);
}

/* Follow all ways; true: the goal has been reached, by the call in front of it. */
static bool follow_ways(void)
{
    for (;;) {
        while (follow_state.way.next != 0 && !follow_state.used && !follow_state.began_matters) {
            if (follow_state.way.next == work.goal && work.called) return true;
            do_next();
            if (follow_state.way.registers[RBP].kind == STACK) work.frame = follow_state.way.registers[RBP];
        }
        if (follow_state.used || follow_state.began_matters || work.waiting_count == 0) return false;
        follow_state.way = work.waiting[--work.waiting_count];
        work.called = false;
    }
}

/* ---- where to begin ---------------------------------------------------------------------------------------------- */

static void way_begin(uintptr_t address, enum kind others)
{
    follow_state.way = (struct way){.next = address, .passing = NOT_PASSED, .shifted_written = INT16_MIN};
    for (unsigned i = 0; others == UNSEEN && i < REGISTERS; i++) {
        follow_state.way.registers[i] = (struct value){UNSEEN, (uint16_t)i, 0};
    }
    follow_state.way.registers[RSP] = (struct value){STACK, 0, 0};
    work.stack = 0;
}

static void work_begin(uintptr_t goal, unsigned instructions_max)
{
    work.goal = goal;
    work.decoded_max = work.decoded + instructions_max;
    work.waiting_count = work.met_count = 0;
    work.called = work.passed_on = work.left = false;
    follow_state.used = follow_state.unknown = follow_state.began_matters = false;
}

/* Learn from the function's start on what is known where the call returns. False: the call has not been found; then
 * the frame pointer is known if the function has one, and no parameter. */
static bool begin_at_start(uintptr_t return_address)
{
    way_begin(work.start, OTHER);
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        follow_state.way.registers[argument_registers[i]] = (struct value){PARAMETER, (uint16_t)i, 0};
    }
    work_begin(return_address, BEGINNING_MAX);
    follow_state.began_known = true;
    work.frame = nothing;
    bool found = follow_ways();
    if (!found) {
        way_begin(return_address, OTHER);
        follow_state.way.registers[RBP] = work.frame;
        follow_state.way.registers[RSP].offset = INT32_MIN / 2; /* anywhere, if only it is not near the frame pointer */
    }
    work.stack = follow_state.way.registers[RSP].offset;
    return found;
}

/* The call has stored the object where one of its arguments pointed. False: that is nowhere in this frame, nor a
 * parameter. */
static bool take_from_argument(struct value argument)
{
    follow_state.way.registers[RAX] = argument; /* returned besides, where a structure is returned */
    if (argument.kind == STACK) slot_store(argument.offset, (struct value){OBJECT, 0, 0});
    else if (argument.kind == PARAMETER && argument.offset == 0) object_store(argument, (struct value){OBJECT, 0, 0});
    else return false;
    return true;
}

static enum follow conclude(int *passing)
{
    if (follow_state.used) return FOLLOW_USED;
    if (follow_state.unknown) return FOLLOW_UNKNOWN;
    if (work.passed_on) {
        *passing = work.passing;
        return FOLLOW_PASSED_ON;
    }
    /* Without a way that was left out, nobody else gets the object: the function keeps it to itself, or drops it. */
    return work.left ? FOLLOW_UNKNOWN : FOLLOW_USED;
}

static enum follow follow_returned(uintptr_t return_address, int *passing)
{
    follow_state.began_known = false;
    way_begin(return_address, UNSEEN);
    follow_state.way.registers[RAX] = (struct value){OBJECT, 0, 0};
    work_begin(0, INSTRUCTIONS_MAX);
    follow_ways();
    if (!follow_state.began_matters) return conclude(passing);
    begin_at_start(return_address);
    follow_state.way.registers[RAX] = (struct value){OBJECT, 0, 0};
    work_begin(0, INSTRUCTIONS_MAX);
    follow_ways();
    return conclude(passing);
}

static enum follow follow_argument(uintptr_t return_address, int *passing)
{
    if (!begin_at_start(return_address)) {
        /* Wrappers are short: a function that has done so much before is none, wherever the object has been stored. */
        return work.decoded == work.decoded_max ? FOLLOW_USED : FOLLOW_UNKNOWN;
    }
    work_begin(0, INSTRUCTIONS_MAX);
    if (!take_from_argument(work.arguments[*passing])) return FOLLOW_USED;
    follow_ways();
    return conclude(passing);
}

enum follow follow_pointer(uintptr_t return_address, uintptr_t start, uintptr_t end, int *passing, unsigned *decoded)
{
    struct code code;
    *decoded = 0;
    /* The program may have brought another version of the decoder under the same names: its structures may differ. */
    if (ZydisGetVersion() != ZYDIS_VERSION) return FOLLOW_UNKNOWN;
    if (!(start < return_address && return_address < end)) return FOLLOW_UNKNOWN;
    if (!code_find(start, &code) || end > code.end) return FOLLOW_UNKNOWN;
    ZydisDecoderInit(&work.decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    work.start = start;
    work.end = end;
    work.decoded = 0;
    enum follow follow = *passing == PASSED_BY_RETURN ? follow_returned(return_address, passing)
                                                      : follow_argument(return_address, passing);
    *decoded = work.decoded;
    return follow;
}
