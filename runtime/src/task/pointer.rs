//! Pointers to tasks, and the words that records keep of them.
#![allow(unsafe_code)]

use super::Task;
use std::ptr::NonNull;

/// A task in somebody's hands. Slots are never unmapped while their runtime lives, so a stale pointer is at worst the
/// pointer to another task, and a wake through it is spurious, which all waits expect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct TaskPtr(NonNull<Task>);

// SAFETY: as for `Task`.
unsafe impl Send for TaskPtr {}
// SAFETY: as for `Task`.
unsafe impl Sync for TaskPtr {}

impl TaskPtr {
    pub(crate) fn from_word(word: usize) -> Self {
        debug_assert_ne!(word, 0);
        // SAFETY: words come from `word` below and are not zero.
        Self(unsafe { NonNull::new_unchecked(word as *mut Task) })
    }

    pub(crate) fn from_raw(raw: *const Task) -> Option<Self> {
        NonNull::new(raw.cast_mut()).map(Self)
    }

    pub(crate) fn of(task: &Task) -> Self {
        Self(NonNull::from(task))
    }

    pub(crate) fn word(self) -> usize {
        self.0.as_ptr() as usize
    }

    pub(crate) fn raw(self) -> *mut Task {
        self.0.as_ptr()
    }
}

impl std::ops::Deref for TaskPtr {
    type Target = Task;

    #[inline(always)]
    fn deref(&self) -> &Task {
        // SAFETY: slots live as long as the runtime, and every holder of a pointer is part of one.
        unsafe { self.0.as_ref() }
    }
}
