//! What happens when a stack runs out.
//!
//! First line: the runtime's entry points look how much is left (`probe`), and fail the task by unwinding while there is room
//! for that. Last line: the guard below the stack. The kernel reports it as SIGSEGV, on the alternate signal stack of the
//! worker; the handler says which task it was and where, and ends the process. Under `Config::abandon_overflowed_stacks` the
//! thread goes on with the worker's own context instead of the faulting instruction.
//!
//! Any other fault goes to the handler that was there before.
#![allow(unsafe_code)]

use super::arena::Stack;
use super::report;
use super::roomy;
use super::switch::resume_address;
use crate::error::TaskError;
use crate::task::TaskPtr;
use crate::task::body::StopUnwind;
use crate::watchdog::TURN_BITS;
use crate::worker::{Back, current};
use libc::{SA_NODEFER, SA_ONSTACK, SA_SIGINFO, SIGBUS, SIGSEGV, c_int, c_void, siginfo_t, ucontext_t};
use std::arch::asm;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

static BEFORE: OnceLock<[libc::sigaction; 2]> = OnceLock::new();
const SIGNALS: [c_int; 2] = [SIGSEGV, SIGBUS];

/// The stack pointer of the function that this is inlined into.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let here: usize;
    // SAFETY: reads a register, which does not change within a function.
    unsafe { asm!("mov {}, rsp", out(reg) here, options(pure, nomem, nostack, preserves_flags)) };
    here
}

/// Called at entry points of the runtime, before it takes a lock on a task's stack: if little of the stack is left, the task
/// fails here, by unwinding.
#[inline]
pub(crate) fn probe(task: TaskPtr, stack: Stack) {
    // Code of a task can also run elsewhere, on the worker's own stack: that says nothing about the task's.
    if stack_pointer().wrapping_sub(stack.limit()) < stack.reserve() {
        fail_for_stack(task);
    }
}

#[cold]
#[inline(never)]
fn fail_for_stack(task: TaskPtr) {
    // A destructor that runs while the task unwinds has the reserve, and cannot unwind once more.
    if !std::thread::panicking() {
        StopUnwind::raise(task, TaskError::StackOverflow);
    }
}

/// Installs the handler, once per process.
pub(crate) fn install() {
    report::prepare();
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

/// The alternate signal stack of a worker's thread, until dropped: `std`'s own is too small for a backtrace.
pub(crate) struct AlternateStack {
    base: *mut c_void,
    before: libc::stack_t,
}

impl AlternateStack {
    const SIZE: usize = 256 << 10;

    /// Installs one for this thread. Without memory for it the thread keeps the one that it has.
    pub(crate) fn install() -> Option<Self> {
        // SAFETY: a new mapping, which becomes the alternate stack of this thread until `drop` puts the old one back.
        unsafe {
            let (protection, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
            );
            let base = libc::mmap(null_mut(), Self::SIZE, protection, flags, -1, 0);
            if base == libc::MAP_FAILED {
                return None;
            }
            let stack = libc::stack_t { ss_sp: base, ss_flags: 0, ss_size: Self::SIZE };
            let mut before = MaybeUninit::<libc::stack_t>::zeroed();
            if libc::sigaltstack(&raw const stack, before.as_mut_ptr()) != 0 {
                libc::munmap(base, Self::SIZE);
                return None;
            }
            Some(Self { base, before: before.assume_init() })
        }
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        // SAFETY: the thread that installed it, which is not in a handler now.
        unsafe {
            libc::sigaltstack(&raw const self.before, null_mut());
            libc::munmap(self.base, Self::SIZE);
        }
    }
}

extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid pointers to a handler with SA_SIGINFO.
    let (address, context) = unsafe { ((*info).si_addr() as usize, &mut *context.cast::<ucontext_t>()) };
    if roomy::guards(address) {
        report::destructor_overflowed(context);
    }
    match overflowed(address) {
        Some(Overflow::Abandon { worker_context }) => {
            let registers = &mut context.uc_mcontext.gregs;
            registers[libc::REG_RSP as usize] = worker_context as i64;
            registers[libc::REG_RAX as usize] = Back::Overflow as i64;
            registers[libc::REG_RIP as usize] = resume_address() as i64;
        }
        Some(Overflow::Report(who)) => report::task_overflowed(&who, context),
        None => forward(signal, info, std::ptr::from_mut(context).cast()),
    }
}

enum Overflow {
    Abandon { worker_context: usize },
    Report(report::Overflowed),
}

/// What to do, if `address` is in the guard of the task that runs on this thread.
fn overflowed(address: usize) -> Option<Overflow> {
    // SAFETY: the worker of this thread, or null.
    let worker = unsafe { current().as_ref() }?;
    // The task that was dispatched last, also while a subscriber or a destructor runs on its stack and no task is current.
    let running = worker.rt().shares[worker.index].running.load(Ordering::Relaxed) & !TURN_BITS;
    let task = TaskPtr::from_raw(std::ptr::with_exposed_provenance(running))?;
    let stack = task.stack()?;
    if !stack.guards(address) {
        return None;
    }
    if worker.rt().config.abandons_overflowed && std::ptr::eq(worker.current.get(), task.raw()) {
        // SAFETY: this thread's own; it does not change while a task runs.
        return Some(Overflow::Abandon { worker_context: unsafe { *worker.sp.get() } });
    }
    // SAFETY: without the lock that guards the rare fields, which the task itself may hold. The name was set before the task
    // was published and does not change; the record of rare fields goes only when the task ends.
    let name = unsafe { (*task.ext.get()).as_ref().and_then(|ext| ext.name) };
    let id = task.id.load(Ordering::Relaxed);
    Some(Overflow::Report(report::Overflowed { id, name, stack, worker: worker.index }))
}

fn forward(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let index = usize::from(signal == SIGBUS);
    let Some(before) = BEFORE.get().map(|all| &all[index]) else { return };
    // SAFETY: calls the earlier handler as the kernel would have, or puts the default back, which ends the process at the
    // same instruction.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, before, null_mut());
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
