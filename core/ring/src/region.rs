//! The memory that two sides share, as words that may change at any moment.

use crate::sync::{AtomicU32, AtomicU64};

/// Shared memory that holds one ring.
///
/// Every access goes through an atomic, since the peer writes when it likes: a value that is read twice may
/// differ, a value that is read once cannot be torn. Only this crate needs to call these methods; a machine
/// implements them for its own kind of mapping.
pub trait Region {
    /// The header's word at `index`, one of [`mainspring_abi::ring::word`].
    fn word(&self, index: usize) -> &AtomicU32;

    /// The slots of both queues, in 64-bit words.
    fn slots(&self) -> &[AtomicU64];
}

impl<R: Region + ?Sized> Region for &R {
    #[inline]
    fn word(&self, index: usize) -> &AtomicU32 {
        (**self).word(index)
    }

    #[inline]
    fn slots(&self) -> &[AtomicU64] {
        (**self).slots()
    }
}

impl<R: Region + ?Sized> Region for alloc::sync::Arc<R> {
    #[inline]
    fn word(&self, index: usize) -> &AtomicU32 {
        (**self).word(index)
    }

    #[inline]
    fn slots(&self) -> &[AtomicU64] {
        (**self).slots()
    }
}

#[cfg(not(loom))]
pub use heap::HeapRegion;

#[cfg(not(loom))]
mod heap {
    use super::Region;
    use crate::geometry::Geometry;
    use crate::sync::{AtomicU32, AtomicU64};
    use alloc::boxed::Box;
    use mainspring_abi::ring::HEADER_WORDS;

    /// Each group of words keeps its own cache line.
    #[repr(C, align(64))]
    struct Header([AtomicU32; HEADER_WORDS]);

    /// A ring in ordinary memory, for two threads of one process and for tests.
    pub struct HeapRegion {
        header: Box<Header>,
        slots: Box<[AtomicU64]>,
        first: usize,
    }

    /// 64-bit words in a cache line.
    const LINE_WORDS: usize = 8;

    impl HeapRegion {
        /// Zeroed memory for a ring of this shape; [`Geometry::format`] makes it one.
        #[must_use]
        pub fn new(geometry: &Geometry) -> Self {
            let words = geometry.slot_words() + LINE_WORDS - 1;
            let slots: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
            // An entry that straddles two cache lines costs two misses.
            let first = slots.as_ptr().align_offset(64).min(LINE_WORDS - 1);
            let header = Box::new(Header([const { AtomicU32::new(0) }; HEADER_WORDS]));
            Self { header, slots, first }
        }
    }

    impl Region for HeapRegion {
        #[inline]
        fn word(&self, index: usize) -> &AtomicU32 {
            &self.header.0[index]
        }

        #[inline]
        fn slots(&self) -> &[AtomicU64] {
            &self.slots[self.first..]
        }
    }
}
