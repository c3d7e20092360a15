//! Parking: a task or thread waits until another unparks it.
//!
//! Conserved: an unpark lets the one go that has waited longest, or else is remembered, once; none is lost: a waiter that is
//! cancelled hands on what it was given. A node in the line is in the frame of a wait, which takes it out on every way out if no
//! unpark has.
#![allow(unsafe_code)]

use crate::calls;
use crate::cx::Cx;
use crate::protocol::lock::Lock;
use crate::protocol::wait_end::{Outcome, WaitEnd};
use crate::task::WaitReason;
use crate::wait::{Waited, Who};
use crate::waiter::Ending;
use crate::worker;
use std::collections::VecDeque;
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
    inside: Lock<Inside>,
}

struct Inside {
    /// An unpark waits for its park. Never while there is a waiter.
    permit: bool,
    line: VecDeque<*const Node>,
}

/// A waiter, in the frame of the wait.
struct Node {
    word: usize,
    end: WaitEnd,
}

// SAFETY: nodes are touched under the lock, or by their own waiter after they left the line.
unsafe impl Send for Inside {}

/// A node that is in the line, or was taken out by an unpark. Dropped on every way out of the frame that the node is in.
struct Enlisted<'a> {
    parker: &'a Parker,
    who: &'a Who<'a>,
    node: &'a Node,
}

impl Enlisted<'_> {
    /// Ends the wait. True if there was an unpark.
    fn leave(self) -> bool {
        let this = std::mem::ManuallyDrop::new(self);
        this.take_out()
    }

    /// True if an unpark took the node out, and is done with it.
    fn take_out(&self) -> bool {
        if self.node.end.outcome().is_some() {
            return true;
        }
        let mut inside = self.parker.inside.lock();
        let place = inside.line.iter().position(|other| std::ptr::eq(*other, self.node));
        let Some(place) = place else {
            drop(inside);
            self.node.end.outcome().expect("whoever took it off the line told it");
            return true;
        };
        inside.line.remove(place);
        drop(inside);
        self.who.take_back(self.node.word);
        false
    }
}

impl Drop for Enlisted<'_> {
    fn drop(&mut self) {
        if self.take_out() {
            self.parker.unpark();
        }
    }
}

impl Default for Parker {
    fn default() -> Self {
        Self { inside: Lock::new(Inside { permit: false, line: VecDeque::new() }) }
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
        self.wait_as(&Who::Task(cx), reason, timeout)
    }

    /// As [`Parker::park`], from an ordinary thread, which blocks. Must not be called from inside a task.
    pub fn park_blocking(&self, timeout: Option<Duration>) -> bool {
        self.wait_as(&Who::thread(), WaitReason::Park, timeout)
    }

    fn wait_as(&self, who: &Who<'_>, reason: WaitReason, timeout: Option<Duration>) -> bool {
        if let Who::Task(cx) = who {
            cx.probe_stack();
            cx.acknowledge();
            calls::count(cx);
        }
        let node = Node { word: who.word(), end: WaitEnd::new() };
        {
            let mut inside = self.inside.lock();
            if std::mem::take(&mut inside.permit) {
                drop(inside);
                who.take_back(node.word);
                return true;
            }
            inside.line.push_back(&raw const node);
        }
        let enlisted = Enlisted { parker: self, who, node: &node };
        let waited = who.wait(&node.end, reason, timeout);
        let unparked = enlisted.leave();
        if who.must_stop() {
            // It ends here, so that it has no use for the unpark.
            if unparked {
                self.unpark();
            }
            who.acknowledge();
        }
        debug_assert!(unparked || waited != Waited::Done);
        unparked
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
        let mut inside = self.inside.lock();
        let Some(node) = inside.line.pop_front() else {
            inside.permit = true;
            return;
        };
        // SAFETY: the pointer is null or the worker of this thread, which does not go away under it.
        let here = unsafe { worker::current().as_ref() };
        // SAFETY: a node in the line is in a frame that waits to be told; the lock makes us alone with it.
        let node = unsafe { &*node };
        let ending = Ending::begin(node.word, &node.end, Outcome::Done, here);
        // A subscriber may hear of the wake, and unpark again.
        drop(inside);
        ending.finish();
    }
}
