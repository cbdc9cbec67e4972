/* One of the program's threads is stopped, sent to stub.c's code, and let go: all by one change of its registers. */
#include "attach.h"
#include "stub.h"

#include <elf.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)

enum { THREADS_MAX = 4096, STOP_US = 20000, LOOK_US = 20 };

/* ---- stopping and letting go ------------------------------------------------------------------------------------------- */

/* Those that were asked to stop and have not so far: they sleep in the kernel, and do not wake for that. */
static pid_t late[THREADS_MAX];
static size_t late_count;

/* The signal that it was to be delivered when it stopped; 0: none. */
static int signal_of(int status)
{
    return status >> 16 == 0 ? WSTOPSIG(status) : 0;
}

static void let_go(pid_t thread, int signal)
{
    ptrace(PTRACE_DETACH, thread, NULL, (void *)(intptr_t)signal);
}

static void let_late_go(void)
{
    for (size_t i = late_count; i-- > 0;) {
        int status;
        pid_t done = waitpid(late[i], &status, __WALL | WNOHANG);
        if (done == 0) continue;
        if (done > 0 && WIFSTOPPED(status)) let_go(late[i], signal_of(status));
        late[i] = late[--late_count];
    }
}

static bool is_late(pid_t thread)
{
    for (size_t i = 0; i < late_count; i++)
        if (late[i] == thread) return true;
    return false;
}

/* `since`: when it was last seen to run, or to wait for a core. False: not now. Refuses where it never will. */
static bool stop(pid_t pid, pid_t thread, uint64_t *since)
{
    int status = 0;
    let_late_go();
    if (is_late(thread)) return false;
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0) {
        if (thread == pid) process_refuses_trace(pid, errno);
        return false;
    }
    uint64_t begun = clock_ns();
    ptrace(PTRACE_INTERRUPT, thread, NULL, NULL);
    for (;;) {
        *since = clock_ns();
        pid_t done = waitpid(thread, &status, __WALL | WNOHANG);
        if (done < 0 || (done > 0 && !WIFSTOPPED(status))) return false; /* it has ended */
        if (done > 0) break;
        if (*since - begun > STOP_US * UINT64_C(1000)) {
            late[late_count++] = thread;
            return false;
        }
        pause_us(LOOK_US);
    }
    if (status >> 16 == PTRACE_EVENT_STOP && WSTOPSIG(status) == SIGTRAP) return true;
    let_go(thread, signal_of(status));
    if (status >> 16 == PTRACE_EVENT_STOP)
        refuse("process %d is stopped; let it go on first: kill -CONT %d", (int)pid, (int)pid);
    return false;
}

static bool get_registers(pid_t thread, struct user_regs_struct *registers)
{
    struct iovec to = {registers, sizeof *registers};
    return ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &to) == 0 && to.iov_len == sizeof *registers;
}

static bool set_registers(pid_t thread, struct user_regs_struct *registers)
{
    struct iovec from = {registers, sizeof *registers};
    return ptrace(PTRACE_SETREGSET, thread, (void *)NT_PRSTATUS, &from) == 0;
}

/* ---- system calls ------------------------------------------------------------------------------------------------------ */

enum { SYSCALL_BYTES = 2 };

/* What the kernel says to itself, for a tracer to see: a call is to be made again. */
enum { RESTART = 512, RESTART_ALWAYS = 513, RESTART_UNLESS_HANDLED = 514, RESTART_AS_WAS = 516 };

/* Calls that give EINTR to who was only stopped, and do nothing that making them anew would do twice. */
static bool may_be_made_again(unsigned long call)
{
    static const short calls[] = {SYS_read,    SYS_write,        SYS_readv,
                                  SYS_writev,  SYS_accept,       SYS_accept4,
                                  SYS_sendto,  SYS_recvfrom,     SYS_sendmsg,
                                  SYS_recvmsg, SYS_recvmmsg,     SYS_epoll_wait,
                                  SYS_msgrcv,  SYS_epoll_pwait,  SYS_semtimedop,
                                  SYS_semop,   SYS_msgsnd,       SYS_rt_sigtimedwait,
                                  SYS_futex,   SYS_io_getevents, 426 /* io_uring_enter */,
                                  441 /* epoll_pwait2 */};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if ((unsigned long)calls[i] == call) return true;
    return false;
}

