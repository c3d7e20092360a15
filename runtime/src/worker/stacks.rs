//! The free stacks that a worker keeps for its next tasks, last used first.
//!
//! Conserved: a stack in the list has no task, except that the newest may still be the one that its giver runs on.
#![allow(unsafe_code)]

use super::Worker;
use crate::stack::arena::{self, Stack};
use crate::task::TaskPtr;
use std::sync::atomic::Ordering;

/// A worker keeps this many free stacks for itself, and one when no new stack can be made.
const KEEP_STACKS: usize = 256;

impl Worker {
    #[inline]
    pub(super) fn take_stack(&self, task: TaskPtr) -> Option<Stack> {
        if task.own_stack.load(Ordering::Relaxed)
            && let Some(size) = task.nursery().with_ext(&task, |ext| ext.and_then(|ext| ext.stack_size))
        {
            return arena::dedicated(size).ok();
        }
        self.take_pooled_stack()
    }

    pub(crate) fn take_pooled_stack(&self) -> Option<Stack> {
        match self.free_stacks.get() {
            Some(stack) => {
                self.free_stacks.set(stack.next());
                self.free_stack_count.set(self.free_stack_count.get() - 1);
                Some(stack)
            }
            None => self.rt().arena.take().ok(),
        }
    }

    /// A pooled stack that no task needs any more. It may still be the one we run on: only this worker takes it again,
    /// and not before it has left it.
    pub(crate) fn give_stack(&self, stack: Stack) {
        debug_assert!(stack.is_pooled());
        stack.set_next(self.free_stacks.get());
        self.free_stacks.set(Some(stack));
        self.free_stack_count.set(self.free_stack_count.get() + 1);
        // The newest stays: it may be in use.
        let keep = if self.rt().arena.is_tight() { 1 } else { KEEP_STACKS };
        if self.free_stack_count.get() > keep {
            self.return_stacks(keep.div_ceil(2));
        }
    }

    /// The worker is about to sleep, on its own stack. If no new stack can be made, the others may need what it keeps.
    pub(super) fn give_up_stacks(&self) {
        if self.free_stack_count.get() > 0 && self.rt().arena.is_tight() {
            self.return_stacks(0);
        }
    }

    /// All free stacks but the `kept` newest go back for the others.
    #[cold]
    fn return_stacks(&self, kept: usize) {
        let (mut last_kept, mut first) = (None, self.free_stacks.get());
        for _ in 0..kept {
            (last_kept, first) = (first, first.and_then(|stack| stack.next()));
        }
        let Some(first) = first else { return };
        match last_kept {
            Some(last_kept) => last_kept.set_next(None),
            None => self.free_stacks.set(None),
        }
        let (mut last, mut count) = (first, 1);
        while let Some(next) = last.next() {
            last = next;
            count += 1;
        }
        self.free_stack_count.set(self.free_stack_count.get() - count);
        self.rt().arena.put_chain(first, last);
    }
}
