/* The code that a thread of the process runs for us, and what it works on (stub.c).
 *
 * It is put where the process has room for it (image.c), and has `struct stub_slots`, which we fill in, at its end. The first thread
 * that runs it, S, is one of the program's. It has its registers changed once, and comes back to where it was by itself, even when
 * we are killed at that moment:
 *
 *     S      stub_begin: blocks signals, maps `struct shared`, clones B, restores its mask and all registers, jumps to its place
 *     B      waits until `go`; then pthread_create(start), and ends when `start` has, and `go` says so, or nobody has said anything
 *            for long
 *     start  a thread as the program's own are: dlopen, dlsym, and the call of heapfit_record_attach
 *
 * If S gets no memory or no other thread, it unmaps what it has, and says so to us before it goes on: in the arguments of a call in
 * which it sleeps for a moment, as /proc shows them, since there is no memory that it may write to.
 *
 * If S is the only thread of the process, it waits a moment, until B has been given its thread: only then do malloc and others in the
 * C library know that there are several, and take their locks.
 *
 * S uses no stack, no flags, no vector registers, and of the others none but those that it gets back from the slots: the kernel
 * itself keeps the rest over system calls. So neither a red zone nor a stack that is nearly full are in its way.
 */
#ifndef HEAPFIT_STUB_H
#define HEAPFIT_STUB_H

#include <stddef.h>
#include <stdint.h>

/* What B and `start` do, for us to see, and we for them. Zeros at first. In stub.c by its offsets. */
struct shared {
    uint32_t cloned; /* B's number, as the process knows it; written by S */
    uint32_t go; /* GO_*; ours */
    uint32_t created; /* 1: pthread_create has returned `result` */
    uint32_t result;
    uint32_t finished; /* FINISHED_* */
    uint32_t thread; /* the number of the thread that runs `start`, for B */
    uint32_t cancelled; /* ours: `start` shall not call it any more */
    uint32_t reserved;
    uint64_t dlopen, dlsym, dlerror, pthread_create, pthread_detach; /* of the process */
    uint64_t handle; /* pthread_t of `start` */
    uint64_t answer; /* what heapfit_record_attach has returned: a text, or NULL; or dlerror's */
    uint64_t unmapped; /* bytes that B unmaps, from here on */
    char name[64]; /* of the function */
    char options[512];
    char library[4096], path[4096];
};
enum { GO_WAIT, GO_ON, GO_END };
enum { FINISHED_CALLED = 1, FINISHED_NOT_LOADED, FINISHED_CANCELLED };

/* Where they are in the mapping. */
enum { SHARED_SIZE = 0x4000, STACK_SIZE = 0xC000, STACK_TOP = SHARED_SIZE + STACK_SIZE };
_Static_assert(sizeof(struct shared) <= SHARED_SIZE, "the stack is behind it");

struct stub_slots {
    uint64_t mapping, mapping_size, minus_mapping;
    uint64_t all_signals; /* a mask */
    uint64_t clone_flags, stack, number_at, thread_pointer; /* of B */
    uint64_t pause_s, pause_ns; /* between two looks at `go` */
    uint64_t hold_s, hold_ns; /* S waits so long at most until `created` */
    uint64_t say_s, say_ns; /* S says so long what has failed */
    uint64_t float_control; /* mxcsr as at a program's start */
    uint64_t mask, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11, rip; /* what S gets back */
};

enum { STUB_MAX = 2048 }; /* more than the code and its slots take */
extern const char stub_begin[], stub_start[], stub_slots[], stub_end[];

#endif
