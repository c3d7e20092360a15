//! What the two sides of a channel share.
#![allow(unsafe_code)]

use super::{Capacity, Refusal, SendError};
use crate::protocol::bias::{BiasedGuard, BiasedLock};
use crate::protocol::prim::{AtomicU8, Ordering};
use crate::task::WaitReason;
use crate::wait::{Waited, Who};
use crate::waiter;
use crate::worker::{self, Worker};
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr::null;
use std::time::Duration;

const WAITING: u8 = 0;
const PASSED: u8 = 1;
const CLOSED: u8 = 2;

/// Somebody who waits, in the frame of the wait.
struct Node<T> {
    word: usize,
    /// A sender's value, or the place for a receiver's.
    value: UnsafeCell<Option<T>>,
    /// How the wait ended. Whoever sets it has taken the node off the list and does not touch it again.
    done: AtomicU8,
    /// Under the channel's lock, while the node is on a list: its neighbours.
    before: Cell<*const Self>,
    after: Cell<*const Self>,
    is_listed: Cell<bool>,
}

impl<T> Node<T> {
    fn new(word: usize, value: Option<T>) -> Self {
        Self {
            word,
            value: UnsafeCell::new(value),
            done: AtomicU8::new(WAITING),
            before: Cell::new(null()),
            after: Cell::new(null()),
            is_listed: Cell::new(false),
        }
    }
}

/// Those who wait, first come first. A list through their frames, so that any of them can leave at once: when all of many
/// are cancelled, each would have to be looked for otherwise.
struct Line<T> {
    first: *const Node<T>,
    last: *const Node<T>,
}

// SAFETY: a node is touched under the channel's lock, or by its own waiter after it left the list; its value moves to
// another thread only if it is `Send`, which `Chan` asks for.
unsafe impl<T: Send> Send for Line<T> {}

impl<T> Line<T> {
    const EMPTY: Self = Self { first: null(), last: null() };

    fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// The node must stay where it is until it has left the list.
    fn push(&mut self, node: &Node<T>) {
        node.before.set(self.last);
        node.after.set(null());
        node.is_listed.set(true);
        // SAFETY: a node on the list is in a frame that waits; the lock makes us alone with it.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.after.set(node),
            None => self.first = node,
        }
        self.last = node;
    }

    /// Takes a node off the list. False if it had left it.
    fn remove(&mut self, node: &Node<T>) -> bool {
        if !node.is_listed.replace(false) {
            return false;
        }
        let (before, after) = (node.before.get(), node.after.get());
        // SAFETY: neighbours are on the list, as in `push`.
        match unsafe { before.as_ref() } {
            Some(before) => before.after.set(after),
            None => self.first = after,
        }
        // SAFETY: as above.
        match unsafe { after.as_ref() } {
            Some(after) => after.before.set(before),
            None => self.last = before,
        }
        true
    }

    fn pop<'a>(&mut self) -> Option<&'a Node<T>> {
        // SAFETY: as in `push`; the caller sets `done`, for which its frame waits, as its last touch.
        let node = unsafe { self.first.as_ref() }?;
        self.remove(node);
        Some(node)
    }

    /// Takes the first waiter off the list. `pass` moves the value; then the waiter is told, and is to be woken.
    fn pass<R>(&mut self, pass: impl FnOnce(&mut Option<T>) -> R) -> Option<(R, usize)> {
        let node = self.pop()?;
        // SAFETY: off the list, and its waiter waits for `done`: the lock makes us alone with it.
        let result = pass(unsafe { &mut *node.value.get() });
        let word = node.word;
        // Release: the waiter sees the value. Its frame may go at once: the word was read before.
        node.done.store(PASSED, Ordering::Release);
        Some((result, word))
    }
}

struct Inside<T> {
    buffer: VecDeque<T>,
    senders: usize,
    receivers: usize,
    closed: bool,
    send_line: Line<T>,
    recv_line: Line<T>,
    /// Tasks that select on this channel: woken when it may have something.
    watchers: Vec<usize>,
}

pub(super) struct Chan<T> {
    room: usize,
    inside: BiasedLock<Inside<T>>,
}

