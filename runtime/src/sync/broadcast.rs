//! Every value, for many.
//!
//! Conserved: a receiver gets each value that was sent since it was made, once and in order, or is told how many it has missed.
//! At most so many values are kept as the broadcast was made for, whatever receivers do: a sender never waits.

use super::watch::refusal;
use crate::budget::Component;
use crate::calls;
use crate::channel::{Capacity, ChannelError, Refusal, SendError};
use crate::cx::Cx;
use crate::queue::{Queue, Rule};
use crate::runtime::Runtime;
use crate::task::WaitReason;
use crate::wait::Who;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Kept<T> {
    values: VecDeque<Arc<T>>,
    /// The number of the first value that is kept.
    first: u64,
    room: usize,
    senders: usize,
    receivers: usize,
}

impl<T> Kept<T> {
    /// The number of the value that is sent next.
    fn next(&self) -> u64 {
        self.first + self.values.len() as u64
    }
}

impl<T: Send + Sync> Rule for Kept<T> {
    /// The number of the value that the waiter wants.
    type Wish = u64;

    const IN_TURN: bool = false;

    fn take(&mut self, wanted: u64) -> bool {
        wanted < self.next() || self.senders == 0
    }

    fn put_back(&mut self, _: u64, _: bool) {}
}

/// Sends values to all receivers.
pub struct BroadcastSender<T: Send + Sync>(Arc<Queue<Kept<T>>>);

/// Gets every value. A clone gets the same values as the original from then on.
pub struct BroadcastReceiver<T: Send + Sync> {
    queue: Arc<Queue<Kept<T>>>,
    next: u64,
}

/// Why a receive from a broadcast came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BroadcastError {
    /// The receiver was slow, and so many values are gone. The next receive gets the oldest that is kept.
    Missed(u64),
    /// As for a channel.
    Refused(Refusal),
}

