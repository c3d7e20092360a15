//! Waiting for the first of several things: sends, receives, and what `select_more.rs` adds.
//!
//! Conserved: at most one arm is taken, and only that arm's value moves. Everything that an arm offered and that was not
//! taken is back where it came from when the select ends, on every way out.

use super::chan::{Chan, Side};
use super::{Receiver, Refusal, Sender};
use crate::budget::Component;
use crate::cx::Cx;
use crate::line::{Claim, Node};
use crate::protocol::wait_end::Outcome;
use crate::task::WaitReason;
use crate::wait::{Waited, Who};
use std::time::Duration;

/// Does whichever of several sends and receives can be done first.
///
/// Of several that can be done at once, one is taken by turns, so that none is passed over for ever;
/// [`Select::in_order`] takes the one that was added first. A closed channel counts as ready, and its arm is told so.
///
/// ```
/// # use mainspring::{Capacity, Config, Profile, Select};
/// # use std::time::Duration;
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// let answer = runtime.run(|cx| {
///     let (_tx, numbers) = cx.channel::<u32>(Capacity::Rendezvous).unwrap();
///     let (words, _rx) = cx.channel::<&str>(Capacity::Rendezvous).unwrap();
///     let mut word = Some("nobody listens");
///     let answer = Select::new()
///         .recv(&numbers, |number| number.map_or(0, |n| n + 1))
///         .send(&words, &mut word, |_| 7)
///         .run_timeout(cx, Duration::from_millis(1), || 99)
///         .unwrap();
///     assert_eq!(word, Some("nobody listens"), "what is not sent stays");
///     answer
/// });
/// assert_eq!(answer.unwrap(), 99);
/// ```
#[must_use = "a select does nothing until it runs"]
pub struct Select<'a, R> {
    arms: Vec<Box<dyn Arm<R> + 'a>>,
    in_order: bool,
}

/// A send or a receive. What a node offers is seen by others from `enlist` to `delist`, and in between only the methods
/// with a shared reference are called.
pub(super) trait Arm<R> {
    /// Does it now, if that needs no waiting.
    fn try_now(&mut self, who: &Who<'_>) -> Option<R>;
    /// Where its channel is: arms enlist in that order.
    fn address(&self) -> usize;
    fn prepare(&mut self, who: &Who<'_>, claim: &Claim, index: usize);
    /// False if it need not wait.
    fn enlist(&self, who: &Who<'_>, claim: &Claim) -> bool;
    fn delist(&self, who: &Who<'_>);
    /// Takes back what was prepared and not used, after `delist`. A thread that has taken the arm has used its
    /// word.
    fn put_back(&mut self, who: &Who<'_>, was_taken: bool);
    /// It was taken, and told how.
    fn finish(&mut self, outcome: Outcome) -> R;
    /// Whether it need not wait any more, for an arm that no thread takes: [`Arm::try_now`] does it then.
    fn is_ready(&self) -> bool {
        false
    }
}

struct RecvArm<'a, T, F> {
    chan: &'a Chan<T>,
    node: Option<Node<T>>,
    then: Option<F>,
}

struct SendArm<'a, T, F> {
    chan: &'a Chan<T>,
    value: &'a mut Option<T>,
    node: Option<Node<T>>,
    then: Option<F>,
}

pub(super) fn call<A, R>(then: &mut Option<impl FnOnce(A) -> R>, argument: A) -> R {
    let then = then.take().expect("an arm is taken once");
    then(argument)
}

impl<T, R, F: FnOnce(Result<T, Refusal>) -> R> Arm<R> for RecvArm<'_, T, F> {
    fn try_now(&mut self, who: &Who<'_>) -> Option<R> {
        match self.chan.try_recv(who) {
            Err(Refusal::WouldBlock) => None,
            result => Some(call(&mut self.then, result)),
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self.chan).addr()
    }

    fn prepare(&mut self, who: &Who<'_>, claim: &Claim, index: usize) {
        self.node = Some(Node::of_select(who.word(), None, claim, index));
    }

    fn enlist(&self, who: &Who<'_>, claim: &Claim) -> bool {
        self.node.as_ref().is_none_or(|node| self.chan.enlist(who, node, Side::Receive, claim))
    }

    fn delist(&self, who: &Who<'_>) {
        if let Some(node) = &self.node {
            self.chan.delist(who, node, Side::Receive);
        }
    }

    fn put_back(&mut self, who: &Who<'_>, was_taken: bool) {
        if !was_taken && let Some(node) = self.node.take() {
            who.take_back(node.word);
        }
    }

    fn finish(&mut self, _: Outcome) -> R {
        let value = self.node.take().and_then(|node| node.value.into_inner());
        // Outcome that the channel is closed, it has none.
        call(&mut self.then, value.ok_or(Refusal::Closed))
    }
}

impl<T, R, F: FnOnce(Result<(), Refusal>) -> R> Arm<R> for SendArm<'_, T, F> {
    fn try_now(&mut self, who: &Who<'_>) -> Option<R> {
        if self.value.is_none() {
            return None;
        }
        match self.chan.offer(who, self.value) {
            Err(Refusal::WouldBlock) => None,
            result => Some(call(&mut self.then, result)),
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self.chan).addr()
    }

    fn prepare(&mut self, who: &Who<'_>, claim: &Claim, index: usize) {
        if let Some(value) = self.value.take() {
            self.node = Some(Node::of_select(who.word(), Some(value), claim, index));
        }
    }

    fn enlist(&self, who: &Who<'_>, claim: &Claim) -> bool {
        self.node.as_ref().is_none_or(|node| self.chan.enlist(who, node, Side::Send, claim))
    }

    fn delist(&self, who: &Who<'_>) {
        if let Some(node) = &self.node {
            self.chan.delist(who, node, Side::Send);
        }
    }

    fn put_back(&mut self, who: &Who<'_>, was_taken: bool) {
        if let Some(node) = self.node.take() {
            if !was_taken {
                who.take_back(node.word);
            }
            // Nothing, if it was sent.
            *self.value = node.value.into_inner();
        }
    }

    fn finish(&mut self, outcome: Outcome) -> R {
        let result = if outcome == Outcome::Done { Ok(()) } else { Err(Refusal::Closed) };
        call(&mut self.then, result)
    }
}

/// What a select came to without an arm.
enum Without {
    Late,
    Unwinding,
}

impl<R> Default for Select<'_, R> {
    fn default() -> Self {
        Self { arms: Vec::new(), in_order: false }
    }
}

