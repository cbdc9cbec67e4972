/* What an instruction makes of what is known: of registers, of slots of the stack, and of whether the object is used. What
 * counts as a use is said in follow.c. */
#include "follow_state.h"

/* Bytes at an object's start that may be a header: what malloc's own may take at most, and a cache line. */
enum { HEADER_MAX = 64 };

struct follow_state follow_state;

static const struct value unseen = {UNSEEN, REGISTERS, 0};

static struct value shift(struct value value, int64_t by)
{
    struct value shifted = {value.kind, value.number, (int32_t)(value.offset + by)};
    return value.kind == OTHER || by != (int32_t)by ? nothing : shifted;
}

static struct value shift_by_unknown(struct value value)
{
    return (struct value){is_object(value) ? SHIFTED : OTHER, 0, 0};
}

void end_way(void)
{
    follow_state.way.next = 0;
}

void give_up_way(void)
{
    follow_state.unknown = true;
    end_way();
}

/* ---- slots of the stack ------------------------------------------------------------------------------------------ */

struct value slot_load(int32_t offset)
{
    for (unsigned i = 0; i < follow_state.way.slot_count; i++) {
        if (follow_state.way.slots[i].offset == offset) return follow_state.way.slots[i].value;
    }
    return follow_state.began_known ? nothing : unseen;
}

static void slots_forget(int32_t offset, int32_t size)
{
    struct way *way = &follow_state.way;
    for (unsigned i = 0; i < way->slot_count;) {
        bool overlaps = way->slots[i].offset < offset + size && offset < way->slots[i].offset + 8;
        if (overlaps) {
            way->slots[i] = way->slots[--way->slot_count];
            way->slots[way->slot_count] = (struct slot){0};
        } else i++;
    }
}

void slot_store(int32_t offset, struct value value)
{
    struct way *way = &follow_state.way;
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
    return number != NO_REGISTER ? follow_state.way.registers[number] : nothing;
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
    return address.kind == PARAMETER && address.offset == 0 && address.number == follow_state.way.passing;
}

static struct value load(struct value address, unsigned bits)
{
    if (is_object(address)) follow_state.used = true;
    if (bits != 64) return nothing;
    if (address.kind == STACK) return slot_load(address.offset);
    if (is_passed_at(address)) return follow_state.way.passed;
    return address.kind == UNSEEN ? unseen : nothing;
}

/* The object is written to: perhaps a header, if something behind it is passed on. */
static void object_write(struct value address, unsigned bits)
{
    int32_t end = address.offset + (int32_t)(bits / 8);
    int16_t *written = address.kind == OBJECT ? &follow_state.way.written : &follow_state.way.shifted_written;
    if (end > HEADER_MAX || address.offset < -HEADER_MAX || (address.kind == OBJECT && address.offset < 0)) {
        follow_state.used = true;
    } else if (end > *written) *written = (int16_t)end;
}

/* The object's address is stored outside of the frame. Copies of it in registers for arguments have done their
 * service: where nothing is optimised, they stay there, and the next call is not meant to get them. */
void object_store(struct value address, struct value value)
{
    /* A parameter, or a slot of the frame? */
    if (address.kind == UNSEEN && (address.offset == 0 || address.number == RBP)) follow_state.began_matters = true;
    else if (address.kind != PARAMETER || address.offset != 0) follow_state.used = true;
    if (address.kind != PARAMETER) return;
    follow_state.way.passing = (int16_t)address.number;
    follow_state.way.passed = value;
    for (unsigned i = 0; i < ARGUMENTS; i++) {
        struct value *argument = &follow_state.way.registers[argument_registers[i]];
        if (is_object(*argument)) *argument = nothing;
    }
}

static void store(struct value address, unsigned bits, struct value value)
{
    if (is_object(address)) object_write(address, bits);
    else if (address.kind == STACK && bits == 64) slot_store(address.offset, value);
    else if (address.kind == STACK) slots_forget(address.offset, (int32_t)(bits / 8));
    else if (is_object(value)) object_store(address, value);
    else if (is_passed_at(address)) follow_state.way.passing = NOT_PASSED;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

struct value read_operand(const ZydisDecodedOperand *operand)
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
    if (number != NO_REGISTER) follow_state.way.registers[number] = value;
    else if (is_object(value)) follow_state.used = true;
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
    ZydisMnemonic mnemonic = follow_state.instruction.mnemonic;
    bool stays = follow_state.way.tests_null && mnemonic == ZYDIS_MNEMONIC_CMOVZ;
    bool moves = follow_state.way.tests_null && mnemonic == ZYDIS_MNEMONIC_CMOVNZ;
    write_operand(&operands[0], stays || (!moves && is_object(old)) ? old : new);
}

