//! How a task can end other than by returning.

use crate::ir::{Pos, error_code};
use mainspring::{BudgetError, ChannelError, Component, RechargeError, SpawnError, TaskError};
use std::fmt;

/// What a program did that has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trap {
    /// A result that does not fit into 64 bits.
    Overflow,
    /// A division by zero.
    DivideByZero,
    /// An index outside of its slice.
    OutOfBounds {
        /// The index.
        index: i64,
        /// The length.
        len: u64,
    },
    /// A slice or channel of a negative or absurd size.
    BadSize(i64),
    /// A field of an element that was never set.
    Empty,
    /// The host has less memory than the budget.
    NoMemory,
    /// Calls nest too deep.
    StackOverflow,
    /// Nothing is left of this.
    Exhausted(Component),
    /// The time that it was given is over.
    OutOfTime,
    /// The budget refused a charge.
    Budget(BudgetError),
    /// A task could not be spawned.
    Spawn(SpawnError),
    /// A channel could not be made.
    Channel(ChannelError),
    /// A recharge was refused.
    Recharge(RechargeError),
    /// The handle of a task of a nursery that has ended.
    StaleHandle,
    /// A task's result was taken before.
    AwaitedTwice,
    /// The program runs alone, and nothing schedules tasks.
    NoScheduler,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overflow => f.write_str("the result does not fit into 64 bits; use +%, -% or *% to wrap"),
            Self::DivideByZero => f.write_str("division by zero"),
            Self::OutOfBounds { index, len } => write!(f, "index {index} of a slice of {len}"),
            Self::BadSize(size) => write!(f, "a size of {size}"),
            Self::Empty => f.write_str("this element was never set"),
            Self::NoMemory => f.write_str("the host has no memory left; allocate less"),
            Self::StackOverflow => f.write_str("calls nest too deep"),
            Self::Exhausted(component) => write!(f, "ran out of {component}; give it a larger budget"),
            Self::OutOfTime => f.write_str("ran out of time; give it more"),
            Self::Budget(error) => error.fmt(f),
            Self::Spawn(error) => error.fmt(f),
            Self::Channel(error) => error.fmt(f),
            Self::Recharge(error) => error.fmt(f),
            Self::StaleHandle => f.write_str("the task's nursery has ended; await it inside the nursery"),
            Self::AwaitedTwice => f.write_str("the task was awaited before; keep its result in a variable"),
            Self::NoScheduler => f.write_str("this needs a scheduler, and the program runs without one"),
        }
    }
}

/// How a task ended, if not by returning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// A trap.
    Trap(Trap),
    /// An error that the program names.
    Error {
        /// Its code.
        code: i64,
        /// Its name.
        name: String,
    },
    /// An error of a child that was not handled.
    Unhandled {
        /// Its code.
        code: i64,
        /// Its name.
        name: String,
        /// How the child ended, if that is known.
        cause: Option<Box<Fault>>,
    },
    /// The runtime ended the task, for this reason.
    Stopped {
        /// The code that the program sees.
        code: i64,
        /// What the runtime says.
        why: String,
    },
}

/// How a task ended, if not by returning, and where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How.
    pub kind: FaultKind,
    /// Where in the source.
    pub pos: Pos,
    /// The function.
    pub function: String,
}

impl Fault {
    /// The error as the program sees it.
    pub fn code(&self) -> i64 {
        let named = |name| error_code(name).unwrap_or(0);
        match &self.kind {
            FaultKind::Trap(Trap::StackOverflow) => named("StackOverflow"),
            FaultKind::Trap(Trap::Exhausted(_) | Trap::OutOfTime | Trap::Budget(_)) => {
                named("BudgetExhausted")
            }
            FaultKind::Trap(_) => named("Trapped"),
            FaultKind::Error { code, .. }
            | FaultKind::Unhandled { code, .. }
            | FaultKind::Stopped { code, .. } => *code,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pos != Pos::default() {
            write!(f, "{}: ", self.pos)?;
        }
        match &self.kind {
            FaultKind::Trap(trap) => trap.fmt(f)?,
            FaultKind::Error { name, .. } => write!(f, "error.{name}")?,
            FaultKind::Unhandled { name, cause: None, .. } => write!(f, "unhandled error.{name}")?,
            FaultKind::Unhandled { name, cause: Some(cause), .. } => {
                write!(f, "unhandled error.{name} of a task: {cause}")?;
            }
            FaultKind::Stopped { why, .. } => f.write_str(why)?,
        }
        if self.function.is_empty() { Ok(()) } else { write!(f, " (in {})", self.function) }
    }
}

impl std::error::Error for Fault {}

/// How the runtime ended a task, as the program sees it.
pub fn task_fault(error: &TaskError) -> Fault {
    let name = match error {
        TaskError::BudgetExhausted(_) | TaskError::BudgetCut(_) => "BudgetExhausted",
        TaskError::StackOverflow => "StackOverflow",
        error if error.is_cancelled() => "Cancelled",
        _ => "Trapped",
    };
    if let TaskError::Failed(inner) = error
        && let Some(fault) = inner.downcast_ref::<Fault>()
    {
        return fault.clone();
    }
    let kind = FaultKind::Stopped { code: error_code(name).unwrap_or(0), why: error.to_string() };
    Fault { kind, pos: Pos::default(), function: String::new() }
}