impl fmt::Display for BroadcastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missed(n) => write!(f, "{n} values were replaced before they were received"),
            Self::Refused(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for BroadcastError {}

fn pair<T: Send + Sync>(room: u32) -> (BroadcastSender<T>, BroadcastReceiver<T>) {
    let kept =
        Kept { values: VecDeque::new(), first: 0, room: room.max(1) as usize, senders: 1, receivers: 1 };
    let queue = Arc::new(Queue::new(kept));
    (BroadcastSender(queue.clone()), BroadcastReceiver { queue, next: 0 })
}

impl Cx {
    /// A channel whose values all receivers get, and that keeps the last `room` values for slow ones. By the task's
    /// `CapChannel`. A room of 0 is as 1.
    ///
    /// ```
    /// # use mainspring::{Config, Profile};
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// runtime.run(|cx| {
    ///     let (news, mut one) = cx.broadcast(8).unwrap();
    ///     let mut two = news.subscribe();
    ///     news.send(cx, "rain").unwrap();
    ///     assert_eq!((*one.recv(cx).unwrap(), *two.recv(cx).unwrap()), ("rain", "rain"));
    /// }).unwrap();
    /// ```
    pub fn broadcast<T: Send + Sync>(
        &self,
        room: u32,
    ) -> Result<(BroadcastSender<T>, BroadcastReceiver<T>), ChannelError> {
        calls::count(self);
        self.admit_channel_noted(Capacity::Bounded(room.max(1)))?;
        Ok(pair(room))
    }
}

impl Runtime {
    /// As [`Cx::broadcast`], by the host.
    pub fn broadcast<T: Send + Sync>(&self, room: u32) -> (BroadcastSender<T>, BroadcastReceiver<T>) {
        calls::count_action();
        pair(room)
    }
}

impl<T: Send + Sync> BroadcastSender<T> {
    /// Sends to all receivers; never waits. Refused if there are none. Costs one op and one channel operation.
    pub fn send(&self, cx: &Cx, value: T) -> Result<(), SendError<T>> {
        match cx.charge(Component::ChannelOps) {
            Ok(()) => self.push(value),
            Err(error) => Err(SendError { why: Refusal::Budget(error), value }),
        }
    }

    /// Sends from an ordinary thread; never waits.
    pub fn send_blocking(&self, value: T) -> Result<(), SendError<T>> {
        calls::count_action();
        self.push(value)
    }

    fn push(&self, value: T) -> Result<(), SendError<T>> {
        let value = Arc::new(value);
        let sent = self.0.change(|kept, _| {
            if kept.receivers == 0 {
                return Err(());
            }
            kept.values.push_back(value.clone());
            let is_full = kept.values.len() > kept.room;
            kept.first += u64::from(is_full);
            Ok(if is_full { kept.values.pop_front() } else { None })
        });
        match sent {
            // What was replaced, outside of the lock: its destructor is the program's.
            Ok(replaced) => {
                drop(replaced);
                Ok(())
            }
            Err(()) => {
                let value = Arc::into_inner(value).expect("no receiver has seen it");
                Err(SendError { why: Refusal::Closed, value })
            }
        }
    }

    /// Another receiver, for what is sent from now on.
    pub fn subscribe(&self) -> BroadcastReceiver<T> {
        calls::count_action();
        let next = self.0.change(|kept, _| {
            kept.receivers += 1;
            kept.next()
        });
        BroadcastReceiver { queue: self.0.clone(), next }
    }
}

impl<T: Send + Sync> BroadcastReceiver<T> {
    /// Waits for the next value. Costs one op and one channel operation.
    pub fn recv(&mut self, cx: &Cx) -> Result<Arc<T>, BroadcastError> {
        charge(cx)?;
        self.receive(&Who::Task(cx), None)
    }

    /// As [`BroadcastReceiver::recv`], for at most this long.
    pub fn recv_timeout(&mut self, cx: &Cx, timeout: Duration) -> Result<Arc<T>, BroadcastError> {
        charge(cx)?;
        self.receive(&Who::Task(cx), Some(timeout))
    }

    /// The next value, if it is there.
    pub fn try_recv(&mut self, cx: &Cx) -> Result<Arc<T>, BroadcastError> {
        charge(cx)?;
        self.next_kept().unwrap_or(Err(BroadcastError::Refused(Refusal::WouldBlock)))
    }

    /// As [`BroadcastReceiver::recv`], on an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn recv_blocking(&mut self) -> Result<Arc<T>, BroadcastError> {
        self.receive(&Who::thread(), None)
    }

    fn receive(&mut self, who: &Who<'_>, timeout: Option<Duration>) -> Result<Arc<T>, BroadcastError> {
        let waited = self.queue.wait(who, self.next, WaitReason::Channel, timeout);
        waited.map_err(|missed| BroadcastError::Refused(refusal(missed)))?;
        self.next_kept().unwrap_or(Err(BroadcastError::Refused(Refusal::Closed)))
    }

    /// The next value, or why there is none; `None` if it is still to come.
    fn next_kept(&mut self) -> Option<Result<Arc<T>, BroadcastError>> {
        let wanted = self.next;
        let (found, next) = self.queue.look(|kept| {
            let Some(place) = wanted.checked_sub(kept.first) else {
                let missed = kept.first - wanted;
                return (Some(Err(BroadcastError::Missed(missed))), kept.first);
            };
            match kept.values.get(place as usize) {
                Some(value) => (Some(Ok(value.clone())), wanted + 1),
                None if kept.senders == 0 => (Some(Err(BroadcastError::Refused(Refusal::Closed))), wanted),
                None => (None, wanted),
            }
        });
        self.next = next;
        found
    }
}

fn charge(cx: &Cx) -> Result<(), BroadcastError> {
    cx.charge(Component::ChannelOps).map_err(|error| BroadcastError::Refused(Refusal::Budget(error)))
}

impl<T: Send + Sync> Clone for BroadcastSender<T> {
    fn clone(&self) -> Self {
        calls::count_action();
        self.0.change(|kept, _| kept.senders += 1);
        Self(self.0.clone())
    }
}

impl<T: Send + Sync> Drop for BroadcastSender<T> {
    fn drop(&mut self) {
        self.0.change(|kept, _| kept.senders -= 1);
    }
}

impl<T: Send + Sync> Clone for BroadcastReceiver<T> {
    fn clone(&self) -> Self {
        calls::count_action();
        self.queue.change(|kept, _| kept.receivers += 1);
        Self { queue: self.queue.clone(), next: self.next }
    }
}

impl<T: Send + Sync> Drop for BroadcastReceiver<T> {
    fn drop(&mut self) {
        let unreceived = self.queue.change(|kept, _| {
            kept.receivers -= 1;
            if kept.receivers > 0 {
                return VecDeque::new();
            }
            kept.first = kept.next();
            std::mem::take(&mut kept.values)
        });
        drop(unreceived);
    }
}

impl<T: Send + Sync> fmt::Debug for BroadcastSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BroadcastSender")
    }
}

impl<T: Send + Sync> fmt::Debug for BroadcastReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BroadcastReceiver")
    }
}
