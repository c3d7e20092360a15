//! Into the kernel and out of it: interrupts, faults and system calls.
//!
//! From user mode everything that the thread is lands in its context; the kernel then runs on its CPU's own stack to the
//! end and leaves to whatever context is installed. In the kernel itself only the halted CPU is interrupted, and that is
//! noted and acknowledged, nothing else. Any other fault there is a mistake of the kernel.

use super::apic::{
    self, DEVICE_LINES, DEVICE_VECTOR, EOI_ADDRESS, MESSAGE_VECTOR, PIC_SPURIOUS_VECTOR, PIT_VECTOR,
    SPURIOUS_VECTOR, TIMER_VECTOR,
};
use super::context::{Context, FRAME_SIZE, SYSCALL};
use super::{cpu, fallback, ports};
use core::arch::{asm, global_asm};
use spin::Once;
use x86_64::VirtAddr;
use x86_64::structures::idt::InterruptDescriptorTable;

/// Behind the last line of devices.
const DEVICE_VECTORS_END: u8 = DEVICE_VECTOR + DEVICE_LINES as u8;

/// Why the kernel was entered from user mode, other than by a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trap {
    /// The timer.
    Timer,
    /// Another CPU's message.
    Message,
    /// A device's message, by the line that it came on.
    Device(u8),
    /// Nothing.
    Spurious,
    /// The thread did something that it may not.
    Fault {
        /// Which exception.
        vector: u8,
        /// What the processor says about it.
        error: u64,
        /// The address, for a page fault.
        address: u64,
    },
}

global_asm!(
    r#"
    .text
    .macro save_registers
    push rax
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    .endm
    .macro restore_registers
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    pop rax
    .endm

    // The alignment flag of whoever was interrupted would let the kernel touch user pages. Only processors that have SMAP
    // know the instruction. Of the flags that matter the processor itself clears the others, but for the direction.
    .macro shut_user_pages
    cmp dword ptr gs:[{smap}], 0
    je 99f
    clac
99:
    .endm

    .macro leave_by_sysret
    restore_registers
    mov rcx, [rsp + 16]
    mov r11, [rsp + 32]
    mov rsp, [rsp + 40]
    swapgs
    sysretq
    .endm

    .macro stub n
trap_stub_\n:
    .if (\n == 8) || (\n >= 10 && \n <= 14) || (\n == 17) || (\n == 21) || (\n == 29) || (\n == 30)
    .else
    push 0
    .endif
    push \n
    jmp trap_common
    .endm
    .altmacro
    .macro all_stubs from, to
    .set i, \from
    .rept \to - \from + 1
    stub %i
    .set i, i + 1
    .endr
    .endm
    all_stubs 0, 32
    all_stubs 39, 39
    all_stubs 48, 49
    all_stubs 56, 63
    all_stubs 255, 255

trap_common:
    test byte ptr [rsp + 24], 3
    jz trap_from_kernel
    swapgs
    shut_user_pages
    save_registers
    cld
    fxsave64 [rsp + {frame}]
    mov rdi, rsp
    mov rsp, gs:[{kernel_stack}]
    xor ebp, ebp
    call {on_trap}
    jmp resume

    .global syscall_entry
syscall_entry:
    swapgs
    mov gs:[{user_stack}], rsp
    mov rsp, gs:[{frame_end}]
    push 0x1b
    push gs:[{user_stack}]
    push r11
    push 0x23
    push rcx
    push 0
    push {syscall}
    save_registers
    fnstcw [rsp + {frame}]
    stmxcsr [rsp + {frame} + 24]
    mov rdi, rsp
    mov rsp, gs:[{kernel_stack}]
    xor ebp, ebp
    call {on_syscall}

    // rax: the context to leave to.
    .global resume
resume:
    mov rsp, rax
    cmp qword ptr [rsp + 120], {syscall}
    je 2f
    fxrstor64 [rsp + {frame}]
    restore_registers
    add rsp, 16
    swapgs
    iretq
2:  cmp qword ptr [rsp + 128], 0
    je 3f
    fxrstor64 [rsp + {frame}]
    leave_by_sysret
    // No value of the kernel's leaves in a register that the caller may read.
3:  pxor xmm0, xmm0
    pxor xmm1, xmm1
    pxor xmm2, xmm2
    pxor xmm3, xmm3
    pxor xmm4, xmm4
    pxor xmm5, xmm5
    pxor xmm6, xmm6
    pxor xmm7, xmm7
    pxor xmm8, xmm8
    pxor xmm9, xmm9
    pxor xmm10, xmm10
    pxor xmm11, xmm11
    pxor xmm12, xmm12
    pxor xmm13, xmm13
    pxor xmm14, xmm14
    pxor xmm15, xmm15
    leave_by_sysret

    // A halted CPU: note what came, acknowledge it, go on. Anything else is the kernel's own fault.
trap_from_kernel:
    cmp qword ptr [rsp], {pit_vector}
    je 7f
    cmp qword ptr [rsp], {pic_spurious}
    je 8f
    cmp qword ptr [rsp], 48
    jb kernel_fault
    push rax
    mov rax, [rsp + 8]
    cmp rax, 255
    je 5f
    sub rax, 48
    lock bts gs:[{pending}], eax
    movabs rax, {eoi}
    mov dword ptr [rax], 0
5:  pop rax
8:  add rsp, 16
    iretq
7:  push rax
    lock bts dword ptr gs:[{pending}], 2
    mov al, 0x20
    out 0x20, al
    jmp 5b
    // Never goes on. It may come between a `swapgs` and its counterpart, or from an `iretq` that stands in a context: the
    // base of GS says whose it is, and a stack is the kernel's only if it is among the kernel's stacks.
kernel_fault:
    cld
    mov rdi, rsp
    mov ecx, 0xc0000101
    rdmsr
    test edx, edx
    js 6f
    swapgs
6:  shut_user_pages
    bt rdi, 46
    jc 7f
    mov rsp, gs:[{kernel_stack}]
7:  and rsp, -16
    call {on_kernel_fault}
    ud2

    // Faults that have a stack of their own never go on, wherever they came from.
    .macro fatal n, has_error
fatal_stub_\n:
    .if \has_error
    .else
    push 0
    .endif
    push \n
    jmp kernel_fault
    .endm
    fatal 2, 0
    fatal 8, 1
    fatal 18, 0
"#,
    frame = const FRAME_SIZE,
    syscall = const SYSCALL,
    eoi = const EOI_ADDRESS,
    pit_vector = const PIT_VECTOR,
    pic_spurious = const PIC_SPURIOUS_VECTOR,
    kernel_stack = const cpu::KERNEL_STACK,
    user_stack = const cpu::USER_STACK,
    frame_end = const cpu::FRAME_END,
    pending = const cpu::PENDING,
    smap = const cpu::SMAP,
    on_trap = sym on_trap,
    on_syscall = sym on_syscall,
    on_kernel_fault = sym on_kernel_fault,
);

