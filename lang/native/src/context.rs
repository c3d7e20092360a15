//! What generated code and its host share during one call.
//!
//! Generated code gets a pointer to [`Context`] and hands it to the functions here. The pointer is valid for the whole call,
//! and no other code has it: the call has exclusive use of the task's state, to which [`Host`] points.
//!
//! Conserved: ops that were counted and not paid for are in the context while generated code runs, and in the task's state while its host
//! does.
#![allow(unsafe_code)]

use crate::code::Code;
use crate::stop::{self, Page};
use mainspring::Stop;
use mainspring_qtjir::{Instr, Interrupt, Nest, TaskState, Trap, Type};
use std::cell::Cell;
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// What generated code reads and writes itself.
#[repr(C)]
pub(crate) struct Context {
    /// The first word of the task's heap. It moves when the heap grows.
    heap: *mut u64,
    /// Ops that were counted and not paid for.
    pending: u64,
    /// Words of stack that are left.
    stack_words: i64,
    /// What ended the call: one of the `TRAP_` numbers.
    pub(crate) trap: u64,
    /// The instruction that ended it.
    pub(crate) site: u64,
    /// What is to be said about it.
    pub(crate) about: [u64; 2],
    /// The stack of the frame that entered the innermost code, for a task that ends where it polls.
    exit_stack: u64,
    host: *mut Host<'static, 'static>,
}

/// A context, and what generated code reads right behind it. Where time is the meter, a page begins there that is protected to stop
/// the code: one load from the register of the context polls, and the load of the limit in each function polls too.
#[repr(C)]
pub(crate) struct Limited {
    context: Context,
    /// Below this address the real stack is low.
    stack_limit: u64,
}

impl Limited {
    pub(crate) fn new(context: Context, stack_limit: u64) -> Self {
        Self { context, stack_limit }
    }
}

/// The entry of a function, or of the inside of a nursery: its context, its arguments, and where its result goes. Gives its status.
pub(crate) type Entry = unsafe extern "C" fn(*mut Context, *const u64, *mut u64) -> u64;

/// Offsets of the fields, for generated code.
pub(crate) const HEAP: i32 = offset_of!(Context, heap) as i32;
pub(crate) const PENDING: i32 = offset_of!(Context, pending) as i32;
pub(crate) const STACK_WORDS: i32 = offset_of!(Context, stack_words) as i32;
pub(crate) const STACK_LIMIT: i32 = offset_of!(Limited, stack_limit) as i32;
pub(crate) const TRAP: i32 = offset_of!(Context, trap) as i32;
pub(crate) const SITE: i32 = offset_of!(Context, site) as i32;
pub(crate) const ABOUT: i32 = offset_of!(Context, about) as i32;
pub(crate) const EXIT_STACK: usize = offset_of!(Context, exit_stack);

pub(crate) const TRAP_OVERFLOW: i64 = 1;
pub(crate) const TRAP_DIVIDE: i64 = 2;
pub(crate) const TRAP_BOUNDS: i64 = 3;
pub(crate) const TRAP_EMPTY: i64 = 4;
pub(crate) const TRAP_STACK: i64 = 5;
/// The program raised an error that is not handled.
pub(crate) const TRAP_RAISED: i64 = 6;
/// The host has the reason.
pub(crate) const TRAP_HOST: i64 = 7;

/// Why the host ended the call.
pub(crate) enum Exit {
    /// A trap, at the place that the code has noted.
    Trap(Trap),
    /// Something that knows its place.
    Interrupt(Interrupt),
    /// The runtime unwinds the task.
    Stop(Stop),
}

impl From<Trap> for Exit {
    fn from(trap: Trap) -> Self {
        Self::Trap(trap)
    }
}

/// The task's state, for the functions that generated code calls. Inside of a nursery it is the one that the nursery lends.
pub(crate) struct Host<'e, 'c> {
    task: *mut TaskState<'e, 'c>,
    /// The nurseries that are open.
    nest: Option<*const dyn Nest>,
    code: *const Code,
    /// The page that the code polls, if time is its meter.
    pub(crate) page: Option<Page>,
    exit: Option<Exit>,
}

impl<'e, 'c> Host<'e, 'c> {
    pub(crate) fn new(
        task: &mut TaskState<'e, 'c>,
        nest: Option<&dyn Nest>,
        code: &Code,
        page: Option<Page>,
    ) -> Self {
        Self { task, nest: nest.map(without_lifetime), code, page, exit: None }
    }
}

