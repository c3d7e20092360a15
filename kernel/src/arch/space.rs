//! The address space of a process: what is mapped in it, and how the kernel reads and writes it.
//!
//! Conserved: a page table entry owns its page unless its [`SHARED`] bit says that somebody else does. What the kernel
//! remembers of an entry is what stands in the tables: it forgets all of it before any entry changes.

use super::DIRECT_MAP;
use super::frames::{Frame, PAGE};
use super::paging::{
    ADDRESS, Flags, MapError, PRESENT, SHARED, SpaceRoot, USER, USER_END, WRITE, entry, kernel_table, walk,
};
use super::ring_page::RingMemory;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Pages that several address spaces can map, for as long as anybody has the value.
#[derive(Debug)]
pub struct SharedPages {
    frames: Vec<Frame>,
}

impl SharedPages {
    /// Cleared pages, if there are so many.
    #[must_use]
    pub fn new(pages: usize) -> Option<Self> {
        let mut frames = Vec::new();
        frames.try_reserve_exact(pages).ok()?;
        for _ in 0..pages {
            frames.push(Frame::new()?);
        }
        Some(Self { frames })
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }
}

/// A process's page tables. All changes go through `&mut`, so whoever guards the value guards the tables.
#[derive(Debug)]
pub struct AddressSpace {
    root: u64,
    rings: Vec<(u64, Arc<RingMemory>)>,
    shared: Vec<(u64, Arc<SharedPages>)>,
    pages: u64,
    /// Entries of pages that the kernel has looked at, by the low bits of their number. None outlives a change.
    seen: [Seen; SEEN],
}

/// Most programs keep their messages in a page or two.
const SEEN: usize = 16;

/// The entry of a page, as it is in the tables.
#[derive(Clone, Copy, Debug)]
struct Seen {
    page: u64,
    bits: u64,
}

impl Seen {
    /// No page has this number.
    const NOTHING: Self = Self { page: u64::MAX, bits: 0 };
}

impl AddressSpace {
    /// An empty user half under the kernel's.
    pub fn new() -> Result<Self, MapError> {
        let root = Frame::new().ok_or(MapError::NoMemory)?.into_address();
        let kernel = kernel_table();
        for index in 256..512 {
            // SAFETY: the new table is ours; the kernel's top level does not change.
            unsafe { *entry(root, index) = *entry(kernel, index) };
        }
        Ok(Self { root, rings: Vec::new(), shared: Vec::new(), pages: 0, seen: [Seen::NOTHING; SEEN] })
    }

    /// What a CPU loads to run in it. Whoever keeps it must not load it after the address space is dropped.
    #[must_use]
    pub fn root(&self) -> SpaceRoot {
        SpaceRoot(self.root)
    }

