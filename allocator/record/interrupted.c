/* Whether the program is in a signal's handler that has interrupted the next library's malloc: for fork (process.c).
 *
 * Calls that are noted say so themselves (record_is_inside). But those that are passed on by a jump leave no trace, where nothing
 * is recorded, or no sample falls. So the stack is walked outwards, from the handler over the frame that the kernel has made for it
 * to what was interrupted, and from there to the end, or a function of the malloc family. A walk that is led astray has no other
 * consequence than a wrong answer; it reads what is readable.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "next.h"
#include "note.h"

#include <signal.h>
#include <string.h>
#include <ucontext.h>

/* What handlers return to: code that says to the kernel that they have ended. Debuggers know it by its bytes, too. */
#if defined(__x86_64__)
static const uint8_t end_of_handler[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}; /* mov $15, %rax; syscall */
enum { CONTEXT_AT = 0 }; /* from the stack pointer then */
#elif defined(__aarch64__)
static const uint8_t end_of_handler[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}; /* mov x8, #139; svc #0 */
enum { CONTEXT_AT = sizeof(siginfo_t) };
#endif

static bool is_end_of_handler(uintptr_t address)
{
    uintptr_t last = address + sizeof end_of_handler - 1, word = ~(uintptr_t)(RULE_WORD - 1);
    return platform_is_readable((const void *)(address & word)) && platform_is_readable((const void *)(last & word)) &&
           memcmp((const void *)address, end_of_handler, sizeof end_of_handler) == 0;
}

/* Where the interrupted code goes on, as if it had called: the rules are those of the instruction before that address. */
static bool leave_handler(struct frame *frame)
{
    const ucontext_t *context = (const ucontext_t *)(frame->stack + CONTEXT_AT);
    if (!stack_look(frame->stack, (uintptr_t)(context + 1))) return false;
#if defined(__x86_64__)
    const greg_t *registers = context->uc_mcontext.gregs;
    *frame = (struct frame){.return_address = (uintptr_t)registers[REG_RIP] + 1,
                            .stack = (uintptr_t)registers[REG_RSP],
                            .base = (uintptr_t)registers[REG_RBP]};
#elif defined(__aarch64__)
    enum { FRAME_POINTER = 29 };
    const mcontext_t *registers = &context->uc_mcontext;
    *frame = (struct frame){
        .return_address = registers->pc + 1, .stack = registers->sp, .base = registers->regs[FRAME_POINTER]};
#endif
    return true;
}

/* Through stubs a library calls functions that are found when it is loaded, as the C library's realloc calls memcpy. Where they are
 * described, it is by an expression; but nothing is on the stack there yet, beside the return address. */
#if defined(__x86_64__)
static const struct frame_rule of_stub = {.cfa_offset = 8, .return_offset = -8, .known = FRAME_KNOWN};
#else
static const struct frame_rule of_stub = {.known = FRAME_UNKNOWN}; /* it is in a register */
#endif

/* At a function's end what has been taken back from the stack is still said to lie there, below the stack pointer. */
static struct frame_rule rule_find(uintptr_t address, uintptr_t *start)
{
    struct frame_rule rule = frame_rule_find(address, start, NULL);
    if (!rule.from_base && rule.cfa_offset < -rule.base_offset) rule.base_offset = 0;
    return rule;
}

bool interrupted_is_malloc(struct frame frame)
{
    enum { FRAMES_MAX = 1000 };
    bool in_handler = false, is_interrupted = false;
    for (int i = 0; i < FRAMES_MAX; i++) {
        uintptr_t start;
        struct frame_rule rule = rule_find(frame.return_address, &start);
        if (is_interrupted && rule.known == FRAME_UNKNOWN) rule = of_stub;
        is_interrupted = false;
        if (in_handler && next_is_allocating(start)) return true;
        if (frame_step(&rule, &frame)) continue;
        if (!is_end_of_handler(frame.return_address) || !leave_handler(&frame)) return false;
        in_handler = is_interrupted = true;
    }
    return false;
}
