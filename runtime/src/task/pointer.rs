//! Pointers to tasks, and the words that records keep of them.
#![allow(unsafe_code)]

use super::Task;
use std::ptr::NonNull;

/// A pointer to a task. Slots are never unmapped while their runtime lives, so a stale pointer is at worst the
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

    /// Whether this code runs on the task's stack: then no other thread may find the task. For assertions.
    pub(crate) fn is_on_its_stack(self) -> bool {
        let here = 0u8;
        let here = &raw const here as usize;
        self.stack().is_some_and(|stack| (stack.limit()..stack.top()).contains(&here))
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

/// A Ready task, held by the owner of this value: no thread is on its stack, and no other thread queues or runs it.
///
/// Queues take and give these values only. One is made in four ways, each of which proves that the stack is free: the task
/// is new ([`Runnable::newborn`]), a wake has made it Ready ([`Runnable::woken`]), its worker has left its stack
/// ([`Runnable::left`]), or it comes out of a queue ([`Runnable::from_word`]). So a task that is still on its stack cannot
/// be put where another thread finds it.
#[must_use = "a ready task that nobody queues never runs"]
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Runnable(TaskPtr);

impl Runnable {
    /// A task that has just been made and that no other thread has seen.
    #[inline(always)]
    pub(crate) fn newborn(task: TaskPtr) -> Self {
        debug_assert!(!task.state.has_frames(), "a new task has no frames");
        Self(task)
    }

    /// A task that its caller has just taken from a wait: the wait was committed after the stack had been left.
    #[inline(always)]
    pub(crate) fn woken(task: TaskPtr) -> Self {
        debug_assert_eq!(task.state.get(), super::state::TaskState::Ready);
        Self(task)
    }

    /// A task that gave way.
    ///
    /// # Safety
    ///
    /// The stack of the task has been left: the caller runs after the switch, on another stack, or runs nothing but the
    /// switch afterwards.
    #[inline(always)]
    pub(crate) unsafe fn left(task: TaskPtr) -> Self {
        debug_assert_eq!(task.state.get(), super::state::TaskState::Ready);
        Self(task)
    }

    /// The value behind a word that [`Runnable::into_word`] gave. Each word is used once.
    #[inline(always)]
    pub(crate) fn from_word(word: usize) -> Self {
        Self(TaskPtr::from_word(word))
    }

    /// A word for a queue of words.
    #[inline(always)]
    pub(crate) fn into_word(self) -> usize {
        self.0.word()
    }

    /// The task, to be run or ended by the caller.
    #[inline(always)]
    pub(crate) fn take(self) -> TaskPtr {
        self.0
    }

    /// Whose turn it would be, while it stays queued.
    #[inline(always)]
    pub(crate) fn ptr(&self) -> TaskPtr {
        self.0
    }
}

impl std::ops::Deref for Runnable {
    type Target = Task;

    #[inline(always)]
    fn deref(&self) -> &Task {
        &self.0
    }
}

/// The worker that runs a task, or ran it last. Written by that worker, read by the task's holder.
#[derive(Debug)]
pub(crate) struct WorkerCell(std::sync::atomic::AtomicPtr<crate::worker::Worker>);

impl WorkerCell {
    pub(crate) const fn none() -> Self {
        Self(std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> *const crate::worker::Worker {
        // Relaxed: the state or the queue that handed the task over orders it.
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, worker: &crate::worker::Worker) {
        self.0.store(std::ptr::from_ref(worker).cast_mut(), std::sync::atomic::Ordering::Relaxed);
    }
}
