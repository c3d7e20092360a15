//! Where a reply meets the sender that waits for it.
//!
//! Conserved: a reply, and what is left of its grant, is taken once: by the sender, or by the one that fills the slot after the
//! sender has gone.

use super::AskError;
use crate::budget::Pool;
use crate::queue::{Queue, Rule};
use crate::task::WaitReason;
use crate::wait::Who;
use std::time::Duration;

enum State<R> {
    Empty,
    Full(Result<R, AskError>, Pool),
    /// The sender has gone, or has taken the reply.
    Over,
}

impl<R: Send> Rule for State<R> {
    type Wish = ();

    fn take(&mut self, (): ()) -> bool {
        matches!(self, Self::Full(..))
    }

    fn put_back(&mut self, (): (), _: bool) {}
}

pub(super) struct Slot<R: Send>(Queue<State<R>>);

impl<R: Send> Slot<R> {
    pub(super) fn new() -> Self {
        Self(Queue::new(State::Empty))
    }

    /// Leaves the reply there. What is left of the grant if its sender has gone.
    pub(super) fn fill(&self, reply: Result<R, AskError>, left: Pool) -> Pool {
        let unused = self.0.change(|state, _| match state {
            State::Empty => {
                *state = State::Full(reply, left);
                None
            }
            _ => Some((reply, left)),
        });
        // The reply is dropped outside of the lock: its destructor is the program's.
        unused.map_or(Pool::ZERO, |(_, left)| left)
    }

    /// Waits for the reply. False if time was over.
    pub(super) fn wait(&self, who: &Who<'_>, timeout: Option<Duration>) -> bool {
        self.0.wait(who, (), WaitReason::Call, timeout).is_ok()
    }

    /// The reply, if it is there.
    pub(super) fn take(&self) -> Option<(Result<R, AskError>, Pool)> {
        self.0.change(|state, _| match std::mem::replace(state, State::Over) {
            State::Full(reply, left) => Some((reply, left)),
            other => {
                *state = other;
                None
            }
        })
    }

    /// The sender goes: with the reply, if it has come.
    pub(super) fn abandon(&self) -> Option<(Result<R, AskError>, Pool)> {
        self.0.change(|state, _| match std::mem::replace(state, State::Over) {
            State::Full(reply, left) => Some((reply, left)),
            State::Empty | State::Over => None,
        })
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.0.look(|state| matches!(state, State::Over))
    }
}
