/* See stub.h. Position-independent, so that it runs wherever it is copied to. */
#include "stub.h"

#if defined(__x86_64__)

#define AT(member, offset) _Static_assert(offsetof(struct shared, member) == (offset), "as in the code below")
AT(cloned, 0x00);
AT(go, 0x04);
AT(created, 0x08);
AT(result, 0x0C);
AT(finished, 0x10);
AT(thread, 0x14);
AT(cancelled, 0x18);
AT(dlopen, 0x20);
AT(dlsym, 0x28);
AT(dlerror, 0x30);
AT(pthread_create, 0x38);
AT(pthread_detach, 0x40);
AT(handle, 0x48);
AT(answer, 0x50);
AT(unmapped, 0x58);
AT(name, 0x60);
AT(options, 0xA0);
AT(library, 0x2A0);
AT(path, 0x12A0);

/* clang-format off */
__asm__(
    ".pushsection .rodata\n"
    ".globl stub_begin, stub_start, stub_slots, stub_end\n"
    ".balign 16\n"
    "stub_begin:\n"
    /* ---- S. rt_sigprocmask(SIG_SETMASK, all, NULL, 8) */
    "  movl $2, %edi\n"
    "  leaq slot_all_signals(%rip), %rsi\n"
    "  movl $0, %edx\n"
    "  movl $8, %r10d\n"
    "  movl $14, %eax\n"
    "  syscall\n"
    /* mmap(mapping, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) */
    "  movq slot_mapping(%rip), %rdi\n"
    "  movq slot_mapping_size(%rip), %rsi\n"
    "  movl $3, %edx\n"
    "  movl $0x100022, %r10d\n"
    "  movq $-1, %r8\n"
    "  movl $0, %r9d\n"
    "  movl $9, %eax\n"
    "  syscall\n"
    "  movq slot_minus_mapping(%rip), %rcx\n"
    "  leaq (%rcx,%rax), %rcx\n"
    "  jrcxz 1f\n" /* which asks no flag */
    "  movl $9, %r8d\n"
    "  movq %rax, %rdi\n"
    "  jmp 17f\n"
    /* clone(flags, stack, number, NULL, thread pointer) */
    "1:movq slot_clone_flags(%rip), %rdi\n"
    "  movq slot_stack(%rip), %rsi\n"
    "  movq slot_number_at(%rip), %rdx\n"
    "  movl $0, %r10d\n"
    "  movq slot_thread_pointer(%rip), %r8\n"
    "  movl $56, %eax\n"
    "  syscall\n"
    "  movl %eax, %ecx\n"
    "  jrcxz 14f\n"
    "  jmp 15f\n"
    "14:jmp 3f\n"
    "15:cqto\n" /* its sign, without a flag */
    "  leaq 1(%rdx), %rcx\n"
    "  jrcxz 16f\n"
    "  movq slot_mapping(%rip), %rdx\n"
    "  movl %eax, 0x00(%rdx)\n"
    /* futex(created, FUTEX_WAIT_PRIVATE, 0, hold): no call may be made here that the kernel could have to restart */
    "  leaq 0x08(%rdx), %rdi\n"
    "  movl $128, %esi\n"
    "  movl $0, %edx\n"
    "  leaq slot_hold(%rip), %r10\n"
    "  movl $202, %eax\n"
    "  syscall\n"
    "  jmp 2f\n"
    /* munmap(what mmap gave, size); ppoll(NULL, 0, say, NULL, the call that failed, what that gave) */
    "16:movl $56, %r8d\n"
    "  movq slot_mapping(%rip), %rdi\n"
    "17:movq %rax, %r9\n"
    "  movq slot_mapping_size(%rip), %rsi\n"
    "  movl $11, %eax\n"
    "  syscall\n"
    "  movl $0, %edi\n"
    "  movl $0, %esi\n"
    "  leaq slot_say(%rip), %rdx\n"
    "  movl $0, %r10d\n"
    "  movl $271, %eax\n"
    "  syscall\n"
    /* rt_sigprocmask(SIG_SETMASK, mask, NULL, 8), and back */
    "2:movl $2, %edi\n"
    "  leaq slot_mask(%rip), %rsi\n"
    "  movl $0, %edx\n"
    "  movl $8, %r10d\n"
    "  movl $14, %eax\n"
    "  syscall\n"
    "  movq slot_rax(%rip), %rax\n"
    "  movq slot_rcx(%rip), %rcx\n"
    "  movq slot_rdx(%rip), %rdx\n"
    "  movq slot_rsi(%rip), %rsi\n"
    "  movq slot_rdi(%rip), %rdi\n"
    "  movq slot_r8(%rip), %r8\n"
    "  movq slot_r9(%rip), %r9\n"
    "  movq slot_r10(%rip), %r10\n"
    "  movq slot_r11(%rip), %r11\n"
    "  jmp *slot_rip(%rip)\n"
    /* ---- B, with all signals blocked. Some 3 s for us to say what to do */
    "3:cld\n"
    "  fninit\n"
    "  ldmxcsr slot_float_control(%rip)\n"
    "  movq slot_mapping(%rip), %rbx\n"
    "  xorl %ebp, %ebp\n"
    "  movl $12000, %r12d\n"
    "4:cmpl $1, 0x04(%rbx)\n"
    "  je 5f\n"
    "  ja 9f\n"
    "  call 10f\n"
    "  decl %r12d\n"
    "  jnz 4b\n"
    "  jmp 9f\n"
    "5:leaq 0x48(%rbx), %rdi\n"
    "  xorl %esi, %esi\n"
    "  leaq stub_start(%rip), %rdx\n"
    "  movq %rbx, %rcx\n"
    "  call *0x38(%rbx)\n"
    "  movl %eax, 0x0C(%rbx)\n"
    "  movl $1, 0x08(%rbx)\n"
    /* futex(created, FUTEX_WAKE_PRIVATE, 1) */
    "  leaq 0x08(%rbx), %rdi\n"
    "  movl $129, %esi\n"
    "  movl $1, %edx\n"
    "  movl $202, %eax\n"
    "  syscall\n"
    "  cmpl $0, 0x0C(%rbx)\n"
    "  jne 7f\n"
    "  movq 0x48(%rbx), %rdi\n"
    "  call *0x40(%rbx)\n"
    /* Until `start` needs the mapping no more, however long that takes; and some 3 s for us to look at what came of it */
    "6:cmpl $0, 0x10(%rbx)\n"
    "  jne 7f\n"
    "  call 10f\n"
    "  jmp 6b\n"
    "7:movl $12000, %r12d\n"
    "8:cmpl $2, 0x04(%rbx)\n"
    "  je 9f\n"
    "  call 10f\n"
    "  decl %r12d\n"
    "  jnz 8b\n"
    /* S has to have written there */
    "9:cmpl $0, 0x00(%rbx)\n"
    "  jne 11f\n"
    "  call 10f\n"
    "  jmp 9b\n"
    /* Until `start` has ended, so that nobody is in this code when B has: tgkill(getpid(), thread, 0); where there is none, it is 0 */
    "11:movl $39, %eax\n"
    "  syscall\n"
    "  movl %eax, %edi\n"
    "  movl 0x14(%rbx), %esi\n"
    "  xorl %edx, %edx\n"
    "  movl $234, %eax\n"
    "  syscall\n"
    "  testl %eax, %eax\n"
    "  jnz 13f\n"
    "  call 10f\n"
    "  jmp 11b\n"
    /* munmap(mapping, unmapped), exit(0): from here on there may be no stack */
    "13:movq 0x58(%rbx), %rsi\n"
    "  movq %rbx, %rdi\n"
    "  testq %rsi, %rsi\n"
    "  jnz 12f\n"
    "  movq slot_mapping_size(%rip), %rsi\n"
    "12:movl $11, %eax\n"
    "  syscall\n"
    "  xorl %edi, %edi\n"
    "  movl $60, %eax\n"
    "  syscall\n"
    "  ud2\n"
    /* nanosleep(pause, NULL) */
    "10:leaq slot_pause(%rip), %rdi\n"
    "  xorl %esi, %esi\n"
    "  movl $35, %eax\n"
    "  syscall\n"
    "  ret\n"
    /* ---- void *start(struct shared *): gettid, dlopen, dlsym, heapfit_record_attach(options, path) */
    "stub_start:\n"
    "  pushq %rbx\n"
    "  movq %rdi, %rbx\n"
    "  movl $186, %eax\n"
    "  syscall\n"
    "  movl %eax, 0x14(%rbx)\n"
    "  leaq 0x2A0(%rbx), %rdi\n"
    "  movl $2, %esi\n" /* RTLD_NOW */
    "  call *0x20(%rbx)\n"
    "  testq %rax, %rax\n"
    "  jz 1f\n"
    "  movq %rax, %rdi\n"
    "  leaq 0x60(%rbx), %rsi\n"
    "  call *0x28(%rbx)\n"
    "  testq %rax, %rax\n"
    "  jz 1f\n"
    "  movl $3, %ecx\n"
    "  cmpl $0, 0x18(%rbx)\n"
    "  jne 2f\n"
    "  leaq 0xA0(%rbx), %rdi\n"
    "  leaq 0x12A0(%rbx), %rsi\n"
    "  call *%rax\n"
    "  movq %rax, 0x50(%rbx)\n"
    "  movl $1, %ecx\n"
    "  jmp 2f\n"
    "1:call *0x30(%rbx)\n"
    "  movq %rax, 0x50(%rbx)\n"
    "  movl $2, %ecx\n"
    "2:movl %ecx, 0x10(%rbx)\n"
    "  xorl %eax, %eax\n"
    "  popq %rbx\n"
    "  ret\n"
    /* ---- struct stub_slots */
    ".balign 8\n"
    "stub_slots:\n"
    "slot_mapping: .quad 0\n"
    "slot_mapping_size: .quad 0\n"
    "slot_minus_mapping: .quad 0\n"
    "slot_all_signals: .quad 0\n"
    "slot_clone_flags: .quad 0\n"
    "slot_stack: .quad 0\n"
    "slot_number_at: .quad 0\n"
    "slot_thread_pointer: .quad 0\n"
    "slot_pause: .quad 0, 0\n"
    "slot_hold: .quad 0, 0\n"
    "slot_say: .quad 0, 0\n"
    "slot_float_control: .quad 0\n"
    "slot_mask: .quad 0\n"
    "slot_rax: .quad 0\n"
    "slot_rcx: .quad 0\n"
    "slot_rdx: .quad 0\n"
    "slot_rsi: .quad 0\n"
    "slot_rdi: .quad 0\n"
    "slot_r8: .quad 0\n"
    "slot_r9: .quad 0\n"
    "slot_r10: .quad 0\n"
    "slot_r11: .quad 0\n"
    "slot_rip: .quad 0\n"
    "stub_end:\n"
    ".popsection\n");
/* clang-format on */

#else /* there is none, and thread.c refuses */

const char stub_begin[1], stub_start[1], stub_slots[1], stub_end[1];

#endif