static bool is_in_call(const struct user_regs_struct *registers)
{
    return (long)registers->orig_rax >= 0;
}

/* The registers with which it goes on as if it had not been stopped, when the kernel is not to see to that: a call that was broken off
 * is made again. False: it need not be told. */
static bool resume(struct user_regs_struct *registers)
{
    long result = (long)registers->rax;
    unsigned long call = registers->orig_rax;
    if (!is_in_call(registers)) return false;
    registers->orig_rax = (unsigned long)-1;
    switch (-result) {
    case RESTART_AS_WAS:
        call = SYS_restart_syscall;
        break;
    case RESTART:
    case RESTART_ALWAYS:
    case RESTART_UNLESS_HANDLED:
        break;
    case EINTR:
        if (may_be_made_again(call)) break;
        return false;
    default:
        return false;
    }
    registers->rax = call;
    registers->rip -= SYSCALL_BYTES;
    return true;
}

/* As it was. Where the kernel would not make its call again, we do, unless a signal is there for it. */
static void let_go_on(pid_t pid, pid_t thread, const struct user_regs_struct *registers)
{
    struct user_regs_struct again = *registers;
    uint64_t mask = 0;
    bool is_broken = is_in_call(registers) && (long)registers->rax == -EINTR && resume(&again);
    if (is_broken && ptrace(PTRACE_GETSIGMASK, thread, (void *)sizeof mask, &mask) == 0 &&
        !process_has_pending(pid, thread, mask))
        set_registers(thread, &again);
    let_go(thread, 0);
}

/* ---- what is on a thread's stack --------------------------------------------------------------------------------------- */

/* Whether a word from `stack` on lies in [first, last], or it cannot be told. What a handler of a signal has interrupted is saved there. */
static bool has_on_stack(const struct image *image, uint64_t stack, uint64_t first, uint64_t last)
{
    enum { DEPTH_MAX = 1 << 20, PIECE = 4096 };
    uint64_t words[PIECE / sizeof(uint64_t)];
    const struct mapping *mapping = mapping_of(&image->mappings, stack);
    if (mapping == NULL) return true; /* it has grown since */
    uint64_t end = mapping->end - stack > DEPTH_MAX ? stack + DEPTH_MAX : mapping->end;
    for (uint64_t at = stack & ~(uint64_t)7; at < end; at += sizeof words) {
        size_t size = end - at < sizeof words ? end - at : sizeof words;
        if (!memory_read(image, at, words, size)) return true;
        for (size_t i = 0; i < size / sizeof *words; i++)
            if (words[i] >= first && words[i] <= last) return true;
    }
    return false;
}

/* ---- whether the moment is right --------------------------------------------------------------------------------------- */

/* In a process of one thread: a handler may have interrupted anything. The segment selectors are saved in one word, which no other
 * word is like. */
static bool is_in_handler(const struct image *image, uint64_t stack)
{
    enum { CODE = 0x33 };
    const uint64_t selectors = UINT64_C(0x2B) << 48 | CODE;
    return has_on_stack(image, stack, selectors, selectors);
}

