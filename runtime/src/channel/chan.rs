//! What the two sides of a channel share.
#![allow(unsafe_code)]

use super::{Capacity, Refusal, SendError};
use crate::cx::Cx;
use crate::line::{Claim, Line, Node};
use crate::protocol::bias::{BiasedGuard, BiasedLock};
use crate::protocol::wait_end::Outcome;
use crate::task::WaitReason;
use crate::wait::{Waited, Who};
use crate::waiter::{Ending, task_of};
use crate::worker::{self, Worker};
use std::collections::VecDeque;
use std::time::Duration;

struct Inside<T> {
    buffer: VecDeque<T>,
    senders: usize,
    receivers: usize,
    closed: bool,
    send_line: Line<T>,
    recv_line: Line<T>,
}

/// One side of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Send,
    Receive,
}

impl<T> Inside<T> {
    fn line(&mut self, side: Side) -> &mut Line<T> {
        match side {
            Side::Send => &mut self.send_line,
            Side::Receive => &mut self.recv_line,
        }
    }

    fn has_no_receivers(&self) -> bool {
        self.closed || self.receivers == 0
    }

    #[inline(always)]
    fn has_no_senders(&self) -> bool {
        self.closed || self.senders == 0
    }

    /// Whether a receiver would have to wait.
    #[inline(always)]
    fn has_nothing(&self) -> bool {
        self.buffer.is_empty() && self.send_line.is_empty() && !self.has_no_senders()
    }
}

pub(super) struct Chan<T> {
    room: usize,
    inside: BiasedLock<Inside<T>>,
}

impl<T> Chan<T> {
    pub(super) fn new(capacity: Capacity) -> Self {
        let room = match capacity {
            Capacity::Rendezvous => 0,
            Capacity::Bounded(n) => n as usize,
            Capacity::Unbounded => usize::MAX,
        };
        let inside = Inside {
            buffer: VecDeque::new(),
            senders: 1,
            receivers: 1,
            closed: false,
            send_line: Line::EMPTY,
            recv_line: Line::EMPTY,
        };
        Self { room, inside: BiasedLock::new(inside) }
    }

    /// Takes the value, for a receiver or for the buffer, and says whose wait is over by that.
    fn put(
        &self,
        inside: &mut Inside<T>,
        here: Option<&Worker>,
        value: &mut Option<T>,
    ) -> Result<Option<Ending>, Refusal> {
        if inside.has_no_receivers() {
            return Err(Refusal::Closed);
        }
        let passed = inside.recv_line.end_first(Outcome::Done, here, |place| *place = value.take());
        if let Some(((), ending)) = passed {
            return Ok(Some(ending));
        }
        if inside.buffer.len() < self.room {
            inside.buffer.extend(value.take());
            return Ok(None);
        }
        Err(Refusal::WouldBlock)
    }

    /// Takes a value out, and says whose wait is over by that.
    fn take(&self, inside: &mut Inside<T>, here: Option<&Worker>) -> Result<(T, Option<Ending>), Refusal> {
        let sent = |inside: &mut Inside<T>| inside.send_line.end_first(Outcome::Done, here, Option::take);
        if let Some(value) = inside.buffer.pop_front() {
            // Room for the first sender that waits.
            let ending = sent(inside).map(|(moved, ending)| {
                inside.buffer.extend(moved);
                ending
            });
            return Ok((value, ending));
        }
        if let Some((value, ending)) = sent(inside) {
            return Ok((value.expect("a sender waits with its value"), Some(ending)));
        }
        Err(if inside.has_no_senders() { Refusal::Closed } else { Refusal::WouldBlock })
    }

    /// Sends without waiting: the value is taken only if that succeeds.
    pub(super) fn offer(&self, who: &Who<'_>, value: &mut Option<T>) -> Result<(), Refusal> {
        let ending = self.put(&mut self.inside.lock(who.section_flag()), who.worker(), value)?;
        finish(ending);
        Ok(())
    }

    pub(super) fn try_send(&self, who: &Who<'_>, value: T) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        self.offer(who, &mut value).or_else(|why| refuse(why, value))
    }

    pub(super) fn try_recv(&self, who: &Who<'_>) -> Result<T, Refusal> {
        let (value, ending) = self.take(&mut self.inside.lock(who.section_flag()), who.worker())?;
        finish(ending);
        Ok(value)
    }

