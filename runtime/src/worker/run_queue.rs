//! Tasks that wait for their turn on one worker, oldest first.
//!
//! Conserved: a task that was put in comes out once, in order. Only the worker's thread touches its line. The line knows how
//! many of its tasks may move to another thread.

use crate::task::{Runnable, Task, TaskPtr};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::cell::{Cell, UnsafeCell};
use std::ptr::null;

const FIRST_CAPACITY: usize = 64;

/// A ring that grows.
pub(crate) struct RunQueue {
    /// A power of two of them.
    slots: UnsafeCell<Box<[Cell<*const Task>]>>,
    /// Where the oldest is; counts on, and wraps at the ring's end by a mask.
    first: Cell<usize>,
    len: Cell<usize>,
    /// How many of them are not pinned.
    movable: Cell<usize>,
}

fn ring(capacity: usize) -> Box<[Cell<*const Task>]> {
    (0..capacity).map(|_| Cell::new(null())).collect()
}

#[inline(always)]
fn prefetch(address: usize) {
    // SAFETY: a prefetch is a hint, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address as *const i8) };
}

impl RunQueue {
    pub(crate) fn new() -> Self {
        Self {
            slots: UnsafeCell::new(ring(FIRST_CAPACITY)),
            first: Cell::new(0),
            len: Cell::new(0),
            movable: Cell::new(0),
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    /// How many of its tasks may move to another thread.
    #[inline(always)]
    pub(crate) fn movable(&self) -> usize {
        self.movable.get()
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &Cell<*const Task> {
        // SAFETY: only `grow` replaces the ring, and no caller keeps a slot across a call of it.
        let slots = unsafe { &*self.slots.get() };
        &slots[index & (slots.len() - 1)]
    }

    #[inline]
    pub(crate) fn push_back(&self, task: Runnable) {
        self.movable.set(self.movable() + usize::from(!task.is_pinned()));
        // SAFETY: a look at the length, as above.
        if self.len() == unsafe { (&*self.slots.get()).len() } {
            self.grow();
        }
        self.slot(self.first.get().wrapping_add(self.len())).set(task.take().raw());
        self.len.set(self.len() + 1);
    }

    #[inline]
    pub(crate) fn pop_front(&self) -> Option<Runnable> {
        let task = self.front().map(Runnable::woken)?;
        self.movable.set(self.movable() - usize::from(!task.is_pinned()));
        self.first.set(self.first.get().wrapping_add(1));
        self.len.set(self.len() - 1);
        Some(task)
    }

    /// The oldest, which stays.
    #[inline(always)]
    pub(crate) fn front(&self) -> Option<TaskPtr> {
        if self.is_empty() { None } else { TaskPtr::from_raw(self.slot(self.first.get()).get()) }
    }

    /// Takes the oldest out and puts `task` in: what `pop_front` and `push_back` do, but never grows. The line is not empty,
    /// and both are pinned or neither is.
    #[inline(always)]
    pub(crate) fn rotate(&self, task: Runnable) {
        debug_assert!(self.front().is_some_and(|front| front.is_pinned() == task.is_pinned()));
        let first = self.first.get();
        self.slot(first.wrapping_add(self.len())).set(task.take().raw());
        self.first.set(first.wrapping_add(1));
    }

    /// Tells the cache which tasks are next: the record of the third, and the stack of the second, whose record came before.
    #[inline(always)]
    pub(crate) fn announce(&self) {
        if self.len() > 2 {
            let first = self.first.get();
            prefetch(self.slot(first.wrapping_add(2)).get().addr());
            if let Some(second) = TaskPtr::from_raw(self.slot(first.wrapping_add(1)).get()) {
                let context = second.sp.get();
                prefetch(context);
                prefetch(context.wrapping_add(64));
                prefetch(context.wrapping_add(128));
            }
        }
    }

    #[cold]
    fn grow(&self) {
        let all = ring(self.len() * 2);
        for (index, slot) in all.iter().enumerate().take(self.len()) {
            slot.set(self.slot(self.first.get().wrapping_add(index)).get());
        }
        self.first.set(0);
        // SAFETY: no reference into the old ring is left: see `slot`.
        unsafe { *self.slots.get() = all };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn a_line_is_a_queue_however_it_is_used() {
        let tasks: Vec<Task> = (0..300).map(|_| Task::vacant()).collect();
        let mut seed = 1u64;
        let mut draw = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % n
        };
        let (line, mut model) = (RunQueue::new(), VecDeque::new());
        for step in 0..20_000 {
            let task = TaskPtr::of(&tasks[draw(tasks.len())]);
            match draw(3) {
                // Long enough to grow, at any position of the ring.
                0 if model.len() < 250 => {
                    line.push_back(Runnable::newborn(task));
                    model.push_back(task);
                }
                1 if !model.is_empty() => {
                    line.rotate(Runnable::newborn(task));
                    model.pop_front();
                    model.push_back(task);
                }
                2 if step % 1000 > 500 => assert_eq!(line.pop_front().map(Runnable::take), model.pop_front()),
                _ => {}
            }
            assert_eq!((line.front(), line.len()), (model.front().copied(), model.len()));
            assert_eq!(line.movable(), model.len(), "none of them has started");
        }
    }
}
