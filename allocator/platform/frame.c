/* How a frame is left: a small reader of .eh_frame, and the step that it makes possible.
 *
 * Why not libunwind: it allocates, locks, keeps caches of its own and is one more library to depend on; and what is wanted is
 * less. Compilers describe nearly every point at which a call returns by two or three numbers: where the caller's stack
 * pointer is, counted from the stack or frame pointer, and where the return address and the caller's frame pointer lie
 * below it. That is the whole of a frame_rule. Whatever is described in another way (expressions, as of signal frames
 * and of realigned stacks; other registers; signed return addresses) is FRAME_UNKNOWN.
 *
 * The object that holds an address, and its table of rules sorted by address, come from _dl_find_object: it takes no locks and
 * may be called anywhere. The tables are not trusted: all reads stay within the segment that holds them, and the
 * stack is read only where memory is known to be readable. So a wrong rule leads to a wrong address, never to a fault.
 *
 * The format: DWARF 5, section 6.4; Linux Standard Base Core 5.0, chapter 10.6.
 */
#include "frame.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "image.h"

#if defined(__x86_64__)
enum { REGISTER_BASE = 6, REGISTER_STACK = 7, REGISTER_RETURN = 16 }; /* rbp, rsp, rip, as DWARF numbers them */
#elif defined(__aarch64__)
enum { REGISTER_BASE = 29, REGISTER_STACK = 31, REGISTER_RETURN = 30 };
#endif

/* Of the stack: all that is saved there takes whole ones. */
enum { WORD = sizeof(uintptr_t) };

/* ---- reading within bounds ------------------------------------------------------------------------------------------- */

/* Reads from `at` up to `end`. Who would read beyond gets 0, from then on. */
struct reader {
    const uint8_t *at, *end;
    bool failed;
};

static const uint8_t *take(struct reader *reader, size_t size)
{
    if (reader->failed || (size_t)(reader->end - reader->at) < size) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *bytes = reader->at;
    reader->at += size;
    return bytes;
}

static uint64_t take_unsigned(struct reader *reader, size_t size)
{
    uint64_t value = 0;
    const uint8_t *bytes = take(reader, size);
    if (bytes != NULL) memcpy(&value, bytes, size); /* little-endian, like all that we build for */
    return value;
}

static int64_t take_signed(struct reader *reader, size_t size)
{
    unsigned unused_bits = 64 - 8 * (unsigned)size;
    return (int64_t)(take_unsigned(reader, size) << unused_bits) >> unused_bits;
}

/* Numbers of variable length: seven bits a byte. Beyond 64 bits all are lost, as nobody means them. */
static uint64_t take_leb(struct reader *reader, unsigned *bits)
{
    uint64_t value = 0, byte;
    *bits = 0;
    do {
        byte = take_unsigned(reader, 1);
        if (*bits < 64) value |= (byte & 0x7f) << *bits;
        *bits += 7;
    } while (byte & 0x80);
    return value;
}

static uint64_t take_uleb(struct reader *reader)
{
    unsigned bits;
    return take_leb(reader, &bits);
}

static int64_t take_sleb(struct reader *reader)
{
    unsigned bits;
    uint64_t value = take_leb(reader, &bits);
    if (bits < 64 && (value >> (bits - 1)) != 0) value |= UINT64_MAX << bits;
    return (int64_t)value;
}

/* What a byte says about a pointer that follows: its form in the low half, what it is counted from in the high one. */
enum {
    POINTER_ABSOLUTE = 0x00,
    POINTER_FORM = 0x0f,
    POINTER_SIGNED = 0x08,
    POINTER_FROM_HERE = 0x10,
    POINTER_AFTER_PADDING = 0x50,
    POINTER_FROM_HEADER_32 = 0x3b, /* signed 32 bits from .eh_frame_hdr's start */
    POINTER_UNSIGNED_32 = 0x03,
    POINTER_ORIGIN = 0xf0, /* its highest bit: the pointer is at the place pointed to */
};

/* Bytes of a pointer of this form; SIZE_MAX, which nobody can take, for forms that compilers do not use here. */
static size_t pointer_size(uint8_t encoding)
{
    static const uint8_t sizes[] = {[0] = 8, [2] = 2, [3] = 4, [4] = 8};
    unsigned form = encoding & (POINTER_FORM & ~POINTER_SIGNED);
    bool aligned = (encoding & POINTER_ORIGIN) == POINTER_AFTER_PADDING;
    return !aligned && form < sizeof sizes && sizes[form] != 0 ? sizes[form] : SIZE_MAX;
}

