//! A page that a user thread and the kernel share, as the rings see it.

use super::frames::{Frame, PAGE};
use alloc::sync::Arc;
use core::ptr::NonNull;
use mainspring_ring::SharedMemory;

/// A ring's page, for as long as somebody has it.
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
    pub(super) fn physical(&self) -> u64 {
        self.frame.address()
    }
}

/// A cleared page for a ring.
#[must_use]
pub fn ring_memory() -> Option<Arc<RingMemory>> {
    let frame = Frame::new()?;
    let base = NonNull::new(frame.pointer())?;
    // SAFETY: the frame lives as long as the value beside it, and the kernel reaches it in no other way.
    let memory = unsafe { SharedMemory::new(base, PAGE) }?;
    Some(Arc::new(RingMemory { memory, frame }))
}
