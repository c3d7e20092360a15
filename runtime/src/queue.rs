//! Something that is given out under a lock, and the waiters for it: the one wait protocol of parkers, semaphores, locks,
//! notifications, barriers, watches and broadcasts. A [`Rule`] says what there is and who may have it.
//!
//! Conserved: a waiter is granted its wish once, by the thread that takes it off the line under the lock, or leaves the line
//! itself. What was granted to a waiter that is cancelled is put back, and offered to those behind it: no grant is lost. After
//! every change the first waiter is one whose wish cannot be granted.

use crate::calls;
use crate::line::{Claim, Line, Node};
use crate::protocol::lock::{Guard, Lock};
use crate::protocol::mutant::{Mutant, broken};
use crate::protocol::wait_end::Outcome;
use crate::task::WaitReason;
use crate::wait::{Waited, Who};
use crate::waiter::Ending;
use crate::worker;
use std::time::Duration;

/// What there is, and who may have it. Its methods run under a spinning lock.
pub(crate) trait Rule: Send {
    /// What a waiter asks for.
    type Wish: Copy + Send;

    /// Whether a newcomer waits behind those that are in line, though its wish could be granted.
    const IN_TURN: bool = true;

    /// Grants a wish, if that is possible.
    fn take(&mut self, wish: Self::Wish) -> bool;

    /// What was granted is not used. `others_wait`: it will be offered to them.
    fn put_back(&mut self, wish: Self::Wish, others_wait: bool);

    /// A waiter leaves without a grant.
    fn leave(&mut self, _wish: Self::Wish) {}
}

struct Inside<R: Rule> {
    rule: R,
    line: Line<R::Wish>,
}

/// What is given out, and the waiters.
pub(crate) struct Queue<R: Rule> {
    inside: Lock<Inside<R>>,
}

// No code that may panic runs under the lock, so that a panic leaves it whole.
impl<R: Rule> std::panic::UnwindSafe for Queue<R> {}

impl<R: Rule> std::fmt::Debug for Queue<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}

/// How a wait ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// By a grant.
    Granted,
    /// All waits were ended at once, without a grant.
    Released,
}

/// A wait without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    TimedOut,
    Unwinding,
}

/// A node that is in the line, or was taken out of it and told. Dropped on every way out of the frame that the node is in.
struct Enlisted<'a, R: Rule> {
    queue: &'a Queue<R>,
    who: &'a Who<'a>,
    node: &'a Node<R::Wish>,
    wish: R::Wish,
}

impl<R: Rule> Enlisted<'_, R> {
    /// Ends the wait. How it was ended, if it was.
    fn leave(self) -> Option<Outcome> {
        let this = std::mem::ManuallyDrop::new(self);
        this.take_out()
    }

    fn take_out(&self) -> Option<Outcome> {
        let ended = self.queue.take_out(self.node, self.wish);
        if ended.is_none() {
            self.who.take_back(self.node.word);
        }
        ended
    }
}

impl<R: Rule> Drop for Enlisted<'_, R> {
    fn drop(&mut self) {
        if self.take_out() == Some(Outcome::Done) {
            self.queue.give_back(self.wish);
        }
    }
}

impl<R: Rule> Queue<R> {
    pub(crate) fn new(rule: R) -> Self {
        Self { inside: Lock::new(Inside { rule, line: Line::EMPTY }) }
    }

    /// Looks at what there is.
    pub(crate) fn look<T>(&self, f: impl FnOnce(&R) -> T) -> T {
        f(&self.inside.lock().rule)
    }

    /// Changes what there is, and grants what can be granted by that. The closure is told whether there are waiters.
    pub(crate) fn change<T>(&self, f: impl FnOnce(&mut R, bool) -> T) -> T {
        let mut inside = self.inside.lock();
        let others_wait = !inside.line.is_empty();
        let result = f(&mut inside.rule, others_wait);
        serve(inside);
        result
    }

    /// A grant that was not used goes back.
    pub(crate) fn give_back(&self, wish: R::Wish) {
        self.change(|rule, others_wait| rule.put_back(wish, others_wait));
    }

    /// Ends the waits of all that wait, without a grant.
    pub(crate) fn release_all(&self) {
        let mut inside = self.inside.lock();
        let mut endings = Vec::new();
        while let Some((_, ending)) = inside.line.end_first(Outcome::Closed, here(), |_| ()) {
            endings.push(ending);
        }
        drop(inside);
        endings.into_iter().for_each(Ending::finish);
    }

    /// A grant without waiting.
    pub(crate) fn try_take(&self, wish: R::Wish) -> bool {
        let mut inside = self.inside.lock();
        (!R::IN_TURN || inside.line.is_empty()) && inside.rule.take(wish)
    }

