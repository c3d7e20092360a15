//! Telling tasks anywhere to stop.
//!
//! Conserved: a token is cancelled once, and with it all tokens below it. Whatever waits for it, or runs under it
//! ([`Cx::until`]), is told once. A scope that is over is told nothing: its record outlives it, since the token holds it too.

use crate::calls;
use crate::cx::Cx;
use crate::error::TaskError;
use crate::nursery::{Canceller, NurseryError, interruptible};
use crate::queue::{Queue, Rule};
use crate::sync::AcquireError;
use crate::task::WaitReason;
use crate::wait::Who;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// Whether the token is cancelled.
pub(crate) struct Cancelled(bool);

impl Rule for Cancelled {
    type Wish = ();

    const IN_TURN: bool = false;

    fn take(&mut self, (): ()) -> bool {
        self.0
    }

    fn put_back(&mut self, (): (), _: bool) {}
}

#[derive(Default)]
struct Below {
    cancelled: bool,
    /// What runs under the token.
    scopes: BTreeMap<u64, Canceller>,
    tokens: BTreeMap<u64, Weak<Shared>>,
    next: u64,
}

impl Below {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

struct Shared {
    queue: Queue<Cancelled>,
    below: Mutex<Below>,
    /// The token above, and the number of this one there.
    above: Option<(Arc<Shared>, u64)>,
}

impl Shared {
    fn new(cancelled: bool, above: Option<(Arc<Shared>, u64)>) -> Arc<Self> {
        let below = Below { cancelled, ..Below::default() };
        Arc::new(Self { queue: Queue::new(Cancelled(cancelled)), below: Mutex::new(below), above })
    }

    fn below(&self) -> MutexGuard<'_, Below> {
        self.below.lock().expect("no panic while it is held")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut above = self.above.take();
        if let Some((above, number)) = &above {
            above.below().tokens.remove(number);
        }
        // One after the other: a long chain of tokens would need a deep stack.
        while let Some(mut last) = above.take().and_then(|(shared, _)| Arc::into_inner(shared)) {
            above = last.above.take();
            if let Some((above, number)) = &above {
                above.below().tokens.remove(number);
            }
        }
    }
}

/// Tells tasks to stop, wherever they are. Clones are the same token.
///
/// ```
/// # use mainspring::{Config, Profile, sync::{CancelToken, Stopped}};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let stop = CancelToken::new();
/// let ended = runtime.run(|cx| {
///     cx.nursery(|n| {
///         let worker = n.spawn(|cx| cx.until(&stop, |cx| loop { cx.yield_now() })).unwrap();
///         stop.cancel();
///         worker.join(cx).unwrap()
///     })
/// });
/// assert_eq!(ended.unwrap().unwrap(), Err::<(), _>(Stopped::Cancelled));
/// ```
#[derive(Clone)]
pub struct CancelToken(Arc<Shared>);

/// Why a scope was stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// Time was over.
    TimedOut,
    /// The token was cancelled.
    Cancelled,
    /// A destructor of a task that unwinds must not wait.
    Unwinding,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "time was over",
            Self::Cancelled => "the token was cancelled",
            Self::Unwinding => "a destructor of a task that ends must not wait",
        })
    }
}

impl std::error::Error for Stopped {}

