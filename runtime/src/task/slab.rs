//! Slots for task records.
//!
//! Conserved: a slot is in one free list, or is one task. Slots are never given back to the allocator while the runtime
//! lives, so that a stale pointer always points to a task, and a snapshot can walk all of them.
#![allow(unsafe_code)]

use super::{Task, TaskPtr};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

const CHUNK: usize = 256;
/// A worker keeps at most this many free slots for itself; beyond, half go back for the others.
const KEEP: usize = 8192;

/// All slots of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    shared: Mutex<SlabShared>,
}

#[derive(Debug, Default)]
struct SlabShared {
    chunks: Vec<Box<[Task]>>,
    /// Lists of free slots that workers gave back.
    free: Vec<FreeList>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({})", self.id.load(Ordering::Relaxed))
    }
}

/// Free slots, chained by their links.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    first: Cell<Option<TaskPtr>>,
    len: Cell<usize>,
}

impl FreeList {
    #[inline]
    fn pop(&self) -> Option<TaskPtr> {
        let slot = self.first.get()?;
        self.first.set(TaskPtr::from_raw(slot.link.load(Ordering::Relaxed)));
        self.len.set(self.len.get() - 1);
        Some(slot)
    }

    #[inline]
    fn push(&self, slot: TaskPtr) {
        slot.link.store(self.first.get().map_or(null_mut(), TaskPtr::raw), Ordering::Relaxed);
        self.first.set(Some(slot));
        self.len.set(self.len.get() + 1);
    }

    /// A slot for a new task.
    #[inline]
    pub(crate) fn take(&self, slab: &Slab) -> TaskPtr {
        match self.pop() {
            Some(slot) => slot,
            None => {
                slab.refill(self);
                self.pop().expect("a refill brings at least one")
            }
        }
    }

    /// A slot whose task is over.
    #[inline]
    pub(crate) fn give(&self, slab: &Slab, slot: TaskPtr) {
        slot.live.store(false, Ordering::Relaxed);
        self.push(slot);
        if self.len.get() > KEEP {
            slab.take_back(self);
        }
    }
}

impl Slab {
    #[cold]
    fn refill(&self, list: &FreeList) {
        let mut shared = self.shared.lock().expect("no panic while it is held");
        if let Some(free) = shared.free.pop() {
            list.first.set(free.first.get());
            list.len.set(free.len.get());
            return;
        }
        let chunk: Box<[Task]> = (0..CHUNK).map(|_| Task::vacant()).collect();
        for task in chunk.iter().rev() {
            list.push(TaskPtr::of(task));
        }
        shared.chunks.push(chunk);
    }

    #[cold]
    fn take_back(&self, list: &FreeList) {
        let returned = FreeList::default();
        for _ in 0..KEEP / 2 {
            let Some(slot) = list.pop() else { break };
            returned.push(slot);
        }
        self.shared.lock().expect("no panic while it is held").free.push(returned);
    }

    /// A slot for a thread that is no worker.
    pub(crate) fn take_shared(&self) -> TaskPtr {
        let list = FreeList::default();
        let slot = list.take(self);
        if list.first.get().is_some() {
            self.shared.lock().expect("no panic while it is held").free.push(list);
        }
        slot
    }

    /// Back from a thread that is no worker.
    pub(crate) fn give_shared(&self, slot: TaskPtr) {
        slot.live.store(false, Ordering::Relaxed);
        let mut shared = self.shared.lock().expect("no panic while it is held");
        match shared.free.last() {
            Some(list) => list.push(slot),
            None => {
                let list = FreeList::default();
                list.push(slot);
                shared.free.push(list);
            }
        }
    }

    /// Calls `f` with every slot that holds a task now.
    pub(crate) fn for_each_live(&self, mut f: impl FnMut(&Task)) {
        let shared = self.shared.lock().expect("no panic while it is held");
        for task in shared.chunks.iter().flatten() {
            if task.live.load(Ordering::Acquire) {
                f(task);
            }
        }
    }

    /// Bytes of all slots.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.lock().expect("no panic while it is held").chunks.len() * CHUNK * size_of::<Task>()
    }
}

// SAFETY: a free list in the shared part is used under its lock alone.
unsafe impl Send for FreeList {}
