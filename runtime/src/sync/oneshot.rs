//! One value, once.
//!
//! Conserved: the value is received, or handed back to its sender, or dropped with the receiver.

use crate::calls;
use crate::channel::{Capacity, ChannelError, Receiver, Refusal, SendError, Sender};
use crate::cx::Cx;
use crate::runtime::Runtime;
use std::time::Duration;

/// Sends one value.
#[derive(Debug)]
pub struct OneshotSender<T>(Sender<T>);

/// Receives it.
#[derive(Debug)]
pub struct OneshotReceiver<T>(Receiver<T>);

impl Cx {
    /// A channel for one value, by the task's `CapChannel`.
    ///
    /// ```
    /// # use mainspring::{Config, Profile};
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// let answer = runtime.run(|cx| {
    ///     let (answer, question) = cx.oneshot().unwrap();
    ///     cx.nursery(|n| {
    ///         n.start(move |cx| answer.send(cx, 42).unwrap()).unwrap();
    ///         question.recv(cx).unwrap()
    ///     })
    /// });
    /// assert_eq!(answer.unwrap().unwrap(), 42);
    /// ```
    pub fn oneshot<T>(&self) -> Result<(OneshotSender<T>, OneshotReceiver<T>), ChannelError> {
        let (sender, receiver) = self.channel(Capacity::Bounded(1))?;
        Ok((OneshotSender(sender), OneshotReceiver(receiver)))
    }
}

impl Runtime {
    /// As [`Cx::oneshot`], by the host.
    pub fn oneshot<T>(&self) -> (OneshotSender<T>, OneshotReceiver<T>) {
        let (sender, receiver) = self.channel(Capacity::Bounded(1));
        (OneshotSender(sender), OneshotReceiver(receiver))
    }
}

impl<T> OneshotSender<T> {
    /// Sends the value; never waits. Costs one op and one channel operation.
    pub fn send(self, cx: &Cx, value: T) -> Result<(), SendError<T>> {
        self.0.try_send(cx, value)
    }

    /// Sends from an ordinary thread; never waits.
    pub fn send_blocking(self, value: T) -> Result<(), SendError<T>> {
        self.0.send_blocking(value)
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        calls::count_poll();
        self.0.has_no_receivers()
    }
}

impl<T> OneshotReceiver<T> {
    /// Waits for the value. [`Refusal::Closed`] if the sender went without sending. Costs one op and one channel operation.
    pub fn recv(self, cx: &Cx) -> Result<T, Refusal> {
        self.0.recv(cx)
    }

    /// As [`OneshotReceiver::recv`], for at most this long. The value may come yet.
    pub fn recv_timeout(&mut self, cx: &Cx, timeout: Duration) -> Result<T, Refusal> {
        self.0.recv_timeout(cx, timeout)
    }

    /// The value, if it is there.
    pub fn try_recv(&mut self, cx: &Cx) -> Result<T, Refusal> {
        self.0.try_recv(cx)
    }

    /// As [`OneshotReceiver::recv`], on an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn recv_blocking(self) -> Result<T, Refusal> {
        self.0.recv_blocking()
    }

    /// The channel's end, for a [`Select`](crate::Select).
    pub fn receiver(&self) -> &Receiver<T> {
        &self.0
    }
}