/* Calls in which nothing of the C library waits that is in the midst of a change of malloc's. */
static bool is_asleep(const struct user_regs_struct *registers)
{
    static const short calls[] = {SYS_read,
                                  SYS_write,
                                  SYS_readv,
                                  SYS_writev,
                                  SYS_pread64,
                                  SYS_pwrite64,
                                  SYS_poll,
                                  SYS_select,
                                  SYS_pause,
                                  SYS_nanosleep,
                                  SYS_accept,
                                  SYS_accept4,
                                  SYS_sendto,
                                  SYS_recvfrom,
                                  SYS_sendmsg,
                                  SYS_recvmsg,
                                  SYS_recvmmsg,
                                  SYS_connect,
                                  SYS_wait4,
                                  SYS_waitid,
                                  SYS_flock,
                                  SYS_fcntl,
                                  SYS_fsync,
                                  SYS_fdatasync,
                                  SYS_rt_sigtimedwait,
                                  SYS_rt_sigsuspend,
                                  SYS_epoll_wait,
                                  SYS_epoll_pwait,
                                  SYS_clock_nanosleep,
                                  SYS_pselect6,
                                  SYS_ppoll,
                                  SYS_msgrcv,
                                  SYS_msgsnd,
                                  SYS_semop,
                                  SYS_semtimedop,
                                  SYS_io_getevents,
                                  SYS_restart_syscall,
                                  SYS_futex,
                                  441 /* epoll_pwait2 */};
    for (size_t i = 0; is_in_call(registers) && i < sizeof calls / sizeof *calls; i++)
        if ((unsigned long)calls[i] == registers->orig_rax) return true;
    return false;
}

static bool is_in(const struct image *image, uint64_t address, const char *const *files)
{
    const struct mapping *mapping = mapping_of(&image->mappings, address);
    if (mapping == NULL) return true; /* new code */
    for (; *files != NULL; files++)
        if (is_named(mapping, *files)) return true;
    return false;
}

/* While a program is being started, the C library may not be ready: then its only thread is in the dynamic linker. */
static bool is_outside(const struct image *image, const struct user_regs_struct *registers)
{
    static const char *const linker[] = {"ld-linux-x86-64.so.2", "ld.so.2", NULL};
    static const char *const libraries[] = {"libc.so.6", "libpthread.so.0", "libdl.so.2", NULL};
    if (is_in(image, registers->rip, linker)) return false;
    return is_asleep(registers) || !is_in(image, registers->rip, libraries);
}

/* A section that the kernel begins anew when its thread has lost the processor (rseq(2)) is never left and come back to. */
static bool is_in_restartable(pid_t thread, const struct image *image, uint64_t address)
{
    struct {
        uint64_t pointer;
        uint32_t size, signature, flags, padding;
    } configuration = {0};
    struct {
        uint32_t version, flags;
        uint64_t start, size, abort;
    } section;
    uint64_t at = 0;
    enum { GET_RSEQ_CONFIGURATION = 0x420f }; /* of Linux 5.13 */
    if (syscall(SYS_ptrace, GET_RSEQ_CONFIGURATION, thread, sizeof configuration, &configuration) < 0 ||
        configuration.pointer == 0)
        return false;
    enum { SECTION_AT = 8 };
    if (!memory_read(image, configuration.pointer + SECTION_AT, &at, sizeof at)) return true;
    if (at == 0) return false;
    return !memory_read(image, at, &section, sizeof section) || address - section.start < section.size;
}

static bool is_right(pid_t thread, const struct image *image, const struct user_regs_struct *registers, bool is_alone)
{
    enum { CODE_64 = 0x33 };
    if (registers->cs != CODE_64) return false; /* 32-bit code in a 64-bit program */
    if (is_in_restartable(thread, image, registers->rip)) return false;
    return !is_alone ||
           (image_is_ready(image) && is_outside(image, registers) && !is_in_handler(image, registers->rsp));
}

/* ---- sending ----------------------------------------------------------------------------------------------------------- */

/* All but the two that the C library keeps for itself, which a thread of its own is to take. */
#define ALL_SIGNALS (~(UINT64_C(3) << 31))