    /// How many pages of its own it has mapped.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    fn slot(&mut self, address: u64) -> Result<*mut u64, MapError> {
        if !address.is_multiple_of(PAGE as u64) || address < PAGE as u64 || address >= USER_END {
            return Err(MapError::BadAddress);
        }
        // Whoever asks for an entry may change it.
        self.seen = [Seen::NOTHING; SEEN];
        // SAFETY: `&mut self` is the only way to these tables.
        unsafe { walk(self.root, address, 0, PRESENT | WRITE | USER) }.ok_or(MapError::NoMemory)
    }

    /// Maps `frame` at `address`; the address space owns it from now on.
    pub fn map(&mut self, address: u64, frame: Frame, flags: Flags) -> Result<(), MapError> {
        let slot = self.slot(address)?;
        // SAFETY: the slot belongs to these tables.
        unsafe {
            if *slot & PRESENT != 0 {
                return Err(MapError::Occupied);
            }
            *slot = frame.into_address() | flags.bits();
        }
        self.pages += 1;
        Ok(())
    }

    /// Maps a ring's page; it stays the ring's, and is kept as long as it is mapped.
    pub fn map_ring(&mut self, address: u64, ring: Arc<RingMemory>) -> Result<(), MapError> {
        self.rings.try_reserve(1).map_err(|_| MapError::NoMemory)?;
        let slot = self.slot(address)?;
        // SAFETY: the slot belongs to these tables; the ring's page lives as long as `rings` has it.
        unsafe {
            if *slot & PRESENT != 0 {
                return Err(MapError::Occupied);
            }
            *slot = ring.physical() | Flags::Write.bits() | SHARED;
        }
        self.rings.push((address, ring));
        Ok(())
    }

    /// Maps all of `pages` from `address` on. They stay shared, and are kept as long as they are mapped.
    pub fn map_shared(
        &mut self,
        address: u64,
        pages: Arc<SharedPages>,
        flags: Flags,
    ) -> Result<(), MapError> {
        self.shared.try_reserve(1).map_err(|_| MapError::NoMemory)?;
        let at = |number: usize| address + (number * PAGE) as u64;
        for number in 0..pages.len() {
            // SAFETY: the slot belongs to these tables.
            if unsafe { *self.slot(at(number))? } & PRESENT != 0 {
                return Err(MapError::Occupied);
            }
        }
        for (number, frame) in pages.frames.iter().enumerate() {
            let slot = self.slot(at(number))?;
            // SAFETY: as above; the pages live as long as `shared` has them.
            unsafe { *slot = frame.address() | flags.bits() | SHARED };
        }
        self.shared.push((address, pages));
        Ok(())
    }

    /// Takes out what [`AddressSpace::map_shared`] mapped at `address`. Keep it until no CPU has its translations.
    pub fn unmap_shared(&mut self, address: u64) -> Option<Arc<SharedPages>> {
        let at = self.shared.iter().position(|(mapped, _)| *mapped == address)?;
        let (_, pages) = self.shared.swap_remove(at);
        for number in 0..pages.len() {
            if let Ok(slot) = self.slot(address + (number * PAGE) as u64) {
                // SAFETY: the slot belongs to these tables.
                unsafe { *slot = 0 };
            }
        }
        Some(pages)
    }

    /// Takes the page at `address` out. Other CPUs may still have its translation: keep the frame until they do not.
    pub fn unmap(&mut self, address: u64) -> Result<Option<Frame>, MapError> {
        let slot = self.slot(address)?;
        // SAFETY: the slot belongs to these tables, and an owned page leaves with its entry.
        unsafe {
            let old = *slot;
            if old & PRESENT == 0 {
                return Err(MapError::Occupied);
            }
            if old & SHARED != 0 {
                return Ok(None);
            }
            *slot = 0;
            self.pages -= 1;
            Ok(Some(Frame::from_address(old & ADDRESS)))
        }
    }

    /// The ring whose page is mapped at `address`.
    #[must_use]
    pub fn ring_at(&self, address: u64) -> Option<Arc<RingMemory>> {
        self.rings.iter().find(|(mapped, _)| *mapped == address).map(|(_, ring)| ring.clone())
    }

    /// Changes what the page at `address` may be used for.
    pub fn protect(&mut self, address: u64, flags: Flags) -> Result<(), MapError> {
        let slot = self.slot(address)?;
        // SAFETY: the slot belongs to these tables.
        unsafe {
            if *slot & PRESENT == 0 || *slot & SHARED != 0 {
                return Err(MapError::Occupied);
            }
            *slot = *slot & ADDRESS | flags.bits();
        }
        Ok(())
    }

    /// Whether something is mapped at `address`.
    #[must_use]
    pub fn is_mapped(&mut self, address: u64) -> bool {
        self.translate(address, false).is_some()
    }

    /// Where the byte at `address` is, if users may read it, or write it.
    #[inline(always)]
    fn translate(&mut self, address: u64, write: bool) -> Option<u64> {
        let page = address / PAGE as u64;
        let seen = self.seen[page as usize % SEEN];
        let bits = if seen.page == page { seen.bits } else { self.look_up(page)? };
        let needed = PRESENT | USER | if write { WRITE } else { 0 };
        (bits & needed == needed).then_some((bits & ADDRESS) + address % PAGE as u64)
    }

    #[inline(never)]
    fn look_up(&mut self, page: u64) -> Option<u64> {
        let address = page * PAGE as u64;
        if address >= USER_END {
            return None;
        }
        // SAFETY: the tables are changed through `&mut self` only.
        let bits = unsafe { *walk(self.root, address, 0, 0)? };
        self.seen[page as usize % SEEN] = Seen { page, bits };
        Some(bits)
    }

    /// Goes through the pages of a user range. Nothing is done unless all of it can be.
    #[inline(always)]
    fn each_page(
        &mut self,
        address: u64,
        len: usize,
        write: bool,
        mut act: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), MapError> {
        if address % PAGE as u64 + len as u64 <= PAGE as u64 {
            if len == 0 {
                return Ok(());
            }
            // One page: the check and the copy are the same look.
            let physical = self.translate(address, write).ok_or(MapError::BadAddress)?;
            act((DIRECT_MAP + physical) as *mut u8, 0, len);
            return Ok(());
        }
        self.each_of_pages(address, len, write, act)
    }

    #[inline(never)]
    fn each_of_pages(
        &mut self,
        address: u64,
        len: usize,
        write: bool,
        mut act: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), MapError> {
        let end = address.checked_add(len as u64).ok_or(MapError::BadAddress)?;
        for copying in [false, true] {
            let mut at = address;
            while at < end {
                let part = (PAGE as u64 - at % PAGE as u64).min(end - at);
                let physical = self.translate(at, write).ok_or(MapError::BadAddress)?;
                if copying {
                    act((DIRECT_MAP + physical) as *mut u8, (at - address) as usize, part as usize);
                }
                at += part;
            }
        }
        Ok(())
    }

    /// Copies user memory. Whoever writes there meanwhile gets some mixture, and nothing worse.
    #[inline(always)]
    pub fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), MapError> {
        let base = to.as_mut_ptr();
        self.each_page(address, to.len(), false, |page, at, len| {
            // SAFETY: `page` is mapped user memory of `len` bytes, and `base + at` stays inside `to`. The copy is opaque
            // to the compiler, so that users who write meanwhile are no data race of ours.
            unsafe { copy(base.add(at), page, len) };
        })
    }

    /// Copies into user memory.
    #[inline(always)]
    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<(), MapError> {
        let base = from.as_ptr();
        self.each_page(address, from.len(), true, |page, at, len| {
            // SAFETY: as in `read`; users may write there, so the kernel may for them.
            unsafe { copy(page, base.add(at), len) };
        })
    }

    /// Reads a word that users change by atomics.
    pub fn read_u32(&mut self, address: u64) -> Result<u32, MapError> {
        let mut bytes = [0; 4];
        if !address.is_multiple_of(4) {
            return Err(MapError::BadAddress);
        }
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// # Safety
///
/// As `memcpy`.
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller vouches for both.
    unsafe {
        core::arch::asm!(
            "rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) len % 8,
            inout("rdi") to => _, inout("rsi") from => _, inout("rcx") len / 8 => _,
            options(nostack, preserves_flags)
        );
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        fn free(table: u64, level: u32) {
            let count = if level == 3 { 256 } else { 512 };
            for index in 0..count {
                // SAFETY: nobody uses these tables any more: the value is being dropped, and no CPU has them loaded.
                let bits = unsafe { *entry(table, index) };
                if bits & PRESENT == 0 || bits & SHARED != 0 {
                    continue;
                }
                if level > 0 {
                    free(bits & ADDRESS, level - 1);
                } else {
                    // SAFETY: the entry owned the page, and is gone with its table.
                    drop(unsafe { Frame::from_address(bits & ADDRESS) });
                }
            }
            // SAFETY: the table itself was a frame, and nothing points to it any more.
            drop(unsafe { Frame::from_address(table) });
        }
        free(self.root, 3);
    }
}