/// A pointer that outlives what the compiler knows of it.
fn without_lifetime(nest: &dyn Nest) -> *const dyn Nest {
    // SAFETY: the types differ in their lifetime alone. Whoever follows the pointer knows that the nursery is open.
    unsafe { std::mem::transmute::<*const (dyn Nest + '_), *const (dyn Nest + 'static)>(nest) }
}

impl Context {
    pub(crate) fn new(host: &mut Host<'_, '_>, stack_words: usize) -> Self {
        Self {
            heap: std::ptr::null_mut(),
            pending: 0,
            stack_words: stack_words as i64,
            trap: 0,
            site: 0,
            about: [0; 2],
            exit_stack: 0,
            host: std::ptr::from_mut(host).cast(),
        }
    }

    /// The code runs from here on, and has the heap and what is not paid for.
    ///
    /// # Safety
    ///
    /// The host is the one of the call, and no reference to the task's state is in use.
    unsafe fn hand_over(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            let task = &mut *(*(*this).host).task;
            (*this).pending = task.hand_over_pending();
            (*this).heap = task.heap_words();
        }
    }

    /// The host runs from here on.
    ///
    /// # Safety
    ///
    /// As for [`Context::hand_over`].
    unsafe fn take_over(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { (*(*(*this).host).task).count_ops(std::mem::take(&mut (*this).pending)) }
    }

    /// Runs generated code, on its page if it has one. Gives its status, and whose reason it is if that is not zero.
    ///
    /// # Safety
    ///
    /// `entry` takes these arguments and this place for its result, and the host is the one of the call.
    pub(crate) unsafe fn run(
        this: *mut Self,
        entry: Entry,
        args: *const u64,
        out: *mut u64,
    ) -> Result<u64, Exit> {
        // SAFETY: the caller's promise. Generated code neither unwinds nor keeps any of the pointers, and no reference to what they lead to
        // is in use while it runs.
        unsafe {
            Self::hand_over(this);
            let status = match (*(*this).host).page.as_ref() {
                Some(page) => stop::enter(entry, this, page, args, out),
                None => entry(this, args, out),
            };
            Self::take_over(this);
            if status != 1 {
                return Ok(status);
            }
            let host = &mut *(*this).host;
            let task = &mut *host.task;
            let exit = (*host.code).exit(&*this, host.exit.take(), task);
            (*this).trap = 0;
            Err(exit)
        }
    }

    /// Runs what may trap or unwind. Gives what it gives, or `None` and leaves the reason with the host.
    ///
    /// # Safety
    ///
    /// As for [`Context::hand_over`].
    unsafe fn hosted<T>(
        this: *mut Self,
        act: impl FnOnce(&mut TaskState<'static, 'static>, Option<&dyn Nest>) -> Result<T, Exit>,
    ) -> Option<T> {
        // SAFETY: the caller's promise. Each reference ends before the next one is made; `act` may lend the state to code that it runs, and
        // has it back when that has returned.
        unsafe {
            let host = (*this).host;
            if let Some(page) = (*host).page.as_ref() {
                page.host_runs();
            }
            Self::take_over(this);
            let nest = (*host).nest.map(|nest| &*nest);
            let done = Stop::catch(|| act(&mut *(*host).task, nest));
            Self::hand_over(this);
            if let Some(page) = (*host).page.as_ref() {
                page.code_runs();
            }
            let exit = match done {
                Ok(Ok(value)) => return Some(value),
                Ok(Err(exit)) => exit,
                Err(stop) => Exit::Stop(stop),
            };
            (*host).exit = Some(exit);
            (*this).trap = TRAP_HOST as u64;
            None
        }
    }

    /// Lets the task look up where it polled. Whether it ends.
    ///
    /// # Safety
    ///
    /// As for [`Context::hand_over`].
    pub(crate) unsafe fn look_up(this: *mut Self) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let host = (*this).host;
            let looked = Self::hosted(this, |task, _| {
                if let Some(page) = (*host).page.as_ref() {
                    page.reopen();
                }
                Ok(task.look_up()?)
            });
            if looked.is_none() {
                // The code has noted no place.
                (*this).site = u64::MAX;
            }
            looked.is_none()
        }
    }
}