static uintptr_t take_pointer(struct reader *reader, uint8_t encoding)
{
    uintptr_t here = (uintptr_t)reader->at;
    uint8_t origin = encoding & POINTER_ORIGIN;
    size_t size = pointer_size(encoding);
    if (size == SIZE_MAX || (origin != POINTER_ABSOLUTE && origin != POINTER_FROM_HERE)) {
        reader->failed = true;
        return 0;
    }
    uintptr_t value =
        (uintptr_t)(encoding & POINTER_SIGNED ? take_signed(reader, size) : (int64_t)take_unsigned(reader, size));
    return origin == POINTER_FROM_HERE ? value + here : value;
}

/* ---- where the tables are --------------------------------------------------------------------------------------------- */

/* Absent in a C library before glibc 2.35 and in fully static programs, which seldom bring tables: then no rule is known. */
#pragma weak _dl_find_object

/* The segment that holds an object's tables. Every pointer in them leads to a place within it, or is not followed. */
struct tables {
    uintptr_t header; /* .eh_frame_hdr: where each function's entry is, sorted by address */
    uintptr_t start, end;
};

static struct reader reader_at(const struct tables *tables, uintptr_t address)
{
    bool inside = address - tables->start < tables->end - tables->start;
    return (struct reader){.at = (const uint8_t *)address, .end = (const uint8_t *)tables->end, .failed = !inside};
}

static bool tables_find(uintptr_t address, struct tables *tables)
{
    struct dl_find_object object;
    if (_dl_find_object == NULL || _dl_find_object((void *)address, &object) != 0 || object.dlfo_eh_frame == NULL)
        return false;
    tables->header = (uintptr_t)object.dlfo_eh_frame;
    unsigned count = 0;
    const ElfW(Phdr) *headers = image_parts(object.dlfo_map_start, &count);
    for (unsigned i = 0; i < count; i++) {
        if (headers[i].p_type != PT_LOAD || (headers[i].p_flags & PF_R) == 0) continue;
        tables->start = object.dlfo_link_map->l_addr + headers[i].p_vaddr;
        tables->end = tables->start + headers[i].p_filesz;
        if (!reader_at(tables, tables->header).failed) return true;
    }
    return false;
}

/* The address of the entry of the last function that starts at or before `address`; 0 when there is no table of the one kind
 * that linkers make: pairs of 32-bit distances from the header. */
static uintptr_t entry_find(const struct tables *tables, uintptr_t address)
{
    enum { VERSION = 1 };
    struct reader header = reader_at(tables, tables->header);
    const uint8_t *kinds = take(&header, 4);
    if (kinds == NULL || kinds[0] != VERSION || kinds[2] != POINTER_UNSIGNED_32 || kinds[3] != POINTER_FROM_HEADER_32)
        return 0;
    take(&header, pointer_size(kinds[1]));
    size_t low = 0, high = take_unsigned(&header, 4);
    int32_t pair[2];
    if (header.failed || high > (size_t)(header.end - header.at) / sizeof pair) return 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        memcpy(pair, header.at + middle * sizeof pair, sizeof pair);
        if (tables->header + (uintptr_t)pair[0] <= address) low = middle + 1;
        else high = middle;
    }
    if (low == 0) return 0;
    memcpy(pair, header.at + (low - 1) * sizeof pair, sizeof pair);
    return tables->header + (uintptr_t)pair[1];
}

/* ---- a function's entry in .eh_frame ------------------------------------------------------------------------------------ */

struct function {
    uintptr_t start, end;
    uint64_t code_unit; /* what advances are multiplied with */
    int64_t data_unit; /* and offsets */
    uint8_t pointers; /* their encoding */
    bool augmented;
    struct reader common, own; /* the instructions of a row's making: those of many functions, then its own */
};

/* Far more than any function's; a broken table shall not keep us busy. */
#define ENTRY_BYTES_MAX ((size_t)64 << 10)

/* From behind an entry's length to its end. */
static struct reader entry_at(const struct tables *tables, uintptr_t address)
{
    struct reader entry = reader_at(tables, address);
    size_t length = take_unsigned(&entry, 4);
    if (length > ENTRY_BYTES_MAX || length > (size_t)(entry.end - entry.at)) entry.failed = true;
    else entry.end = entry.at + length;
    return entry;
}

/* What the letters of the common entry say; false for a letter that means more than is understood here: S of a signal frame,
 * B of signed return addresses. */
