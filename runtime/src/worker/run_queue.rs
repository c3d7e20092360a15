//! Tasks that wait for their turn on one worker, oldest first.
//!
//! Conserved: a task that was put in comes out once, in order. Only the worker's thread touches its line. The line knows how
//! many of its tasks may move to another thread.

use crate::task::{Runnable, TaskPtr};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::cell::{Cell, UnsafeCell};

const FIRST_CAPACITY: usize = 64;

/// A ring that grows.
pub(crate) struct RunQueue {
    /// The words of tasks. A power of two of them.
    slots: UnsafeCell<Box<[Cell<usize>]>>,
    /// Where the oldest is, and where the next one goes; both count on, and wrap at the ring's end by a mask.
    first: Cell<usize>,
    end: Cell<usize>,
    /// How many of them are not pinned.
    movable: Cell<usize>,
}

fn ring(capacity: usize) -> Box<[Cell<usize>]> {
    vec![Cell::new(0); capacity].into()
}

#[inline(always)]
fn prefetch(address: usize) {
    // SAFETY: a prefetch is a hint, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address as *const i8) };
}

/// Tells the cache which tasks are next but one: the stack of the second, whose record came before, and the record of the third.
#[inline(always)]
fn announce(second: TaskPtr, third: TaskPtr) {
    prefetch(third.word());
    prefetch(second.sp.get());
}

impl RunQueue {
    pub(crate) fn new() -> Self {
        Self {
            slots: UnsafeCell::new(ring(FIRST_CAPACITY)),
            first: Cell::new(0),
            end: Cell::new(0),
            movable: Cell::new(0),
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.end.get().wrapping_sub(self.first.get())
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
    fn slot(&self, index: usize) -> &Cell<usize> {
        // SAFETY: only `grow` replaces the ring, and no caller keeps a slot across a call of it.
        let slots = unsafe { &*self.slots.get() };
        // SAFETY: there are slots, a power of two of them, so what the mask leaves is below their number.
        unsafe { slots.get_unchecked(index & (slots.len() - 1)) }
    }

    #[inline]
    pub(crate) fn push_back(&self, task: Runnable) {
        self.movable.set(self.movable() + usize::from(!task.is_pinned()));
        // SAFETY: a look at the length, as above.
        if self.len() == unsafe { (&*self.slots.get()).len() } {
            self.grow();
        }
        let end = self.end.get();
        self.slot(end).set(task.into_word());
        self.end.set(end.wrapping_add(1));
    }

    #[inline]
    pub(crate) fn pop_front(&self) -> Option<Runnable> {
        let task = self.front().map(Runnable::woken)?;
        self.movable.set(self.movable() - usize::from(!task.is_pinned()));
        self.first.set(self.first.get().wrapping_add(1));
        Some(task)
    }

    /// The oldest, which stays.
    #[inline(always)]
    pub(crate) fn front(&self) -> Option<TaskPtr> {
        if self.is_empty() { None } else { Some(TaskPtr::from_word(self.slot(self.first.get()).get())) }
    }

    /// Takes the oldest out and puts in what `instead_of` gives for it, which is pinned if the oldest is. `None`, and nothing has
    /// changed, if the line is empty, or if `instead_of` gives none. Never grows.
    ///
    /// # Safety
    ///
    /// `instead_of` does not use the line.
    #[inline(always)]
    pub(crate) unsafe fn rotate(
        &self,
        instead_of: impl FnOnce(TaskPtr) -> Option<Runnable>,
    ) -> Option<TaskPtr> {
        // Read once: to the compiler every write below may change any of these.
        let (first, end) = (self.first.get(), self.end.get());
        if first == end {
            return None;
        }
        // SAFETY: only `grow` replaces the ring, which the caller says is not called here.
        let ring = unsafe { &*self.slots.get() };
        // SAFETY: as in `slot`.
        let slot = |index: usize| unsafe { ring.get_unchecked(index & (ring.len() - 1)) };
        let nth = |n| TaskPtr::from_word(slot(first.wrapping_add(n)).get());
        let oldest = nth(0);
        let task = instead_of(oldest)?;
        debug_assert_eq!(oldest.is_pinned(), task.is_pinned());
        if end.wrapping_sub(first) > 2 {
            announce(nth(1), nth(2));
        }
        slot(end).set(task.into_word());
        self.first.set(first.wrapping_add(1));
        self.end.set(end.wrapping_add(1));
        Some(oldest)
    }

    #[cold]
    fn grow(&self) {
        let all = ring(self.len() * 2);
        for (index, slot) in all.iter().enumerate().take(self.len()) {
            slot.set(self.slot(self.first.get().wrapping_add(index)).get());
        }
        self.end.set(self.len());
        self.first.set(0);
        // SAFETY: no reference into the old ring is left: see `slot`.
        unsafe { *self.slots.get() = all };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Task;
    use std::collections::VecDeque;

    #[test]
    fn a_line_is_a_queue_however_it_is_used() {
        let tasks: Vec<Task> = (0..300).map(|_| Task::vacant()).collect();
        let mut seed = 1u64;
        let mut draw = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % n
        };
        let rotate = |line: &RunQueue, task: Option<TaskPtr>| {
            // SAFETY: the closure does not use the line.
            unsafe { line.rotate(|_| task.map(Runnable::newborn)) }
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
                    let oldest = rotate(&line, Some(task));
                    assert_eq!(oldest, model.pop_front());
                    model.push_back(task);
                }
                1 => assert_eq!(rotate(&line, Some(task)), None),
                2 if step % 1000 < 100 => assert_eq!(rotate(&line, None), None, "nothing is to go in"),
                2 if step % 1000 > 500 => assert_eq!(line.pop_front().map(Runnable::take), model.pop_front()),
                _ => {}
            }
            assert_eq!((line.front(), line.len()), (model.front().copied(), model.len()));
            assert_eq!(line.movable(), model.len(), "none of them has started");
        }
    }
}
