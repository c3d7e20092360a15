//! The only unsafe code of the crate: a ring in raw memory that others can write to.
//!
//! What the other side may do is not undefined here: all accesses are atomic, so that a concurrent write gives some value
//! and never a torn one. What must hold is that the bytes exist, stay mapped, and are accessed in no other way.
#![allow(unsafe_code)]

use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64};
use core::ptr::NonNull;
use mainspring_abi::ring::{HEADER_WORDS, SLOTS_OFFSET};

/// A ring in memory that begins at an address: a page that kernel and user share, or a mapping between processes.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    slot_words: usize,
}

// SAFETY: the memory is reached through atomics alone, which any thread may use; `new`'s caller promises that the
// bytes outlive the value wherever it goes.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; a shared reference gives out atomics and nothing else.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// A ring in the `len` bytes at `base`, or `None` if they are too few for a header or not aligned to 64.
    ///
    /// # Safety
    ///
    /// The bytes must stay readable and writable as long as the value exists, and this side of the sharing may
    /// access them only through atomics of the same sizes. The other side may do what it likes.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Option<Self> {
        if !base.as_ptr().addr().is_multiple_of(64) || len < SLOTS_OFFSET {
            return None;
        }
        Some(Self { base, slot_words: (len - SLOTS_OFFSET) / 8 })
    }
}

impl Region for SharedMemory {
    #[inline]
    fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < HEADER_WORDS, "a word of the header");
        // SAFETY: the header lies inside the memory (`new` checked), words of a 64-aligned base are aligned, and all
        // accesses to them are atomic (`new`'s contract).
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().cast::<u32>().add(index)) }
    }

    #[inline]
    fn slots(&self) -> &[AtomicU64] {
        // SAFETY: `slot_words` words after the header lie inside the memory, 512 bytes after a 64-aligned base they
        // are aligned, AtomicU64 has the layout of u64, and all accesses to them are atomic (`new`'s contract).
        unsafe {
            let first = self.base.as_ptr().add(SLOTS_OFFSET).cast::<AtomicU64>();
            core::slice::from_raw_parts(first, self.slot_words)
        }
    }
}

#[cfg(feature = "linux")]
pub(crate) use mapping::Mapping;

#[cfg(feature = "linux")]
mod mapping {
    use super::{NonNull, Region, SharedMemory};
    use crate::sync::{AtomicU32, AtomicU64};
    use rustix::fd::AsFd;
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    /// A shared mapping of a whole file, for as long as the value exists.
    #[derive(Debug)]
    pub struct Mapping {
        memory: SharedMemory,
        len: usize,
    }

    impl Mapping {
        /// Maps the first `len` bytes of `file`. The caller has made sure that no process can shrink it below: a page
        /// that is gone would be a SIGBUS at the next access.
        pub fn new(file: impl AsFd, len: usize) -> rustix::io::Result<Self> {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            // SAFETY: a null hint lets the kernel choose the place, so that no memory of ours is replaced.
            let base = unsafe { mmap(core::ptr::null_mut(), len, protection, flags, file, 0)? };
            let base = NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
            // SAFETY: the mapping is ours alone until `drop`, which ends it together with the value, and its address
            // goes nowhere but into this region.
            match unsafe { SharedMemory::new(base, len) } {
                Some(memory) => Ok(Self { memory, len }),
                None => {
                    // SAFETY: mapped above, and nothing refers to it.
                    unsafe { munmap(base.as_ptr().cast(), len)? };
                    Err(rustix::io::Errno::INVAL)
                }
            }
        }
    }

    impl Region for Mapping {
        #[inline]
        fn word(&self, index: usize) -> &AtomicU32 {
            self.memory.word(index)
        }

        #[inline]
        fn slots(&self) -> &[AtomicU64] {
            self.memory.slots()
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: mapped in `new` with this length; references into it borrow from self, so none is left.
            let unmapped = unsafe { munmap(self.memory.base.as_ptr().cast(), self.len) };
            debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
        }
    }
}
