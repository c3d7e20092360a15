//! Leaving one stack for another: the only code that changes the stack pointer. README.md beside this file is its
//! contract, clause by clause, with the test of each.
#![allow(unsafe_code)]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("mainspring-runtime switches stacks on x86_64 Linux only");

use std::arch::{asm, global_asm};

// A saved context is a stack pointer, and above it, from low to high addresses:
//     rbx rbp address
// The address is where the context goes on; in a new stack it is the trampoline. The other registers that a function keeps
// for its caller, r12 to r15, are not kept here: the caller saves those that it uses.

/// Leaves: the context goes to [rdi], the next one comes from rsi, and what is in rax goes to it there.
///
/// No call and no return: those would set the return predictor, which knows only the calls of the stack that is left. A jump is
/// predicted by where it went after the same way here.
macro_rules! leave {
    () => {
        "lea rcx, [rip + 2f]
         push rcx
         push rbp
         push rbx
         mov [rdi], rsp
         mov rsp, rsi
         pop rbx
         pop rbp
         pop rcx
         jmp rcx
         2:"
    };
}

global_asm!(
    ".text",
    // Where the signal handler of `overflow` sends a thread, with rsp and rax set: a fault becomes a switch to the worker.
    ".p2align 4",
    ".globl mainspring_resume",
    ".hidden mainspring_resume",
    ".type mainspring_resume, @function",
    "mainspring_resume:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "    pop rbx",
    "    pop rbp",
    "    pop rcx",
    "    jmp rcx",
    ".cfi_endproc",
    ".size mainspring_resume, . - mainspring_resume",
    // The first context of a stack: rbx is the argument, rbp the entry. The stack pointer is a multiple of 16 here, as
    // the ABI wants it before a call. There is no caller: unwinding and backtraces end.
    ".p2align 4",
    ".type mainspring_trampoline, @function",
    ".globl mainspring_trampoline",
    ".hidden mainspring_trampoline",
    "mainspring_trampoline:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "    mov rdi, rbx",
    "    mov rax, rbp",
    "    xor ebp, ebp",
    "    call rax",
    "    ud2",
    ".cfi_endproc",
    ".size mainspring_trampoline, . - mainspring_trampoline",
);

unsafe extern "C" {
    fn mainspring_resume();
    fn mainspring_trampoline();
}

/// Saves this context in `save`, goes on with `to`, and hands `value` to it. Returns when another context switches
/// back, with the value that it handed over.
///
/// # Safety
///
/// `to` is a context that [`prepare`] made or that a switch saved, it was not switched to since, and its stack is
/// intact. The context that is saved here is switched to at most once.
#[inline(always)]
pub(crate) unsafe fn switch(save: *mut usize, to: usize, value: usize) -> usize {
    let handed;
    // SAFETY: as the caller promises. Every register that may differ afterwards is named; rbx and rbp are the same.
    unsafe {
        asm!(
            leave!(),
            inout("rdi") save => _,
            inout("rsi") to => _,
            inout("rax") value => handed,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("C"),
        );
    }
    handed
}

/// Where a signal handler sends a thread so that it goes on with the context in its stack pointer.
pub(crate) fn resume_address() -> usize {
    mainspring_resume as *const () as usize
}

/// Makes a context that calls `entry(argument)` on the stack that ends at `top`. `entry` never returns.
///
/// # Safety
///
/// The 64 bytes below `top` are writable and unused; `top` is a multiple of 16.
pub(crate) unsafe fn prepare(top: usize, entry: extern "C-unwind" fn(usize) -> !, argument: usize) -> usize {
    debug_assert_eq!(top % 16, 0);
    let frame = [argument, entry as usize, mainspring_trampoline as *const () as usize];
    // With all words popped, the trampoline finds the stack pointer at `top`, a multiple of 16.
    let context = top - size_of_val(&frame);
    // SAFETY: within the 64 bytes below `top`, which the caller gives us.
    unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), context as *mut usize, frame.len()) };
    context
}

#[cfg(test)]
mod tests {
    use super::*;

