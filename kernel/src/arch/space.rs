//! The address space of a process: what is mapped in it, and how the kernel reads and writes it.
//!
//! A page table entry is one of these:
//!
//! | entry | what it is |
//! | --- | --- |
//! | 0 | free |
//! | present | mapped: programs can use the page |
//! | present, claimed | mapped, and an operation in progress is about to change it |
//! | not present, claimed | a page that an operation in progress has not shown yet, or has hidden |
//!
//! An operation first claims every page that it is about, which can be refused and undone without any visible effect, and
//! then changes them all, which cannot fail. An operation that meets a claimed page is refused, so another can be done a few
//! pages at a time with the address space unlocked in between.
//!
//! Conserved: an entry that is not 0 holds one reference to its page, unless the page is a device's. A hidden page keeps its reference until the operation
//! that hid it knows that no CPU has a translation of it. A page of the process's own is in one entry alone. Every page and
//! table of the space is charged before it is made. What the kernel remembers of an entry is what stands in the tables: it
//! forgets all of it before any entry changes.

use super::frames::{Frame, PAGE};
use super::paging::{
    ADDRESS, Flags, MapError, PRESENT, SpaceRoot, UNCACHED, USER, USER_END, WRITE, entry, kernel_table, walk,
};
use super::ring_page::RingMemory;
use super::{DEVICES_START, DIRECT_MAP, DIRECT_MAP_SIZE};
use mainspring_kernel_core::ledger::{Charge, Kind, Ledger, Refused};

/// An operation in progress has the page.
const CLAIMED: u64 = 1 << 9;
/// The page is one of a memory object's.
const OBJECT: u64 = 1 << 10;
/// The page is the first of a memory object's.
const FIRST: u64 = 1 << 11;
/// The page is a ring.
const RING: u64 = 1 << 52;
/// The page is a device's: it is no memory, and nobody has a reference to it.
const DEVICE: u64 = 1 << 53;

/// Whose page it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The process's own.
    Process,
    /// A memory object's, the first of a mapping or a further one.
    Object {
        /// Which.
        first: bool,
    },
    /// A device's registers, mapped as an object is.
    Device {
        /// Whether it is the first page of the mapping.
        first: bool,
    },
    /// A thread's ring.
    Ring,
}

impl Owner {
    fn bits(self) -> u64 {
        match self {
            Self::Process => 0,
            Self::Object { first: false } => OBJECT,
            Self::Object { first: true } => OBJECT | FIRST,
            Self::Device { first } => DEVICE | UNCACHED | Self::Object { first }.bits(),
            Self::Ring => RING,
        }
    }

    /// Whether the page itself is charged to the space that has it mapped. An object is charged to its holder.
    fn is_charged(self) -> bool {
        !matches!(self, Self::Object { .. } | Self::Device { .. })
    }
}

/// What has been charged for pages that are about to be mapped. What is left of it is refunded.
#[derive(Debug)]
pub struct Reserve {
    frames: Charge<'static>,
    mapped: Charge<'static>,
}

/// A process's page tables. All changes go through `&mut`, so a guard of the value guards the tables.
#[derive(Debug)]
pub struct AddressSpace {
    root: u64,
    ledger: &'static Ledger<'static>,
    /// Its tables, and the pages that are its own.
    frames: Charge<'static>,
    /// Entries that are not 0.
    mapped: Charge<'static>,
    /// Tables below the top level.
    tables: u64,
    /// How far it has been taken apart: an index into each level's table.
    gone: [u64; 4],
    /// Entries of pages that the kernel has looked at, by the low bits of their number. None outlives a change.
    seen: [Seen; SEEN],
    /// Whether there are any.
    remembers: bool,
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
    pub fn new(ledger: &'static Ledger<'static>) -> Result<Self, Refused> {
        let frames = ledger.charge(Kind::Frames, 1)?;
        let mapped = ledger.charge(Kind::Mapped, 0)?;
        let root = Frame::new().ok_or(Refused::Exhausted)?.into_address();
        let kernel = kernel_table();
        for index in 256..512 {
            // SAFETY: the new table is ours; the kernel's top level does not change.
            unsafe { *entry(root, index) = *entry(kernel, index) };
        }
        let seen = [Seen::NOTHING; SEEN];
        Ok(Self { root, ledger, frames, mapped, tables: 0, gone: [0; 4], seen, remembers: false })
    }

    /// What a CPU loads to run in it. It must not be loaded after the address space is dropped.
    #[must_use]
    pub fn root(&self) -> SpaceRoot {
        SpaceRoot(self.root)
    }

