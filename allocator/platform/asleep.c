/* Whether a thread sleeps in a system call that it made itself.
 *
 * The kernel tells of a thread that does not run which system call it is in, if any, and where its stack ends (proc(5),
 * /proc/PID/task/TID/syscall). If the call was made in a signal's handler, the handler may have interrupted anything; then what
 * it interrupted is saved on the stack, in a frame that the kernel has written, and that is told by a word that stands in no other
 * place: the segment selectors of this program on x86-64, the mark of the first record on 64-bit ARM. So the stack is looked
 * through, from where it ends to the thread's thread-local variables, which stand above it on the stacks that C libraries make.
 * Elsewhere, on the first thread's stack or one that a program has made for a handler, nothing can be told.
 *
 * The look takes a moment, in which the thread may wake and write its stack anew. The clock of its processor time tells: if that has
 * not moved, the thread has not run. But where the kernel takes what interrupts or the host of a virtual machine used off a thread's
 * time, a moment of it may come to nothing. So the thread has to be in the same call afterwards, too.
 *
 * What cannot be told is that a handler, instead of sleeping, has changed where its thread goes on when it returns, and that the
 * thread sleeps there: the kernel's frame is gone then.
 */
#define _GNU_SOURCE
#include "lines.h"
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* How deep a stack is looked at: threads that wait for work have some KiB on it. */
enum { DEPTH_MAX = 256 << 10, PIECE = 4096 };
#define WORD_MASK ((uintptr_t)sizeof(uint64_t) - 1)

/* ---- the kernel's frames ------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static uint64_t selectors(void)
{
    uint16_t code, stack;
    __asm__("mov %%cs, %0" : "=r"(code));
    __asm__("mov %%ss, %0" : "=r"(stack));
    return (uint64_t)stack << 48 | code;
}

/* struct sigcontext has them in one word: cs, gs, fs and ss, of which the kernel writes the two in the middle as 0. A guest of Xen
 * without hardware virtualization has two pairs, its kernel's and Xen's, and which of them a thread has depends on how it was last
 * resumed: so the other may stand in its frame than the one that is read here. */
static bool is_frame_mark(uint64_t word)
{
    enum { CODE = 0x33, STACK = 0x2B, XEN = 0xE000 };
    const uint64_t of_linux = (uint64_t)STACK << 48 | CODE, of_xen = (uint64_t)XEN << 48 | XEN;
    return word == selectors() || (word & ~of_xen) == of_linux;
}

enum { FRAMES_ARE_KNOWN = 1 };
#elif defined(__aarch64__)
/* struct fpsimd_context, with which the records behind struct sigcontext begin: its magic number and its size. */
static bool is_frame_mark(uint64_t word)
{
    return word == UINT64_C(0x0000021046508001);
}

enum { FRAMES_ARE_KNOWN = 1 };
#else
static bool is_frame_mark(uint64_t word)
{
    (void)word;
    return true;
}

enum { FRAMES_ARE_KNOWN = 0 };
#endif

/* Whether a signal's handler has been called on the stack between the two addresses and has not returned, as far as is known. */
static bool has_frame(uintptr_t start, uintptr_t end)
{
    uint64_t words[PIECE / sizeof(uint64_t)];
    for (uintptr_t at = start; at < end; at += sizeof words) {
        size_t size = end - at < sizeof words ? end - at : sizeof words;
        struct iovec here = {words, size}, there = {(void *)at, size};
        /* By the kernel: should the thread have ended meanwhile, there may be nothing to read. */
        if (platform_call(SYS_process_vm_readv, platform_process_number(), &here, 1, &there, 1, 0) != (long)size)
            return true;
        for (size_t i = 0; i < size / sizeof *words; i++)
            if (is_frame_mark(words[i])) return true;
    }
    return false;
}

/* ---- what the kernel tells ------------------------------------------------------------------------------------------ */

