/* Hand-written functions: what compilers write rarely, and what they never write. None of them is run.
 *
 * BEGIN name ... RETURNS name ... END name, expected[, arrives[, passing]]: the label of RETURNS is where the call
 * returns. */

#define USED 0
#define PASSED_ON 1
#define UNKNOWN 2

        .section .data.rel.ro, "aw"
        .balign 8
        .globl  assembly_subjects
assembly_subjects:

        .macro BEGIN name
        .text
\name:
        .endm

        .macro RETURNS name
.Lreturns_\name:
        .endm

        .macro END name, expected, arrives=-1, passing=-1
        .text
.Lend_\name:
        ud2
        .section .rodata
.Lname_\name:
        .string "\name"
        .section .data.rel.ro, "aw"
        .quad   .Lname_\name, 0, \name, .Lreturns_\name, .Lend_\name
        .long   \expected, \arrives, \passing, 0
        .text
        .endm

/* ---- ways that the pointer may go -------------------------------------------------------------------------------- */

BEGIN   by_push_and_pop
        sub     $8, %rsp
        call    allocate@PLT
RETURNS by_push_and_pop
        push    %rax
        call    lock_heap@PLT
        pop     %rdx
        mov     %rdx, %rax
        add     $8, %rsp
        ret
END     by_push_and_pop, PASSED_ON

BEGIN   by_exchange
        push    %rbx
        call    allocate@PLT
RETURNS by_exchange
        xchg    %rax, %rbx
        call    lock_heap@PLT
        xchg    %rbx, %rax
        pop     %rbx
        ret
END     by_exchange, PASSED_ON

BEGIN   exchanged_with_a_slot
        sub     $24, %rsp
        call    allocate@PLT
RETURNS exchanged_with_a_slot
        xchg    %rax, 8(%rsp)
        call    lock_heap@PLT
        mov     8(%rsp), %rax
        add     $24, %rsp
        ret
END     exchanged_with_a_slot, PASSED_ON

BEGIN   chosen_without_a_branch
        push    %rbx
        call    allocate@PLT
RETURNS chosen_without_a_branch
        xor     %ecx, %ecx
        cmp     $5, %ebx
        cmovb   %rax, %rcx
        mov     %rcx, %rax
        pop     %rbx
        ret
END     chosen_without_a_branch, PASSED_ON

BEGIN   replaced_if_null
        push    %rbx
        call    allocate@PLT
RETURNS replaced_if_null
        lea     emergency(%rip), %rcx
        test    %rax, %rax
        cmovz   %rcx, %rax
        pop     %rbx
        ret
END     replaced_if_null, PASSED_ON

BEGIN   slot_overwritten
        sub     $24, %rsp
        call    allocate@PLT
RETURNS slot_overwritten
        mov     %rax, 8(%rsp)
        xor     %eax, %eax
        mov     %eax, 12(%rsp)
        mov     8(%rsp), %rax
        add     $24, %rsp
        ret
END     slot_overwritten, USED

BEGIN   half_of_it
        push    %rbx
        call    allocate@PLT
RETURNS half_of_it
        mov     %eax, %eax
        pop     %rbx
        ret
END     half_of_it, USED

BEGIN   lost_in_a_call
        push    %rbx
        call    allocate@PLT
RETURNS lost_in_a_call
        mov     %rax, %r10
        call    lock_heap@PLT
        mov     %r10, %rax
        pop     %rbx
        ret
END     lost_in_a_call, USED

BEGIN   moved_behind_a_header
        push    %rbx
        call    allocate@PLT
RETURNS moved_behind_a_header
        mov     %rbx, (%rax)
        lea     16(%rax), %rax
        pop     %rbx
        ret
END     moved_behind_a_header, PASSED_ON

BEGIN   header_overlaps
        push    %rbx
        call    allocate@PLT
RETURNS header_overlaps
        mov     %rbx, 12(%rax)
        add     $16, %rax
        pop     %rbx
        ret
END     header_overlaps, USED

BEGIN   cleared_by_a_string_instruction
        push    %rdi
        call    allocate@PLT