    /// How many frames it has: tables, rings and pages of its own.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames.amount()
    }

    /// How many of those are tables below the top level.
    #[must_use]
    pub fn tables(&self) -> u64 {
        self.tables
    }

    /// Charges for `pages` pages from `address` on that are `owner`'s, and for the tables that they need.
    pub fn reserve(&self, address: u64, pages: u64, owner: Owner) -> Result<Reserve, Refused> {
        let own = if owner.is_charged() { pages } else { 0 };
        let frames = self.ledger.charge(Kind::Frames, own + self.tables_missing(address, pages))?;
        Ok(Reserve { frames, mapped: self.ledger.charge(Kind::Mapped, pages)? })
    }

    /// How many tables would have to be made to map so many pages.
    fn tables_missing(&self, address: u64, pages: u64) -> u64 {
        let end = address + pages * PAGE as u64;
        (1..4)
            .map(|level| {
                let bytes = 1 << (12 + 9 * level);
                let first = address / bytes;
                let count = (end - 1) / bytes - first + 1;
                // SAFETY: the tables are changed through `&mut self` only.
                let is_missing = |table: u64| unsafe {
                    walk(self.root, table * bytes, level, 0).is_none_or(|slot| *slot & PRESENT == 0)
                };
                (first..first + count).filter(|table| is_missing(*table)).count() as u64
            })
            .sum()
    }

    /// Forgets the entries that it remembers, if it does.
    #[inline]
    fn forget(&mut self) {
        if core::mem::take(&mut self.remembers) {
            self.seen = [Seen::NOTHING; SEEN];
        }
    }

    /// The entry of `address`, if it has a table.
    fn slot(&mut self, address: u64) -> Option<*mut u64> {
        // The caller may change the entry.
        self.forget();
        // SAFETY: `&mut self` is the only way to these tables.
        unsafe { walk(self.root, address, 0, 0) }
    }

    /// What stands in the entry of `address`.
    fn bits(&self, address: u64) -> u64 {
        // SAFETY: the tables are changed through `&mut self` only.
        unsafe { walk(self.root, address, 0, 0).map_or(0, |slot| *slot) }
    }

    /// The entry of `address`; tables that are missing are made from `reserve`.
    fn slot_made(&mut self, address: u64, reserve: &mut Reserve) -> Result<*mut u64, MapError> {
        if !address.is_multiple_of(PAGE as u64) || address < PAGE as u64 || address >= USER_END {
            return Err(MapError::BadAddress);
        }
        for level in (1..4).rev() {
            // SAFETY: as in `slot`; the tables above this level exist by now.
            unsafe {
                let slot = walk(self.root, address, level, 0).ok_or(MapError::NoMemory)?;
                if *slot & PRESENT == 0 {
                    if reserve.frames.amount() == 0 {
                        return Err(MapError::NoMemory);
                    }
                    *slot = Frame::new().ok_or(MapError::NoMemory)?.into_address() | PRESENT | WRITE | USER;
                    let _of_another = self.frames.merge(reserve.frames.split(1));
                    self.tables += 1;
                }
            }
        }
        self.slot(address).ok_or(MapError::NoMemory)
    }

    /// Whether nothing is mapped at `address` and no operation is about to map anything there.
    #[must_use]
    pub fn is_free(&self, address: u64) -> bool {
        self.bits(address) == 0
    }

    /// Puts `frame` at `address`, not yet to be seen. Both are refused if the place is taken.
    pub fn claim_free(
        &mut self,
        address: u64,
        frame: Frame,
        owner: Owner,
        reserve: &mut Reserve,
    ) -> Result<(), MapError> {
        let slot = self.slot_free(address, reserve)?;
        // SAFETY: the slot belongs to these tables, and is empty: it has the reference from now on.
        unsafe { *slot = frame.into_address() | CLAIMED | owner.bits() };
        let _of_another = self.mapped.merge(reserve.mapped.split(1));
        if owner.is_charged() {
            let _of_another = self.frames.merge(reserve.frames.split(1));
        }
        Ok(())
    }

    /// Puts a page of a device's registers at `address`, not yet to be seen.
    pub fn claim_device(
        &mut self,
        address: u64,
        registers: u64,
        first: bool,
        reserve: &mut Reserve,
    ) -> Result<(), MapError> {
        if !(DEVICES_START..DIRECT_MAP_SIZE).contains(&registers) {
            return Err(MapError::Denied);
        }
        let slot = self.slot_free(address, reserve)?;
        // SAFETY: the slot belongs to these tables, and is empty. What is there is no memory, so nobody has a reference.
        unsafe { *slot = registers & ADDRESS | CLAIMED | Owner::Device { first }.bits() };
        let _of_another = self.mapped.merge(reserve.mapped.split(1));
        Ok(())
    }

    /// The entry of `address`, which is empty.
    fn slot_free(&mut self, address: u64, reserve: &mut Reserve) -> Result<*mut u64, MapError> {
        let slot = self.slot_made(address, reserve)?;
        // SAFETY: the slot belongs to these tables.
        if unsafe { *slot } != 0 { Err(MapError::Occupied) } else { Ok(slot) }
    }

    /// Shows programs the page at `address` that was claimed when it was free.
    pub fn show(&mut self, address: u64, access: Flags) {
        self.change(
            address,
            |bits| bits & (CLAIMED | PRESENT) == CLAIMED,
            |bits| bits & !CLAIMED | access.bits(),
        );
    }

    /// Claims the page of the process's own at `address`, which is to be hidden or changed; what it may be used for now.
    pub fn claim_own(&mut self, address: u64) -> Result<Flags, MapError> {
        let bits = self.bits(address);
        if bits & PRESENT == 0 || bits & (OBJECT | RING) != 0 {
            return Err(MapError::BadAddress);
        }
        if bits & CLAIMED != 0 {
            return Err(MapError::Busy);
        }
        self.change(address, |_| true, |bits| bits | CLAIMED);
        Ok(Flags::of(bits))
    }

    /// Claims the page of a memory object at `address`, which is to be hidden. Whether it was there.
    pub fn claim_object(&mut self, address: u64, first: bool) -> Result<bool, MapError> {
        let bits = self.bits(address);
        if bits & PRESENT == 0 || bits & OBJECT == 0 || (bits & FIRST != 0) != first {
            return Ok(false);
        }
        if bits & CLAIMED != 0 {
            return Err(MapError::Busy);
        }
        self.change(address, |_| true, |bits| bits | CLAIMED);
        Ok(true)
    }

    /// Hides the page at `address`, which is claimed. Other CPUs may still have its translation.
    pub fn hide(&mut self, address: u64) {
        self.change(address, is_claimed_and_present, |bits| bits & !PRESENT);
    }

    /// Lets programs only read the page of the process's own at `address`, which stays claimed, if they could have the other
    /// of writing and execution than `access`.
    pub fn retract(&mut self, address: u64, access: Flags) {
        let other = |bits: u64| is_claimed_and_present(bits) && Flags::of(bits).excludes(access);
        self.change(address, other, |bits| bits & ADDRESS | CLAIMED | Flags::Read.bits());
    }

    /// Changes what the page of the process's own at `address` may be used for, which is claimed for that. Other CPUs may
    /// still have its old translation.
    pub fn protect(&mut self, address: u64, access: Flags) {
        debug_assert!(!Flags::of(self.bits(address)).excludes(access), "a page for both");
        self.change(address, is_claimed_and_present, |bits| bits & ADDRESS | access.bits());
    }

    /// Lets go of the page at `address`, which was claimed and has not been changed. One that was never shown is given back.
    pub fn let_go(&mut self, address: u64) {
        if is_claimed_and_present(self.bits(address)) {
            self.change(address, |_| true, |bits| bits & !CLAIMED);
        } else {
            self.free(address);
        }
    }

    /// Gives the page at `address` back, which is claimed and not shown: no CPU can have a translation of it.
    pub fn free(&mut self, address: u64) {
        let Some(slot) = self.slot(address) else { return };
        // SAFETY: the slot belongs to these tables, and the reference leaves with its entry.
        let (bits, frame) = unsafe {
            let bits = *slot;
            if bits & (CLAIMED | PRESENT) != CLAIMED {
                return;
            }
            *slot = 0;
            (bits, frame_of(bits))
        };
        drop(frame);
        self.mapped.shrink(1);
        if bits & OBJECT == 0 {
            self.frames.shrink(1);
        }
    }

    fn change(&mut self, address: u64, if_it: impl Fn(u64) -> bool, to: impl Fn(u64) -> u64) {
        if let Some(slot) = self.slot(address) {
            // SAFETY: the slot belongs to these tables. One store: a processor that walks them sees the one or the other.
            unsafe {
                if if_it(*slot) {
                    slot.write_volatile(to(*slot));
                }
            }
        }
    }

    /// The ring and the stack of a place for a thread: those that are there, or new ones. Nothing is made if it is refused.
    pub fn open_place(&mut self, ring: u64, stack: u64, stack_pages: u64) -> Result<RingMemory, MapError> {
        if let Some(there) = self.ring_at(ring) {
            return Ok(there);
        }
        let mut for_ring = self.reserve(ring, 1, Owner::Ring).map_err(MapError::Refused)?;
        let mut for_stack = self.reserve(stack, stack_pages, Owner::Process).map_err(MapError::Refused)?;
        for number in 0..stack_pages {
            let at = stack + number * PAGE as u64;
            let frame = Frame::new().ok_or(MapError::NoMemory)?;
            self.claim_free(at, frame, Owner::Process, &mut for_stack)?;
            self.show(at, Flags::Write);
        }
        let frame = Frame::new().ok_or(MapError::NoMemory)?;
        self.claim_free(ring, frame, Owner::Ring, &mut for_ring)?;
        self.show(ring, Flags::Write);
        self.ring_at(ring).ok_or(MapError::NoMemory)
    }

    /// The ring whose page is mapped at `address`.
    #[must_use]
    pub fn ring_at(&self, address: u64) -> Option<RingMemory> {
        let bits = self.bits(address);
        if bits & (PRESENT | RING) != PRESENT | RING {
            return None;
        }
        // SAFETY: the entry has a reference, which it keeps: only another one is made from it.
        let own = unsafe { Frame::from_address(bits & ADDRESS) };
        let another = own.share();
        core::mem::forget(own);
        RingMemory::new(another)
    }

    /// Takes apart a piece of what is mapped, of about `size` entries; whether nothing is left. No CPU has the tables
    /// loaded, and no other change is asked for from now on.
    pub fn take_apart(&mut self, size: u32) -> bool {
        self.forget();
        let mut left = size;
        while left > 0 {
            let Some(looked_at) = self.take_apart_next() else { return true };
            left = left.saturating_sub(looked_at);
        }
        false
    }

    /// The next entry that is not 0: a page is given back, and a table once nothing is in it. How much that was to look at,
    /// in entries, or `None` if nothing is left.
    fn take_apart_next(&mut self) -> Option<u32> {
        // What giving back a page costs, compared to looking at an entry.
        const PAGE_GIVEN_BACK: u32 = 12;
        let mut looked_at = PAGE_GIVEN_BACK;
        let mut path = [0, 0, 0, self.root];
        let mut level = 3;
        loop {
            let end = if level == 3 { 256 } else { 512 };
            // SAFETY: the tables are this space's, and no other code uses them.
            let at = (self.gone[level]..end).find(|index| unsafe { *entry(path[level], *index) } != 0);
            looked_at += (at.unwrap_or(end) - self.gone[level]) as u32;
            self.gone[level] = at.unwrap_or(end);
            match at {
                Some(index) => {
                    // SAFETY: as above.
                    let slot = unsafe { entry(path[level], index) };
                    // SAFETY: as above.
                    let bits = unsafe { *slot };
                    if level == 0 {
                        // SAFETY: as above; the reference leaves with its entry.
                        unsafe { *slot = 0 };
                        // SAFETY: as above.
                        drop(unsafe { frame_of(bits) });
                        self.gone[0] += 1;
                        return Some(looked_at);
                    }
                    level -= 1;
                    path[level] = bits & ADDRESS;
                }
                None if level == 3 => return None,
                None => {
                    // SAFETY: as above; nothing is left in the table, and its entry above goes first.
                    unsafe { *entry(path[level + 1], self.gone[level + 1]) = 0 };
                    // SAFETY: as above.
                    drop(unsafe { Frame::from_address(path[level]) });
                    self.gone[level] = 0;
                    self.gone[level + 1] += 1;
                    return Some(looked_at);
                }
            }
        }
    }

    /// Where the byte at `address` is, if users may read it, or write it.
    #[inline(always)]
    fn translate(&mut self, address: u64, write: bool) -> Option<u64> {
        let page = address / PAGE as u64;
        let seen = self.seen[page as usize % SEEN];
        let bits = if seen.page == page { seen.bits } else { self.look_up(page)? };
        let needed = PRESENT | USER | if write { WRITE } else { 0 };
        // The kernel reads no registers for a program, and writes none.
        (bits & (needed | DEVICE) == needed).then_some((bits & ADDRESS) + address % PAGE as u64)
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
        self.remembers = true;
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

    /// Copies user memory. If a thread writes there meanwhile, the copy is some mixture, and nothing worse.
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

/// The reference that an entry had, unless it was a device's.
///
/// # Safety
///
/// `bits` was an entry of a process's page, and is none any more.
unsafe fn frame_of(bits: u64) -> Option<Frame> {
    // SAFETY: the caller vouches for the entry.
    (bits & DEVICE == 0).then(|| unsafe { Frame::from_address(bits & ADDRESS) })
}

fn is_claimed_and_present(bits: u64) -> bool {
    bits & (CLAIMED | PRESENT) == CLAIMED | PRESENT
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        while !self.take_apart(u32::MAX) {}
        // SAFETY: nothing is left below the top level, and no CPU has it loaded.
        drop(unsafe { Frame::from_address(self.root) });
    }
}
