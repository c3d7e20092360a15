//! Physical memory by the page. A [`Frame`] is a page that nobody else has; dropping it gives it back.
//!
//! Conserved: every managed page is in the free list or owned by exactly one `Frame` or page table entry.

use super::boot_info::{BootInfo, Range};
use super::{DIRECT_MAP, KERNEL_BASE};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Mutex;

/// Bytes of a page.
pub const PAGE: usize = 4096;

const HEAP: u64 = 96 << 20;

static FREE: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static TOTAL: AtomicU64 = AtomicU64::new(0);
static MANAGED_START: AtomicU64 = AtomicU64::new(u64::MAX);
static MANAGED_END: AtomicU64 = AtomicU64::new(0);

/// A page of memory that nobody else has, cleared.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame(u32);

impl Frame {
    /// A cleared page, if there is one left. Does not allocate from the heap.
    pub fn new() -> Option<Self> {
        let number = FREE.lock().pop()?;
        let frame = Self(number);
        // SAFETY: the page came from the free list, so this frame is its only owner.
        unsafe { core::ptr::write_bytes(frame.pointer(), 0, PAGE) };
        Some(frame)
    }

    /// Writes into it, at byte `at`; what does not fit is left out.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let len = bytes.len().min(PAGE.saturating_sub(at));
        // SAFETY: nobody else has the page, and the range stays inside of it.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer().add(at.min(PAGE)), len) };
    }

    /// Its physical address.
    pub(super) fn address(&self) -> u64 {
        u64::from(self.0) * PAGE as u64
    }

    /// Where the kernel sees it.
    pub(super) fn pointer(&self) -> *mut u8 {
        (DIRECT_MAP + self.address()) as *mut u8
    }

    /// Gives up the value but not the page, which an entry of a page table owns from now on.
    pub(super) fn into_address(self) -> u64 {
        let address = self.address();
        core::mem::forget(self);
        address
    }

    /// Takes the page back that [`Frame::into_address`] gave to a page table.
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
        // The list has had room for every page since `init`.
        FREE.lock().push(self.0);
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
    TOTAL.store(u64::from(last - first), Ordering::Relaxed);
    MANAGED_START.store(plan.frames.start, Ordering::Relaxed);
    MANAGED_END.store(plan.frames.end, Ordering::Relaxed);
}
