//! Physical memory by the page. A [`Frame`] is a reference to a page; the page is given back with its last reference.
//!
//! Conserved: every managed page is in the free list, or has as many references as there are `Frame`s and page table entries
//! that hold it.

use super::boot_info::{BootInfo, Range};
use super::{DIRECT_MAP, KERNEL_BASE};
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use spin::{Mutex, Once};

/// Bytes of a page.
pub const PAGE: usize = 4096;

const HEAP: u64 = 96 << 20;

static FREE: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static TOTAL: AtomicU64 = AtomicU64::new(0);
static MANAGED_START: AtomicU64 = AtomicU64::new(u64::MAX);
static MANAGED_END: AtomicU64 = AtomicU64::new(0);
/// How many references each managed page has.
static PAGES: Once<Vec<AtomicU32>> = Once::new();

fn word(number: u32) -> &'static AtomicU32 {
    let first = (MANAGED_START.load(Ordering::Relaxed) / PAGE as u64) as u32;
    &PAGES.get().expect("there are pages once there are frames")[(number - first) as usize]
}

/// A reference to a page of memory, which was cleared when it was handed out.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame(u32);

impl Frame {
    /// A cleared page, if there is one left. Does not allocate from the heap.
    pub fn new() -> Option<Self> {
        let number = FREE.lock().pop()?;
        // Relaxed: no other CPU knows the page yet.
        word(number).store(1, Ordering::Relaxed);
        let frame = Self(number);
        // SAFETY: the page came from the free list, so this reference is its only one.
        unsafe { core::ptr::write_bytes(frame.pointer(), 0, PAGE) };
        Some(frame)
    }

    /// Another reference to the same page.
    #[must_use]
    pub fn share(&self) -> Self {
        // Relaxed: the holder of a reference keeps the page.
        let before = word(self.0).fetch_add(1, Ordering::Relaxed);
        debug_assert!(before != 0 && before != u32::MAX, "references of a page");
        Self(self.0)
    }

    /// Writes into it, at byte `at`; what does not fit is left out. A page is filled before others see it.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let len = bytes.len().min(PAGE.saturating_sub(at));
        // SAFETY: the range stays inside of the page.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer().add(at.min(PAGE)), len) };
    }

    /// Its physical address.
    pub(super) fn address(&self) -> u64 {
        u64::from(self.0) * PAGE as u64
    }

    /// Where a device sees it. The holder of a reference keeps it there.
    #[must_use]
    pub fn device_address(&self) -> u64 {
        self.address()
    }

    /// Where the kernel sees it.
    pub(super) fn pointer(&self) -> *mut u8 {
        (DIRECT_MAP + self.address()) as *mut u8
    }

    /// Gives up the value but not the reference, which an entry of a page table has from now on.
    pub(super) fn into_address(self) -> u64 {
        let address = self.address();
        core::mem::forget(self);
        address
    }

    /// Takes the reference back that [`Frame::into_address`] gave to a page table.
    ///
    /// # Safety
    ///
    /// The address came from there, and no entry holds it any more.
    pub(super) unsafe fn from_address(address: u64) -> Self {
        Self((address / PAGE as u64) as u32)
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // Release: what this holder did with the page comes before it is handed out again.
        let before = word(self.0).fetch_sub(1, Ordering::Release);
        debug_assert!(before != 0, "a page was given back twice");
        if before == 1 {
            // Acquire: pairs with the release of the other holders.
            fence(Ordering::Acquire);
            // The list has had room for every page since `init`.
            FREE.lock().push(self.0);
        }
    }
}

/// Frames by number, kept in frames: the heap is not needed, however many there are.
#[derive(Debug)]
pub struct FrameList {
    index: [Option<Frame>; INDEX],
    len: usize,
}

const PER_INDEX: usize = PAGE / size_of::<u32>();
const INDEX: usize = 8;

