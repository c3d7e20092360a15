//! Compiled functions, and how the interpreter calls them.
#![allow(unsafe_code)]

use crate::context::{self, Context, Entry, Exit, Host, Limited};
use crate::stop::{Page, Polling};
use mainspring_qtjir::{Fault, FaultKind, Interrupt, Native, NativeCall, Pos, Program, TaskState, Trap};
use std::fmt;

/// How programs are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of its task's stack that compiled code may use. Calls that nest deeper trap. With less than a mebibyte they may trap
    /// before they do in the interpreter.
    pub stack_bytes: usize,
    /// How compiled code is metered.
    pub metering: Metering,
}

/// How compiled code is metered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metering {
    /// By the checks of the program, which count ops.
    #[default]
    Ops,
    /// As `Ops`, and the time between payments is looked at ([`take_longest_gap`](crate::take_longest_gap)).
    OpsGauged,
    /// By time: a load on each way back of a loop and where a function begins, from a page that is protected to stop the task. Code under it counts no ops; its
    /// task gives way, waits for the refill of its scheduling context and is cancelled within a tick. A program without a runtime
    /// ends at its time ([`Program::run_alone_until`]).
    Time,
    /// Not at all, to measure against. The program has no checks ([`Program::compile_unmetered`]).
    None,
}

impl Default for Options {
    /// For the stacks that a runtime has unless it is told otherwise.
    fn default() -> Self {
        Self { stack_bytes: 32 << 10, metering: Metering::Ops }
    }
}

/// Why a program cannot be compiled. It can be interpreted.
#[derive(Debug)]
#[non_exhaustive]
pub enum NativeError {
    /// There is no code generator for this processor.
    NoTarget(String),
    /// The code generator failed.
    Codegen(String),
}

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget(why) => {
                write!(f, "no machine code for this processor: {why}; run it without --native")
            }
            Self::Codegen(why) => write!(f, "the code generator failed: {why}; run it without --native"),
        }
    }
}

impl std::error::Error for NativeError {}

/// An instruction at which generated code may end the task.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pos: Pos,
    function: String,
}

impl Site {
    pub(crate) fn new(pos: Pos, function: String) -> Self {
        Self { pos, function }
    }

    pub(crate) fn place(&self) -> (Pos, String) {
        (self.pos, self.function.clone())
    }
}

/// Code that can be called, and what it refers to by number.
pub(crate) struct Code {
    /// The entries, by function.
    pub(crate) entries: Vec<Option<Entry>>,
    pub(crate) sites: Vec<Site>,
    pub(crate) texts: Vec<String>,
    pub(crate) stack_bytes: usize,
    /// Where code is that polls, if time is the meter.
    pub(crate) polling: Option<Polling>,
    /// Keeps the memory of the code, if it is not the program's own.
    pub(crate) _memory: Option<Box<dyn Memory>>,
}

/// The memory of code. It is freed when this is dropped.
pub(crate) trait Memory: Send + Sync {}

impl Code {
    /// The program, with functions that run as this code.
    pub(crate) fn attach(self, program: Program) -> Program {
        program.with_native(Box::new(self))
    }
}

impl Native for Code {
    fn has(&self, function: usize) -> bool {
        self.entries.get(function).is_some_and(Option::is_some)
    }

    fn call(&self, function: usize, call: NativeCall<'_, '_, '_>) -> Result<(u64, i64), Interrupt> {
        let entry = self.entries[function].expect("it has the function");
        let NativeCall { args, task, stack_words, nest } = call;
        let page = match self.polling {
            Some(_) => Some(Page::take().ok_or_else(|| Interrupt::Fault(self.unstoppable()))?),
            None => None,
        };
        let here = std::ptr::from_ref(&args) as u64;
        let limit = here.saturating_sub(self.stack_bytes as u64);
        let mut host = Host::new(task, nest, self, page);
        let mut limited = Limited::new(Context::new(&mut host, stack_words), limit);
        let context = match &host.page {
            Some(page) => page.place(limited),
            None => (&raw mut limited).cast(),
        };
        let mut result = 0;
        // SAFETY: the arguments are as many words as the function has parameters, and there is a place for its result.
        let status = unsafe { Context::run(context, entry, args.as_ptr(), &raw mut result) };
        // Before a stop goes on: it gives the page back.
        drop(host);
        match status {
            Ok(0) => Ok((result, 0)),
            Ok(_) => Ok((0, result as i64)),
            Err(Exit::Interrupt(interrupt)) => Err(interrupt),
            Err(Exit::Trap(trap)) => Err(Interrupt::Trap(trap)),
            Err(Exit::Stop(stop)) => stop.resume(),
        }
    }
}

impl Code {
    /// Code that could not be stopped is not called.
    fn unstoppable(&self) -> Fault {
        let why = "too many calls of compiled code at one time for the meter of time; run fewer tasks, or count ops";
        let kind = FaultKind::Stopped { code: 0, why: why.to_owned() };
        Fault { kind, pos: Pos::default(), function: String::new() }
    }

    /// A text that code prints.
    pub(crate) fn text(&self, number: u64) -> &str {
        self.texts.get(number as usize).map_or("", String::as_str)
    }

    /// Why code ended whose context says so. A trap gets its place.
    pub(crate) fn exit(
        &self,
        context: &Context,
        of_host: Option<Exit>,
        task: &mut TaskState<'_, '_>,
    ) -> Exit {
        let (pos, function) = self
            .sites
            .get(context.site as usize)
            .map_or_else(|| (Pos::default(), String::new()), Site::place);
        let [one, other] = context.about;
        let trap = match context.trap as i64 {
            context::TRAP_OVERFLOW => Trap::Overflow,
            context::TRAP_DIVIDE => Trap::DivideByZero,
            context::TRAP_BOUNDS => Trap::OutOfBounds { index: one as i64, len: other },
            context::TRAP_EMPTY => Trap::Empty,
            context::TRAP_RAISED => {
                let code = one as i64;
                let name = task.program().module().error_name(code).to_owned();
                let cause = task.take_last_child().map(Box::new);
                let kind = FaultKind::Unhandled { code, name, cause };
                return Exit::Interrupt(Interrupt::Fault(Fault { kind, pos, function }));
            }
            context::TRAP_HOST => match of_host {
                Some(Exit::Trap(trap)) => trap,
                Some(exit) => return exit,
                None => Trap::StackOverflow,
            },
            _ => Trap::StackOverflow,
        };
        Exit::Interrupt(Interrupt::Fault(Fault { kind: FaultKind::Trap(trap), pos, function }))
    }
}
