//! A page that a user thread and the kernel share, as the rings see it.

use super::frames::{Frame, PAGE};
use core::ptr::NonNull;
use mainspring_ring::SharedMemory;

/// A ring's page, for as long as a value of it exists.
#[derive(Debug)]
pub struct RingMemory {
    memory: SharedMemory,
    frame: Frame,
}

impl mainspring_ring::Region for RingMemory {
    #[inline]
    fn word(&self, index: usize) -> &mainspring_ring::sync::AtomicU32 {
        self.memory.word(index)
    }

    #[inline]
    fn slots(&self) -> &[mainspring_ring::sync::AtomicU64] {
        self.memory.slots()
    }
}

impl RingMemory {
    pub(super) fn new(frame: Frame) -> Option<Self> {
        let base = NonNull::new(frame.pointer())?;
        // SAFETY: the frame lives as long as the value beside it, and the kernel reaches it in no other way.
        let memory = unsafe { SharedMemory::new(base, PAGE) }?;
        Some(Self { memory, frame })
    }

    /// Another value for the same page.
    #[must_use]
    pub fn share(&self) -> Option<Self> {
        Self::new(self.frame.share())
    }
}

/// What threads and inboxes have of a ring.
pub type Ring = RingMemory;
