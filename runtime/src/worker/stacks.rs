//! The free stacks that a worker keeps for its next tasks, last used first.
//!
//! Conserved: a stack in the list is nobody's, except that the newest may still be the one that its giver runs on.
#![allow(unsafe_code)]

use super::Worker;
use crate::stack::arena::{self, Stack};
use crate::task::TaskPtr;
use std::sync::atomic::Ordering;

/// A worker keeps this many free stacks for itself.
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

    /// A pooled stack that nobody needs any more. It may still be the one we run on: only this worker takes it again, and
    /// not before it has left it.
    pub(crate) fn give_stack(&self, stack: Stack) {
        debug_assert!(stack.is_pooled());
        stack.set_next(self.free_stacks.get());
        self.free_stacks.set(Some(stack));
        self.free_stack_count.set(self.free_stack_count.get() + 1);
        if self.free_stack_count.get() > KEEP_STACKS {
            self.return_stacks();
        }
    }

    /// Half of the free stacks go back for the others, the ones freed longest ago. The newest stays: it may be in use.
    #[cold]
    fn return_stacks(&self) {
        let Some(mut last_kept) = self.free_stacks.get() else { return };
        for _ in 1..KEEP_STACKS / 2 {
            let Some(next) = last_kept.next() else { return };
            last_kept = next;
        }
        let Some(first) = last_kept.next() else { return };
        last_kept.set_next(None);
        let (mut last, mut count) = (first, 1);
        while let Some(next) = last.next() {
            last = next;
            count += 1;
        }
        self.free_stack_count.set(self.free_stack_count.get() - count);
        self.rt().arena.put_chain(first, last);
    }
}