static bool augmentation_read(const uint8_t *letters, struct reader *entry, struct function *function)
{
    function->pointers = POINTER_ABSOLUTE;
    function->augmented = *letters == 'z';
    if (!function->augmented) return *letters == 0;
    take_uleb(entry); /* its size */
    while (*++letters != 0) {
        uint64_t encoding = take_unsigned(entry, 1);
        if (*letters == 'R') function->pointers = (uint8_t)encoding;
        else if (*letters == 'P') take(entry, pointer_size((uint8_t)encoding)); /* the personality routine */
        else if (*letters != 'L') return false; /* L: how the language's own data are encoded */
    }
    return true;
}

/* The entry that many functions have in common. */
static bool common_read(const struct tables *tables, uintptr_t address, struct function *function)
{
    struct reader entry = entry_at(tables, address);
    bool is_common = take_unsigned(&entry, 4) == 0;
    uint64_t version = take_unsigned(&entry, 1);
    const uint8_t *letters = entry.at;
    while (take_unsigned(&entry, 1) != 0) continue;
    function->code_unit = take_uleb(&entry);
    function->data_unit = take_sleb(&entry);
    uint64_t column = version == 1 ? take_unsigned(&entry, 1) : take_uleb(&entry);
    if (entry.failed || !is_common || (version != 1 && version != 3) || column != REGISTER_RETURN ||
        !augmentation_read(letters, &entry, function))
        return false;
    function->common = entry;
    return !entry.failed;
}

static bool function_read(const struct tables *tables, uintptr_t address, struct function *function)
{
    struct reader entry = entry_at(tables, address);
    uintptr_t here = (uintptr_t)entry.at;
    uint64_t distance = take_unsigned(&entry, 4);
    if (entry.failed || distance == 0 || !common_read(tables, here - distance, function)) return false;
    function->start = take_pointer(&entry, function->pointers);
    function->end = function->start + take_pointer(&entry, function->pointers & POINTER_FORM);
    if (function->augmented) take(&entry, take_uleb(&entry));
    function->own = entry;
    return !entry.failed;
}

/* None begins at 0, where nothing is: that would say of a function that was not found that it was. */
static bool function_find(uintptr_t address, struct function *function)
{
    struct tables tables;
    if (!tables_find(address, &tables)) return false;
    uintptr_t entry = entry_find(&tables, address);
    return entry != 0 && function_read(&tables, entry, function) && function->start != 0 &&
           function->start <= address && address < function->end;
}

/* ---- the row of an address: its instructions run ---------------------------------------------------------------------------- */

enum how {
    UNTOUCHED, /* still in its register */
    SAVED, /* on the stack, at an offset from the caller's stack pointer */
    NOWHERE, /* there is none: of the return address, that nobody called */
    ELSEWHERE, /* in a way that a frame_rule cannot say */
};

struct place {
    enum how how;
    int64_t offset;
};

struct row {
    uint64_t cfa_register; /* the caller's stack pointer is this register's value */
    int64_t cfa_offset; /* plus this */
    bool cfa_computed; /* no: by an expression */
    bool address_signed;
    struct place base, return_address;
};

enum { ROWS_KEPT = 8 }; /* compilers keep one, seldom two */

struct machine {
    const struct function *function;
    uintptr_t address, location;
    struct row row, first, kept[ROWS_KEPT];
    unsigned kept_count;
    bool failed;
};

/* Call frame instructions. The first three have an operand in their low six bits. */
enum {
    CFA_ADVANCE = 0x40,
    CFA_OFFSET = 0x80,
    CFA_RESTORE = 0xc0,
    CFA_PACKED = 0xc0,
    CFA_NOP = 0x00,
    CFA_SET_LOC,
    CFA_ADVANCE_1,
    CFA_ADVANCE_2,
    CFA_ADVANCE_4,
    CFA_OFFSET_EXTENDED,
    CFA_RESTORE_EXTENDED,
    CFA_UNDEFINED,
    CFA_SAME_VALUE,
    CFA_REGISTER,
    CFA_REMEMBER_STATE,
    CFA_RESTORE_STATE,
    CFA_DEF_CFA,
    CFA_DEF_CFA_REGISTER,
    CFA_DEF_CFA_OFFSET,
    CFA_DEF_CFA_EXPRESSION,
    CFA_EXPRESSION,
    CFA_OFFSET_EXTENDED_SF,
    CFA_DEF_CFA_SF,
    CFA_DEF_CFA_OFFSET_SF,
    CFA_VAL_OFFSET,
    CFA_VAL_OFFSET_SF,
    CFA_VAL_EXPRESSION,
    CFA_AARCH64_NEGATE_RA_STATE = 0x2d,
    CFA_GNU_ARGS_SIZE = 0x2e,
};

static void set_place(struct machine *machine, uint64_t number, enum how how, int64_t offset)
{
    struct place place = {how, offset};
    if (number == REGISTER_BASE) machine->row.base = place;
    if (number == REGISTER_RETURN) machine->row.return_address = place;
}