impl From<NurseryError> for Stopped {
    fn from(error: NurseryError) -> Self {
        match error.error {
            TaskError::DeadlineExceeded => Self::TimedOut,
            TaskError::Unwinding => Self::Unwinding,
            _ => Self::Cancelled,
        }
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CancelToken({})", if self.0.below().cancelled { "cancelled" } else { "live" })
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

/// Takes a scope off its token.
struct Registered<'a>(&'a Shared, u64);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let scope = self.0.below().scopes.remove(&self.1);
        drop(scope);
    }
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self(Shared::new(false, None))
    }

    /// A token that is cancelled with this one, or before it by itself.
    #[must_use]
    pub fn child(&self) -> Self {
        calls::count_costly_action();
        let mut below = self.0.below();
        let number = below.number();
        let child = Shared::new(below.cancelled, Some((self.0.clone(), number)));
        below.tokens.insert(number, Arc::downgrade(&child));
        Self(child)
    }

    /// Cancels it and all below it. False if it was cancelled before.
    pub fn cancel(&self) -> bool {
        calls::count_costly_action();
        let mut next = vec![self.0.clone()];
        let mut first = None;
        while let Some(shared) = next.pop() {
            let (told, scopes) = {
                let mut below = shared.below();
                let told = !std::mem::replace(&mut below.cancelled, true);
                next.extend(below.tokens.values().filter_map(Weak::upgrade));
                (told, std::mem::take(&mut below.scopes))
            };
            first.get_or_insert(told);
            scopes.into_values().for_each(|scope| scope.fail(TaskError::Cancelled));
            shared.queue.change(|cancelled, _| cancelled.0 = true);
        }
        first == Some(true)
    }

    /// Whether it is cancelled.
    pub fn is_cancelled(&self) -> bool {
        calls::count_poll();
        self.0.below().cancelled
    }

    /// Waits until it is cancelled. Fails only in a destructor of a task that unwinds.
    pub fn cancelled(&self, cx: &Cx) -> Result<(), AcquireError> {
        self.wait(&Who::Task(cx), None)
    }

    /// As [`CancelToken::cancelled`], for at most this long.
    pub fn cancelled_timeout(&self, cx: &Cx, timeout: Duration) -> Result<(), AcquireError> {
        self.wait(&Who::Task(cx), Some(timeout))
    }

    /// As [`CancelToken::cancelled`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn cancelled_blocking(&self) {
        self.wait(&Who::thread(), None).expect("a thread waits for as long as it takes");
    }

    fn wait(&self, who: &Who<'_>, timeout: Option<Duration>) -> Result<(), AcquireError> {
        self.0.queue.wait(who, (), WaitReason::Sync, timeout)?;
        Ok(())
    }

    pub(crate) fn queue(&self) -> &Queue<Cancelled> {
        &self.0.queue
    }

    /// The scope is told when the token is cancelled. `None` if it is cancelled already.
    fn register(&self, scope: Canceller) -> Option<Registered<'_>> {
        let mut below = self.0.below();
        if below.cancelled {
            return None;
        }
        let number = below.number();
        below.scopes.insert(number, scope);
        Some(Registered(&self.0, number))
    }
}

impl Cx {
    /// Runs `f` for at most this long: then it is stopped at its next yield point, by unwinding, and its tasks with it. What it
    /// has returned by then is its result. Costs nothing.
    ///
    /// ```
    /// # use mainspring::{Config, Profile, sync::Stopped};
    /// # use std::time::Duration;
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// runtime.run(|cx| {
    ///     assert_eq!(cx.timeout(Duration::from_secs(60), |_| 1), Ok(1));
    ///     let late = cx.timeout(Duration::from_millis(1), |cx| cx.sleep(Duration::from_secs(60)));
    ///     assert_eq!(late, Err(Stopped::TimedOut));
    /// }).unwrap();
    /// ```
    pub fn timeout<R>(&self, after: Duration, f: impl FnOnce(&Self) -> R) -> Result<R, Stopped> {
        calls::count(self);
        interruptible(self, Some(after), |_| Some(()), f)
            .map_or(Err(Stopped::Cancelled), |result| Ok(result?))
    }

    /// Runs `f` until the token is cancelled: then it is stopped at its next yield point, by unwinding, and its tasks with
    /// it. What it has returned by then is its result. Under a token that is cancelled, `f` does not run. Costs nothing.
    pub fn until<R>(&self, token: &CancelToken, f: impl FnOnce(&Self) -> R) -> Result<R, Stopped> {
        calls::count(self);
        let register = |scope| token.register(scope);
        interruptible(self, None, register, f).map_or(Err(Stopped::Cancelled), |result| Ok(result?))
    }
}