    static mut MAIN: usize = 0;
    static mut FIBER: usize = 0;

    extern "C-unwind" fn echo(argument: usize) -> ! {
        let mut value = argument;
        loop {
            let sp: usize;
            // SAFETY: reads a register.
            unsafe { asm!("mov {}, rsp", out(reg) sp) };
            assert_eq!(sp % 8, 0);
            // Formatting uses SSE stores that fault on a misaligned stack.
            let text = format!("{value}.{}", value as f64 / 3.0);
            assert!(text.starts_with(&value.to_string()));
            // What the other side has in these does not survive by chance.
            // SAFETY: each register that changes is named.
            unsafe {
                asm!(
                    "mov r12, -1",
                    "mov r13, -1",
                    "mov r14, -1",
                    "mov r15, -1",
                    out("r12") _,
                    out("r13") _,
                    out("r14") _,
                    out("r15") _,
                );
            }
            // SAFETY: the test below saved MAIN when it switched here, on the same thread.
            value = unsafe { switch(&raw mut FIBER, MAIN, value + 1) };
        }
    }

    /// A switch as a function of the System V ABI.
    #[inline(never)]
    extern "C-unwind" fn round_trip(value: usize) -> usize {
        // SAFETY: the test below prepared FIBER, and goes on with it on this thread only.
        unsafe { switch(&raw mut MAIN, FIBER, value) }
    }

    //= NURS:ctx.switch NURS:ctx.trampoline NURS:ctx.contract SCHED:5.3.1
    #[test]
    fn callee_saved_registers_and_values_survive_a_round_trip() {
        let mut stack = vec![0u128; 4096];
        let top = stack.as_mut_ptr_range().end as usize;
        // SAFETY: the stack is this test's alone and outlives its use; MAIN and FIBER are used by this test only.
        unsafe {
            FIBER = prepare(top, echo, 40);
            assert_eq!(switch(&raw mut MAIN, FIBER, 0), 41, "the first switch enters with the argument");
            let (rbx, rbp): (usize, usize);
            let answer: usize;
            asm!(
                "push rbx",
                "push rbp",
                "mov rbx, 0x1111",
                "mov rbp, 0x6666",
                leave!(),
                "mov rcx, rbx",
                "mov rdx, rbp",
                "pop rbp",
                "pop rbx",
                in("rdi") &raw mut MAIN,
                in("rsi") FIBER,
                inout("rax") 100usize => answer,
                out("rdx") rbp,
                out("rcx") rbx,
                out("r12") _,
                out("r13") _,
                out("r14") _,
                out("r15") _,
                clobber_abi("C"),
            );
            assert_eq!((answer, rbx, rbp), (101, 0x1111, 0x6666));
            let mut found = [0usize; 6];
            let answer: usize;
            asm!(
                "push rbx",
                "push rbp",
                // Twice, so that the stack stays a multiple of 16.
                "push rsi",
                "push rsi",
                "mov rbx, 0x1111",
                "mov rbp, 0x2222",
                "mov r12, 0x3333",
                "mov r13, 0x4444",
                "mov r14, 0x5555",
                "mov r15, 0x6666",
                "call {round_trip}",
                "pop rcx",
                "pop rcx",
                "mov [rcx], rbx",
                "mov [rcx + 8], rbp",
                "mov [rcx + 16], r12",
                "mov [rcx + 24], r13",
                "mov [rcx + 32], r14",
                "mov [rcx + 40], r15",
                "pop rbp",
                "pop rbx",
                round_trip = sym round_trip,
                in("rdi") 200usize,
                in("rsi") found.as_mut_ptr(),
                out("rax") answer,
                out("r12") _,
                out("r13") _,
                out("r14") _,
                out("r15") _,
                clobber_abi("C"),
            );
            assert_eq!((answer, found), (201, [0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x6666]));
            // More values than there are other registers to keep them in, used before and after.
            let mut values: [usize; 16] = std::array::from_fn(|i| std::hint::black_box(i * 7));
            for turn in 0..4 {
                assert_eq!(switch(&raw mut MAIN, FIBER, turn), turn + 1);
                values.iter_mut().for_each(|value| *value += turn);
            }
            assert_eq!(values, std::array::from_fn(|i| i * 7 + 6));
        }
    }