/* Nanoseconds that it has run; 0: it does not exist. */
static uint64_t time_run(int32_t number)
{
    enum { OF_THREAD = 4, SCHEDULED = 2 }; /* of the kernel's numbers for such clocks, linux/posix-timers_types.h */
    struct timespec time;
    if (!platform_clock_get((int)(~(uint32_t)number << 3 | OF_THREAD | SCHEDULED), &time)) return 0;
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Whether /proc shows the process under the number that it has here: else it shows threads under other numbers, too. */
static bool proc_is_ours(void)
{
    char text[16], number[16];
    if (!link_says("/proc/self", text, sizeof text)) return false;
    platform_format(number, sizeof number, "%zu", (size_t)platform_process_number());
    return strcmp(text, number) == 0;
}

/* By bare system calls, here and below: malloc may come by, in which no thread is to be cancelled. */
static long open_calls_of(int32_t number)
{
    char path[64];
    platform_format(path, sizeof path, "/proc/self/task/%zu/syscall", (size_t)number);
    return platform_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
}

/* What the kernel says of the thread now. */
struct line {
    char text[256];
};

static bool read_line(long file, struct line *line)
{
    long size = platform_call(SYS_pread64, file, line->text, sizeof line->text - 1, 0L);
    line->text[size > 0 ? size : 0] = '\0';
    return size > 0;
}

/* Calls of which it does not follow that the thread's functions are left alone meanwhile. */
static bool says_nothing(long call)
{
    /* Another thread runs on this one's stack until they return. */
#ifdef SYS_vfork
    if (call == SYS_vfork) return true;
#endif
    enum { CLONE3 = 435 }; /* of Linux 5.3, on all processors */
    if (call == SYS_clone || call == CLONE3) return true;
    /* The child that is waited for may have its parent's thread-local variables, if clone made it with CLONE_VM, and may allocate. */
    if (call == SYS_wait4 || call == SYS_waitid) return true;
#if defined(__x86_64__)
    /* The kernel, having set a probe, makes the thread call these at any place of its program. */
    enum { URETPROBE = 335, UPROBE = 336 }; /* of Linux 6.11 and 6.18 */
    if (call == URETPROBE || call == UPROBE) return true;
#endif
    return false;
}

/* Where the stack of a thread ends that is in a system call; 0: it is in none. The line is the number of the call, which is negative
 * when there is none, its six arguments, and then the stack pointer. Of one that runs it is a word. */
static uintptr_t stack_in_call(const char *line)
{
    enum { BEFORE_STACK = 6 };
    if (*line < '0' || *line > '9') return 0;
    char *rest;
    if (says_nothing(strtol(line, &rest, 10))) return 0;
    for (int i = 0; i < BEFORE_STACK; i++) strtoul(rest, &rest, 16);
    return strtoul(rest, &rest, 16);
}

static enum platform_sleep look_at_calls(long file, int32_t number, uintptr_t local)
{
    struct line line, after;
    uint64_t run = time_run(number);
    if (run == 0 || !read_line(file, &line)) return THREAD_IS_ELSEWHERE;
    if (*line.text == 'r') return THREAD_RUNS; /* "running" */
    uintptr_t stack = stack_in_call(line.text) & ~WORD_MASK;
    if (stack == 0 || stack >= local || local - stack > DEPTH_MAX || has_frame(stack, local & ~WORD_MASK))
        return THREAD_IS_ELSEWHERE;
    bool stays = read_line(file, &after) && strcmp(line.text, after.text) == 0 && time_run(number) == run;
    return stays ? THREAD_SLEEPS : THREAD_RUNS;
}

static enum platform_sleep look(int32_t number, uintptr_t local)
{
    long file = proc_is_ours() ? open_calls_of(number) : -1;
    if (file < 0) return THREAD_IS_ELSEWHERE;
    enum platform_sleep sleep = look_at_calls(file, number, local);
    platform_call(SYS_close, file);
    return sleep;
}

enum platform_sleep platform_thread_sleep(int32_t number, const void *local)
{
    if (!FRAMES_ARE_KNOWN) return THREAD_IS_ELSEWHERE;
    int saved = errno;
    enum platform_sleep sleep = look(number, (uintptr_t)local);
    errno = saved;
    return sleep;
}