    /// Waits for a grant. The wait is a yield point: a task that is cancelled ends here, and what it was granted goes to others.
    pub(crate) fn wait(
        &self,
        who: &Who<'_>,
        wish: R::Wish,
        reason: WaitReason,
        timeout: Option<Duration>,
    ) -> Result<Got, Missed> {
        enter(who);
        self.wait_after(who, wish, reason, timeout, || ())
    }

    /// As [`Queue::wait`], after [`enter`]. `before` is called, or dropped, when the waiter is in line.
    pub(crate) fn wait_after(
        &self,
        who: &Who<'_>,
        wish: R::Wish,
        reason: WaitReason,
        timeout: Option<Duration>,
        before: impl FnOnce(),
    ) -> Result<Got, Missed> {
        let node = Node::new(who.word(), Some(wish));
        {
            let mut inside = self.inside.lock();
            if (!R::IN_TURN || inside.line.is_empty()) && inside.rule.take(wish) {
                drop(inside);
                who.take_back(node.word);
                return Ok(Got::Granted);
            }
            inside.line.push(&node);
        }
        let enlisted = Enlisted { queue: self, who, node: &node, wish };
        before();
        let waited = who.wait(&node.end, reason, timeout);
        match (enlisted.leave(), waited) {
            (Some(outcome), _) => {
                if who.must_stop() {
                    // It ends here, so that it has no use for the grant.
                    if outcome == Outcome::Done {
                        self.give_back(wish);
                    }
                    who.acknowledge();
                }
                Ok(if outcome == Outcome::Done { Got::Granted } else { Got::Released })
            }
            (None, Waited::TimedOut) => Err(Missed::TimedOut),
            (None, _) => {
                who.acknowledge();
                Err(Missed::Unwinding)
            }
        }
    }

    /// How the wait of a node that was in line has ended. If it has not, the node leaves the line.
    fn take_out(&self, node: &Node<R::Wish>, wish: R::Wish) -> Option<Outcome> {
        if let Some(outcome) = node.end.outcome() {
            return Some(outcome);
        }
        let mut inside = self.inside.lock();
        if !inside.line.remove(node) {
            drop(inside);
            return Some(node.end.outcome().expect("the thread that took it off the line told it"));
        }
        inside.rule.leave(wish);
        // Others behind it may go now.
        serve(inside);
        None
    }

    /// Puts an arm of a select in line, unless it need not wait.
    pub(crate) fn enlist(&self, node: &Node<R::Wish>, wish: R::Wish, claim: &Claim) -> bool {
        let mut inside = self.inside.lock();
        let may_pass = !R::IN_TURN || !inside.line.has_other_than(claim);
        if may_pass && inside.rule.take(wish) {
            let others_wait = !inside.line.is_empty();
            inside.rule.put_back(wish, others_wait);
            return false;
        }
        inside.line.push(node);
        true
    }

    /// Takes an arm out of the line, if it is there. Afterwards no other thread touches it.
    pub(crate) fn delist(&self, node: &Node<R::Wish>, wish: R::Wish) {
        let mut inside = self.inside.lock();
        if inside.line.remove(node) {
            inside.rule.leave(wish);
            serve(inside);
        }
    }
}

/// Before a wait: gives way if the quantum is over, and ends a task that was cancelled.
pub(crate) fn enter(who: &Who<'_>) {
    if let Who::Task(cx) = who {
        cx.probe_stack();
        calls::count(cx);
        cx.acknowledge();
    }
}

/// The worker of this thread.
#[allow(unsafe_code)]
fn here<'a>() -> Option<&'a worker::Worker> {
    // SAFETY: the pointer is null or the worker of this thread, which does not go away under it.
    unsafe { worker::current().as_ref() }
}

/// Grants what can be granted, in the order of the line.
fn serve<R: Rule>(mut inside: Guard<'_, Inside<R>>) {
    if inside.line.is_empty() || broken(Mutant::LineUnserved) {
        return;
    }
    let here = here();
    // Most often one, which needs no memory.
    let (mut first, mut rest) = (None, Vec::new());
    while let Some(wish) = inside.line.first().map(wish_of) {
        if !inside.rule.take(wish) {
            break;
        }
        // An arm of a select that has done something else is none.
        match inside.line.end_only_first(Outcome::Done, here) {
            Some(ending) if first.is_none() => first = Some(ending),
            Some(ending) => rest.push(ending),
            None => {
                let others_wait = !inside.line.is_empty();
                inside.rule.put_back(wish, others_wait);
            }
        }
    }
    drop(inside);
    first.into_iter().chain(rest).for_each(Ending::finish);
}

#[allow(unsafe_code)]
fn wish_of<W: Copy>(node: &Node<W>) -> W {
    // SAFETY: written before the node was in line, and not changed since.
    unsafe { *node.value.get() }.expect("a waiter has a wish")
}
