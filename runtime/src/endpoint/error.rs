//! Why a call came to nothing.

use std::error::Error;
use std::fmt;

/// A call that came to nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CallError<Q> {
    /// Why.
    pub why: CallRefusal,
    /// The request, unless a server has taken it.
    pub request: Option<Q>,
}

/// Why a call came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallRefusal {
    /// The endpoint is closed.
    Closed,
    /// Time was over.
    TimedOut,
    /// The server dropped the reply: it returned, panicked or was cancelled.
    ServerGone,
    /// The chain of calls that the context is lent along is a circle, or longer than eight.
    Chain,
    /// The endpoint is of another runtime.
    OtherRuntime,
    /// A destructor of a task that unwinds must not wait.
    Unwinding,
}

impl fmt::Display for CallRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the endpoint is closed; call another"),
            Self::TimedOut => f.write_str("time was over before the server answered"),
            Self::ServerGone => f.write_str("the server dropped the reply; call again if that is safe"),
            Self::Chain => {
                f.write_str("the context is lent along a circle or too long a chain of calls; shorten it")
            }
            Self::OtherRuntime => f.write_str("the endpoint is of another runtime; make one in this runtime"),
            Self::Unwinding => f.write_str("a destructor of a task that ends must not wait"),
        }
    }
}

impl Error for CallRefusal {}

impl<Q> fmt::Debug for CallError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let returned = self.request.is_some();
        f.debug_struct("CallError")
            .field("why", &self.why)
            .field("returned", &returned)
            .finish_non_exhaustive()
    }
}

impl<Q> fmt::Display for CallError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<Q> Error for CallError<Q> {}
