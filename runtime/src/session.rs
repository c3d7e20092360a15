//! Sessions: what is granted to the tasks of a person ends when the person logs out.

use crate::calls;
use crate::protocol::fair_tasks::SessionName;
use crate::runtime::{Inner, Runtime};
use mainspring_abi::Nanos;
use mainspring_driver::sessions::SessionError as DriverError;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A session that is open. Dropping the value does not log it out.
///
/// ```
/// use mainspring::{Config, FairTaskSettings, Profile, Schedule};
/// let settings = FairTaskSettings { sessions: 1, ..FairTaskSettings::default() };
/// let runtime = Config::new(Profile::Service).fair_by_task(settings).build().unwrap();
/// let alice = runtime.open_session().unwrap();
/// let schedule = Schedule { session: Some(alice.name()), ..Schedule::default() };
/// # let _ = schedule;
/// assert_eq!(alice.logout().unwrap().contexts_revoked, 0);
/// assert!(alice.logout().is_err(), "it is over");
/// ```
pub struct Session {
    rt: Arc<Inner>,
    name: SessionName,
}

/// A session could not be opened or closed; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// This runtime has no sessions: set `Config::fair_by_task` with `FairTaskSettings::sessions`.
    NoSessions,
    /// As many are open as `FairTaskSettings::sessions` says.
    Full(usize),
    /// It was logged out before.
    Ended,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSessions => f.write_str(
                "this runtime has no sessions; set Config::fair_by_task and FairTaskSettings::sessions",
            ),
            Self::Full(limit) => {
                write!(f, "{limit} sessions are open; raise FairTaskSettings::sessions, or log one out first")
            }
            Self::Ended => f.write_str("the session is over; open a new one"),
        }
    }
}

impl Error for SessionError {}

impl From<DriverError> for SessionError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Full { capacity } => Self::Full(capacity),
            DriverError::Exhausted => Self::Full(usize::MAX),
            DriverError::Ended(_) | DriverError::Unknown(_) => Self::Ended,
        }
    }
}

/// What a logout did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedOut {
    /// Contexts that were taken away at once.
    pub contexts_revoked: u32,
    /// Loans that were left alone. They end when they come back.
    pub loans_left: u32,
}

impl Runtime {
    /// Opens a session, by the authority of the host.
    pub fn open_session(&self) -> Result<Session, SessionError> {
        calls::count_poll();
        let inner = self.inner();
        let opened = inner.fair_tasks.as_ref().and_then(|cores| cores.open_session());
        let name = SessionName::new(opened.ok_or(SessionError::NoSessions)??);
        Ok(Session { rt: inner.memory(), name })
    }
}

impl Session {
    /// Its name, for the tasks that run in it: `Schedule::session`.
    pub fn name(&self) -> SessionName {
        self.name
    }

    /// It ends: the contexts that its tasks are bound to are revoked, and its leases end. A context on loan comes back first.
    pub fn logout(&self) -> Result<LoggedOut, SessionError> {
        calls::count_costly_action();
        let now = Nanos::new(self.rt.timers.now_ns());
        let done = self.rt.fair_tasks.as_ref().and_then(|cores| cores.logout(self.name.name(), now));
        let (logout, aftermath) = done.ok_or(SessionError::NoSessions)?;
        self.rt.notify_contexts(&aftermath);
        let logout = logout?;
        Ok(LoggedOut { contexts_revoked: logout.revoked, loans_left: logout.inflight_skipped })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("name", &self.name).finish_non_exhaustive()
    }
}