impl<R> std::fmt::Debug for Select<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Select({} arms)", self.arms.len())
    }
}

impl<'a, R> Select<'a, R> {
    /// No arms yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A channel to receive from, and what to do with what comes.
    pub fn recv<T>(
        mut self,
        receiver: &'a Receiver<T>,
        then: impl FnOnce(Result<T, Refusal>) -> R + 'a,
    ) -> Self {
        self.arms.push(Box::new(RecvArm { chan: receiver.chan(), node: None, then: Some(then) }));
        self
    }

    /// A channel to send to, and what to do when that is done or refused. The value leaves `value` only if it is sent. An arm
    /// without a value is never taken.
    pub fn send<T>(
        mut self,
        sender: &'a Sender<T>,
        value: &'a mut Option<T>,
        then: impl FnOnce(Result<(), Refusal>) -> R + 'a,
    ) -> Self {
        self.arms.push(Box::new(SendArm { chan: sender.chan(), value, node: None, then: Some(then) }));
        self
    }

    pub(super) fn push(&mut self, arm: impl Arm<R> + 'a) {
        self.arms.push(Box::new(arm));
    }

    /// Of several arms that can be done at once, takes the one that was added first. The others may wait for ever.
    pub fn in_order(mut self) -> Self {
        self.in_order = true;
        self
    }

    /// Waits for the first arm. Costs one op and one channel operation. Without arms it waits until the task is cancelled.
    pub fn run(mut self, cx: &Cx) -> Result<R, Refusal> {
        cx.charge(Component::ChannelOps).map_err(Refusal::Budget)?;
        self.select(&Who::Task(cx), None).map_err(|_| Refusal::Unwinding)
    }

    /// As [`Select::run`]; if nothing can be done in time, `late` says what then.
    pub fn run_timeout(mut self, cx: &Cx, timeout: Duration, late: impl FnOnce() -> R) -> Result<R, Refusal> {
        cx.charge(Component::ChannelOps).map_err(Refusal::Budget)?;
        match self.select(&Who::Task(cx), Some(timeout)) {
            Ok(result) => Ok(result),
            Err(Without::Late) => Ok(late()),
            Err(Without::Unwinding) => Err(Refusal::Unwinding),
        }
    }

    /// As [`Select::run`], on an ordinary thread, which blocks. Must not be called from inside a task. Without arms it waits for
    /// ever.
    pub fn run_blocking(mut self) -> R {
        match self.select(&Who::thread(), None) {
            Ok(result) => result,
            Err(_) => unreachable!("a thread waits for as long as it takes"),
        }
    }

    fn select(&mut self, who: &Who<'_>, timeout: Option<Duration>) -> Result<R, Without> {
        let mut by_address: Vec<usize> = (0..self.arms.len()).collect();
        by_address.sort_by_key(|&arm| self.arms[arm].address());
        let due_ns = who.due_ns(timeout);
        loop {
            if let Some(result) = self.try_now(who) {
                return Ok(result);
            }
            let claim = Claim::new();
            for (index, arm) in self.arms.iter_mut().enumerate() {
                arm.prepare(who, &claim, index);
            }
            // Two selects that face each other enlist in the same order, so one of them gets to wait and is found.
            let waits = by_address.iter().all(|&arm| self.arms[arm].enlist(who, &claim));
            let is_over = || claim.end.is_over() || self.arms.iter().any(|arm| arm.is_ready());
            let timeout = who.time_until(due_ns);
            let waited = waits.then(|| who.wait_until(is_over, WaitReason::Channel, timeout));
            let taken = if !claim.end.is_over() && claim.withdraw() { None } else { claim.taken() };
            // Each takes its channel's lock: a thread that took an arm has begun to tell it by then.
            self.arms.iter().for_each(|arm| arm.delist(who));
            let outcome = claim.end.outcome();
            for (index, arm) in self.arms.iter_mut().enumerate() {
                arm.put_back(who, taken == Some(index));
            }
            if let (Some(taken), Some(outcome)) = (taken, outcome) {
                return Ok(self.arms[taken].finish(outcome));
            }
            match waited {
                None | Some(Waited::Done) => {}
                Some(Waited::TimedOut) => return Err(Without::Late),
                Some(Waited::Stop) => {
                    who.acknowledge();
                    return Err(Without::Unwinding);
                }
            }
        }
    }

    fn try_now(&mut self, who: &Who<'_>) -> Option<R> {
        let first = if self.in_order { 0 } else { who.turn_of(self.arms.len()) };
        let (before, from) = self.arms.split_at_mut(first);
        from.iter_mut().chain(before).find_map(|arm| arm.try_now(who))
    }
}
