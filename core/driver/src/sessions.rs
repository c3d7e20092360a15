//! Login sessions.
//!
//! Conserved: a session's number is given once. A session that has ended stays ended, and every name of it is stale from that
//! moment on, whatever its threads still do. There are at most as many live sessions as the table has places.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::fmt;
use mainspring_sched::identity::{Allocator, Identity};

/// What a [`SessionRef`] names.
#[derive(Debug)]
pub enum Session {}

/// The name of a session. It proves nothing: each use asks [`Sessions`] whether the session is live.
pub type SessionRef = Identity<Session>;

/// A session that cannot be used; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionError {
    /// No such session was ever opened.
    Unknown(SessionRef),
    /// The session has ended.
    Ended(SessionRef),
    /// As many sessions are live as the table has places.
    Full {
        /// How many.
        capacity: usize,
    },
    /// There are no more numbers to give.
    Exhausted,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(session) => write!(f, "there is no session {session}; log in"),
            Self::Ended(session) => write!(f, "session {session} has ended; log in again"),
            Self::Full { capacity } => write!(f, "{capacity} sessions are live, the most; log one out"),
            Self::Exhausted => {
                f.write_str("every session number has been given out once; restart the machine")
            }
        }
    }
}

impl core::error::Error for SessionError {}

/// All live sessions of a machine.
#[derive(Debug, Default)]
pub struct Sessions {
    live: Vec<SessionRef>,
    names: Allocator<Session>,
}

impl Sessions {
    /// No sessions, and room for `capacity` at a time. Nothing allocates after this.
    pub fn new(capacity: usize) -> Result<Self, TryReserveError> {
        let mut live = Vec::new();
        live.try_reserve_exact(capacity)?;
        Ok(Self { live, names: Allocator::new() })
    }

    /// A new session begins.
    pub fn open(&mut self) -> Result<SessionRef, SessionError> {
        if self.live.len() == self.live.capacity() {
            return Err(SessionError::Full { capacity: self.live.capacity() });
        }
        let session = self.names.fresh().map_err(|_| SessionError::Exhausted)?;
        self.live.push(session);
        Ok(session)
    }

    /// Whether `session` is live.
    #[must_use]
    pub fn is_live(&self, session: SessionRef) -> bool {
        self.live.contains(&session)
    }

    /// Refuses a session that is not live.
    pub fn check(&self, session: SessionRef) -> Result<(), SessionError> {
        if self.is_live(session) {
            Ok(())
        } else if self.names.has_given_out(session.id()) {
            Err(SessionError::Ended(session))
        } else {
            Err(SessionError::Unknown(session))
        }
    }

    /// How many sessions are live.
    #[must_use]
    pub fn live_count(&self) -> usize {
        self.live.len()
    }

    /// `session` ends. [`Contexts::logout`](crate::contexts::Contexts::logout) does this first, and then takes its contexts.
    pub(crate) fn close(&mut self, session: SessionRef) -> Result<(), SessionError> {
        self.check(session)?;
        self.live.retain(|one| *one != session);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_has_ended_never_comes_back() {
        let mut sessions = Sessions::new(1).expect("one fits");
        let first = sessions.open().expect("room for one");
        assert_eq!(sessions.open(), Err(SessionError::Full { capacity: 1 }));
        sessions.close(first).expect("it is live");
        let second = sessions.open().expect("a place is free again");
        assert_ne!(first.id(), second.id(), "the place is used again, the number is not");
        assert_eq!(sessions.check(first), Err(SessionError::Ended(first)));
        assert_eq!(sessions.close(first), Err(SessionError::Ended(first)));
        assert_eq!(sessions.check(second), Ok(()));
        let nobody = SessionRef::from_parts(77, 77);
        assert_eq!(sessions.check(nobody), Err(SessionError::Unknown(nobody)));
    }
}