    /// As [`Chan::send`]. A receiver that waits on this worker, on a channel of its own, is handed the value and made ready in
    /// one section.
    #[inline(always)]
    pub(super) fn send_from_task(
        &self,
        cx: &Cx,
        value: T,
        timeout: Option<Duration>,
    ) -> Result<(), SendError<T>> {
        let worker = cx.task().worker();
        if let Some(mut inside) = self.inside.lock_at_home(worker.section_flag())
            && let Some(receiver) = inside.recv_line.first().and_then(|first| task_of(first.word))
            && receiver.state.wake_inside(&receiver.home, inside.section())
            && let Some(node) = inside.recv_line.pop()
        {
            // SAFETY: off the line, and its waiter waits to be told: the lock makes us alone with it.
            unsafe { *node.value.get() = Some(value) };
            // Its task is of this worker's runtime, since it was at home here.
            node.end.complete(Outcome::Done);
            drop(inside);
            worker.push_woken_at_home(receiver);
            return Ok(());
        }
        self.send(&Who::Task(cx), value, timeout)
    }

    #[inline(never)]
    pub(super) fn send(
        &self,
        who: &Who<'_>,
        value: T,
        timeout: Option<Duration>,
    ) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        let (node, at_home);
        {
            let mut inside = self.inside.lock(who.section_flag());
            match self.put(&mut inside, who.worker(), &mut value) {
                Err(Refusal::WouldBlock) => {}
                result => {
                    drop(inside);
                    return result.map(finish).or_else(|why| refuse(why, value));
                }
            }
            node = Node::new(who.word(), value);
            at_home = inside.is_at_home() && timeout.is_none() && who.move_in();
            inside.send_line.push(&node);
        }
        match self.wait(who, &node, Side::Send, at_home, timeout) {
            Ok(Outcome::Done) => Ok(()),
            Ok(Outcome::Closed) => refuse(Refusal::Closed, node.value.into_inner()),
            Err(why) => refuse(why, node.value.into_inner()),
        }
    }

    /// As [`Chan::recv`]. On a channel of this worker's own, the task goes straight over to the one that it woke before.
    #[inline(always)]
    pub(super) fn recv_in_task(&self, cx: &Cx) -> Result<T, Refusal> {
        let task = cx.task();
        if let Some(mut inside) = self.inside.lock_at_home(task.worker().section_flag())
            && inside.has_nothing()
            && cx.purse().is_none()
            && !std::thread::panicking()
        {
            let node = Node::new(cx.task_ptr().word(), None);
            inside.recv_line.push(&node);
            if task.worker().hand_over(task, inside.section(), WaitReason::Channel) {
                inside.was_ended();
                if !node.end.is_over() {
                    self.wait_on(cx, &node)?;
                }
                return received(node);
            }
            inside.recv_line.remove(&node);
        }
        self.recv(&Who::Task(cx), None)
    }

    #[inline(never)]
    pub(super) fn recv(&self, who: &Who<'_>, timeout: Option<Duration>) -> Result<T, Refusal> {
        let (node, at_home);
        {
            let mut inside = self.inside.lock(who.section_flag());
            match self.take(&mut inside, who.worker()) {
                Err(Refusal::WouldBlock) => {}
                result => {
                    drop(inside);
                    let (value, ending) = result?;
                    finish(ending);
                    return Ok(value);
                }
            }
            node = Node::new(who.word(), None);
            at_home = inside.is_at_home() && timeout.is_none() && who.move_in();
            inside.recv_line.push(&node);
        }
        self.wait(who, &node, Side::Receive, at_home, timeout)?;
        received(node)
    }

    /// Waits until the wait of a node on a line is over, or takes it off.
    fn wait(
        &self,
        who: &Who<'_>,
        node: &Node<T>,
        side: Side,
        at_home: bool,
        timeout: Option<Duration>,
    ) -> Result<Outcome, Refusal> {
        let waited = if at_home {
            who.wait_at_home(&node.end, WaitReason::Channel)
        } else {
            who.wait(&node.end, WaitReason::Channel, timeout)
        };
        if waited != Waited::Done && self.inside.lock(who.section_flag()).line(side).remove(node) {
            who.take_back(node.word);
            if waited == Waited::TimedOut {
                return Err(Refusal::TimedOut);
            }
            who.acknowledge();
            return Err(Refusal::Unwinding);
        }
        Ok(node.end.outcome().expect("whoever took it off the line told it"))
    }

    /// The receive was handed over, and its task woken for something else.
    #[cold]
    #[inline(never)]
    fn wait_on(&self, cx: &Cx, node: &Node<T>) -> Result<Outcome, Refusal> {
        self.wait(&Who::Task(cx), node, Side::Receive, false, None)
    }

    /// Puts an arm of a select on the line, unless its side need not wait.
    pub(super) fn enlist(&self, who: &Who<'_>, node: &Node<T>, side: Side, claim: &Claim) -> bool {
        let mut inside = self.inside.lock(who.section_flag());
        let is_ready = match side {
            Side::Send => {
                inside.has_no_receivers()
                    || inside.buffer.len() < self.room
                    || inside.recv_line.has_other_than(claim)
            }
            Side::Receive => {
                inside.has_no_senders() || !inside.buffer.is_empty() || inside.send_line.has_other_than(claim)
            }
        };
        if !is_ready {
            inside.line(side).push(node);
        }
        !is_ready
    }

    /// Takes it off again, if it is there. Afterwards no other thread touches it.
    pub(super) fn delist(&self, who: &Who<'_>, node: &Node<T>, side: Side) {
        self.inside.lock(who.section_flag()).line(side).remove(node);
    }

    /// Does something under the lock, for any caller: this may be a worker's thread or not.
    fn with<R>(&self, f: impl FnOnce(BiasedGuard<'_, Inside<T>>, Option<&Worker>) -> R) -> R {
        // SAFETY: the pointer is null or the worker of this thread, which does not go away under it.
        let worker = unsafe { worker::current().as_ref() };
        f(self.inside.lock(worker.map(Worker::section_flag)), worker)
    }

    pub(super) fn len(&self) -> usize {
        self.with(|inside, _| inside.buffer.len())
    }

    pub(super) fn has_no_receivers(&self) -> bool {
        self.with(|inside, _| inside.has_no_receivers())
    }

    pub(super) fn close(&self) {
        self.with(|mut inside, here| {
            inside.closed = true;
            end_waits(inside, here);
        });
    }

    pub(super) fn add_sender(&self) {
        self.with(|mut inside, _| inside.senders += 1);
    }

    pub(super) fn add_receiver(&self) {
        self.with(|mut inside, _| inside.receivers += 1);
    }

    pub(super) fn drop_sender(&self) {
        self.with(|mut inside, here| {
            inside.senders -= 1;
            if inside.senders == 0 {
                end_waits(inside, here);
            }
        });
    }

    pub(super) fn drop_receiver(&self) {
        let unreceived = self.with(|mut inside, here| {
            inside.receivers -= 1;
            if inside.receivers > 0 {
                return VecDeque::new();
            }
            let unreceived = std::mem::take(&mut inside.buffer);
            end_waits(inside, here);
            unreceived
        });
        // No receiver can take these any more. Not under the lock: their destructors are the program's, and may use the
        // channel.
        drop(unreceived);
    }
}

fn refuse<T>(why: Refusal, value: Option<T>) -> Result<(), SendError<T>> {
    Err(SendError { why, value: value.expect("a refused value was not taken") })
}

fn finish(ending: Option<Ending>) {
    if let Some(ending) = ending {
        ending.finish();
    }
}

/// What a receiver's wait came to, after it was told.
#[inline(always)]
fn received<T>(node: Node<T>) -> Result<T, Refusal> {
    // Outcome that the channel is closed, it has none.
    node.value.into_inner().ok_or(Refusal::Closed)
}

/// Tells every waiter that the other side will not come. Receivers wait only when there is nothing to receive,
/// senders only when there is no receiver, so nothing is lost.
fn end_waits<T>(mut inside: BiasedGuard<'_, Inside<T>>, here: Option<&Worker>) {
    let mut endings = Vec::new();
    let mut end = |line: &mut Line<T>| {
        while let Some(((), ending)) = line.end_first(Outcome::Closed, here, |_| ()) {
            endings.push(ending);
        }
    };
    if inside.has_no_senders() {
        end(&mut inside.recv_line);
    }
    if inside.has_no_receivers() {
        end(&mut inside.send_line);
    }
    drop(inside);
    endings.into_iter().for_each(Ending::finish);
}