static bool put_code(const struct image *image, const struct sending *sending, const struct user_regs_struct *back,
                     uint64_t mask)
{
    enum { PAUSE_NS = 250000, HOLD_NS = 100000000, FLOAT_CONTROL = 0x1f80 };
    enum {
        SHARES_MEMORY = 0x100,
        SHARES_FOLDERS = 0x200,
        SHARES_FILES = 0x400,
        SHARES_HANDLERS = 0x800,
        IS_THREAD = 0x10000,
        SHARES_SEMAPHORES = 0x40000,
        SETS_POINTER = 0x80000,
        SAYS_NUMBER = 0x100000,
        IS_NOT_TRACED = 0x800000
    };
    char code[STUB_MAX];
    size_t size = (size_t)(stub_end - stub_begin), at = (size_t)(stub_slots - stub_begin);
    struct stub_slots slots = {
        .mapping = sending->mapping,
        .mapping_size = sending->mapping_size,
        .minus_mapping = -sending->mapping,
        .all_signals = ALL_SIGNALS,
        .clone_flags = SHARES_MEMORY | SHARES_FOLDERS | SHARES_FILES | SHARES_HANDLERS | IS_THREAD | SHARES_SEMAPHORES |
                       SETS_POINTER | SAYS_NUMBER | IS_NOT_TRACED,
        .stack = sending->stack,
        .number_at = sending->number_at,
        .thread_pointer = sending->thread_pointer,
        .pause_ns = PAUSE_NS,
        .hold_ns = sending->is_alone ? HOLD_NS : 0,
        .say_ns = HOLD_NS,
        .float_control = FLOAT_CONTROL,
        .mask = mask,
        .rax = back->rax,
        .rcx = back->rcx,
        .rdx = back->rdx,
        .rsi = back->rsi,
        .rdi = back->rdi,
        .r8 = back->r8,
        .r9 = back->r9,
        .r10 = back->r10,
        .r11 = back->r11,
        .rip = back->rip,
    };
    memcpy(code, stub_begin, size);
    memcpy(code + at, &slots, sizeof slots);
    return memory_write(image, image->room, code, size);
}

/* Who is killed in the midst of this leaves a thread that goes on as before, or runs the code, which brings it back. */
static bool send_stopped(pid_t pid, pid_t thread, const struct image *image, struct sending *sending,
                         struct user_regs_struct *registers)
{
    struct user_regs_struct back = *registers, there = *registers;
    uint64_t mask, none = ALL_SIGNALS;
    if (ptrace(PTRACE_GETSIGMASK, thread, (void *)sizeof mask, &mask) != 0) return false;
    if (process_has_pending(pid, thread, mask)) return false;
    resume(&back);
    if (!put_code(image, sending, &back, mask)) return false;
    there.rip = image->room;
    there.orig_rax = (unsigned long)-1;
    if (!set_registers(thread, &there)) return false;
    /* A call may have had a mask of its own, which the kernel would give up before the code begins: what is there for the thread
     * then has to wait until the call is made again. */
    ptrace(PTRACE_SETSIGMASK, thread, (void *)sizeof none, &none);
    if (process_has_pending(pid, thread, mask)) {
        ptrace(PTRACE_SETSIGMASK, thread, (void *)sizeof mask, &mask);
        set_registers(thread, registers);
        return false;
    }
    sending->like = registers->fs_base;
    sending->thread = thread;
    return true;
}

static bool send(pid_t pid, pid_t thread, const struct image *image, struct sending *sending)
{
    struct user_regs_struct registers;
    uint64_t since;
    if (!stop(pid, thread, &since)) return false;
    sending->is_alone = image_knows_one_thread(image) || process_has_one_thread(pid);
    bool known = get_registers(thread, &registers);
    bool sent = known && is_right(thread, image, &registers, sending->is_alone) && image_is_the_same(image, pid) &&
                send_stopped(pid, thread, image, sending, &registers);
    if (sent || !known) let_go(thread, 0);
    else let_go_on(pid, thread, &registers);
    sending->sent_ns = clock_ns();
    sending->still_ns += sending->sent_ns - since;
    sending->stops++;
    return sent;
}