static void restore_place(struct machine *machine, uint64_t number)
{
    if (number == REGISTER_BASE) machine->row.base = machine->first.base;
    if (number == REGISTER_RETURN) machine->row.return_address = machine->first.return_address;
}

/* A product that no sane entry overflows wraps. */
static int64_t scaled(const struct machine *machine, uint64_t offset)
{
    return (int64_t)(offset * (uint64_t)machine->function->data_unit);
}

static void advance(struct machine *machine, uint64_t units)
{
    machine->location += units * machine->function->code_unit;
}

static void set_cfa_offset(struct machine *machine, int64_t offset)
{
    machine->row.cfa_offset = offset;
}

static void set_cfa(struct machine *machine, uint64_t number)
{
    machine->row.cfa_register = number;
    machine->row.cfa_computed = false;
}

static void remember(struct machine *machine)
{
    if (machine->kept_count == ROWS_KEPT) machine->failed = true;
    else machine->kept[machine->kept_count++] = machine->row;
}

static void recall(struct machine *machine)
{
    if (machine->kept_count == 0) machine->failed = true;
    else machine->row = machine->kept[--machine->kept_count];
}

static void skip_expression(struct reader *code)
{
    take(code, take_uleb(code));
}

/* Instructions about where the caller's stack pointer is; false: another. */
static bool run_cfa(struct machine *machine, struct reader *code, uint64_t instruction)
{
    switch (instruction) {
    case CFA_DEF_CFA:
        set_cfa(machine, take_uleb(code));
        set_cfa_offset(machine, (int64_t)take_uleb(code));
        return true;
    case CFA_DEF_CFA_SF:
        set_cfa(machine, take_uleb(code));
        set_cfa_offset(machine, scaled(machine, (uint64_t)take_sleb(code)));
        return true;
    case CFA_DEF_CFA_REGISTER:
        set_cfa(machine, take_uleb(code));
        return true;
    case CFA_DEF_CFA_OFFSET:
        set_cfa_offset(machine, (int64_t)take_uleb(code));
        return true;
    case CFA_DEF_CFA_OFFSET_SF:
        set_cfa_offset(machine, scaled(machine, (uint64_t)take_sleb(code)));
        return true;
    case CFA_DEF_CFA_EXPRESSION:
        skip_expression(code);
        machine->row.cfa_computed = true;
        return true;
    default:
        return false;
    }
}

/* Instructions about where a register is. */
static bool run_register(struct machine *machine, struct reader *code, uint64_t instruction)
{
    if (instruction < CFA_OFFSET_EXTENDED || instruction > CFA_VAL_EXPRESSION) return false;
    uint64_t number = take_uleb(code);
    switch (instruction) {
    case CFA_OFFSET_EXTENDED:
        set_place(machine, number, SAVED, scaled(machine, take_uleb(code)));
        return true;
    case CFA_OFFSET_EXTENDED_SF:
        set_place(machine, number, SAVED, scaled(machine, (uint64_t)take_sleb(code)));
        return true;
    case CFA_RESTORE_EXTENDED:
        restore_place(machine, number);
        return true;
    case CFA_UNDEFINED:
        set_place(machine, number, NOWHERE, 0);
        return true;
    case CFA_SAME_VALUE:
        set_place(machine, number, UNTOUCHED, 0);
        return true;
    case CFA_REGISTER:
    case CFA_VAL_OFFSET:
    case CFA_VAL_OFFSET_SF:
        take_uleb(code);
        break;
    case CFA_EXPRESSION:
    case CFA_VAL_EXPRESSION:
        skip_expression(code);
        break;
    default:
        return false;
    }
    set_place(machine, number, ELSEWHERE, 0);
    return true;
}

/* All others. */
static bool run_other(struct machine *machine, struct reader *code, uint64_t instruction)
{
    switch (instruction) {
    case CFA_NOP:
        return true;
    case CFA_SET_LOC:
        machine->location = take_pointer(code, machine->function->pointers);
        return true;
    case CFA_ADVANCE_1:
        advance(machine, take_unsigned(code, 1));
        return true;
    case CFA_ADVANCE_2:
        advance(machine, take_unsigned(code, 2));
        return true;
    case CFA_ADVANCE_4:
        advance(machine, take_unsigned(code, 4));
        return true;
    case CFA_REMEMBER_STATE:
        remember(machine);
        return true;
    case CFA_RESTORE_STATE:
        recall(machine);
        return true;
    case CFA_AARCH64_NEGATE_RA_STATE:
        machine->row.address_signed = !machine->row.address_signed;
        return true;
    case CFA_GNU_ARGS_SIZE:
        take_uleb(code);
        return true;
    default:
        return false;
    }
}

