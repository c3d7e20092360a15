//! Parking: a task or thread waits until another unparks it.
//!
//! Conserved: an unpark lets the one go that has waited longest, or else is remembered, once; none is lost: a waiter that is
//! cancelled hands on what it was given.

use crate::calls;
use crate::cx::Cx;
use crate::queue::{Queue, Rule};
use crate::task::WaitReason;
use crate::wait::Who;
use std::time::Duration;

/// Where a task parks, and others unpark it.
///
/// ```
/// # use mainspring::{Config, Parker, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let parker = Parker::default();
/// runtime.run(|cx| {
///     cx.nursery(|n| {
///         n.start(|_| parker.unpark()).unwrap();
///         assert!(parker.park(cx, None), "unparked, now or before");
///     })
/// }).unwrap().unwrap();
/// ```
pub struct Parker {
    queue: Queue<Permit>,
}

/// An unpark that waits for its park. None while there is a waiter.
#[derive(Default)]
pub(crate) struct Permit(bool);

impl Rule for Permit {
    type Wish = ();

    fn take(&mut self, (): ()) -> bool {
        std::mem::take(&mut self.0)
    }

    fn put_back(&mut self, (): (), _: bool) {
        self.0 = true;
    }
}

impl Default for Parker {
    fn default() -> Self {
        Self { queue: Queue::new(Permit::default()) }
    }
}

impl std::fmt::Debug for Parker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parker")
    }
}

impl Parker {
    /// Waits for an unpark, for at most `timeout`. False if there was none. Free of charge, as all waiting is.
    pub fn park(&self, cx: &Cx, timeout: Option<Duration>) -> bool {
        self.wait(cx, WaitReason::Park, timeout)
    }

    /// As [`Parker::park`], with another reason for snapshots and records.
    pub fn wait(&self, cx: &Cx, reason: WaitReason, timeout: Option<Duration>) -> bool {
        self.queue.wait(&Who::Task(cx), (), reason, timeout).is_ok()
    }

    /// As [`Parker::park`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn park_blocking(&self, timeout: Option<Duration>) -> bool {
        self.queue.wait(&Who::thread(), (), WaitReason::Park, timeout).is_ok()
    }

    /// As [`Parker::unpark`], by a task that is about to wait itself. Under the fair discipline by task, the other one goes
    /// first on this worker, for the rest of this one's turn, if it may run here.
    pub fn hand_over(&self, cx: &Cx) {
        calls::count(cx);
        cx.task().worker().handing_over(|| self.unpark());
    }

    /// Lets the one that has waited longest go on, or else the next that parks.
    pub fn unpark(&self) {
        calls::count_action();
        self.ring();
    }

    /// As [`Parker::unpark`], by the runtime itself, which may be on a worker's own stack.
    pub(crate) fn ring(&self) {
        self.queue.give_back(());
    }
}
