//! What generated code and its host share during one call.
//!
//! Generated code gets a pointer to [`Context`] and hands it to the functions here. The pointer is valid for the whole call,
//! and no other code has it: the call has exclusive use of the task's state, which [`Host`] borrows.
#![allow(unsafe_code)]

use mainspring_qtjir::{Account, Output, Trap};
use std::any::Any;
use std::cell::Cell;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// What generated code reads and writes itself.
#[repr(C)]
pub(crate) struct Context {
    /// The first word of the task's heap. It moves when the heap grows.
    heap: *mut u64,
    /// Ops that were counted and not paid for.
    pub(crate) pending: u64,
    /// Words of stack that are left.
    pub(crate) stack_words: i64,
    /// Below this address the real stack is low.
    pub(crate) stack_limit: u64,
    /// What ended the call: one of the `TRAP_` numbers.
    pub(crate) trap: u64,
    /// The instruction that ended it.
    pub(crate) site: u64,
    /// What is to be said about it.
    pub(crate) about: [u64; 2],
    /// A byte on the page that code polls, where it polls.
    poll: *const u8,
    host: *mut Host<'static, 'static>,
}

/// The page that code polls: never written, and readable.
#[repr(align(4096))]
struct PollPage([u8; 4096]);

static POLL_PAGE: PollPage = PollPage([0; 4096]);

/// Offsets of the fields, for generated code.
pub(crate) const HEAP: i32 = offset_of!(Context, heap) as i32;
pub(crate) const PENDING: i32 = offset_of!(Context, pending) as i32;
pub(crate) const STACK_WORDS: i32 = offset_of!(Context, stack_words) as i32;
pub(crate) const STACK_LIMIT: i32 = offset_of!(Context, stack_limit) as i32;
pub(crate) const TRAP: i32 = offset_of!(Context, trap) as i32;
pub(crate) const SITE: i32 = offset_of!(Context, site) as i32;
pub(crate) const ABOUT: i32 = offset_of!(Context, about) as i32;
pub(crate) const POLL: i32 = offset_of!(Context, poll) as i32;

pub(crate) const TRAP_OVERFLOW: i64 = 1;
pub(crate) const TRAP_DIVIDE: i64 = 2;
pub(crate) const TRAP_BOUNDS: i64 = 3;
pub(crate) const TRAP_EMPTY: i64 = 4;
pub(crate) const TRAP_STACK: i64 = 5;
/// The program raised an error that is not handled.
pub(crate) const TRAP_RAISED: i64 = 6;
/// The host has the reason.
pub(crate) const TRAP_HOST: i64 = 7;

/// The task's state, for the functions that generated code calls.
pub(crate) struct Host<'a, 'c> {
    pub(crate) heap: &'a mut Vec<u64>,
    pub(crate) account: &'a mut Account<'c>,
    pub(crate) ops: &'a mut u64,
    pub(crate) looks: &'a mut u64,
    pub(crate) output: &'a dyn Output,
    pub(crate) texts: &'a [String],
    /// Why the host ended the call.
    pub(crate) trap: Option<Trap>,
    /// What the runtime unwinds the task with.
    pub(crate) payload: Option<Box<dyn Any + Send>>,
}

impl Context {
    pub(crate) fn new(host: &mut Host<'_, '_>, pending: u64, stack_words: usize, stack_limit: u64) -> Self {
        Self {
            heap: host.heap.as_mut_ptr(),
            pending,
            stack_words: stack_words as i64,
            stack_limit,
            trap: 0,
            site: 0,
            about: [0; 2],
            poll: POLL_PAGE.0.as_ptr(),
            host: std::ptr::from_mut(host).cast(),
        }
    }

    /// Runs what may trap or unwind. Gives what it gives, or `None` and the reason in the host.
    fn hosted<T>(
        &mut self,
        act: impl FnOnce(&mut Host<'static, 'static>, &mut u64) -> Result<T, Trap>,
    ) -> Option<T> {
        // SAFETY: the host outlives the call, and generated code has no reference to it.
        let host = unsafe { &mut *self.host };
        let pending = &mut self.pending;
        let done = catch_unwind(AssertUnwindSafe(|| act(host, pending)));
        // SAFETY: as above; the reference above is not used any more.
        let host = unsafe { &mut *self.host };
        self.heap = host.heap.as_mut_ptr();
        match done {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(trap)) => host.trap = Some(trap),
            Err(payload) => host.payload = Some(payload),
        }
        self.trap = TRAP_HOST as u64;
        None
    }
}

/// Pays for what was counted. 0 if the task may go on.
///
/// # Safety
///
/// `context` is the one that the generated code was called with.
pub(crate) unsafe extern "C" fn pay(context: *mut Context) -> u64 {
    // SAFETY: the caller's promise.
    let context = unsafe { &mut *context };
    u64::from(context.hosted(settle).is_none())
}

thread_local! {
    /// When the code on this thread paid last, and the longest time that it went without.
    static GAPS: Cell<(Option<Instant>, Duration)> = const { Cell::new((None, Duration::ZERO)) };
}

/// As [`pay`], and looks at the time since the last payment.
///
/// # Safety
///
/// As for [`pay`].
pub(crate) unsafe extern "C" fn pay_gauged(context: *mut Context) -> u64 {
    let (last, longest) = GAPS.get();
    let longest = last.map_or(longest, |last| longest.max(last.elapsed()));
    // SAFETY: the caller's promise.
    let ends = unsafe { pay(context) };
    GAPS.set((Some(Instant::now()), longest));
    ends
}

/// The longest time between two payments of gauged code on this thread since this was asked last.
pub fn take_longest_gap() -> Duration {
    GAPS.take().1
}

/// Pays for what was counted, as the interpreter does.
pub(crate) fn settle(host: &mut Host<'_, '_>, pending: &mut u64) -> Result<(), Trap> {
    match std::mem::take(pending) {
        0 => Ok(()),
        counted => {
            *host.ops += counted;
            *host.looks += 1;
            host.account.pay(u32::try_from(counted).unwrap_or(u32::MAX))
        }
    }
}

/// A new object of `len` words, or 0 if there is none.
///
/// # Safety
///
/// As for [`pay`].
pub(crate) unsafe extern "C" fn allocate(context: *mut Context, len: i64) -> u64 {
    // SAFETY: the caller's promise.
    let context = unsafe { &mut *context };
    let made = context.hosted(|host, _| {
        if !(0..1 << 40).contains(&len) {
            return Err(Trap::BadSize(len));
        }
        host.account.allocate((len as usize + 1) * 8)?;
        *host.ops += 1;
        let at = host.heap.len();
        host.heap.push(len as u64);
        host.heap.resize(at + 1 + len as usize, 0);
        Ok(at as u64)
    });
    made.unwrap_or(0)
}

/// Prints a word: `kind` 0 an integer, 1 a float, 2 a bool, 3 the text of that number. 0 if the task may go on.
///
/// # Safety
///
/// As for [`pay`].
pub(crate) unsafe extern "C" fn print(context: *mut Context, word: u64, kind: u64) -> u64 {
    // SAFETY: the caller's promise.
    let context = unsafe { &mut *context };
    let printed = context.hosted(|host, pending| {
        settle(host, pending)?;
        host.account.system_call()?;
        *host.ops += 1;
        match kind {
            0 => host.output.line(&(word as i64).to_string()),
            1 => host.output.line(&format!("{:?}", f64::from_bits(word))),
            2 => host.output.line(&(word != 0).to_string()),
            _ => host.output.line(host.texts.get(word as usize).map_or("", String::as_str)),
        }
        Ok(())
    });
    u64::from(printed.is_none())
}
