//! The rare calls of a meter, made so that the code around them keeps its registers.
//!
//! An ordinary call, however cold, makes a loop keep what it needs in registers that the function has to save first, and
//! makes each store of the loop visible before it, since it may unwind: a short function takes twice as long. These calls
//! save the general registers themselves and do not unwind. If the task must end here, they return what to unwind with.
//!
//! Conserved: every general register but two, of which one carries the answer. The others are declared as lost; no ordinary call
//! keeps them either.
#![allow(unsafe_code)]

use crate::cx::Cx;
use crate::task::TaskPtr;
use std::any::Any;
use std::arch::{asm, global_asm};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;

/// What an unwind carries, behind a thin pointer.
type Payload = Box<dyn Any + Send>;

// fn(task [rdi], ops [rsi]) -> payload or null [rax], which keeps all other general registers but rdx.
macro_rules! keeping_registers {
    ($name:literal, $target:path) => {
        global_asm!(
            ".text",
            ".p2align 4",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            "    push rcx",
            ".cfi_adjust_cfa_offset 8",
            "    push rsi",
            ".cfi_adjust_cfa_offset 8",
            "    push rdi",
            ".cfi_adjust_cfa_offset 8",
            "    push r8",
            ".cfi_adjust_cfa_offset 8",
            "    push r9",
            ".cfi_adjust_cfa_offset 8",
            "    push r10",
            ".cfi_adjust_cfa_offset 8",
            // Seven of them, so that the stack is aligned for the call.
            "    push r11",
            ".cfi_adjust_cfa_offset 8",
            "    call {target}",
            "    pop r11",
            ".cfi_adjust_cfa_offset -8",
            "    pop r10",
            ".cfi_adjust_cfa_offset -8",
            "    pop r9",
            ".cfi_adjust_cfa_offset -8",
            "    pop r8",
            ".cfi_adjust_cfa_offset -8",
            "    pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "    pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "    pop rcx",
            ".cfi_adjust_cfa_offset -8",
            "    ret",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            target = sym $target,
        );
    };
}

keeping_registers!("mainspring_pause", pause);

unsafe extern "C" {
    fn mainspring_pause();
}

/// The caller has found that the slice is not enough.
extern "C" fn pause(task: TaskPtr, ops: u32) -> *mut Payload {
    if task.next_slice(ops).is_some() { null_mut() } else { look_up(task, ops) }
}

/// Apart, since what catches an unwind has a frame, and the usual end of a slice needs none.
#[cold]
#[inline(never)]
extern "C" fn look_up(task: TaskPtr, ops: u32) -> *mut Payload {
    match catch_unwind(AssertUnwindSafe(|| Cx::new(task).check_slow(ops))) {
        Ok(()) => null_mut(),
        Err(payload) => Box::into_raw(Box::new(payload)),
    }
}

/// A yield check that pays for `ops`, as if it were not there: no register is lost by it, and no stack frame is needed.
#[inline(always)]
pub(super) fn check(task: TaskPtr, ops: u32) {
    let payload: *mut Payload;
    // SAFETY: the function takes these arguments, keeps every register that is not named here, and does not unwind. Without
    // `nostack` the stack is aligned for a call and the red zone is free.
    unsafe {
        asm!(
            "call {function}",
            function = sym mainspring_pause,
            in("rdi") task.raw(),
            in("esi") ops,
            out("rax") payload,
            out("rdx") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            out("xmm16") _, out("xmm17") _, out("xmm18") _, out("xmm19") _,
            out("xmm20") _, out("xmm21") _, out("xmm22") _, out("xmm23") _,
            out("xmm24") _, out("xmm25") _, out("xmm26") _, out("xmm27") _,
            out("xmm28") _, out("xmm29") _, out("xmm30") _, out("xmm31") _,
            out("k0") _, out("k1") _, out("k2") _, out("k3") _,
            out("k4") _, out("k5") _, out("k6") _, out("k7") _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
        );
    }
    if !payload.is_null() {
        unwind(payload);
    }
}

/// The same number, of which the compiler does not know where it is from.
#[inline(always)]
pub(super) fn untraced(mut number: u32) -> u32 {
    // SAFETY: no instruction.
    unsafe { asm!("/* {0:e} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags)) };
    number
}

#[cold]
#[inline(never)]
fn unwind(payload: *mut Payload) -> ! {
    // SAFETY: `pause` made it for this one use.
    resume_unwind(*unsafe { Box::from_raw(payload) })
}