unsafe extern "C" {
    fn syscall_entry();
    fn resume();
}

pub(super) fn syscall_entry_address() -> u64 {
    syscall_entry as *const () as u64
}

static IDT: Once<InterruptDescriptorTable> = Once::new();

macro_rules! stubs {
    ($($name:ident),*) => {
        unsafe extern "C" { $(fn $name();)* }
    };
}
stubs!(
    trap_stub_0,
    trap_stub_1,
    trap_stub_3,
    trap_stub_4,
    trap_stub_5,
    trap_stub_6,
    trap_stub_7,
    trap_stub_10,
    trap_stub_11,
    trap_stub_12,
    trap_stub_13,
    trap_stub_14,
    trap_stub_16,
    trap_stub_17,
    trap_stub_19,
    trap_stub_32,
    trap_stub_39,
    trap_stub_48,
    trap_stub_49,
    trap_stub_56,
    trap_stub_57,
    trap_stub_58,
    trap_stub_59,
    trap_stub_60,
    trap_stub_61,
    trap_stub_62,
    trap_stub_63,
    trap_stub_255,
    fatal_stub_2,
    fatal_stub_8,
    fatal_stub_18
);

fn build() -> InterruptDescriptorTable {
    let at = |stub: unsafe extern "C" fn()| VirtAddr::new(stub as *const () as u64);
    let mut idt = InterruptDescriptorTable::new();
    // SAFETY: each stub saves and restores what its vector needs; the stacks exist on every CPU.
    unsafe {
        idt.divide_error.set_handler_addr(at(trap_stub_0));
        idt.debug.set_handler_addr(at(trap_stub_1));
        idt.non_maskable_interrupt
            .set_handler_addr(at(fatal_stub_2))
            .set_stack_index(u16::from(cpu::IST_NMI) - 1);
        idt.breakpoint.set_handler_addr(at(trap_stub_3));
        idt.overflow.set_handler_addr(at(trap_stub_4));
        idt.bound_range_exceeded.set_handler_addr(at(trap_stub_5));
        idt.invalid_opcode.set_handler_addr(at(trap_stub_6));
        idt.device_not_available.set_handler_addr(at(trap_stub_7));
        idt.double_fault
            .set_handler_addr(at(fatal_stub_8))
            .set_stack_index(u16::from(cpu::IST_DOUBLE_FAULT) - 1);
        idt.invalid_tss.set_handler_addr(at(trap_stub_10));
        idt.segment_not_present.set_handler_addr(at(trap_stub_11));
        idt.stack_segment_fault.set_handler_addr(at(trap_stub_12));
        idt.general_protection_fault.set_handler_addr(at(trap_stub_13));
        idt.page_fault.set_handler_addr(at(trap_stub_14));
        idt.x87_floating_point.set_handler_addr(at(trap_stub_16));
        idt.alignment_check.set_handler_addr(at(trap_stub_17));
        idt.machine_check
            .set_handler_addr(at(fatal_stub_18))
            .set_stack_index(u16::from(cpu::IST_MACHINE_CHECK) - 1);
        idt.simd_floating_point.set_handler_addr(at(trap_stub_19));
        idt[PIT_VECTOR].set_handler_addr(at(trap_stub_32));
        idt[PIC_SPURIOUS_VECTOR].set_handler_addr(at(trap_stub_39));
        idt[TIMER_VECTOR].set_handler_addr(at(trap_stub_48));
        idt[MESSAGE_VECTOR].set_handler_addr(at(trap_stub_49));
        let devices: [unsafe extern "C" fn(); DEVICE_LINES] = [
            trap_stub_56,
            trap_stub_57,
            trap_stub_58,
            trap_stub_59,
            trap_stub_60,
            trap_stub_61,
            trap_stub_62,
            trap_stub_63,
        ];
        for (vector, stub) in (DEVICE_VECTOR..).zip(devices) {
            idt[vector].set_handler_addr(at(stub));
        }
        idt[SPURIOUS_VECTOR].set_handler_addr(at(trap_stub_255));
    }
    idt
}

