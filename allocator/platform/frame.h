/* Frames of the stack, and how each is left for its caller's: for those who want to know who called.
 *
 * frame.c finds the rule of a return address in .eh_frame, which takes a microsecond; it holds for as long as the code is
 * loaded, so users keep it. A step by a rule is a few instructions, here. What is read on the way is known to be readable: a
 * wrong rule leads to a wrong address, never to a fault.
 */
#ifndef HEAPFIT_FRAME_H
#define HEAPFIT_FRAME_H

#include "platform.h"

/* Where a thread is about to return to: the state in which the caller goes on. */
struct frame {
    uintptr_t return_address;
    uintptr_t stack; /* the stack pointer then */
    uintptr_t base; /* the frame pointer register then */
};

/* How to get from a frame to its caller's, wherever the function that it is of was called from. */
struct frame_rule {
    int32_t cfa_offset; /* the caller's stack pointer, from the register below */
    int32_t return_offset; /* where the return address lies, from the caller's stack pointer */
    int32_t base_offset; /* where the caller's frame pointer lies, from there; 0: it is in its register */
    uint8_t from_base; /* the register is the frame pointer, not the stack pointer */
    uint8_t known; /* enum frame_known */
};

enum frame_known {
    FRAME_UNKNOWN, /* no unwind information, or some that is not as simple as this */
    FRAME_KNOWN,
    FRAME_OUTERMOST, /* nobody called */
};

/* The rule for a return address. Takes no locks, does not allocate, may be called in a signal handler. `*start`, if not NULL,
 * becomes the function's first address, `*end` its end, as far as known, else 0. */
struct frame_rule frame_rule_find(uintptr_t return_address, uintptr_t *start, uintptr_t *end);

/* A step reads nothing further than this from where it starts. Programs have larger frames, seldom below malloc. */
#define FRAME_BYTES_MAX ((intptr_t)1 << 20)

/* Whether all from `from` up to `to` can be read, which is of the stack or not: for frame_step. */
bool stack_look(uintptr_t from, uintptr_t to);

/* The part of this thread's stack that stack_look has seen to be readable. */
struct stack_seen {
    uintptr_t start, end;
};
extern __thread struct stack_seen stack_seen __attribute__((tls_model("initial-exec")));

/* The word below `from` is in use by what was called from there. With it the rest of its page can be read. */
ALWAYS_INLINE bool stack_has_been_readable(uintptr_t from, uintptr_t to)
{
    enum { PAGE_LEAST = 4096 };
    if (LIKELY(((from - sizeof(uintptr_t)) ^ (to - 1)) < PAGE_LEAST)) return true;
    return from >= stack_seen.start && to <= stack_seen.end;
}

/* What is read lies between the objects of functions that have not returned, where AddressSanitizer may know of others that have
 * been there. */
#ifdef __SANITIZE_ADDRESS__
#define READS_STACK static __attribute__((noinline, unused, no_sanitize("address")))
#else
#define READS_STACK ALWAYS_INLINE
#endif

READS_STACK uintptr_t stack_word(uintptr_t address)
{
    return *(const uintptr_t *)address;
}

/* Go on to the caller's frame; false: there is none to be trusted, `frame` is as it was. Reads the stack between the two frames
 * only, whatever the rule. */
ALWAYS_INLINE bool frame_step(const struct frame_rule *rule, struct frame *frame)
{
    if (UNLIKELY(rule->known != FRAME_KNOWN)) return false;
    uintptr_t caller = (rule->from_base ? frame->base : frame->stack) + (uintptr_t)rule->cfa_offset;
    uintptr_t size = caller - frame->stack;
    if (UNLIKELY(caller < frame->stack)) return false;
    /* Below no frame is anything of it, and each has at least a return address. */
    uintptr_t deepest = (uintptr_t)-(rule->return_offset < rule->base_offset ? rule->return_offset : rule->base_offset);
    if (UNLIKELY(size > (uintptr_t)FRAME_BYTES_MAX || size < deepest || caller % sizeof(uintptr_t) != 0)) return false;
    if (UNLIKELY(!stack_has_been_readable(frame->stack, caller)) && !stack_look(frame->stack, caller)) return false;
    frame->return_address = stack_word(caller + (uintptr_t)rule->return_offset);
    if (rule->base_offset != 0) frame->base = stack_word(caller + (uintptr_t)rule->base_offset);
    frame->stack = caller;
    return true;
}

/* A rule that is known, as a number: the register, and distances in words, which are at most 2^17 (frame.c). The return address's,
 * from the register upwards, is the last: it is wanted most. */
enum { RULE_DISTANCE_BITS = 18, RULE_BITS = 1 + 3 * RULE_DISTANCE_BITS, RULE_WORD = sizeof(uintptr_t) };
enum {
    RULE_FROM_BASE = 1,
    RULE_CALLER_SHIFT = 1,
    RULE_BASE_SHIFT = RULE_CALLER_SHIFT + RULE_DISTANCE_BITS,
    RULE_RETURN_SHIFT = RULE_BASE_SHIFT + RULE_DISTANCE_BITS,
};

ALWAYS_INLINE uint64_t rule_packed(const struct frame_rule *rule)
{
    uint64_t caller = (uint64_t)(rule->cfa_offset / RULE_WORD), base = (uint64_t)(-rule->base_offset / RULE_WORD);
    uint64_t return_address = (uint64_t)((rule->cfa_offset + rule->return_offset) / RULE_WORD);
    return (rule->from_base ? RULE_FROM_BASE : 0) | caller << RULE_CALLER_SHIFT | base << RULE_BASE_SHIFT |
           return_address << RULE_RETURN_SHIFT;
}

ALWAYS_INLINE int32_t rule_distance(uint64_t packed, unsigned shift)
{
    return (int32_t)(packed >> shift & ((1U << RULE_DISTANCE_BITS) - 1)) * RULE_WORD;
}

ALWAYS_INLINE struct frame_rule rule_unpacked(uint64_t packed)
{
    struct frame_rule rule;
    rule.cfa_offset = rule_distance(packed, RULE_CALLER_SHIFT);
    rule.return_offset = rule_distance(packed, RULE_RETURN_SHIFT) - rule.cfa_offset;
    rule.base_offset = -rule_distance(packed, RULE_BASE_SHIFT);
    rule.from_base = (uint8_t)(packed & RULE_FROM_BASE);
    rule.known = FRAME_KNOWN;
    return rule;
}

/* The frame of the caller of the function that this is written in, or, where another has ended by calling that function, of that
 * other one's caller. */
ALWAYS_INLINE struct frame frame_of_caller(void)
{
    struct frame frame;
    frame.return_address = (uintptr_t)__builtin_return_address(0);
    frame.stack = (uintptr_t)__builtin_dwarf_cfa();
    /* Where a function that has a frame keeps its caller's. */
    frame.base = *(const uintptr_t *)__builtin_frame_address(0);
    return frame;
}

#endif