/// What a look under the lock came to.
enum Look<T> {
    Done(T),
    Refused(Refusal),
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
            watchers: Vec::new(),
        };
        Self { room, inside: BiasedLock::new(inside) }
    }

    pub(super) fn try_send(&self, who: &Who<'_>, value: T) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        match self.offer(who, &mut value) {
            Ok(()) => Ok(()),
            Err(why) => Err(SendError { why, value: value.expect("a refused value was not taken") }),
        }
    }

    /// Hands the value to a receiver or to the buffer.
    fn offer(&self, who: &Who<'_>, value: &mut Option<T>) -> Result<(), Refusal> {
        let mut inside = self.inside.lock(who.seat());
        if inside.closed || inside.receivers == 0 {
            return Err(Refusal::Closed);
        }
        if let Some(((), word)) = inside.recv_line.pass(|place| *place = value.take()) {
            drop(inside);
            waiter::wake(word);
            return Ok(());
        }
        if inside.buffer.len() < self.room {
            inside.buffer.extend(value.take());
            wake_watchers(inside);
            return Ok(());
        }
        Err(Refusal::WouldBlock)
    }

    pub(super) fn send(
        &self,
        who: &Who<'_>,
        value: T,
        timeout: Option<Duration>,
    ) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        let refuse = |why, value: Option<T>| {
            Err(SendError { why, value: value.expect("a refused value was not taken") })
        };
        loop {
            match self.offer(who, &mut value) {
                Ok(()) => return Ok(()),
                Err(Refusal::WouldBlock) => {}
                Err(why) => return refuse(why, value),
            }
            let node = Node::new(who.word(), value.take());
            let at_home = {
                let mut inside = self.inside.lock(who.seat());
                let ready = inside.closed
                    || inside.receivers == 0
                    || !inside.recv_line.is_empty()
                    || inside.buffer.len() < self.room;
                if ready {
                    drop(inside);
                    who.take_back(node.word);
                    value = node.value.into_inner();
                    continue;
                }
                let at_home = inside.is_at_home() && timeout.is_none();
                if at_home {
                    who.move_in();
                }
                inside.send_line.push(&node);
                wake_watchers(inside);
                at_home
            };
            let waited = self.wait(who, &node, at_home, timeout);
            if waited != Waited::Done && self.inside.lock(who.seat()).send_line.remove(&node) {
                who.take_back(node.word);
                value = node.value.into_inner();
                if waited == Waited::TimedOut {
                    return refuse(Refusal::TimedOut, value);
                }
                who.acknowledge();
                return refuse(Refusal::Unwinding, value);
            }
            return match node.done.load(Ordering::Acquire) {
                PASSED => Ok(()),
                _ => refuse(Refusal::Closed, node.value.into_inner()),
            };
        }
    }

    #[inline]
    fn wait(&self, who: &Who<'_>, node: &Node<T>, at_home: bool, timeout: Option<Duration>) -> Waited {
        if at_home {
            who.wait_at_home(&node.done, WaitReason::Channel)
        } else {
            who.wait(&node.done, WaitReason::Channel, timeout)
        }
    }

    pub(super) fn try_recv(&self, who: &Who<'_>) -> Result<T, Refusal> {
        let mut inside = self.inside.lock(who.seat());
        match self.look(&mut inside) {
            (Look::Done(value), wake) => {
                drop(inside);
                if let Some(word) = wake {
                    waiter::wake(word);
                }
                Ok(value)
            }
            (Look::Refused(why), _) => Err(why),
        }
    }

    /// Takes a value, and says whose send is over by that.
    fn look(&self, inside: &mut Inside<T>) -> (Look<T>, Option<usize>) {
        if let Some(value) = inside.buffer.pop_front() {
            // Room for the first sender that waits.
            let passed = inside.send_line.pass(|place| place.take());
            let word = passed.map(|(moved, word)| {
                inside.buffer.extend(moved);
                word
            });
            return (Look::Done(value), word);
        }
        if let Some((value, word)) = inside.send_line.pass(|place| place.take()) {
            return match value {
                Some(value) => (Look::Done(value), Some(word)),
                None => (Look::Refused(Refusal::WouldBlock), Some(word)),
            };
        }
        if inside.closed || inside.senders == 0 {
            return (Look::Refused(Refusal::Closed), None);
        }
        (Look::Refused(Refusal::WouldBlock), None)
    }

    pub(super) fn recv(&self, who: &Who<'_>, timeout: Option<Duration>) -> Result<T, Refusal> {
        let node = Node::new(who.word(), None);
        let at_home = {
            let mut inside = self.inside.lock(who.seat());
            let (look, wake) = self.look(&mut inside);
            match look {
                Look::Refused(Refusal::WouldBlock) => {
                    let at_home = inside.is_at_home() && timeout.is_none();
                    if at_home {
                        who.move_in();
                    }
                    inside.recv_line.push(&node);
                    at_home
                }
                look => {
                    drop(inside);
                    who.take_back(node.word);
                    if let Some(word) = wake {
                        waiter::wake(word);
                    }
                    return match look {
                        Look::Done(value) => Ok(value),
                        Look::Refused(why) => Err(why),
                    };
                }
            }
        };
        let waited = self.wait(who, &node, at_home, timeout);
        if waited != Waited::Done && self.inside.lock(who.seat()).recv_line.remove(&node) {
            who.take_back(node.word);
            if waited == Waited::TimedOut {
                return Err(Refusal::TimedOut);
            }
            who.acknowledge();
            return Err(Refusal::Unwinding);
        }
        match node.done.load(Ordering::Acquire) {
            PASSED => node.value.into_inner().ok_or(Refusal::Closed),
            _ => Err(Refusal::Closed),
        }
    }

    /// Does something under the lock, for whoever calls: this may be a worker's thread or not.
    fn with<R>(&self, f: impl FnOnce(BiasedGuard<'_, Inside<T>>) -> R) -> R {
        // SAFETY: the pointer is null or the worker of this thread, which does not go away under it.
        let worker = unsafe { worker::current().as_ref() };
        f(self.inside.lock(worker.map(Worker::seat)))
    }

    pub(super) fn len(&self) -> usize {
        self.with(|inside| inside.buffer.len())
    }

    pub(super) fn close(&self) {
        self.with(|mut inside| {
            inside.closed = true;
            end_waits(inside);
        });
    }

    pub(super) fn add_sender(&self) {
        self.with(|mut inside| inside.senders += 1);
    }

    pub(super) fn add_receiver(&self) {
        self.with(|mut inside| inside.receivers += 1);
    }

    pub(super) fn drop_sender(&self) {
        self.with(|mut inside| {
            inside.senders -= 1;
            if inside.senders == 0 {
                end_waits(inside);
            }
        });
    }

    pub(super) fn drop_receiver(&self) {
        self.with(|mut inside| {
            inside.receivers -= 1;
            if inside.receivers == 0 {
                end_waits(inside);
            }
        });
    }

    /// A task wants to know when there may be something.
    pub(super) fn watch(&self, word: usize) {
        self.with(|mut inside| inside.watchers.push(word));
    }

    pub(super) fn unwatch(&self, word: usize) {
        self.with(|mut inside| {
            if let Some(position) = inside.watchers.iter().position(|&other| other == word) {
                inside.watchers.swap_remove(position);
            }
        });
    }
}

