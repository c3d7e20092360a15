//! Channels between tasks: rendezvous, bounded and unbounded, many to many.
//!
//! Conserved: a value that was sent is received once, or handed back to its sender, or dropped with the channel. A
//! waiting side is told exactly once how its wait ended, by the thread that takes it off the list, under the
//! channel's lock.

mod chan;

mod select;
mod select_more;

pub use select::Select;

use crate::audit;
use crate::budget::Component;
use crate::calls;
use crate::cx::Cx;
use crate::error::BudgetError;
use crate::runtime::Runtime;
use crate::wait::Who;
use chan::Chan;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How much a channel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Nothing: a send waits for its receiver.
    Rendezvous,
    /// This many values; a send to a full channel waits.
    Bounded(u32),
    /// As many as are sent. The sender's budget is the bound.
    Unbounded,
}

/// A channel could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelError {
    /// The task has no `CapChannel`.
    NotPermitted,
    /// As many as `CapChannel` allows have been made.
    TooMany(u32),
    /// A larger buffer than `CapChannel` allows.
    BufferTooLarge {
        /// What was asked for; `None` for unbounded.
        asked: Option<u32>,
        /// What is allowed.
        allowed: u32,
    },
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted => f.write_str("this task holds no CapChannel"),
            Self::TooMany(n) => write!(f, "{n} channels were made, which is all that CapChannel allows"),
            Self::BufferTooLarge { asked: Some(asked), allowed } => {
                write!(f, "a buffer of {asked}; CapChannel allows {allowed}")
            }
            Self::BufferTooLarge { asked: None, allowed } => {
                write!(f, "an unbounded buffer; CapChannel allows {allowed}")
            }
        }
    }
}

impl std::error::Error for ChannelError {}

/// Why a send or receive came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The other side is gone.
    Closed,
    /// It would have had to wait.
    WouldBlock,
    /// Time was over.
    TimedOut,
    /// The task's budget does not allow it.
    Budget(BudgetError),
    /// A destructor of a task that unwinds must not wait.
    Unwinding,
    /// The wait was ended by another, with nothing to show.
    Interrupted,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the channel is closed"),
            Self::WouldBlock => f.write_str("the channel is not ready"),
            Self::TimedOut => f.write_str("time was over"),
            Self::Budget(error) => error.fmt(f),
            Self::Unwinding => f.write_str("a destructor of a task that ends must not wait"),
            Self::Interrupted => f.write_str("another ended the wait"),
        }
    }
}

impl std::error::Error for Refusal {}

/// A send that came to nothing, and the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T> {
    /// Why.
    pub why: Refusal,
    /// What was not sent.
    pub value: T,
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<T> std::error::Error for SendError<T> {}

/// The sending side. Clones send to the same channel; when the last goes, receivers get what is left and then Closed.
pub struct Sender<T>(Arc<Chan<T>>);

/// The receiving side. Clones share the values. When the last goes, what was buffered is dropped there and then, later sends are
/// refused, and sends that wait get their values back.
pub struct Receiver<T>(Arc<Chan<T>>);

/// The values of a channel, until it is closed: [`Receiver::iter`].
#[derive(Debug)]
#[must_use = "an iterator does nothing until it is asked"]
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
    cx: &'a Cx,
    is_over: bool,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = Result<T, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            calls::count(self.cx);
            return None;
        }
        let received = self.receiver.recv(self.cx);
        self.is_over = received.is_err();
        match received {
            Err(Refusal::Closed) => None,
            received => Some(received),
        }
    }
}

impl<T> std::iter::FusedIterator for Iter<'_, T> {}

fn pair<T>(capacity: Capacity) -> (Sender<T>, Receiver<T>) {
    let chan = Arc::new(Chan::new(capacity));
    (Sender(chan.clone()), Receiver(chan))
}

/// A channel without a runtime, for model checking.
#[cfg(loom)]
pub fn model_pair<T>(capacity: Capacity) -> (Sender<T>, Receiver<T>) {
    pair(capacity)
}

impl Cx {
    /// Makes a channel, by the task's `CapChannel`.
    pub fn channel<T>(&self, capacity: Capacity) -> Result<(Sender<T>, Receiver<T>), ChannelError> {
        calls::count(self);
        self.admit_channel_noted(capacity)?;
        Ok(pair(capacity))
    }

    pub(crate) fn admit_channel_noted(&self, capacity: Capacity) -> Result<(), ChannelError> {
        audit::noted(self, "CapChannel", "channel", self.admit_channel(capacity))
    }

    fn admit_channel(&self, capacity: Capacity) -> Result<(), ChannelError> {
        let cap = self.caps().channel().copied().ok_or(ChannelError::NotPermitted)?;
        let asked = match capacity {
            Capacity::Rendezvous => Some(0),
            Capacity::Bounded(n) => Some(n),
            Capacity::Unbounded => None,
        };
        if asked.unwrap_or(u32::MAX) > cap.buffer() {
            return Err(ChannelError::BufferTooLarge { asked, allowed: cap.buffer() });
        }
        self.task().nursery().change_ext(&self.account(), |ext| {
            if ext.channels >= cap.channels() {
                return Err(ChannelError::TooMany(cap.channels()));
            }
            ext.channels += 1;
            Ok(())
        })
    }
}

