//! Memory that is charged to a task until it is freed.

use super::Cx;
use crate::budget::{Component, Pool};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

/// A value whose memory is charged to a task, and refunded when it is dropped.
///
/// It does not leave the task that pays for it. [`Paid::keep`] gives the value away, to another task or to what outlives this
/// one, and leaves it charged for good.
///
/// ```
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| {
///     let before = cx.budget().memory;
///     let buffer = cx.try_vec::<u8>(4096).unwrap();
///     assert_eq!(cx.budget().memory, before - 4096);
///     drop(buffer);
///     assert_eq!(cx.budget().memory, before);
/// });
/// ```
///
/// ```compile_fail
/// # use mainspring::{Config, Profile};
/// # let runtime = Config::new(Profile::Service).build().unwrap();
/// runtime.run(|cx| cx.try_box(1).unwrap()); // it would outlive the task that pays for it
/// ```
#[derive(Debug)]
pub struct Paid<'cx, T> {
    // Dropped before the refund, in this order.
    value: T,
    refund: Refund<'cx>,
}

#[derive(Debug)]
struct Refund<'cx> {
    cx: &'cx Cx,
    bytes: usize,
}

impl<'cx, T> Paid<'cx, T> {
    pub(super) fn new(cx: &'cx Cx, value: T, bytes: usize) -> Self {
        Self { value, refund: Refund { cx, bytes } }
    }

    /// The value alone. Its memory stays charged for good.
    pub fn keep(self) -> T {
        let Self { value, mut refund } = self;
        refund.bytes = 0;
        value
    }
}

impl<T> Deref for Paid<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Paid<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl Drop for Refund<'_> {
    fn drop(&mut self) {
        if self.bytes != 0 {
            self.cx.refund_memory(self.bytes);
        }
    }
}

impl Cx {
    /// Nothing but the memory changes: the slice, and with it the quantum, goes on.
    fn refund_memory(&self, bytes: usize) {
        let memory = &self.task.memory;
        match memory.load(Ordering::Relaxed).checked_add(bytes) {
            Some(sum) => memory.store(sum, Ordering::Relaxed),
            // More than a task can hold.
            None => self.task.nursery().put_back(&Pool::only(Component::Memory, bytes as u64)),
        }
        let bits = self.task.exhausted.load(Ordering::Relaxed);
        self.task.exhausted.store(bits & !(1 << Component::Memory as u8), Ordering::Relaxed);
    }
}