/// Tells everybody who waits that nobody will come. Receivers wait only when there is nothing to receive, senders
/// only when there is no receiver, so nothing is lost.
fn end_waits<T>(mut inside: BiasedGuard<'_, Inside<T>>) {
    let mut words = Vec::new();
    let no_senders = inside.closed || inside.senders == 0;
    let no_receivers = inside.closed || inside.receivers == 0;
    let mut end = |line: &mut Line<T>| {
        while let Some(node) = line.pop() {
            words.push(node.word);
            node.done.store(CLOSED, Ordering::Release);
        }
    };
    if no_senders {
        end(&mut inside.recv_line);
    }
    if no_receivers {
        end(&mut inside.send_line);
    }
    wake_watchers(inside);
    for word in words {
        waiter::wake(word);
    }
}

/// Wakes those who select, after the lock. They look for themselves, and stay on the list until they have what they want.
fn wake_watchers<T>(inside: BiasedGuard<'_, Inside<T>>) {
    let watchers = inside.watchers.clone();
    drop(inside);
    for word in watchers {
        waiter::wake(word);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Line, Node};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against a queue in which those who leave are looked for.
        #[test]
        fn a_line_is_a_queue_that_anybody_can_leave(steps in prop::collection::vec((0..3u8, 0..20usize), 0..200)) {
            let nodes: Vec<Box<Node<u32>>> = (0..20).map(|i| Box::new(Node::new(i << 1, None))).collect();
            let (mut line, mut model) = (Line::EMPTY, VecDeque::new());
            for (step, i) in steps {
                let place = model.iter().position(|&other| other == i);
                match step {
                    0 if place.is_none() => {
                        line.push(&nodes[i]);
                        model.push_back(i);
                    }
                    0 => {}
                    1 => {
                        prop_assert_eq!(line.remove(&nodes[i]), place.is_some());
                        place.map(|place| model.remove(place));
                    }
                    _ => prop_assert_eq!(line.pop().map(|node| node.word >> 1), model.pop_front()),
                }
                prop_assert_eq!(line.is_empty(), model.is_empty());
            }
            while let Some(i) = model.pop_front() {
                prop_assert_eq!(line.pop().map(|node| node.word >> 1), Some(i));
            }
            prop_assert!(line.pop().is_none());
        }
    }
}