impl Runtime {
    /// Makes a channel between the host's threads and tasks.
    pub fn channel<T>(&self, capacity: Capacity) -> (Sender<T>, Receiver<T>) {
        calls::count_action();
        pair(capacity)
    }
}

impl<T> Sender<T> {
    /// Sends, waiting for room or for the receiver. Costs one op and one channel operation.
    #[inline(always)]
    pub fn send(&self, cx: &Cx, value: T) -> Result<(), SendError<T>> {
        self.charged(cx, value, |value| self.0.send_from_task(cx, value, None))
    }

    /// As [`Sender::send`], for at most this long.
    pub fn send_timeout(&self, cx: &Cx, value: T, timeout: Duration) -> Result<(), SendError<T>> {
        self.charged(cx, value, |value| self.0.send_from_task(cx, value, Some(timeout)))
    }

    /// Sends if that needs no waiting.
    pub fn try_send(&self, cx: &Cx, value: T) -> Result<(), SendError<T>> {
        self.charged(cx, value, |value| self.0.try_send(&Who::Task(cx), value))
    }

    /// Sends from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn send_blocking(&self, value: T) -> Result<(), SendError<T>> {
        self.0.send(&Who::thread(), value, None)
    }

    /// As [`Sender::send_blocking`], for at most this long. With no time at all it only tries.
    pub fn send_blocking_timeout(&self, value: T, timeout: Duration) -> Result<(), SendError<T>> {
        self.0.send(&Who::thread(), value, Some(timeout))
    }

    #[inline(always)]
    fn charged(
        &self,
        cx: &Cx,
        value: T,
        send: impl FnOnce(T) -> Result<(), SendError<T>>,
    ) -> Result<(), SendError<T>> {
        match cx.charge(Component::ChannelOps) {
            Ok(()) => send(value),
            Err(error) => Err(SendError { why: Refusal::Budget(error), value }),
        }
    }

    /// Closes the channel: later sends are refused, receivers get what is left.
    pub fn close(&self) {
        calls::count_action();
        self.0.close();
    }

    pub(crate) fn has_no_receivers(&self) -> bool {
        self.0.has_no_receivers()
    }

    fn chan(&self) -> &Chan<T> {
        &self.0
    }
}

impl<T> Receiver<T> {
    /// Receives, waiting for a value. Costs one op and one channel operation.
    #[inline(always)]
    pub fn recv(&self, cx: &Cx) -> Result<T, Refusal> {
        cx.charge(Component::ChannelOps).map_err(Refusal::Budget)?;
        self.0.recv_in_task(cx)
    }

    /// As [`Receiver::recv`]: another has paid for it.
    #[inline(always)]
    pub(crate) fn recv_prepaid(&self, cx: &Cx) -> Result<T, Refusal> {
        self.0.recv_in_task(cx)
    }

    /// As [`Receiver::recv`], for at most this long.
    pub fn recv_timeout(&self, cx: &Cx, timeout: Duration) -> Result<T, Refusal> {
        cx.charge(Component::ChannelOps).map_err(Refusal::Budget)?;
        self.0.recv(&Who::Task(cx), Some(timeout))
    }

    /// Receives if that needs no waiting.
    pub fn try_recv(&self, cx: &Cx) -> Result<T, Refusal> {
        cx.charge(Component::ChannelOps).map_err(Refusal::Budget)?;
        self.0.try_recv(&Who::Task(cx))
    }

    /// Receives on an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn recv_blocking(&self) -> Result<T, Refusal> {
        self.0.recv(&Who::thread(), None)
    }

    /// As [`Receiver::recv_blocking`], for at most this long. With no time at all it only tries.
    pub fn recv_blocking_timeout(&self, timeout: Duration) -> Result<T, Refusal> {
        self.0.recv(&Who::thread(), Some(timeout))
    }

    /// The values until the channel is closed, each charged. If a receive is refused for another reason, most likely by the
    /// task's budget, the last item says why: values may be left.
    ///
    /// ```
    /// # use mainspring::{Capacity, Config, Profile, Refusal};
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// let sum = runtime.run(|cx| {
    ///     let (tx, rx) = cx.channel(Capacity::Bounded(2)).unwrap();
    ///     tx.send(cx, 20).unwrap();
    ///     tx.send(cx, 22).unwrap();
    ///     drop(tx);
    ///     rx.iter(cx).sum::<Result<u32, Refusal>>()
    /// });
    /// assert_eq!(sum.unwrap(), Ok(42));
    /// ```
    pub fn iter<'a>(&'a self, cx: &'a Cx) -> Iter<'a, T> {
        Iter { receiver: self, cx, is_over: false }
    }

    /// How many values are buffered.
    pub fn len(&self) -> usize {
        calls::count_poll();
        self.0.len()
    }

    /// Whether nothing is buffered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn chan(&self) -> &Chan<T> {
        &self.0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        calls::count_action();
        self.0.add_sender();
        Self(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        calls::count_action();
        self.0.add_receiver();
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.drop_sender();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.drop_receiver();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}