/// Pays for what was counted. 0 if the task may go on.
///
/// # Safety
///
/// `context` is the one that the generated code was called with.
pub(crate) unsafe extern "C" fn pay(context: *mut Context) -> u64 {
    // SAFETY: the caller's promise.
    let paid = unsafe { Context::hosted(context, |task, _| Ok(task.settle()?)) };
    u64::from(paid.is_none())
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

/// A new object of `len` words, or 0 if there is none.
///
/// # Safety
///
/// As for [`pay`].
pub(crate) unsafe extern "C" fn allocate(context: *mut Context, len: i64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { Context::hosted(context, |task, _| Ok(task.allocate(len)?)) }.unwrap_or(0)
}

/// Prints a word: `kind` 0 an integer, 1 a float, 2 a bool, 3 the text of that number. 0 if the task may go on.
///
/// # Safety
///
/// As for [`pay`].
pub(crate) unsafe extern "C" fn print(context: *mut Context, word: u64, kind: u64) -> u64 {
    // SAFETY: the caller's promise. The code outlives its call.
    let printed = unsafe {
        let code = (*(*context).host).code;
        Context::hosted(context, |task, _| {
            match kind {
                0 => task.print_word(word, &Type::I64)?,
                1 => task.print_word(word, &Type::F64)?,
                2 => task.print_word(word, &Type::Bool)?,
                _ => task.print((*code).text(word))?,
            }
            Ok(())
        })
    };
    u64::from(printed.is_none())
}

/// The instruction of a function: its block above, its number there below.
fn instr<'e>(task: &TaskState<'e, '_>, function: u64, place: u64) -> &'e Instr {
    let block = &task.program().module().functions[function as usize].blocks[(place >> 32) as usize];
    &block.instrs[place as u32 as usize]
}

/// Executes an instruction that needs the scheduler: the words of its operands come in `words`, and those of its results go there. 0 if the
/// task may go on.
///
/// # Safety
///
/// As for [`pay`]. The instruction is one of the program, and `words` has room for its operands, and for two.
pub(crate) unsafe extern "C" fn act(
    context: *mut Context,
    function: u64,
    place: u64,
    words: *mut u64,
) -> u64 {
    // SAFETY: the caller's promise.
    let acted = unsafe {
        Context::hosted(context, |task, nest| {
            let instr = instr(task, function, place);
            let operands = std::slice::from_raw_parts(words, instr.op.operands().len());
            let acted = task.act(function as usize, instr, operands, nest);
            acted.map_err(|interrupt| Exit::Interrupt(interrupt.at(task.program(), function as usize, instr)))
        })
    };
    let Some(results) = acted else { return 1 };
    // SAFETY: as above.
    unsafe { words.cast::<[u64; 2]>().write(results) };
    0
}

/// Puts back what a nursery has changed, on every way out.
struct Lent {
    context: *mut Context,
    task: *mut TaskState<'static, 'static>,
    nest: Option<*const dyn Nest>,
    exit_stack: u64,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the context and its host live until the call ends, which is further out.
        unsafe {
            (*self.context).exit_stack = self.exit_stack;
            ((*(*self.context).host).task, (*(*self.context).host).nest) = (self.task, self.nest);
        }
    }
}

/// Opens a nursery, runs its inside, and closes it. The first word of `frame` becomes the nursery's number, and in the end the code of its
/// error; the `escaping` words after that are what the inside leaves, or zero if the nursery fails. 0 if the task may go on.
///
/// # Safety
///
/// As for [`pay`]. `inside` takes `frame`, which has room for these words, and `function` and `place` are those of a `Nursery_Begin`.
pub(crate) unsafe extern "C" fn nursery(
    context: *mut Context,
    inside: Entry,
    frame: *mut u64,
    escaping: u64,
    function: u64,
    place: u64,
) -> u64 {
    // SAFETY: the caller's promise. The state that the nursery lends is the host's until the inside has returned.
    let ended = unsafe {
        Context::hosted(context, |task, outer| {
            let begin = instr(task, function, place);
            let program = task.program();
            let host = (*context).host;
            let exit_stack = (*context).exit_stack;
            let _lent = Lent { context, task: (*host).task, nest: (*host).nest, exit_stack };
            let ended = task.nursery(outer, |task, serial, nest| {
                (*host).task = task;
                (*host).nest = Some(without_lifetime(nest));
                frame.write(serial.into());
                match Context::run(context, inside, frame, frame) {
                    Ok(_) => Ok(()),
                    Err(Exit::Interrupt(interrupt)) => Err(interrupt),
                    Err(Exit::Trap(trap)) => Err(Interrupt::Trap(trap)),
                    // The nursery looks whether it is its own failure.
                    Err(Exit::Stop(stop)) => stop.resume(),
                }
            });
            ended.map_err(|interrupt| Exit::Interrupt(interrupt.at(program, function as usize, begin)))
        })
    };
    let Some(code) = ended else { return 1 };
    // SAFETY: as above.
    unsafe {
        frame.write(code as u64);
        if code != 0 {
            std::slice::from_raw_parts_mut(frame.add(1), escaping as usize).fill(0);
        }
    }
    0
}