impl FrameList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { index: [const { None }; INDEX], len: 0 }
    }

    /// How many frames it has, those for itself included.
    #[must_use]
    pub fn frames(&self) -> u64 {
        (self.len + self.index.iter().flatten().count()) as u64
    }

    /// Frames that a list of `len` needs for itself.
    #[must_use]
    pub const fn overhead(len: usize) -> usize {
        len.div_ceil(PER_INDEX)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    fn place(&self, number: usize) -> Option<NonNull<u32>> {
        let table = NonNull::new(self.index.get(number / PER_INDEX)?.as_ref()?.pointer().cast::<u32>())?;
        // SAFETY: the number is taken modulo what a page holds.
        Some(unsafe { table.add(number % PER_INDEX) })
    }

    /// One more, at the end; `None` if the list is full or there is no page for it.
    pub fn push(&mut self, frame: Frame) -> Option<()> {
        let table = self.index.get_mut(self.len / PER_INDEX)?;
        if table.is_none() {
            *table = Some(Frame::new()?);
        }
        let place = self.place(self.len)?;
        // SAFETY: the place is in a page that this list has alone, and `&mut self` is the only way to it.
        unsafe { place.write(frame.0) };
        core::mem::forget(frame);
        self.len += 1;
        Some(())
    }

    /// Another reference to one of them.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<Frame> {
        if number >= self.len {
            return None;
        }
        // SAFETY: as in `push`; the list keeps its reference, so the value that it is made from is forgotten.
        let own = Frame(unsafe { self.place(number)?.read() });
        let another = own.share();
        core::mem::forget(own);
        Some(another)
    }

    /// Takes the last one out.
    pub fn pop(&mut self) -> Option<Frame> {
        let last = self.len.checked_sub(1)?;
        // SAFETY: as in `push`; the reference leaves the list with its place.
        let frame = Frame(unsafe { self.place(last)?.read() });
        self.len = last;
        Some(frame)
    }
}

impl Drop for FrameList {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// How many pages are free.
#[must_use]
pub fn free_frames() -> u64 {
    FREE.lock().len() as u64
}

/// How many pages there are to hand out.
#[must_use]
pub fn total_frames() -> u64 {
    TOTAL.load(Ordering::Relaxed)
}

/// Whether any of the bytes may be handed out as frames.
pub(super) fn is_managed(start: u64, end: u64) -> bool {
    start < MANAGED_END.load(Ordering::Relaxed) && end > MANAGED_START.load(Ordering::Relaxed)
}

/// How physical memory is divided.
pub(super) struct Plan {
    pub heap_start: u64,
    pub heap_len: usize,
    frames: Range,
}

unsafe extern "C" {
    static __data_end: u8;
}

pub(super) fn kernel_end() -> u64 {
    // The address of a linker symbol is the value.
    (&raw const __data_end) as u64 - KERNEL_BASE
}

/// The largest piece above the kernel and off the boot image: first the heap, then frames.
pub(super) fn plan(info: &BootInfo) -> Plan {
    let image = info.image.map_or(Range { start: 0, end: 0 }, |image| {
        let start = image.as_ptr() as u64 - DIRECT_MAP;
        Range { start, end: (start + image.len() as u64).next_multiple_of(PAGE as u64) }
    });
    let mut best = Range { start: 0, end: 0 };
    for range in &info.memory {
        let start = range.start.max(kernel_end());
        let pieces = if image.start < range.end && image.end > start {
            [
                Range { start, end: image.start & !(PAGE as u64 - 1) },
                Range { start: image.end, end: range.end },
            ]
        } else {
            [Range { start, end: range.end }, Range { start: 0, end: 0 }]
        };
        for piece in pieces {
            if piece.end.saturating_sub(piece.start) > best.end - best.start {
                best = piece;
            }
        }
    }
    assert!(
        best.end - best.start > HEAP + (16 << 20),
        "too little memory; start the machine with 256 MiB or more"
    );
    Plan {
        heap_start: best.start,
        heap_len: HEAP as usize,
        frames: Range { start: best.start + HEAP, end: best.end },
    }
}

pub(super) fn init(_info: &BootInfo, plan: &Plan) {
    let first = (plan.frames.start / PAGE as u64) as u32;
    let last = (plan.frames.end / PAGE as u64) as u32;
    let mut free = FREE.lock();
    free.reserve_exact((last - first) as usize);
    free.extend((first..last).rev());
    PAGES.call_once(|| (first..last).map(|_| AtomicU32::new(0)).collect());
    TOTAL.store(u64::from(last - first), Ordering::Relaxed);
    MANAGED_START.store(plan.frames.start, Ordering::Relaxed);
    MANAGED_END.store(plan.frames.end, Ordering::Relaxed);
}