static void do_push(ZydisDecodedOperand *operands)
{
    struct value value = read_operand(&operands[0]);
    follow_state.way.registers[RSP] = shift(follow_state.way.registers[RSP], -8);
    store(follow_state.way.registers[RSP], 64, value);
}

static struct value pop(void)
{
    struct value value = load(follow_state.way.registers[RSP], 64);
    follow_state.way.registers[RSP] = shift(follow_state.way.registers[RSP], 8);
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

static void do_leave(void)
{
    follow_state.way.registers[RSP] = follow_state.way.registers[RBP];
    follow_state.way.registers[RBP] = pop();
}

static void do_address(ZydisDecodedOperand *operands)
{
    write_operand(&operands[0], operands[0].size == 64 ? address_of(&operands[1]) : nothing);
}

/* stos and movs fill what rdi points at; other string instructions read. */
static void do_string(void)
{
    struct value *registers = follow_state.way.registers;
    ZydisMnemonic mnemonic = follow_state.instruction.mnemonic;
    bool stores = mnemonic >= ZYDIS_MNEMONIC_STOSB && mnemonic <= ZYDIS_MNEMONIC_STOSW;
    bool copies = mnemonic >= ZYDIS_MNEMONIC_MOVSB && mnemonic <= ZYDIS_MNEMONIC_MOVSW;
    if (is_object(registers[RSI]) && !stores) follow_state.used = true;
    if (is_object(registers[RDI]) && !stores && !copies) follow_state.used = true;
    if (stores && is_object(registers[RAX])) follow_state.used = true;
    static const uint8_t changed[] = {RDI, RSI, RCX};
    for (unsigned i = 0; i < sizeof changed; i++) registers[changed[i]] = nothing;
    if (!stores && !copies) registers[RAX] = nothing;
}

/* Any other instruction: whatever it writes is of no interest, unless it writes the object's address. */
static void do_other(ZydisDecodedOperand *operands)
{
    bool has_object = false;
    for (unsigned i = 0; i < follow_state.instruction.operand_count; i++) {
        bool is_memory = operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY;
        if (is_memory && operands[i].mem.type == ZYDIS_MEMOP_TYPE_AGEN) continue;
        if ((operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_READ) == 0) continue;
        if (is_object(read_operand(&operands[i])) && !is_memory) has_object = true;
    }
    for (unsigned i = 0; i < follow_state.instruction.operand_count; i++) {
        if ((operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0) continue;
        bool is_general =
            operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER && register_number(operands[i].reg.value) != NO_REGISTER;
        bool is_flags = operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
                        ZydisRegisterGetClass(operands[i].reg.value) == ZYDIS_REGCLASS_FLAGS;
        if (is_flags) continue;
        if (has_object && !is_general) follow_state.used = true;
        write_operand(&operands[i], nothing);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* test a,a and the like; cmp a,0. */
static bool tests_null(ZydisDecodedOperand *operands)
{
    switch (follow_state.instruction.mnemonic) {
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

void note_test(ZydisDecodedOperand *operands)
{
    const ZydisAccessedFlags *flags = follow_state.instruction.cpu_flags;
    if (tests_null(operands)) follow_state.way.tests_null = true;
    else if (flags != NULL && ((flags->modified | flags->set_0 | flags->set_1 | flags->undefined) & ZYDIS_CPUFLAG_ZF)) {
        follow_state.way.tests_null = false;
    }
}

/* ---- by what they are -------------------------------------------------------------------------------------------- */

static void do_by_category(ZydisDecodedOperand *operands)
{
    switch (follow_state.instruction.meta.category) {
    case ZYDIS_CATEGORY_NOP:
    case ZYDIS_CATEGORY_WIDENOP:
        return;
    case ZYDIS_CATEGORY_CMOV:
        do_conditional_move(operands);
        return;
    case ZYDIS_CATEGORY_STRINGOP:
        do_string();
        return;
    default:
        do_other(operands);
        return;
    }
}

void do_data(ZydisDecodedOperand *operands)
{
    switch (follow_state.instruction.mnemonic) {
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
    default:
        do_by_category(operands);
        return;
    }
}
