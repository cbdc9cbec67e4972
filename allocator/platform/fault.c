/* Accesses that the kernel refuses: a look at each, before the signal goes where it would have gone.
 *
 * One handler stands in front of the action that was in force, and takes over its mask and its flags, so that the kernel
 * prepares for ours what it would have prepared for that one: the stack that it runs on, the signals that it keeps out. A program
 * that sets an action later puts it in place of ours, and is left alone.
 */
#define _GNU_SOURCE
#include "fault.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* Written before the handler is there. */
static struct sigaction before;
static void (*look_at)(const struct platform_fault *fault);

/* ---- what the kernel says of the thread -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static void read_context(struct platform_fault *fault, const ucontext_t *context)
{
    enum { ERROR_WRITE = 1 << 1 }; /* of the page fault's error code: Intel SDM, volume 3, 4.7 */
    const greg_t *registers = context->uc_mcontext.gregs;
    fault->code = (uintptr_t)registers[REG_RIP];
    fault->stack = (uintptr_t)registers[REG_RSP];
    fault->base = (uintptr_t)registers[REG_RBP];
    fault->link = 0;
    fault->access = (registers[REG_ERR] & ERROR_WRITE) != 0 ? FAULT_WRITE : FAULT_READ;
}
#elif defined(__aarch64__)
/* The syndrome of the exception lies in a record among those behind the registers (arch/arm64/include/uapi/asm/sigcontext.h). */
static enum platform_access access_of(const ucontext_t *context)
{
    enum { SYNDROME_MAGIC = 0x45535201, HEAD = 8, WRITE_NOT_READ = 1 << 6 };
    const unsigned char *records = (const unsigned char *)context->uc_mcontext.__reserved;
    for (size_t at = 0; at + HEAD + sizeof(uint64_t) <= sizeof context->uc_mcontext.__reserved;) {
        uint32_t head[2];
        uint64_t syndrome;
        memcpy(head, records + at, sizeof head);
        if (head[1] < HEAD) break; /* the end: both are 0 */
        memcpy(&syndrome, records + at + HEAD, sizeof syndrome);
        if (head[0] == SYNDROME_MAGIC) return (syndrome & WRITE_NOT_READ) != 0 ? FAULT_WRITE : FAULT_READ;
        at += head[1];
    }
    return FAULT_ACCESS;
}

static void read_context(struct platform_fault *fault, const ucontext_t *context)
{
    enum { FRAME_POINTER = 29, LINK = 30 };
    fault->code = (uintptr_t)context->uc_mcontext.pc;
    fault->stack = (uintptr_t)context->uc_mcontext.sp;
    fault->base = (uintptr_t)context->uc_mcontext.regs[FRAME_POINTER];
    fault->link = (uintptr_t)context->uc_mcontext.regs[LINK];
    fault->access = access_of(context);
}
#endif

/* ---- the handler --------------------------------------------------------------------------------------------------------- */

static void act_by_default(int number)
{
    struct sigaction action = {.sa_flags = 0};
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, NULL);
}

/* The kernel raised it: the access that is made again ends the program. Another process sent it: nothing is made again, so it is
 * sent to ourselves, and comes when this handler has returned. */
static void end_as_without_us(int number, siginfo_t *info)
{
    act_by_default(number);
    if (info->si_code <= 0)
        platform_call(SYS_rt_tgsigqueueinfo, platform_process_number(), (int)platform_call(SYS_gettid), number, info);
}

static bool is_handler(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) != 0 || (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

/* A handler that was there before us may have been installed again in our place, and then calls us, as the one that it found: each
 * the other, for ever. Then the calls come from ever further down the stack. Where handlers leave by a jump the last one's place
 * stays, and the next may come from below it, but not so often in a row. */
static __thread struct {
    const void *context;
    uintptr_t stack;
    unsigned rounds;
} passing __attribute__((tls_model("initial-exec")));

static bool goes_round(const void *context)
{
    enum { ROUNDS_MAX = 8 };
    uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
    bool is_deeper = passing.context == context && stack < passing.stack;
    passing.rounds = is_deeper ? passing.rounds + 1 : 0;
    passing.context = context;
    passing.stack = stack;
    return passing.rounds > ROUNDS_MAX;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    bool handled = is_handler(&before);
    if (!handled && before.sa_handler == SIG_IGN && info->si_code <= 0) return;
    /* What the kernel raises cannot be ignored. */
    if (!handled || goes_round(context)) {
        end_as_without_us(number, info);
        return;
    }
    if ((before.sa_flags & SA_RESETHAND) != 0) act_by_default(number);
    /* The kernel gives the registers to those as well that ask for the number alone, and some use them. */
    before.sa_sigaction(number, info, context);
    passing.context = NULL; /* and so this is no jump, which would not be any deeper */
}

static void handle(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    if (info->si_code > 0) {
        struct platform_fault fault = {.address = (uintptr_t)info->si_addr};
        read_context(&fault, context);
        if (fault.address == fault.code) fault.access = FAULT_EXECUTION;
        look_at(&fault);
    }
    errno = saved;
    pass_on(number, info, context);
}

/* In front of `before`. What was in force until then comes into `*replaced`. */
static bool install(struct sigaction *replaced)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (is_handler(&before)) {
        action.sa_flags = SA_SIGINFO | (before.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART));
        action.sa_mask = before.sa_mask;
    }
    action.sa_sigaction = handle;
    return sigaction(SIGSEGV, &action, replaced) == 0;
}

static bool is_same(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_sigaction == b->sa_sigaction && a->sa_flags == b->sa_flags;
}

bool platform_fault_watch(void (*look)(const struct platform_fault *fault))
{
    int saved = errno;
    struct sigaction replaced;
    look_at = look;
    bool done = sigaction(SIGSEGV, NULL, &before) == 0 && install(&replaced);
    /* Another thread may have set an action between the two calls, or may put ours back as the one that it found. */
    while (done && replaced.sa_sigaction != handle && !is_same(&replaced, &before)) {
        before = replaced;
        done = install(&replaced);
    }
    errno = saved;
    return done;
}
