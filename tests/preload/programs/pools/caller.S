/* Functions without unwind information that call malloc, as an assembler's programmer or a code generator may.
 *
 * void *malloc_with_any_registers(size_t): all registers that malloc's callee must keep hold nonsense meanwhile.
 * void *malloc_at_the_end(size_t, void *end): on a stack that ends, unmapped, right behind malloc's return address.
 * void *malloc_below_nonsense(size_t, void *end): on a stack whose outer return addresses are nonsense. */
        .text
        .globl  malloc_with_any_registers
        .type   malloc_with_any_registers, @function
malloc_with_any_registers:
        push    %rbp
        push    %rbx
        push    %r12
        push    %r13
        push    %r14
        push    %r15
        sub     $8, %rsp
        mov     $-1, %rbp
        mov     $1, %ebx
        movabs  $0x8000000000000000, %r12
        mov     %rsp, %r13
        neg     %r13
        xor     %r14d, %r14d
        mov     $0x10, %r15d
        call    malloc@PLT
        add     $8, %rsp
        pop     %r15
        pop     %r14
        pop     %r13
        pop     %r12
        pop     %rbx
        pop     %rbp
        ret
        .size   malloc_with_any_registers, . - malloc_with_any_registers

        .globl  malloc_at_the_end
        .type   malloc_at_the_end, @function
malloc_at_the_end:
        push    %rbx
        mov     %rsp, %rbx
        mov     %rsi, %rsp
        call    malloc@PLT
        mov     %rbx, %rsp
        pop     %rbx
        ret
        .size   malloc_at_the_end, . - malloc_at_the_end

        .globl  malloc_below_nonsense
        .type   malloc_below_nonsense, @function
malloc_below_nonsense:
        push    %rbx
        push    %rbp
        mov     %rsp, %rbx
        mov     %rsi, %rsp
        .rept   32
        push    $0x1234567
        push    $-8
        .endr
        lea     16(%rsp), %rbp
        call    malloc@PLT
        mov     %rbx, %rsp
        pop     %rbp
        pop     %rbx
        ret
        .size   malloc_below_nonsense, . - malloc_below_nonsense

        .section .note.GNU-stack, "", @progbits
