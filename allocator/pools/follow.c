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

#include <Zydis/Zydis.h>
#include <string.h>

/* Bounds of the work, in instructions. A function that has shown no use after so many is unknown. Most need a few
 * dozen; one that takes all these is analysed once, as all are. */
enum { INSTRUCTIONS_MAX = 400, BEGINNING_MAX = 128 };
/* Ways not yet followed, states met at targets of jumps, slots of the stack with something known: what wrappers
 * need, twice. */
enum { WAYS_MAX = 24, MET_MAX = 64, SLOTS_MAX = 24 };
/* Bytes at an object's start that may be a header: what malloc's own may take at most, and a cache line. */
enum { HEADER_MAX = 64 };

/* ---- what is known at one point ---------------------------------------------------------------------------------- */

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
static const struct value unseen = {UNSEEN, REGISTERS, 0};
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

/* All that following needs, apart from the stack: there may be little of it. */
static struct {
    ZydisDecoder decoder;
    ZydisDecodedInstruction instruction;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    struct way way;
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
    bool began_known; /* what is not noted does not matter; else it may be UNSEEN */
    bool called; /* the last instruction of this way was a call */
    bool used, passed_on, unknown, began_matters;
    bool left; /* to code that has been moved away as unlikely */
} work;

static bool is_object(struct value value)
{
    return value.kind == OBJECT || value.kind == SHIFTED;
}

static struct value shift(struct value value, int64_t by)
{
    struct value shifted = {value.kind, value.number, (int32_t)(value.offset + by)};
    return value.kind == OTHER || by != (int32_t)by ? nothing : shifted;
}

static struct value shift_by_unknown(struct value value)
{
    return (struct value){is_object(value) ? SHIFTED : OTHER, 0, 0};
}

static void end_way(void)
{
    work.way.next = 0;
}

static void give_up_way(void)
{
    work.unknown = true;
    end_way();
}

/* ---- slots of the stack ------------------------------------------------------------------------------------------ */

static struct value slot_load(int32_t offset)
{
    for (unsigned i = 0; i < work.way.slot_count; i++) {
        if (work.way.slots[i].offset == offset) return work.way.slots[i].value;
    }
    return work.began_known ? nothing : unseen;
}

static void slots_forget(int32_t offset, int32_t size)
{
    struct way *way = &work.way;
    for (unsigned i = 0; i < way->slot_count;) {
        bool overlaps = way->slots[i].offset < offset + size && offset < way->slots[i].offset + 8;
        if (overlaps) {
            way->slots[i] = way->slots[--way->slot_count];
            way->slots[way->slot_count] = (struct slot){0};
        } else i++;
    }
}

static void slot_store(int32_t offset, struct value value)
{
    struct way *way = &work.way;
    slots_forget(offset, 8);
    if (value.kind <= UNSEEN) return;
    if (way->slot_count < SLOTS_MAX) way->slots[way->slot_count++] = (struct slot){offset, value};
    else if (is_object(value)) give_up_way();
}

/* ---- reading and writing memory ---------------------------------------------------------------------------------- */

static unsigned register_number(ZydisRegister reg)
{
    ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
    return whole >= ZYDIS_REGISTER_RAX && whole <= ZYDIS_REGISTER_R15 ? (unsigned)(whole - ZYDIS_REGISTER_RAX)
                                                                      : (unsigned)NO_REGISTER;
}

static struct value register_value(ZydisRegister reg)
{
    unsigned number = register_number(reg);
    return number != NO_REGISTER ? work.way.registers[number] : nothing;
}

/* The address that a memory operand stands for. */
static struct value address_of(const ZydisDecodedOperand *operand)
{
    struct value base = register_value(operand->mem.base);
    struct value index = register_value(operand->mem.index);
    if (operand->mem.segment == ZYDIS_REGISTER_FS || operand->mem.segment == ZYDIS_REGISTER_GS) base.kind = OTHER;
    if (operand->mem.index == ZYDIS_REGISTER_NONE) return shift(base, operand->mem.disp.value);
    return shift(shift_by_unknown(is_object(base) ? base : index), operand->mem.disp.value);
}

/* Offset 0 of a parameter is what it points at; what this function has stored there is the object, too. */
static bool is_passed_at(struct value address)
{
    return address.kind == PARAMETER && address.offset == 0 && address.number == work.way.passing;
}

static struct value load(struct value address, unsigned bits)
{
    if (is_object(address)) work.used = true;
    if (bits != 64) return nothing;
    if (address.kind == STACK) return slot_load(address.offset);
    if (is_passed_at(address)) return work.way.passed;
    return address.kind == UNSEEN ? unseen : nothing;
}

