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
    if (info->si_code <= 0) syscall(SYS_rt_tgsigqueueinfo, getpid(), (int)syscall(SYS_gettid), number, info);
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    bool has_information = (before.sa_flags & SA_SIGINFO) != 0;
    if (!has_information && before.sa_handler == SIG_IGN && info->si_code <= 0) return;
    /* What the kernel raises cannot be ignored. */
    if (!has_information && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) {
        end_as_without_us(number, info);
        return;
    }
    if ((before.sa_flags & SA_RESETHAND) != 0) act_by_default(number);
    if (has_information) before.sa_sigaction(number, info, context);
    else before.sa_handler(number);
}

static void handle(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    if (info->si_code > 0) {
        struct platform_fault fault = {.address = (uintptr_t)info->si_addr};
        read_context(&fault, context);
        look_at(&fault);
    }
    errno = saved;
    pass_on(number, info, context);
}

bool platform_fault_watch(void (*look)(const struct platform_fault *fault))
{
    int saved = errno;
    look_at = look;
    bool done = sigaction(SIGSEGV, NULL, &before) == 0;
    bool is_handler =
        (before.sa_flags & SA_SIGINFO) != 0 || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (is_handler) {
        action.sa_flags = SA_SIGINFO | (before.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART));
        action.sa_mask = before.sa_mask;
    }
    action.sa_sigaction = handle;
    done = done && sigaction(SIGSEGV, &action, NULL) == 0;
    errno = saved;
    return done;
}
