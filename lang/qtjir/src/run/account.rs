//! What a program charges.

use super::fault::Trap;
use mainspring::{Budget, Component, Cost, Cx};
use std::time::Instant;

/// What a program that runs alone may use.
pub type Limits = Budget;

/// What a program charges: its task, or a budget of its own if it runs alone.
#[derive(Debug)]
pub enum Account<'c> {
    /// A task of the runtime. With nothing left, the runtime stops the task by unwinding it.
    Task(&'c Cx),
    /// A budget, and when it ends, if it has such an end.
    Alone(Budget, Option<Instant>),
}

fn in_time(until: Option<Instant>) -> Result<(), Trap> {
    if until.is_some_and(|until| Instant::now() >= until) { Err(Trap::OutOfTime) } else { Ok(()) }
}

impl<'c> Account<'c> {
    /// The task's context.
    pub fn cx(&self) -> Result<&'c Cx, Trap> {
        match self {
            Self::Task(cx) => Ok(cx),
            Self::Alone(..) => Err(Trap::NoScheduler),
        }
    }

    /// A yield check that pays for `ops`.
    pub fn pay(&mut self, ops: u32) -> Result<(), Trap> {
        match self {
            Self::Task(cx) => {
                cx.check_iterations(ops);
                Ok(())
            }
            Self::Alone(budget, until) => {
                let paid = budget.charge_ops_saturating(ops);
                if paid < ops { Err(Trap::Exhausted(Component::Ops)) } else { in_time(*until) }
            }
        }
    }

    /// Looks up, as a check does that pays for nothing: a task gives way, waits for its scheduling context, or is unwound.
    pub fn look_up(&self) -> Result<(), Trap> {
        match self {
            Self::Task(cx) => {
                cx.look_up();
                Ok(())
            }
            Self::Alone(_, until) => in_time(*until),
        }
    }

    /// Pays for an allocation.
    pub fn allocate(&mut self, bytes: usize) -> Result<(), Trap> {
        match self {
            Self::Task(cx) => cx.charge_alloc(bytes).map_err(Trap::Budget),
            Self::Alone(budget, _) => {
                let charged = budget.charge(Cost::alloc(bytes));
                charged.map(drop).map_err(|unpayable| Trap::Exhausted(unpayable.component))
            }
        }
    }

    /// Pays for a call into the operating system.
    pub fn system_call(&mut self) -> Result<(), Trap> {
        match self {
            Self::Task(cx) => cx.pay(Component::Syscalls).map_err(Trap::Budget),
            Self::Alone(budget, _) => {
                let charged = budget.charge(Cost::SYSCALL);
                charged.map(drop).map_err(|unpayable| Trap::Exhausted(unpayable.component))
            }
        }
    }
}