/* The object is written to: perhaps a header, if something behind it is passed on. */
static void object_write(struct value address, unsigned bits)
{
    int32_t end = address.offset + (int32_t)(bits / 8);
    int16_t *written = address.kind == OBJECT ? &work.way.written : &work.way.shifted_written;
    if (end > HEADER_MAX || address.offset < -HEADER_MAX || (address.kind == OBJECT && address.offset < 0)) {
        work.used = true;
    } else if (end > *written) *written = (int16_t)end;
}

/* The object's address is stored outside of the frame. Copies of it in registers for arguments have done their
 * service: where nothing is optimised, they stay there, and the next call is not meant to get them. */
static void object_store(struct value address, struct value value)
{
    /* A parameter, or a slot of the frame? */
    if (address.kind == UNSEEN && (address.offset == 0 || address.number == RBP)) work.began_matters = true;
    else if (address.kind != PARAMETER || address.offset != 0) work.used = true;
    if (address.kind != PARAMETER) return;
    work.way.passing = (int16_t)address.number;
    work.way.passed = value;
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        struct value *argument = &work.way.registers[argument_registers[i]];
        if (is_object(*argument)) *argument = nothing;
    }
}

static void store(struct value address, unsigned bits, struct value value)
{
    if (is_object(address)) object_write(address, bits);
    else if (address.kind == STACK && bits == 64) slot_store(address.offset, value);
    else if (address.kind == STACK) slots_forget(address.offset, (int32_t)(bits / 8));
    else if (is_object(value)) object_store(address, value);
    else if (is_passed_at(address)) work.way.passing = NOT_PASSED;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static struct value read_operand(const ZydisDecodedOperand *operand)
{
    if (operand->type == ZYDIS_OPERAND_TYPE_MEMORY) return load(address_of(operand), operand->size);
    if (operand->type != ZYDIS_OPERAND_TYPE_REGISTER || operand->size != 64) return nothing;
    return register_value(operand->reg.value);
}

/* Pointers go to vector registers only to be stored beside others, as fields of something. */
static void write_operand(const ZydisDecodedOperand *operand, struct value value)
{
    if (operand->type == ZYDIS_OPERAND_TYPE_MEMORY) {
        store(address_of(operand), operand->size, value);
        return;
    }
    unsigned number = register_number(operand->reg.value);
    if (number != NO_REGISTER) work.way.registers[number] = value;
    else if (is_object(value)) work.used = true;
}

static bool is_zero(const ZydisDecodedOperand *operand)
{
    return operand->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operand->imm.value.s == 0;
}

static bool is_same_register(const ZydisDecodedOperand *a, const ZydisDecodedOperand *b)
{
    return a->type == ZYDIS_OPERAND_TYPE_REGISTER && b->type == ZYDIS_OPERAND_TYPE_REGISTER &&
           a->reg.value == b->reg.value;
}

/* ---- instructions that move and compute -------------------------------------------------------------------------- */

static void do_move(ZydisDecodedOperand *operands)
{
    struct value value = read_operand(&operands[1]);
    write_operand(&operands[0], operands[0].size == 64 ? value : nothing);
}

static void do_exchange(ZydisDecodedOperand *operands)
{
    struct value first = read_operand(&operands[0]), second = read_operand(&operands[1]);
    write_operand(&operands[0], second);
    write_operand(&operands[1], first);
}

/* There is an object where this matters: a test for NULL has one result. */
static void do_conditional_move(ZydisDecodedOperand *operands)
{
    struct value old = read_operand(&operands[0]), new = read_operand(&operands[1]);
    ZydisMnemonic mnemonic = work.instruction.mnemonic;
    bool stays = work.way.tests_null && mnemonic == ZYDIS_MNEMONIC_CMOVZ;
    bool moves = work.way.tests_null && mnemonic == ZYDIS_MNEMONIC_CMOVNZ;
    write_operand(&operands[0], stays || (!moves && is_object(old)) ? old : new);
}

static void do_push(ZydisDecodedOperand *operands)
{
    struct value value = read_operand(&operands[0]);
    work.way.registers[RSP] = shift(work.way.registers[RSP], -8);
    store(work.way.registers[RSP], 64, value);
}

static struct value pop(void)
{
    struct value value = load(work.way.registers[RSP], 64);
    work.way.registers[RSP] = shift(work.way.registers[RSP], 8);
    return value;
}

/* The address plus or minus something. */
static void do_add(ZydisDecodedOperand *operands, int sign)
{
    struct value sum = read_operand(&operands[0]), other = read_operand(&operands[1]);
    if (operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE) sum = shift(sum, sign * operands[1].imm.value.s);
    else if (is_object(other) && sign > 0) sum = shift_by_unknown(other);
    else sum = is_object(other) ? nothing : shift_by_unknown(sum);
    write_operand(&operands[0], sum);
}

/* Aligns an address; the stack pointer's remainder is not known, but the same everywhere. */
static void do_and(ZydisDecodedOperand *operands)
{
    struct value value = read_operand(&operands[0]), mask = read_operand(&operands[1]);
    bool is_number = operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
    if (is_same_register(&operands[0], &operands[1])) return;
    if (is_number && value.kind == STACK) value.offset &= (int32_t)operands[1].imm.value.s;
    else if (is_number && operands[1].imm.value.s >= 0) value = nothing; /* its low bits, to look at */
    else value = shift_by_unknown(is_object(value) ? value : mask);
    write_operand(&operands[0], value);
}

/* stos and movs fill what rdi points at; other string instructions read. */
static void do_string(void)
{
    struct value *registers = work.way.registers;
    ZydisMnemonic mnemonic = work.instruction.mnemonic;
    bool stores = mnemonic >= ZYDIS_MNEMONIC_STOSB && mnemonic <= ZYDIS_MNEMONIC_STOSW;
    bool copies = mnemonic >= ZYDIS_MNEMONIC_MOVSB && mnemonic <= ZYDIS_MNEMONIC_MOVSW;
    if (is_object(registers[RSI]) && !stores) work.used = true;
    if (is_object(registers[RDI]) && !stores && !copies) work.used = true;
    if (stores && is_object(registers[RAX])) work.used = true;
    static const uint8_t changed[] = {RDI, RSI, RCX};
    for (unsigned i = 0; i < sizeof changed; i++) registers[changed[i]] = nothing;
    if (!stores && !copies) registers[RAX] = nothing;
}

/* Any other instruction: whatever it writes is of no interest, unless it writes the object's address. */
static void do_other(ZydisDecodedOperand *operands)
{
    bool has_object = false;
    for (unsigned i = 0; i < work.instruction.operand_count; i++) {
        bool is_memory = operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY;
        if (is_memory && operands[i].mem.type == ZYDIS_MEMOP_TYPE_AGEN) continue;
        if ((operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_READ) == 0) continue;
        if (is_object(read_operand(&operands[i])) && !is_memory) has_object = true;
    }
    for (unsigned i = 0; i < work.instruction.operand_count; i++) {
        if ((operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0) continue;
        bool is_general =
            operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER && register_number(operands[i].reg.value) != NO_REGISTER;
        bool is_flags = operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
                        ZydisRegisterGetClass(operands[i].reg.value) == ZYDIS_REGCLASS_FLAGS;
        if (is_flags) continue;
        if (has_object && !is_general) work.used = true;
        write_operand(&operands[i], nothing);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* test a,a and the like; cmp a,0. */
static bool tests_null(ZydisDecodedOperand *operands)
{
    switch (work.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_TEST:
    case ZYDIS_MNEMONIC_AND:
    case ZYDIS_MNEMONIC_OR:
        return is_same_register(&operands[0], &operands[1]) && is_object(read_operand(&operands[0]));
    case ZYDIS_MNEMONIC_CMP:
        return is_zero(&operands[1]) && is_object(read_operand(&operands[0]));
    default:
        return false;
    }
}

static void note_test(ZydisDecodedOperand *operands)
{
    const ZydisAccessedFlags *flags = work.instruction.cpu_flags;
    if (tests_null(operands)) work.way.tests_null = true;
    else if (flags != NULL && ((flags->modified | flags->set_0 | flags->set_1 | flags->undefined) & ZYDIS_CPUFLAG_ZF)) {
        work.way.tests_null = false;
    }
}

/* ---- the ends of ways -------------------------------------------------------------------------------------------- */

/* `value` leaves the function. What has been written to the object must all lie in front of it. If it is stored for
 * the caller on one way and returned on another, the former is meant. */
static void pass_on(struct value value, int passing)
{
    const struct way *way = &work.way;
    bool is_whole = value.kind == OBJECT && way->written <= value.offset && way->shifted_written == INT16_MIN;
    if (!is_whole && !(value.kind == SHIFTED && way->shifted_written <= value.offset)) work.used = true;
    if (work.passed_on && work.passing >= passing) return;
    work.passed_on = true;
    work.passing = passing;
}

/* What has been stored for the caller may still be in rax, though nothing is returned. Two words may be: rax and
 * rdx. */
static void do_return(void)
{
    const struct way *way = &work.way;
    if (way->passing != NOT_PASSED) pass_on(way->passed, way->passing);
    else if (is_object(way->registers[RAX])) pass_on(way->registers[RAX], PASSED_BY_RETURN);
    else if (is_object(way->registers[RDX])) pass_on(way->registers[RDX], PASSED_BY_RETURN);
    else if (way->written != 0 || way->shifted_written != INT16_MIN) work.used = true;
    end_way();
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* The address that a call or jump goes to, through a linkage table's entry too; 0: only known when it happens. */
static uintptr_t target_of(const ZydisDecodedOperand *operand)
{
    if (operand->type == ZYDIS_OPERAND_TYPE_IMMEDIATE) return work.way.next + operand->imm.value.u;
    if (operand->type != ZYDIS_OPERAND_TYPE_MEMORY || operand->mem.base != ZYDIS_REGISTER_RIP) return 0;
    return code_slot(work.way.next + (uintptr_t)operand->mem.disp.value);
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
    else work.used = true;
    return nothing;
}

static void do_call(ZydisDecodedOperand *operands)
{
    static const uint8_t lost[] = {RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11};
    struct value *registers = work.way.registers;
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
    if (work.way.next >= work.end) end_way();
    else do_call(operands);
}

static void do_system_call(void)
{
    struct value *registers = work.way.registers;
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        if (is_object(registers[argument_registers[i]])) work.used = true;
    }
    registers[RAX] = registers[RCX] = registers[R11] = nothing;
}

/* ---- jumps ------------------------------------------------------------------------------------------------------- */

/* FNV's prime and offset, over words. */
static uint64_t state_hash(void)
{
    uint64_t hash = 0xcbf29ce484222325, word;
    const char *bytes = (const char *)&work.way;
    _Static_assert(sizeof work.way % sizeof word == 0, "hashed by words");
    for (size_t at = sizeof work.way.next; at < sizeof work.way; at += sizeof word) {
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
        work.unknown = true;
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
    return work.way.registers[RSP].kind != STACK || work.way.registers[RSP].offset > work.stack;
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
        else work.way.next = target;
    } else if (has_left_frame() && !is_indexed) do_last_call(operands);
    else if (is_direct) leave_out();
    else give_up_way(); /* a table of targets */
}

static void wait_at(uintptr_t target)
{
    if (was_met(target)) return;
    if (work.waiting_count == WAYS_MAX) {
        work.unknown = true;
        return;
    }
    work.waiting[work.waiting_count] = work.way;
    work.waiting[work.waiting_count++].next = target;
}

/* Both sides, but where there is no object. */
static void do_branch(ZydisDecodedOperand *operands)
{
    uintptr_t target = target_of(&operands[0]);
    ZydisMnemonic mnemonic = work.instruction.mnemonic;
    bool only_ahead = work.way.tests_null && mnemonic == ZYDIS_MNEMONIC_JZ;
    bool only_target = work.way.tests_null && mnemonic == ZYDIS_MNEMONIC_JNZ;
    if (only_ahead) return;
    if (is_inside(target)) wait_at(target);
    else work.left = true;
    if (only_target) end_way();
}

/* ---- one instruction after the other ----------------------------------------------------------------------------- */

static void do_leave(void)
{
    work.way.registers[RSP] = work.way.registers[RBP];
    work.way.registers[RBP] = pop();
}

static void do_address(ZydisDecodedOperand *operands)
{
    write_operand(&operands[0], operands[0].size == 64 ? address_of(&operands[1]) : nothing);
}

static void do_by_category(ZydisDecodedOperand *operands)
{
    switch (work.instruction.meta.category) {
    case ZYDIS_CATEGORY_NOP:
    case ZYDIS_CATEGORY_WIDENOP:
        return;
    case ZYDIS_CATEGORY_COND_BR:
        do_branch(operands);
        return;
    case ZYDIS_CATEGORY_CMOV:
        do_conditional_move(operands);
        return;
    case ZYDIS_CATEGORY_STRINGOP:
        do_string();
        return;
    case ZYDIS_CATEGORY_SYSCALL:
        do_system_call();
        return;
    default:
        do_other(operands);
        return;
    }
}

static void do_instruction(ZydisDecodedOperand *operands)
{
    note_test(operands);
    switch (work.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_MOV:
        do_move(operands);
        return;
    case ZYDIS_MNEMONIC_XCHG:
        do_exchange(operands);
        return;
    case ZYDIS_MNEMONIC_LEA:
        do_address(operands);
        return;
    case ZYDIS_MNEMONIC_ADD:
        do_add(operands, 1);
        return;
    case ZYDIS_MNEMONIC_SUB:
        do_add(operands, -1);
        return;
    case ZYDIS_MNEMONIC_AND:
        do_and(operands);
        return;
    case ZYDIS_MNEMONIC_PUSH:
        do_push(operands);
        return;
    case ZYDIS_MNEMONIC_POP:
        write_operand(&operands[0], pop());
        return;
    case ZYDIS_MNEMONIC_LEAVE:
        do_leave();
        return;
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
    uintptr_t at = work.way.next;
    work.called = false;
    if (!is_inside(at) || work.decoded == work.decoded_max ||
        !ZYAN_SUCCESS(
            ZydisDecoderDecodeFull(&work.decoder, (const void *)at, work.end - at, &work.instruction, work.operands))) {
        give_up_way();
        return;
    }
    work.decoded++;
    work.way.next += work.instruction.length;
    do_instruction(work.operands);
}

/* Follow all ways; true: the goal has been reached, by the call in front of it. */
static bool follow_ways(void)
{
    for (;;) {
        while (work.way.next != 0 && !work.used && !work.began_matters) {
            if (work.way.next == work.goal && work.called) return true;
            do_next();
            if (work.way.registers[RBP].kind == STACK) work.frame = work.way.registers[RBP];
        }
        if (work.used || work.began_matters || work.waiting_count == 0) return false;
        work.way = work.waiting[--work.waiting_count];
        work.called = false;
    }
}

/* ---- where to begin ---------------------------------------------------------------------------------------------- */

static void way_begin(uintptr_t address, enum kind others)
{
    work.way = (struct way){.next = address, .passing = NOT_PASSED, .shifted_written = INT16_MIN};
    for (unsigned i = 0; others == UNSEEN && i < REGISTERS; i++) {
        work.way.registers[i] = (struct value){UNSEEN, (uint16_t)i, 0};
    }
    work.way.registers[RSP] = (struct value){STACK, 0, 0};
    work.stack = 0;
}

static void work_begin(uintptr_t goal, unsigned instructions_max)
{
    work.goal = goal;
    work.decoded_max = work.decoded + instructions_max;
    work.waiting_count = work.met_count = 0;
    work.called = work.used = work.passed_on = work.unknown = work.began_matters = work.left = false;
}

/* Learn from the function's start on what is known where the call returns. False: the call has not been found; then
 * the frame pointer is known if the function has one, and no parameter. */
static bool begin_at_start(uintptr_t return_address)
{
    way_begin(work.start, OTHER);
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        work.way.registers[argument_registers[i]] = (struct value){PARAMETER, (uint16_t)i, 0};
    }
    work_begin(return_address, BEGINNING_MAX);
    work.began_known = true;
    work.frame = nothing;
    bool found = follow_ways();
    if (!found) {
        way_begin(return_address, OTHER);
        work.way.registers[RBP] = work.frame;
        work.way.registers[RSP].offset = INT32_MIN / 2; /* anywhere, if only it is not near the frame pointer */
    }
    work.stack = work.way.registers[RSP].offset;
    return found;
}

/* The call has stored the object where one of its arguments pointed. False: that is nowhere in this frame, nor a
 * parameter. */
static bool take_from_argument(struct value argument)
{
    work.way.registers[RAX] = argument; /* returned besides, where a structure is returned */
    if (argument.kind == STACK) slot_store(argument.offset, (struct value){OBJECT, 0, 0});
    else if (argument.kind == PARAMETER && argument.offset == 0) object_store(argument, (struct value){OBJECT, 0, 0});
    else return false;
    return true;
}

static enum follow conclude(int *passing)
{
    if (work.used) return FOLLOW_USED;
    if (work.unknown) return FOLLOW_UNKNOWN;
    if (work.passed_on) {
        *passing = work.passing;
        return FOLLOW_PASSED_ON;
    }
    /* Without a way that was left out, nobody else gets the object: the function keeps it to itself, or drops it. */
    return work.left ? FOLLOW_UNKNOWN : FOLLOW_USED;
}

static enum follow follow_returned(uintptr_t return_address, int *passing)
{
    work.began_known = false;
    way_begin(return_address, UNSEEN);
    work.way.registers[RAX] = (struct value){OBJECT, 0, 0};
    work_begin(0, INSTRUCTIONS_MAX);
    follow_ways();
    if (!work.began_matters) return conclude(passing);
    begin_at_start(return_address);
    work.way.registers[RAX] = (struct value){OBJECT, 0, 0};
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
