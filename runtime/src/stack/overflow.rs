//! A task that runs into the guard of its stack fails, and nothing else does.
//!
//! The kernel reports the guard as SIGSEGV, on the alternate signal stack that `std` gives every thread. If the address is
//! in the guard of the task that runs on this thread, the thread goes on with the worker's own context instead of the
//! faulting instruction. Any other fault goes to the handler that was there before.
#![allow(unsafe_code)]

use super::arena::{PAGE, Stack};
use super::switch::resume_address;
use crate::worker::{Back, current};
use libc::{SA_NODEFER, SA_ONSTACK, SA_SIGINFO, SIGBUS, SIGSEGV, c_int, c_void, siginfo_t, ucontext_t};
use std::arch::asm;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

static BEFORE: OnceLock<[libc::sigaction; 2]> = OnceLock::new();
const SIGNALS: [c_int; 2] = [SIGSEGV, SIGBUS];

/// Called before the runtime takes a lock on a task's stack: if little of the stack is left, the task overflows here, where
/// it holds nothing, and not later, where others would wait for ever for what it held.
#[inline]
pub(crate) fn probe(stack: Stack) {
    let here: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
    // Code of a task can also run elsewhere, on the worker's own stack: that says nothing about the task's.
    if here.wrapping_sub(stack.limit()) < stack.red_zone() {
        overflow_now(stack);
    }
}

#[cold]
#[inline(never)]
fn overflow_now(stack: Stack) {
    // SAFETY: the guard of the stack that we run on. The write does not happen: the fault ends the task.
    unsafe { ((stack.limit() - 8) as *mut u8).write_volatile(0) };
}

/// Installs the handler, once per process.
pub(crate) fn install() {
    BEFORE.get_or_init(|| {
        SIGNALS.map(|signal| {
            // SAFETY: a zeroed sigaction is a valid one; the handler below does only what a handler may.
            unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
                libc::sigemptyset(&raw mut action.sa_mask);
                let mut before = MaybeUninit::zeroed();
                libc::sigaction(signal, &raw const action, before.as_mut_ptr());
                before.assume_init()
            }
        })
    });
}

extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid pointers to a handler with SA_SIGINFO.
    let (address, context) = unsafe { ((*info).si_addr() as usize, &mut *context.cast::<ucontext_t>()) };
    if let Some(worker_context) = overflowed(address) {
        let registers = &mut context.uc_mcontext.gregs;
        registers[libc::REG_RSP as usize] = worker_context as i64;
        registers[libc::REG_RAX as usize] = Back::Overflow as i64;
        registers[libc::REG_RIP as usize] = resume_address() as i64;
        return;
    }
    forward(signal, info, std::ptr::from_mut(context).cast());
}

/// The worker's context, if `address` is in the guard of the task that runs on this thread.
fn overflowed(address: usize) -> Option<usize> {
    // SAFETY: the worker of this thread, or null.
    let worker = unsafe { current().as_ref() }?;
    // SAFETY: the running task of this worker, or null.
    let task = unsafe { worker.current.get().as_ref() }?;
    let limit = task.stack()?.limit();
    // SAFETY: this thread's own; it does not change while a task runs.
    (limit - PAGE..limit).contains(&address).then(|| unsafe { *worker.sp.get() })
}

fn forward(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let index = usize::from(signal == SIGBUS);
    let Some(before) = BEFORE.get().map(|all| &all[index]) else { return };
    // SAFETY: calls the earlier handler as the kernel would have, or puts the default back, which ends the process at the
    // same instruction.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, before, std::ptr::null_mut());
            }
            handler if before.sa_flags & SA_SIGINFO != 0 => {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
