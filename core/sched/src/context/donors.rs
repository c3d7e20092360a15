//! The threads that a donated context goes back to: a bounded stack of return tokens, carried by the context
//! itself.
//!
//! Conserved: a thread is on the stack at most once and never holds the context at the same time; the stack is never
//! deeper than the context's bound; a refused donation changes nothing.

use core::fmt;
use mainspring_abi::ThreadRef;

/// The deepest that a context can be donated.
pub const MAX_DEPTH: usize = 8;

/// The threads that wait for a context to come back, in the order in which they lent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Donors {
    stack: [Option<ThreadRef>; MAX_DEPTH],
    depth: u8,
    limit: u8,
}

/// Why a context was not donated; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoanError {
    /// It has been handed on as often as it may.
    TooDeep {
        /// The bound.
        limit: u8,
    },
    /// The receiver is waiting for this very context, or holds it.
    Cycle(ThreadRef),
}

impl fmt::Display for LoanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep { limit } => {
                write!(
                    f,
                    "the context has been donated {limit} times, its bound; make the chain of calls shorter"
                )
            }
            Self::Cycle(thread) => {
                write!(f, "{thread:?} waits for this context already; a call must not come back to it")
            }
        }
    }
}

impl core::error::Error for LoanError {}

impl Donors {
    /// No donor yet, and at most `limit`, which is clamped to 1 and [`MAX_DEPTH`].
    #[must_use]
    pub fn new(limit: u8) -> Self {
        Self { stack: [None; MAX_DEPTH], depth: 0, limit: limit.clamp(1, MAX_DEPTH as u8) }
    }

    /// How often the context has been handed on.
    #[must_use]
    #[inline]
    pub fn depth(&self) -> usize {
        usize::from(self.depth)
    }

    /// How often it may be.
    #[must_use]
    pub fn limit(&self) -> u8 {
        self.limit
    }

    /// The threads that wait, in the order in which they lent it.
    pub fn iter(&self) -> impl Iterator<Item = ThreadRef> + '_ {
        self.stack[..self.depth()].iter().flatten().copied()
    }

    /// The thread whose context it is. A place that is not in use is empty.
    #[must_use]
    #[inline]
    pub fn first(&self) -> Option<ThreadRef> {
        self.stack[0]
    }

    /// The thread that the context goes back to next.
    #[must_use]
    #[inline]
    pub fn last(&self) -> Option<ThreadRef> {
        self.stack[self.depth().checked_sub(1)?]
    }

    /// Whether `from`, which holds the context, may hand it to `to`.
    #[inline]
    pub fn may_lend(&self, from: ThreadRef, to: ThreadRef) -> Result<(), LoanError> {
        if from == to || self.iter().any(|donor| donor == to) {
            return Err(LoanError::Cycle(to));
        }
        if self.depth >= self.limit {
            return Err(LoanError::TooDeep { limit: self.limit });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn push(&mut self, from: ThreadRef) {
        self.stack[self.depth()] = Some(from);
        self.depth += 1;
    }

    /// The context is about to go back; returns the thread that gets it.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<ThreadRef> {
        let back = self.last()?;
        self.depth -= 1;
        self.stack[self.depth()] = None;
        Some(back)
    }

    /// The same, where it is known that it was lent.
    #[inline]
    pub(crate) fn drop_last(&mut self) {
        self.depth -= 1;
        self.stack[self.depth()] = None;
    }

    /// `donor` and all donors after it are out of the chain: the donor before it is next.
    pub(crate) fn cut(&mut self, donor: ThreadRef) -> bool {
        let Some(at) = self.iter().position(|one| one == donor) else { return false };
        for token in &mut self.stack[at..] {
            *token = None;
        }
        self.depth = at as u8;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(index: u32) -> ThreadRef {
        ThreadRef::new(index, 0)
    }

    //= TICK:L6.cycles
    #[test]
    fn a_context_never_comes_to_one_who_waits_for_it() {
        let mut donors = Donors::new(8);
        donors.push(t(1));
        donors.push(t(2));
        let before = donors.clone();
        assert_eq!(donors.may_lend(t(3), t(1)), Err(LoanError::Cycle(t(1))));
        assert_eq!(donors.may_lend(t(3), t(3)), Err(LoanError::Cycle(t(3))));
        assert_eq!(
            donors.may_lend(t(3), ThreadRef::new(1, 1)),
            Ok(()),
            "a later occupant of the slot is somebody else"
        );
        assert_eq!(donors, before);
    }

    //= TICK:L6.depth
    #[test]
    fn a_chain_is_no_longer_than_its_bound() {
        let mut donors = Donors::new(2);
        for index in 0..2 {
            assert_eq!(donors.may_lend(t(index), t(index + 1)), Ok(()));
            donors.push(t(index));
        }
        assert_eq!(donors.may_lend(t(2), t(3)), Err(LoanError::TooDeep { limit: 2 }));
        assert_eq!((donors.pop(), donors.pop(), donors.pop()), (Some(t(1)), Some(t(0)), None));
    }

    //= TICK:L6.nested
    #[test]
    fn a_bound_of_one_rejects_nested_calls() {
        let mut donors = Donors::new(1);
        donors.push(t(0));
        assert_eq!(donors.may_lend(t(1), t(2)), Err(LoanError::TooDeep { limit: 1 }));
    }

    #[test]
    fn a_donor_that_is_cut_out_takes_its_callees_along() {
        let mut donors = Donors::new(8);
        for index in 0..4 {
            donors.push(t(index));
        }
        assert!(donors.cut(t(2)));
        assert_eq!(donors.last(), Some(t(1)));
        assert!(!donors.cut(t(3)));
    }
}