bool thread_send(pid_t pid, const struct image *image, struct sending *sending)
{
    static pid_t threads[THREADS_MAX];
    size_t count = process_threads(pid, threads, THREADS_MAX);
    if (count == 0) refuse("process %d has ended", (int)pid);
    for (size_t i = 0; i < count && i < THREADS_MAX; i++)
        if (send(pid, threads[i], image, sending)) return true;
    return false;
}

bool thread_has_failed(pid_t pid, const struct image *image, struct sending *sending)
{
    enum { TIME = 2, FAILED = 4, ERROR }; /* ppoll makes no use of the latter two without a mask */
    uint64_t says = image->room + (uint64_t)(stub_slots - stub_begin) + offsetof(struct stub_slots, say_s);
    struct call call;
    if (!process_call(pid, sending->thread, &call) || call.number != SYS_ppoll || call.arguments[TIME] != says)
        return false;
    sending->failed = (long)call.arguments[FAILED];
    sending->error = -(long)call.arguments[ERROR];
    return true;
}

/* ---- afterwards -------------------------------------------------------------------------------------------------------- */

/* Whether it is neither there nor comes back from a handler. A thread that has passed never goes there again by itself. One that
 * sleeps there is not stopped: the kernel would forget how to go on with the program's own call, which the code comes back to. */
static bool has_left(pid_t pid, pid_t thread, const struct image *image, uint64_t room, uint64_t *still_ns)
{
    struct user_regs_struct registers;
    struct call call;
    uint64_t since, size = (uint64_t)(stub_end - stub_begin);
    if (process_call(pid, thread, &call) && call.from - room <= size) return false;
    if (!stop(pid, thread, &since)) return process_state(pid, thread) == 0;
    bool known = get_registers(thread, &registers);
    bool left = known && registers.rip - room > size && !has_on_stack(image, registers.rsp, room, room + size);
    if (known) let_go_on(pid, thread, &registers);
    else let_go(thread, 0);
    *still_ns += clock_ns() - since;
    return left;
}

static void clear(const struct image *image, uint64_t room)
{
    static const char zeros[STUB_MAX];
    memory_write(image, room, zeros, (size_t)(stub_end - stub_begin));
}

static bool have_left(pid_t pid, const struct image *image, uint64_t room)
{
    static pid_t threads[THREADS_MAX];
    uint64_t still_ns = 0;
    size_t count = process_threads(pid, threads, THREADS_MAX);
    if (count > THREADS_MAX) return false;
    for (size_t i = 0; i < count; i++)
        if (!has_left(pid, threads[i], image, room, &still_ns)) return false;
    return true;
}

/* Who is in there starts others: those are seen when all are looked at again. */
bool thread_clears_room(pid_t pid, const struct image *image, uint64_t room)
{
    if (!have_left(pid, image, room) || !have_left(pid, image, room)) return false;
    clear(image, room);
    return true;
}

/* It has only a few instructions to go, for which it may have to wait for a core. */
void thread_take_back(pid_t pid, const struct image *image, struct sending *sending)
{
    enum { FIRST_US = 1000, LAST_US = 256000 };
    for (unsigned between_us = FIRST_US; between_us <= LAST_US; pause_us(between_us), between_us *= 2) {
        sending->stops++;
        if (!has_left(pid, sending->thread, image, image->room, &sending->still_ns)) continue;
        clear(image, image->room);
        return;
    }
}

#else

bool thread_send(pid_t pid, const struct image *image, struct sending *sending)
{
    (void)image, (void)sending;
    refuse("process %d cannot be attached to: only x86-64 can", (int)pid);
}

bool thread_has_failed(pid_t pid, const struct image *image, struct sending *sending)
{
    (void)pid, (void)image, (void)sending;
    return false;
}

bool thread_clears_room(pid_t pid, const struct image *image, uint64_t room)
{
    (void)pid, (void)image, (void)room;
    return false;
}

void thread_take_back(pid_t pid, const struct image *image, struct sending *sending)
{
    (void)pid, (void)image, (void)sending;
}

#endif
