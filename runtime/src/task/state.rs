//! The six states of a task.
//!
//! Conserved: a task is in exactly one state, and only the steps of [`TaskState::step`] exist. A task that is Ready is in
//! exactly one queue or in the hands of one worker; of all who want to make it Ready, exactly one is told to queue it.

use crate::protocol::prim::{AtomicU8, Ordering};
use std::fmt;

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TaskState {
    /// In a queue.
    Ready = 0,
    /// On a worker.
    Running = 1,
    /// Waiting for a channel, a timer, I/O or children.
    Blocked = 2,
    /// Out of budget, until a recharge.
    BudgetExhausted = 3,
    /// Returned, or failed. Final.
    Completed = 4,
    /// Cancelled. Final.
    Cancelled = 5,
}

/// What can happen to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A worker took it from a queue.
    Dispatch,
    /// It yielded.
    Yield,
    /// It waits.
    Block,
    /// A component of its budget ran out.
    Exhaust,
    /// What it waited for has happened.
    Wake,
    /// It was given budget.
    Recharge,
    /// It is cancelled while it waits, and must come to acknowledge that.
    Interrupt,
    /// It returned.
    Complete,
    /// It has acknowledged its cancellation, or never started.
    Cancel,
}

/// An event that makes no sense in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalStep {
    /// The state.
    pub state: TaskState,
    /// The event.
    pub event: Event,
}

impl fmt::Display for IllegalStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a task that is {:?} has no step {:?}", self.state, self.event)
    }
}

impl std::error::Error for IllegalStep {}

impl TaskState {
    /// All six.
    pub const ALL: [Self; 6] =
        [Self::Ready, Self::Running, Self::Blocked, Self::BudgetExhausted, Self::Completed, Self::Cancelled];

    /// The state after `event`.
    #[inline]
    pub const fn step(self, event: Event) -> Result<Self, IllegalStep> {
        Ok(match (self, event) {
            (Self::Ready, Event::Dispatch) => Self::Running,
            (Self::Running, Event::Yield)
            | (Self::Blocked, Event::Wake | Event::Interrupt)
            | (Self::BudgetExhausted, Event::Recharge | Event::Interrupt) => Self::Ready,
            (Self::Running, Event::Block) => Self::Blocked,
            (Self::Running, Event::Exhaust) => Self::BudgetExhausted,
            (Self::Running, Event::Complete) => Self::Completed,
            (Self::Ready | Self::Running, Event::Cancel) => Self::Cancelled,
            (state, event) => return Err(IllegalStep { state, event }),
        })
    }

    /// Whether nothing can happen to it any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }

    const fn from_bits(bits: u8) -> Self {
        match bits & !NOTED {
            0 => Self::Ready,
            1 => Self::Running,
            2 => Self::Blocked,
            3 => Self::BudgetExhausted,
            4 => Self::Completed,
            _ => Self::Cancelled,
        }
    }
}

/// Set beside Running: somebody wanted to wake the task before it had fallen asleep.
const NOTED: u8 = 0x80;

/// The state of a task that threads share.
#[derive(Debug)]
pub struct StateCell(AtomicU8);

/// Whether a task that wanted to wait does.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It waits.
    Waits,
    /// A wake came first: it is Ready, and the caller must queue it.
    Queue,
}

/// What a wake came to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// It is Ready, and the caller must queue it.
    Queue,
    /// It needs nothing: it runs and will notice, or it did not wait.
    Nothing,
}

impl Default for StateCell {
    fn default() -> Self {
        Self(AtomicU8::new(TaskState::Ready as u8))
    }
}

impl StateCell {
    /// The state now.
    pub fn get(&self) -> TaskState {
        TaskState::from_bits(self.0.load(Ordering::Acquire))
    }

    /// As new. Only whoever owns the task alone may call this.
    pub(crate) fn reset(&self) {
        self.0.store(TaskState::Ready as u8, Ordering::Relaxed);
    }

    /// What a worker does with a task from a queue, for model checking.
    #[cfg(loom)]
    pub fn dispatch_for_model(&self) {
        self.step(Event::Dispatch);
    }

    /// A step that only the holder of the task takes: Dispatch, Yield, Complete, Cancel.
    #[inline(always)]
    pub(crate) fn step(&self, event: Event) {
        // The holder is alone with these states, so a load and a store are one step. The queue that the task goes
        // through, or the join cell, orders them for the next holder.
        let state = TaskState::from_bits(self.0.load(Ordering::Relaxed));
        match state.step(event) {
            Ok(next) => self.0.store(next as u8, Ordering::Relaxed),
            Err(illegal) => unreachable_step(illegal),
        }
    }

    /// The task has left its stack, to wait (Block) or for want of budget (Exhaust).
    #[inline]
    pub fn commit_wait(&self, event: Event) -> Committed {
        let next = match TaskState::Running.step(event) {
            Ok(next) => next as u8,
            Err(illegal) => unreachable_step(illegal),
        };
        // SeqCst: pairs with the canceller, which sets its flag and then reads the state; the last look at the flag, by
        // whoever commits, comes after this. Release: who wakes the task sees its saved context.
        match self.0.compare_exchange(TaskState::Running as u8, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Committed::Waits,
            Err(_) => {
                self.0.store(TaskState::Ready as u8, Ordering::Release);
                Committed::Queue
            }
        }
    }

    /// Something that the task may wait for has happened: Wake, Recharge or Interrupt.
    #[inline]
    pub fn wake(&self, event: Event) -> Woken {
        let mut bits = self.0.load(Ordering::SeqCst);
        loop {
            let state = TaskState::from_bits(bits);
            let (next, woken) = match state.step(event) {
                Ok(next) => (next as u8, Woken::Queue),
                Err(_) if state == TaskState::Running && bits & NOTED == 0 => (bits | NOTED, Woken::Nothing),
                Err(_) => return Woken::Nothing,
            };
            match self.0.compare_exchange(bits, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return woken,
                Err(now) => bits = now,
            }
        }
    }
}

#[cold]
#[inline(never)]
fn unreachable_step(illegal: IllegalStep) -> ! {
    // A scheduler that lost track of who holds a task would corrupt stacks: there is no safe way to go on.
    eprintln!("mainspring: internal error: {illegal}");
    std::process::abort()
}