RETURNS cleared_by_a_string_instruction
        mov     %rax, %rdi
        mov     %rax, %rdx
        xor     %eax, %eax
        mov     $16, %ecx
        rep stosq
        mov     %rdx, %rax
        pop     %rdi
        ret
END     cleared_by_a_string_instruction, PASSED_ON

BEGIN   copied_from_by_a_string_instruction
        push    %rdi
        call    allocate@PLT
RETURNS copied_from_by_a_string_instruction
        mov     %rax, %rsi
        lea     emergency(%rip), %rdi
        rep movsb
        pop     %rdi
        ret
END     copied_from_by_a_string_instruction, USED

/* ---- uses -------------------------------------------------------------------------------------------------------- */

BEGIN   published_by_exchange
        push    %rbx
        call    allocate@PLT
RETURNS published_by_exchange
        mov     %rax, %rdx
        xchg    %rdx, emergency(%rip)
        pop     %rbx
        ret
END     published_by_exchange, USED

BEGIN   published_by_compare_and_exchange
        push    %rbx
        call    allocate@PLT
RETURNS published_by_compare_and_exchange
        mov     %rax, %rdx
        xor     %eax, %eax
        lock cmpxchg %rdx, emergency(%rip)
        mov     %rdx, %rax
        pop     %rbx
        ret
END     published_by_compare_and_exchange, USED

BEGIN   kept_by_the_thread
        push    %rbx
        call    allocate@PLT
RETURNS kept_by_the_thread
        mov     %rax, %fs:0x10
        pop     %rbx
        ret
END     kept_by_the_thread, USED

BEGIN   stored_beside_another
        push    %rbx
        call    allocate@PLT
RETURNS stored_beside_another
        movq    %rax, %xmm0
        punpcklqdq %xmm0, %xmm0
        movups  %xmm0, (%rbx)
        pop     %rbx
        ret
END     stored_beside_another, USED

BEGIN   called_through
        push    %rbx
        call    allocate@PLT
RETURNS called_through
        call    *16(%rax)
        pop     %rbx
        ret
END     called_through, USED

BEGIN   handed_to_the_kernel
        push    %rbx
        call    allocate@PLT
RETURNS handed_to_the_kernel
        mov     %rax, %rsi
        xor     %eax, %eax
        syscall
        pop     %rbx
        ret
END     handed_to_the_kernel, USED

BEGIN   used_on_one_side_only
        push    %rbx
        call    allocate@PLT
RETURNS used_on_one_side_only
        test    %ebx, %ebx
        jne     1f
        pop     %rbx
        ret
1:      movb    $1, 100(%rax)
        pop     %rbx
        ret
END     used_on_one_side_only, USED

BEGIN   used_only_if_null
        push    %rbx
        call    allocate@PLT
RETURNS used_only_if_null
        test    %rax, %rax
        jnz     1f
        mov     100(%rax), %rcx
1:      pop     %rbx
        ret
END     used_only_if_null, PASSED_ON

/* ---- how functions end ------------------------------------------------------------------------------------------- */

BEGIN   last_call_gets_it
        push    %rbx
        call    allocate@PLT
RETURNS last_call_gets_it
        mov     %rax, %rdi
        pop     %rbx
        jmp     initialise@PLT
END     last_call_gets_it, USED

BEGIN   last_call_clears_it
        push    %rbx
        call    allocate@PLT
RETURNS last_call_clears_it
        mov     %rax, %rdi
        xor     %esi, %esi
        mov     %rbx, %rdx
        pop     %rbx
        jmp     memset@PLT
END     last_call_clears_it, PASSED_ON

BEGIN   last_call_through_the_table
        push    %rbx
        call    allocate@PLT
RETURNS last_call_through_the_table
        mov     %rax, %rdi
        mov     %rbx, %rdx
        pop     %rbx
        .byte   0xf2 /* bnd: not all assemblers know it */
        jmp     *memset@GOTPCREL(%rip)
END     last_call_through_the_table, PASSED_ON

