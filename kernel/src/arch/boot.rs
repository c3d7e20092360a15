//! From the loader to Rust: the 32-bit PVH entry, the first page tables, and where other CPUs start.
//!
//! The first tables map the low 4 GiB three times: at 0 (so that the instruction after enabling paging exists), at
//! [`super::DIRECT_MAP`], and its first GiB at `KERNEL_BASE`. They live until [`super::paging`] has built the real ones;
//! CPUs that start later pass through them once more.

use core::arch::global_asm;

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long 4
    .long 8
    .long 18                    // XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_start

    .section .boot, "ax", @progbits
    .code32
    .global pvh_start
pvh_start:
    cli
    cld
    mov ebp, ebx                // the loader's hvm_start_info
    mov esp, offset boot_stack_top - {base}

    // Four tables of 2 MiB pages: the low 4 GiB.
    mov edi, offset boot_pd - {base}
    mov eax, 0x83               // present, writable, large
    mov ecx, 2048
2:  mov [edi], eax
    mov dword ptr [edi + 4], 0
    add eax, 0x200000
    add edi, 8
    dec ecx
    jnz 2b

    mov edi, offset boot_pdpt - {base}
    mov eax, offset boot_pd - {base} + 3
    mov ecx, 4
3:  mov [edi], eax
    add eax, 0x1000
    add edi, 8
    dec ecx
    jnz 3b
    // The top 2 GiB begin at entry 510.
    mov eax, offset boot_pd - {base} + 3
    mov [boot_pdpt_high - {base} + 510 * 8], eax

    mov eax, offset boot_pdpt - {base} + 3
    mov [boot_pml4 - {base}], eax
    mov [boot_pml4 - {base} + 256 * 8], eax
    mov eax, offset boot_pdpt_high - {base} + 3
    mov [boot_pml4 - {base} + 511 * 8], eax

    call enter_long_mode
    lgdt [boot_gdt_pointer]
    push 0x08
    .byte 0x68                  // push boot_long, all 32 bits
    .long boot_long
    retf

    // PAE, the tables, long mode with no-execute, then paging. Shared with the CPUs that start later.
enter_long_mode:
    mov eax, cr4
    or eax, 0x620               // PAE, OSFXSR, OSXMMEXCPT
    mov cr4, eax
    mov eax, offset boot_pml4 - {base}
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900               // LME, NXE
    wrmsr
    mov eax, cr0
    and eax, 0xfffffffb         // no emulation: SSE is real
    or eax, 0x80010002          // paging, write-protect, monitor coprocessor
    mov cr0, eax
    ret

    .code64
boot_long:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    xor eax, eax
    mov fs, ax
    mov gs, ax
    movabs rsp, offset boot_stack_top
    mov edi, ebp
    xor ebp, ebp
    movabs rax, offset {start}
    call rax
    ud2

    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9a000000ffff    // 64-bit code
    .quad 0x00cf92000000ffff    // data
    .quad 0x00cf9a000000ffff    // 32-bit code, for starting CPUs
boot_gdt_pointer:
    .word 31
    .quad boot_gdt

    // A starting CPU begins in real mode at a page below 1 MiB, to which this is copied.
    .global ap_trampoline
    .global ap_trampoline_end
    .global ap_stack
    .global ap_table
    .code16
    // As aligned here as in its page, and so are its words.
    .balign 8
ap_trampoline:
    cli
    cld
    xor ax, ax
    mov ds, ax
    .byte 0x66, 0x0f, 0x01, 0x16                // lgdtd [disp16]: the 32-bit operand form
    .word {trampoline} + (ap_gdt_pointer - ap_trampoline)
    mov eax, cr0
    or al, 1
    mov cr0, eax
    .byte 0x66, 0xea                            // jmp 0x18:ap_protected, 32-bit offset
    .long {trampoline} + (ap_protected - ap_trampoline)
    .word 0x18
    .code32
ap_protected:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov esp, {trampoline} + 0xff0
    mov eax, offset enter_long_mode
    call eax
    push 0x08
    .byte 0x68                                  // push ap_long, where it was copied to
    .long {trampoline} + (ap_long - ap_trampoline)
    retf
    .code64
ap_long:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    xor eax, eax
    mov fs, ax
    mov gs, ax
    mov rdx, [rip + ap_stack]
    mov rsi, [rip + ap_table]
    movabs rax, offset ap_high
    jmp rax
    .balign 8
ap_gdt_pointer:
    .word 31
    .long boot_gdt
    .balign 8
ap_stack:
    .quad 0
ap_table:
    .quad 0
ap_trampoline_end:

    // The kernel's own tables do not have the trampoline: they are loaded from up here.
    .text
ap_high:
    mov cr3, rsi
    mov rsp, rdx
    xor ebp, ebp
    call {ap_start}
    ud2

    .section .bss.boot, "aw", @nobits
    .balign 4096
boot_pml4:      .skip 4096
boot_pdpt:      .skip 4096
boot_pdpt_high: .skip 4096
boot_pd:        .skip 16384
boot_stack:     .skip 65536
boot_stack_top:
    .text
"#,
    base = const super::KERNEL_BASE,
    trampoline = const super::smp::TRAMPOLINE,
    start = sym super::start,
    ap_start = sym super::smp::ap_start,
);