pub(super) fn load() {
    IDT.call_once(build).load();
}

extern "C" fn on_trap(context: *const Context) -> *mut Context {
    // SAFETY: the entry code made it from the running thread's context, which this CPU has.
    let (vector, error) = unsafe { (*context).cause() };
    let trap = match vector as u8 {
        TIMER_VECTOR => {
            apic::end_of_interrupt();
            Trap::Timer
        }
        MESSAGE_VECTOR => {
            apic::end_of_interrupt();
            Trap::Message
        }
        PIT_VECTOR => {
            ports::end_of_pic_interrupt();
            fallback::pass_on();
            Trap::Timer
        }
        SPURIOUS_VECTOR | PIC_SPURIOUS_VECTOR => Trap::Spurious,
        vector @ DEVICE_VECTOR..DEVICE_VECTORS_END => {
            apic::end_of_interrupt();
            Trap::Device(vector - DEVICE_VECTOR)
        }
        14 => Trap::Fault { vector: 14, error, address: fault_address() },
        vector => Trap::Fault { vector, error, address: 0 },
    };
    crate::entry::trap(trap);
    cpu::entry()
}

extern "C" fn on_syscall(context: *const Context) -> *mut Context {
    // SAFETY: as in `on_trap`.
    let (number, arguments) = unsafe { (*context).call() };
    crate::entry::system_call(number, arguments);
    cpu::entry()
}

fn fault_address() -> u64 {
    let address: u64;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nostack, preserves_flags)) };
    address
}

#[repr(C)]
struct KernelFrame {
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
}

extern "C" fn on_kernel_fault(frame: *const KernelFrame) -> ! {
    // SAFETY: the entry code built it on the stack just now.
    let frame = unsafe { &*frame };
    let what = match frame.vector {
        2 => "non-maskable interrupt",
        8 => "double fault, most likely a kernel stack that ran over its guard page",
        18 => "machine check",
        _ => "fault in the kernel",
    };
    panic!(
        "{what}: vector {} error {:#x} at {:#x}, stack {:#x}, address {:#x}",
        frame.vector,
        frame.error,
        frame.rip,
        frame.rsp,
        fault_address()
    )
}

/// Leaves to `context` without having been entered.
pub(super) fn resume_user(context: *mut Context) -> ! {
    // SAFETY: the context is installed on this CPU; the stack below is not used again.
    unsafe {
        asm!("mov rsp, {stack}", "jmp {resume}", stack = in(reg) cpu::stack_top(), resume = sym resume,
        in("rax") context, options(noreturn))
    }
}