BEGIN   last_call_through_a_register
        push    %rbx
        call    allocate@PLT
RETURNS last_call_through_a_register
        mov     %rax, %rdi
        mov     %rbx, %rdx
        pop     %rbx
        jmp     *%rdx
END     last_call_through_a_register, USED

BEGIN   last_call_does_not_get_it
        push    %rbx
        mov     %rdi, %rbx
        call    allocate@PLT
RETURNS last_call_does_not_get_it
        mov     %rax, (%rbx)
        pop     %rbx
        jmp     unlock_heap@PLT
END     last_call_does_not_get_it, PASSED_ON, -1, 0

BEGIN   table_of_jumps
        push    %rbx
        call    allocate@PLT
RETURNS table_of_jumps
        lea     emergency(%rip), %rdx
        movslq  (%rdx,%rbx,4), %rcx
        add     %rdx, %rcx
        notrack jmp *%rcx
        pop     %rbx
        ret
END     table_of_jumps, UNKNOWN

BEGIN   table_of_jumps_in_memory
        push    %rbx
        call    allocate@PLT
RETURNS table_of_jumps_in_memory
        lea     emergency(%rip), %rdx
        jmp     *(%rdx,%rbx,8)
        pop     %rbx
        ret
END     table_of_jumps_in_memory, UNKNOWN

BEGIN   unlikely_side_elsewhere
        push    %rbx
        call    allocate@PLT
RETURNS unlikely_side_elsewhere
        cmp     $1, %ebx
        je      last_call_gets_it
        pop     %rbx
        ret
END     unlikely_side_elsewhere, PASSED_ON

BEGIN   everything_elsewhere
        push    %rbx
        call    allocate@PLT
RETURNS everything_elsewhere
        jmp     last_call_gets_it
END     everything_elsewhere, UNKNOWN

BEGIN   ends_with_a_call_that_never_returns
        push    %rbx
        call    allocate@PLT
RETURNS ends_with_a_call_that_never_returns
        cmp     $1, %ebx
        je      1f
        pop     %rbx
        ret
1:      call    die@PLT
END     ends_with_a_call_that_never_returns, PASSED_ON

BEGIN   runs_over_its_end
        push    %rbx
        call    allocate@PLT
RETURNS runs_over_its_end
        pop     %rbx
END     runs_over_its_end, UNKNOWN

BEGIN   not_an_instruction
        push    %rbx
        call    allocate@PLT
RETURNS not_an_instruction
        .byte   0x06
        ret
END     not_an_instruction, UNKNOWN

BEGIN   cut_off_in_an_instruction
        push    %rbx
        call    allocate@PLT
RETURNS cut_off_in_an_instruction
        .byte   0x48, 0xb8, 0, 0
END     cut_off_in_an_instruction, UNKNOWN

BEGIN   traps
        push    %rbx
        call    allocate@PLT
RETURNS traps
        cmp     $1, %ebx
        jne     1f
        pop     %rbx
        ret
1:      ud2
END     traps, PASSED_ON

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

BEGIN   never_ends
        push    %rbx
        call    allocate@PLT
RETURNS never_ends
1:      jmp     1b
END     never_ends, USED

BEGIN   never_ends_and_never_repeats
        push    %rbx
        call    allocate@PLT
RETURNS never_ends_and_never_repeats
1:      add     $8, %rax
        jmp     1b
END     never_ends_and_never_repeats, UNKNOWN

BEGIN   takes_2_to_the_20_ways
        push    %rbx
        call    allocate@PLT
RETURNS takes_2_to_the_20_ways
        .rept   20
        lea     8(%rax), %rcx
        dec     %ebx
        cmovs   %rcx, %rdx
        js      1f
        mov     %rcx, %rax
1:
        .endr
        pop     %rbx
        ret
END     takes_2_to_the_20_ways, UNKNOWN

BEGIN   has_many_slots
        sub     $512, %rsp
        call    allocate@PLT
RETURNS has_many_slots
        .set    slot, 0
        .rept   60
        mov     %rax, slot(%rsp)
        .set    slot, slot + 8
        .endr
        add     $512, %rsp
        ret
