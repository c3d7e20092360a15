//! The latest of several values, for many.
//!
//! Conserved: a receiver that waits is told of the next value, or that there will be none. A value lives until a newer one has
//! replaced it and no receiver uses it any more.

use crate::budget::Component;
use crate::calls;
use crate::channel::{Capacity, ChannelError, Refusal};
use crate::cx::Cx;
use crate::queue::{Missed, Queue, Rule};
use crate::runtime::Runtime;
use crate::task::WaitReason;
use crate::wait::Who;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Latest<T> {
    value: Arc<T>,
    version: u64,
    has_sender: bool,
}

impl<T: Send + Sync> Rule for Latest<T> {
    /// The version that the waiter has seen.
    type Wish = u64;

    const IN_TURN: bool = false;

    fn take(&mut self, seen: u64) -> bool {
        self.version != seen || !self.has_sender
    }

    fn put_back(&mut self, _: u64, _: bool) {}
}

/// Sets the value. There is one.
pub struct WatchSender<T: Send + Sync>(Arc<Queue<Latest<T>>>);

/// Sees the value, and waits for the next. Clones have seen what the original has seen.
pub struct WatchReceiver<T: Send + Sync> {
    queue: Arc<Queue<Latest<T>>>,
    seen: u64,
}

fn pair<T: Send + Sync>(value: T) -> (WatchSender<T>, WatchReceiver<T>) {
    let latest = Latest { value: Arc::new(value), version: 0, has_sender: true };
    let queue = Arc::new(Queue::new(latest));
    (WatchSender(queue.clone()), WatchReceiver { queue, seen: 0 })
}

impl Cx {
    /// A value that is replaced from time to time, and whose latest state many tasks follow. By the task's `CapChannel`.
    ///
    /// ```
    /// # use mainspring::{Config, Profile};
    /// # let runtime = Config::new(Profile::Service).build().unwrap();
    /// runtime.run(|cx| {
    ///     let (config, mut seen) = cx.watch("one worker").unwrap();
    ///     config.send(cx, "two workers").unwrap();
    ///     seen.changed(cx).unwrap();
    ///     assert_eq!(*seen.get(), "two workers");
    /// }).unwrap();
    /// ```
    pub fn watch<T: Send + Sync>(
        &self,
        value: T,
    ) -> Result<(WatchSender<T>, WatchReceiver<T>), ChannelError> {
        calls::count(self);
        self.admit_channel_noted(Capacity::Bounded(1))?;
        Ok(pair(value))
    }
}

impl Runtime {
    /// As [`Cx::watch`], by the host.
    pub fn watch<T: Send + Sync>(&self, value: T) -> (WatchSender<T>, WatchReceiver<T>) {
        calls::count_action();
        pair(value)
    }
}

impl<T: Send + Sync> WatchSender<T> {
    /// Replaces the value. Those that wait for it go on. Costs one op and one channel operation.
    pub fn send(&self, cx: &Cx, value: T) -> Result<(), Refusal> {
        cx.charge(Component::ChannelOps).map_err(Refusal::Budget)?;
        self.replace(value);
        Ok(())
    }

    /// Replaces the value, from an ordinary thread. Never waits.
    pub fn send_blocking(&self, value: T) {
        calls::count_action();
        self.replace(value);
    }

    fn replace(&self, value: T) {
        let mut value = Arc::new(value);
        self.0.change(|latest, _| {
            std::mem::swap(&mut latest.value, &mut value);
            latest.version += 1;
        });
        // The old value, outside of the lock: its destructor is the program's.
        drop(value);
    }

    /// The value.
    pub fn get(&self) -> Arc<T> {
        calls::count_poll();
        self.0.look(|latest| latest.value.clone())
    }

    /// Another receiver, that has seen the value as it is.
    pub fn subscribe(&self) -> WatchReceiver<T> {
        calls::count_action();
        let seen = self.0.look(|latest| latest.version);
        WatchReceiver { queue: self.0.clone(), seen }
    }
}

impl<T: Send + Sync> WatchReceiver<T> {
    /// The value, which counts as seen.
    pub fn get(&mut self) -> Arc<T> {
        calls::count_poll();
        let (value, seen) = self.queue.look(|latest| (latest.value.clone(), latest.version));
        self.seen = seen;
        value
    }

    /// Whether the value has been replaced since it was seen.
    pub fn has_changed(&self) -> bool {
        calls::count_poll();
        self.queue.look(|latest| latest.version != self.seen)
    }

    /// Waits until the value has been replaced since it was seen. [`Refusal::Closed`] if there will be no other. Costs one op
    /// and one channel operation.
    pub fn changed(&mut self, cx: &Cx) -> Result<(), Refusal> {
        cx.charge(Component::ChannelOps).map_err(Refusal::Budget)?;
        self.wait(&Who::Task(cx), None)
    }

    /// As [`WatchReceiver::changed`], for at most this long.
    pub fn changed_timeout(&mut self, cx: &Cx, timeout: Duration) -> Result<(), Refusal> {
        cx.charge(Component::ChannelOps).map_err(Refusal::Budget)?;
        self.wait(&Who::Task(cx), Some(timeout))
    }

    /// Waits until the value is as wanted: it.
    pub fn wait_for(&mut self, cx: &Cx, mut wanted: impl FnMut(&T) -> bool) -> Result<Arc<T>, Refusal> {
        loop {
            let value = self.get();
            if wanted(&value) {
                calls::count(cx);
                return Ok(value);
            }
            self.changed(cx)?;
        }
    }

    /// As [`WatchReceiver::changed`], on an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn changed_blocking(&mut self) -> Result<(), Refusal> {
        self.wait(&Who::thread(), None)
    }

    /// What a select waits for.
    pub(crate) fn wish(&self) -> (&Queue<Latest<T>>, u64) {
        (&self.queue, self.seen)
    }

    fn wait(&mut self, who: &Who<'_>, timeout: Option<Duration>) -> Result<(), Refusal> {
        self.queue.wait(who, self.seen, WaitReason::Channel, timeout).map_err(refusal)?;
        let now = self.queue.look(|latest| latest.version);
        if now == self.seen {
            return Err(Refusal::Closed);
        }
        self.seen = now;
        Ok(())
    }
}

/// Why a wait for a channel came to nothing.
pub(super) fn refusal(missed: Missed) -> Refusal {
    match missed {
        Missed::TimedOut => Refusal::TimedOut,
        Missed::Unwinding => Refusal::Unwinding,
    }
}

impl<T: Send + Sync> Drop for WatchSender<T> {
    fn drop(&mut self) {
        self.0.change(|latest, _| latest.has_sender = false);
    }
}

impl<T: Send + Sync> Clone for WatchReceiver<T> {
    fn clone(&self) -> Self {
        calls::count_action();
        Self { queue: self.queue.clone(), seen: self.seen }
    }
}

impl<T: Send + Sync> fmt::Debug for WatchSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchSender")
    }
}

impl<T: Send + Sync> fmt::Debug for WatchReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchReceiver")
    }
}
