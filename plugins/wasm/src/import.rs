//! What a host grants to a guest.
//!
//! A guest runs on a stack of its own, and an import in the guest's task. So the guest leaves its request where both can reach it and
//! goes back to the task, which answers and lets the guest go on.
//!
//! Conserved: at most one request is open, and each is answered once.

use mainspring::{BudgetError, Cx};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// The most bytes that go into an import, or come out of it, in one call.
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// A call of an import.
#[derive(Debug, Default)]
pub struct HostCall {
    /// Its numbers.
    pub args: Vec<i64>,
    /// The bytes that the guest gave, if the import takes bytes.
    pub bytes: Vec<u8>,
    /// The bytes that the guest gets, if the import takes bytes: as many as it has room for.
    pub reply: Vec<u8>,
}

/// Why an import refuses. The guest ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError(pub String);

impl<E: std::error::Error> From<E> for ImportError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

type Act<'h> = Box<dyn Fn(&Cx, &mut HostCall) -> Result<i64, ImportError> + Send + Sync + 'h>;

pub(crate) struct Import<'h> {
    /// How many numbers it takes; `None` if it takes bytes.
    pub(crate) params: Option<usize>,
    pub(crate) act: Act<'h>,
}

/// What guests may call: nothing but what was granted.
#[derive(Default)]
pub struct Imports<'h> {
    pub(crate) all: BTreeMap<(String, String), Import<'h>>,
}

impl fmt::Debug for Imports<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all.keys()).finish()
    }
}

impl<'h> Imports<'h> {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Grants a function of so many `i64` that gives an `i64`. It runs in the guest's task, and may wait there.
    #[must_use]
    pub fn grant(
        mut self,
        module: &str,
        name: &str,
        params: usize,
        act: impl Fn(&Cx, &mut HostCall) -> Result<i64, ImportError> + Send + Sync + 'h,
    ) -> Self {
        let import = Import { params: Some(params), act: Box::new(act) };
        self.all.insert((module.to_owned(), name.to_owned()), import);
        self
    }

    /// Grants a function that takes bytes of the guest's memory `memory`, and may write some there. The guest calls it with the address and
    /// length of what it gives and of the room for the reply, all `i32`, and gets an `i64`.
    #[must_use]
    pub fn grant_bytes(
        mut self,
        module: &str,
        name: &str,
        act: impl Fn(&Cx, &mut HostCall) -> Result<i64, ImportError> + Send + Sync + 'h,
    ) -> Self {
        let import = Import { params: None, act: Box::new(act) };
        self.all.insert((module.to_owned(), name.to_owned()), import);
        self
    }
}

/// What a guest asks of its task.
#[derive(Debug)]
pub(crate) enum Request {
    /// Calls the import of this number.
    Call(usize, HostCall),
    /// Wants so many bytes more of memory.
    Memory(usize),
}

/// What it is told.
#[derive(Debug)]
pub(crate) enum Answer {
    Value(i64, Vec<u8>),
    /// Whether it may have the memory.
    Granted(bool),
    /// The guest ends. The reason is in the mailbox.
    Ends,
}

/// Why a guest was ended by its task.
#[derive(Debug)]
pub(crate) enum Why {
    Import(ImportError),
    Budget(BudgetError),
}

#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) request: Option<Request>,
    pub(crate) answer: Option<Answer>,
    pub(crate) why: Option<Why>,
}

/// Where the guest and its task leave each other what they want.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mailbox(Arc<Mutex<Mail>>);

impl Mailbox {
    pub(crate) fn open(&self) -> MutexGuard<'_, Mail> {
        self.0.lock().expect("no panic while it is held")
    }

    /// Asks, on the guest's side. The task answers before the guest goes on.
    pub(crate) async fn ask(&self, request: Request) -> Answer {
        self.open().request = Some(request);
        let mut asked = false;
        std::future::poll_fn(move |_| {
            if std::mem::replace(&mut asked, true) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
        // A guest that goes on without an answer is one whose task is gone.
        self.open().answer.take().unwrap_or(Answer::Ends)
    }
}