END     has_many_slots, UNKNOWN

BEGIN   is_long
        push    %rbx
        call    allocate@PLT
RETURNS is_long
        .rept   1000
        inc     %ecx
        .endr
        pop     %rbx
        ret
END     is_long, UNKNOWN

/* ---- how functions begin ----------------------------------------------------------------------------------------- */

BEGIN   parameter_kept_late
        cmp     $1, %edi
        jbe     2f
        push    %rbx
        mov     %rsi, %rbx
        call    allocate@PLT
RETURNS parameter_kept_late
        mov     %rax, (%rbx)
        pop     %rbx
2:      ret
END     parameter_kept_late, PASSED_ON, -1, 1

BEGIN   parameter_kept_past_a_return
        push    %rbp
        mov     %rsp, %rbp
        push    %rdx
        push    %rbx
        test    %edi, %edi
        jne     1f
        leave
        ret
1:      call    allocate@PLT
RETURNS parameter_kept_past_a_return
        mov     -8(%rbp), %rcx
        mov     %rax, (%rcx)
        leave
        ret
END     parameter_kept_past_a_return, PASSED_ON, -1, 2

BEGIN   not_a_parameter_any_more
        push    %rbx
        mov     %rdi, %rbx
        mov     8(%rbx), %rbx
        call    allocate@PLT
RETURNS not_a_parameter_any_more
        mov     %rax, (%rbx)
        pop     %rbx
        ret
END     not_a_parameter_any_more, USED

BEGIN   realigned_frame
        push    %rbp
        mov     %rsp, %rbp
        and     $-64, %rsp
        sub     $128, %rsp
        mov     %rdi, 40(%rsp)
        call    allocate@PLT
RETURNS realigned_frame
        mov     %rax, 32(%rsp)
        mov     40(%rsp), %rdx
        mov     32(%rsp), %rax
        mov     %rax, (%rdx)
        leave
        ret
END     realigned_frame, PASSED_ON, -1, 0

BEGIN   frame_of_unknown_size
        push    %rbp
        mov     %rsp, %rbp
        push    %rbx
        sub     %rdi, %rsp
        call    allocate@PLT
RETURNS frame_of_unknown_size
        mov     %rax, -24(%rbp)
        mov     -24(%rbp), %rax
        leave
        ret
END     frame_of_unknown_size, PASSED_ON

BEGIN   begins_far_away
        push    %rbp
        mov     %rsp, %rbp
        sub     $32, %rsp
        .rept   500
        inc     %ecx
        .endr
        call    allocate@PLT
RETURNS begins_far_away
        mov     %rax, -8(%rbp)
        mov     -8(%rbp), %rax
        leave
        ret
END     begins_far_away, PASSED_ON

BEGIN   call_is_never_reached
        jmp     2f
        call    allocate@PLT
RETURNS call_is_never_reached
        mov     %rax, (%rbx)
2:      ret
END     call_is_never_reached, USED

BEGIN   arrives_in_a_field
        push    %rbx
        mov     %rdi, %rbx
        lea     8(%rbx), %rdi
        call    allocate_into@PLT
RETURNS arrives_in_a_field
        pop     %rbx
        ret
END     arrives_in_a_field, USED, 0, 0

BEGIN   arrives_in_a_long_function
        push    %rbx
        .rept   300
        inc     %ecx
        .endr
        call    allocate_into@PLT
RETURNS arrives_in_a_long_function
        pop     %rbx
        ret
END     arrives_in_a_long_function, USED, 0, 0

BEGIN   arrives_where_nobody_knows
        notrack jmp *%rdi
        call    allocate_into@PLT
RETURNS arrives_where_nobody_knows
        ret
END     arrives_where_nobody_knows, UNKNOWN, 0, 0

        .section .data.rel.ro, "aw"
        .quad   0, 0, 0, 0, 0
        .long   0, 0, 0, 0
        .bss
        .balign 64
emergency:
        .skip   64
        .section .note.GNU-stack, "", @progbits
