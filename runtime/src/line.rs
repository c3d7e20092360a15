//! Waiters in a line, first come first served: of a channel, or of a [`Queue`](crate::queue::Queue).
//!
//! Conserved: a node is on one line or on none. The thread that takes it off, under the lock of the line, ends its wait, or is
//! its own waiter. Of the nodes of a select, one wait is ended at most: by the first thread that claims the select.
#![allow(unsafe_code)]

use crate::protocol::prim::{AtomicUsize, Ordering};
use crate::protocol::wait_end::{Outcome, WaitEnd};
use crate::waiter::Ending;
use crate::worker::Worker;
use std::cell::{Cell, UnsafeCell};
use std::ptr::{NonNull, null};

/// A waiter, in the frame of the wait.
pub(crate) struct Node<T> {
    pub(crate) word: usize,
    /// A sender's value, or the place for a receiver's.
    pub(crate) value: UnsafeCell<Option<T>>,
    /// How the wait ended, unless it is a select's wait.
    pub(crate) end: WaitEnd,
    /// The select that it is an arm of.
    arm: Option<Arm>,
    /// Under the lock of the line, while the node is on a line: its neighbours.
    before: Cell<*const Self>,
    after: Cell<*const Self>,
    is_listed: Cell<bool>,
}

#[derive(Clone, Copy)]
struct Arm {
    claim: NonNull<Claim>,
    index: usize,
}

impl<T> Node<T> {
    #[inline(always)]
    pub(crate) fn new(word: usize, value: Option<T>) -> Self {
        Self {
            word,
            value: UnsafeCell::new(value),
            end: WaitEnd::new(),
            arm: None,
            before: Cell::new(null()),
            after: Cell::new(null()),
            is_listed: Cell::new(false),
        }
    }

    /// An arm of a select. The claim must live as long as the node is on a line.
    pub(crate) fn of_select(word: usize, value: Option<T>, claim: &Claim, index: usize) -> Self {
        Self { arm: Some(Arm { claim: NonNull::from(claim), index }), ..Self::new(word, value) }
    }

    /// The right to end the wait, and where to tell it. `None` if another arm of the select has been taken.
    fn claim(&self) -> Option<&WaitEnd> {
        let Some(arm) = self.arm else { return Some(&self.end) };
        // SAFETY: the node was on a line, whose lock its waiter takes before it leaves the claim.
        let claim = unsafe { arm.claim.as_ref() };
        claim.take(arm.index).then_some(&claim.end)
    }

    fn is_of(&self, claim: &Claim) -> bool {
        self.arm.is_some_and(|arm| std::ptr::eq(arm.claim.as_ptr(), claim))
    }
}

/// Which arm of a select has been taken.
pub(crate) struct Claim {
    taken: AtomicUsize,
    pub(crate) end: WaitEnd,
}

const FREE: usize = 0;
const WITHDRAWN: usize = usize::MAX;

impl Claim {
    pub(crate) fn new() -> Self {
        Self { taken: AtomicUsize::new(FREE), end: WaitEnd::new() }
    }

    fn take(&self, index: usize) -> bool {
        self.decide(index + 1)
    }

    /// The select gives up. False if an arm was taken before.
    pub(crate) fn withdraw(&self) -> bool {
        self.decide(WITHDRAWN)
    }

    fn decide(&self, how: usize) -> bool {
        // What goes with the decision is passed by `tell`, and by the locks of the lines.
        self.taken.compare_exchange(FREE, how, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The arm that was taken.
    pub(crate) fn taken(&self) -> Option<usize> {
        match self.taken.load(Ordering::Acquire) {
            FREE | WITHDRAWN => None,
            arm => Some(arm - 1),
        }
    }
}

/// The waiters. A list through their frames, so that any of them can leave at once: otherwise, when many are cancelled,
/// each would have to be looked for.
pub(crate) struct Line<T> {
    first: *const Node<T>,
    last: *const Node<T>,
}

// SAFETY: a node is touched under the lock of the line, or by its own waiter after it left the list; its value moves to
// another thread only if it is `Send`, which `Chan` asks for.
unsafe impl<T: Send> Send for Line<T> {}

impl<T> Line<T> {
    pub(crate) const EMPTY: Self = Self { first: null(), last: null() };

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Whether a waiter is there that is no arm of this select.
    pub(crate) fn has_other_than(&self, claim: &Claim) -> bool {
        let mut next = self.first;
        // SAFETY: a node on the list is in a frame that waits; the lock makes us alone with it.
        while let Some(node) = unsafe { next.as_ref() } {
            if !node.is_of(claim) {
                return true;
            }
            next = node.after.get();
        }
        false
    }

    /// The node must stay where it is until it has left the list.
    #[inline(always)]
    pub(crate) fn push(&mut self, node: &Node<T>) {
        node.before.set(self.last);
        node.after.set(null());
        node.is_listed.set(true);
        // SAFETY: as in `has_other_than`.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.after.set(node),
            None => self.first = node,
        }
        self.last = node;
    }

    /// Takes a node off the list. False if it had left it.
    #[inline(always)]
    pub(crate) fn remove(&mut self, node: &Node<T>) -> bool {
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

    /// The first, which stays where it is.
    #[inline(always)]
    pub(crate) fn first(&self) -> Option<&Node<T>> {
        // SAFETY: as in `has_other_than`.
        unsafe { self.first.as_ref() }
    }

    /// Takes the first off the list. Its frame stays until its wait is told, or until its waiter has had the lock.
    #[inline(always)]
    pub(crate) fn pop<'a>(&mut self) -> Option<&'a Node<T>> {
        // SAFETY: as in `has_other_than`; beyond the borrow of the line, as said above.
        let node = unsafe { self.first.as_ref() }?;
        self.remove(node);
        Some(node)
    }

    /// Takes the first off the list and ends its wait. `None` if it is an arm of a select that has been taken elsewhere.
    pub(crate) fn end_only_first(&mut self, outcome: Outcome, here: Option<&Worker>) -> Option<Ending> {
        let node = self.pop()?;
        Some(Ending::begin(node.word, node.claim()?, outcome, here))
    }

    /// Ends the wait of the first whose wait can be ended, as `told`; `pass` moves the value before. It is to be finished
    /// after the lock. `here` is the worker of this thread.
    pub(crate) fn end_first<R>(
        &mut self,
        outcome: Outcome,
        here: Option<&Worker>,
        pass: impl FnOnce(&mut Option<T>) -> R,
    ) -> Option<(R, Ending)> {
        loop {
            let node = self.pop()?;
            let Some(end) = node.claim() else { continue };
            // SAFETY: off the list and claimed, and its waiter waits to be told: the lock makes us alone with it.
            let result = pass(unsafe { &mut *node.value.get() });
            return Some((result, Ending::begin(node.word, end, outcome, here)));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Line, Node};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against a queue in which a waiter that leaves is looked for.
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
