//! Parking: a task waits until another says go.
//!
//! Conserved: an unpark is taken by one park, or remembered, once; none is lost. A word in the list is of a task that is in
//! [`Parker::wait`]: it takes the word out, under the lock, on every way out.

use crate::cx::Cx;
use crate::protocol::lock::Lock;
use crate::protocol::prim::{AtomicU8, Ordering};
use crate::task::WaitReason;
use crate::wait::{Waited, Who};
use crate::waiter;
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
#[derive(Debug)]
pub struct Parker {
    /// 1 while an unpark waits for its park.
    permit: AtomicU8,
    parked: Lock<Vec<usize>>,
}

impl Default for Parker {
    fn default() -> Self {
        Self { permit: AtomicU8::new(0), parked: Lock::new(Vec::new()) }
    }
}

struct Parked<'a> {
    parker: &'a Parker,
    word: usize,
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        let mut parked = self.parker.parked.lock();
        if let Some(at) = parked.iter().position(|word| *word == self.word) {
            parked.swap_remove(at);
        }
    }
}

impl Parker {
    /// Waits for an unpark, for at most `timeout`. False if there was none. Free of charge, as all waiting is.
    pub fn park(&self, cx: &Cx, timeout: Option<Duration>) -> bool {
        self.wait(cx, WaitReason::Park, timeout)
    }

    /// As [`Parker::park`], with another reason for snapshots and records.
    pub fn wait(&self, cx: &Cx, reason: WaitReason, timeout: Option<Duration>) -> bool {
        let who = Who::Task(cx);
        let deadline = timeout.map(|timeout| cx.now() + timeout);
        let parked = Parked { parker: self, word: who.word() };
        // The registration comes before the look at the permit, and in `unpark` the permit before the look at the list.
        self.parked.lock().push(parked.word);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_sub(cx.now()));
            let waited = who.wait(&self.permit, reason, left);
            // A permit that came at the last moment counts; one that another task took does not.
            if self.permit.swap(0, Ordering::SeqCst) == 1 {
                return true;
            }
            match waited {
                Waited::Done => {}
                Waited::TimedOut => return false,
                Waited::Stop => {
                    drop(parked);
                    who.acknowledge();
                    return false;
                }
            }
        }
    }

    /// As [`Parker::unpark`], by a task that is about to wait itself. Under the fair discipline by task, the other one goes
    /// first on this worker, for the rest of this one's turn, if it may run here.
    pub fn hand_over(&self, cx: &Cx) {
        cx.task().worker().handing_over(|| self.unpark());
    }

    /// Lets a task that parks here go on, or else the next that parks.
    pub fn unpark(&self) {
        self.permit.store(1, Ordering::SeqCst);
        // Under the lock: a task in the list, and its runtime with it, cannot go meanwhile.
        for word in self.parked.lock().iter() {
            waiter::wake(*word);
        }
    }
}