static void run_one(struct machine *machine, struct reader *code)
{
    uint64_t instruction = take_unsigned(code, 1), operand = instruction & ~(uint64_t)CFA_PACKED;
    switch (instruction & CFA_PACKED) {
    case CFA_ADVANCE:
        advance(machine, operand);
        return;
    case CFA_OFFSET:
        set_place(machine, operand, SAVED, scaled(machine, take_uleb(code)));
        return;
    case CFA_RESTORE:
        restore_place(machine, operand);
        return;
    default:
        break;
    }
    /* CFA instructions first: their numbers lie among those of registers. */
    if (!run_cfa(machine, code, instruction) && !run_other(machine, code, instruction) &&
        !run_register(machine, code, instruction))
        machine->failed = true;
}

/* Up to the first row that begins behind the address. */
static void run(struct machine *machine, struct reader code)
{
    struct row row = machine->row;
    while (code.at < code.end && !machine->failed) {
        run_one(machine, &code);
        machine->failed |= code.failed;
        if (machine->location > machine->address) break;
        row = machine->row;
    }
    machine->row = row;
}

static bool row_find(const struct function *function, uintptr_t address, struct row *row)
{
    struct machine machine = {.function = function, .address = address, .location = function->start};
    run(&machine, function->common);
    machine.first = machine.row;
    run(&machine, function->own);
    *row = machine.row;
    return !machine.failed;
}

/* ---- rules ------------------------------------------------------------------------------------------------------------------- */

/* Whether a word lies so far below the caller's stack pointer, within the bounds of a step. */
static bool is_slot(const struct place *place)
{
    return place->how == SAVED && place->offset < 0 && place->offset >= -FRAME_BYTES_MAX && place->offset % WORD == 0;
}

static struct frame_rule rule_of(const struct row *row)
{
    const struct frame_rule unknown = {.known = FRAME_UNKNOWN};
    if (row->return_address.how == NOWHERE) return (struct frame_rule){.known = FRAME_OUTERMOST};
    bool by_base = row->cfa_register == REGISTER_BASE;
    if (row->cfa_computed || row->address_signed || (!by_base && row->cfa_register != REGISTER_STACK)) return unknown;
    if (row->cfa_offset <= 0 || row->cfa_offset > FRAME_BYTES_MAX || row->cfa_offset % WORD != 0) return unknown;
    if (!is_slot(&row->return_address) || row->cfa_offset < -row->return_address.offset) return unknown;
    if (row->base.how != UNTOUCHED && !is_slot(&row->base)) return unknown;
    return (struct frame_rule){
        .cfa_offset = (int32_t)row->cfa_offset,
        .return_offset = (int32_t)row->return_address.offset,
        .base_offset = row->base.how == SAVED ? (int32_t)row->base.offset : 0,
        .from_base = by_base,
        .known = FRAME_KNOWN,
    };
}

struct frame_rule frame_rule_find(uintptr_t return_address, uintptr_t *start, uintptr_t *end)
{
    struct function function = {0};
    /* The call itself, not what follows: that may be another function's, when this call never returns. */
    uintptr_t call = return_address - 1;
    bool found = function_find(call, &function);
    if (start != NULL) *start = found ? function.start : 0;
    if (end != NULL) *end = found ? function.end : 0;
    struct row row;
    if (!found || !row_find(&function, call, &row)) return (struct frame_rule){.known = FRAME_UNKNOWN};
    return rule_of(&row);
}

/* ---- stepping ------------------------------------------------------------------------------------------------------------------ */

/* What is above a live frame stays readable; where the thread has left for another stack (a coroutine's, or that of signal
 * handlers) the next look begins anew. */
__thread struct stack_seen stack_seen __attribute__((tls_model("initial-exec")));

/* The kernel is asked once for each page of a stack. */
COLD bool stack_look(uintptr_t from, uintptr_t to)
{
    size_t page = platform_page_size();
    uintptr_t first = from & ~(page - 1);
    if (stack_seen.start - first <= (uintptr_t)FRAME_BYTES_MAX) /* deeper than before, in the same stack */
        while (stack_seen.start > first && platform_is_readable((const void *)(stack_seen.start - page)))
            stack_seen.start -= page;
    if (first < stack_seen.start || first > stack_seen.end) stack_seen.start = stack_seen.end = first;
    while (stack_seen.end < to) {
        if (!platform_is_readable((const void *)stack_seen.end)) return false;
        stack_seen.end += page;
    }
    return true;
}