    /// Contexts in a ring: each goes on with the next, and what was handed over goes round.
    struct Ring {
        contexts: [usize; 4],
        /// What each fiber found in its own frame, each time.
        found: Vec<u64>,
    }

    static mut RING: Ring = Ring { contexts: [0; 4], found: Vec::new() };

    extern "C-unwind" fn in_ring(me: usize) -> ! {
        let mut own = [me as u64; 32];
        let mut float = me as f64 + 0.5;
        let mut handed = 0;
        loop {
            own.iter_mut().for_each(|value| *value += 10);
            float *= 2.0;
            // SAFETY: one thread; no other code refers to the ring while this runs.
            unsafe {
                let ring = &raw mut RING;
                (*ring).found.extend([own[31], float.to_bits(), handed as u64]);
                handed = switch(&raw mut (*ring).contexts[me], (*ring).contexts[(me + 1) % 4], handed + 1);
            }
        }
    }

    #[test]
    fn contexts_that_take_turns_keep_their_frames_and_their_floats() {
        let mut stacks = [(); 3].map(|()| vec![0u128; 4096]);
        // SAFETY: the stacks are this test's alone and outlive their use; so is the ring.
        unsafe {
            let ring = &raw mut RING;
            for (i, stack) in stacks.iter_mut().enumerate() {
                (*ring).contexts[i + 1] = prepare(stack.as_mut_ptr_range().end as usize, in_ring, i + 1);
            }
            for turn in 0..5 {
                let handed = switch(&raw mut (*ring).contexts[0], (*ring).contexts[1], turn);
                assert_eq!(handed, if turn == 0 { 1 } else { turn + 3 }, "a new context is handed nothing");
            }
            let expected: Vec<u64> = (0..5u32)
                .flat_map(|turn| (1..4u64).map(move |me| (turn, me)))
                .flat_map(|(turn, me)| {
                    let handed = if turn == 0 { 0 } else { u64::from(turn) + me - 1 };
                    let float = (me as f64 + 0.5) * 2f64.powi(turn as i32 + 1);
                    [me + 10 * u64::from(turn + 1), float.to_bits(), handed]
                })
                .collect();
            assert_eq!((*ring).found, expected);
        }
    }

    static mut UNWINDING: [usize; 2] = [0; 2];

    struct SwitchesWhenDropped;

    impl Drop for SwitchesWhenDropped {
        fn drop(&mut self) {
            // SAFETY: as in `unwinds`.
            unsafe { switch(&raw mut UNWINDING[1], UNWINDING[0], 1) };
        }
    }

    extern "C-unwind" fn unwinds(_: usize) -> ! {
        let caught = std::panic::catch_unwind(|| {
            let _left_in_the_middle = SwitchesWhenDropped;
            std::panic::resume_unwind(Box::new(7));
        });
        let caught = caught.unwrap_err().downcast::<i32>().unwrap();
        // The walk through the frames ends with the stack.
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        assert!(!trace.is_empty());
        // SAFETY: the test below saved its context when it switched here, on the same thread.
        unsafe { switch(&raw mut UNWINDING[1], UNWINDING[0], *caught as usize) };
        unreachable!("nobody goes on with it")
    }

    #[test]
    fn a_stack_unwinds_to_its_own_frames_also_after_it_was_left_in_the_middle_of_that() {
        let mut stack = vec![0u128; 1 << 16];
        // SAFETY: the stack is this test's alone and outlives its use, as do the contexts.
        unsafe {
            UNWINDING[1] = prepare(stack.as_mut_ptr_range().end as usize, unwinds, 0);
            assert_eq!(switch(&raw mut UNWINDING[0], UNWINDING[1], 0), 1, "while it unwinds");
            assert_eq!(switch(&raw mut UNWINDING[0], UNWINDING[1], 0), 7, "what it caught");
        }
    }
}
