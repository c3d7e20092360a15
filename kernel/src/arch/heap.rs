//! The kernel's heap, which is for what is made at boot alone.
//!
//! Conserved: once the heap is [closed](close), before the first program runs, nothing is allocated any more. So no program can
//! make the heap grow, and no path of the kernel can fail for want of it. Scheduling contexts and the settings of the policy service
//! are the exceptions: their number is bounded and charged, see [`open`]. A kernel that checks itself stops at the first other allocation; any other kernel
//! counts them, and the run has failed.

use super::{DIRECT_MAP, cpu};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use linked_list_allocator::Heap;
use spin::Mutex;

struct KernelHeap {
    heap: Mutex<Heap>,
    closed: AtomicBool,
    /// CPUs that may allocate all the same, bit by bit.
    open_for: AtomicU32,
    after_boot: AtomicU64,
}

#[global_allocator]
static HEAP: KernelHeap = KernelHeap {
    heap: Mutex::new(Heap::empty()),
    closed: AtomicBool::new(false),
    open_for: AtomicU32::new(0),
    after_boot: AtomicU64::new(0),
};

/// What the heap has been asked for.
#[derive(Clone, Copy, Debug)]
pub struct AllocationCount {
    /// Allocations since the heap was closed: always zero.
    pub after_boot: u64,
    /// Bytes in use.
    pub used: u64,
}

/// What the heap has been asked for so far.
#[must_use]
pub fn allocations() -> AllocationCount {
    AllocationCount {
        after_boot: HEAP.after_boot.load(Ordering::Relaxed),
        used: HEAP.heap.lock().used() as u64,
    }
}

/// Everything has been made: nothing is allocated from now on.
pub fn close() {
    HEAP.closed.store(true, Ordering::Relaxed);
}

/// While it lives, this CPU may allocate what was charged and set aside before, and whose number is bounded: contexts, and what a
/// policy service has set.
#[derive(Debug)]
pub struct OpenHeap {
    /// This CPU's bit, unless it was set before.
    closes: u32,
}

/// Opens the heap for this CPU.
#[must_use]
pub fn open() -> OpenHeap {
    let bit = 1 << cpu::index();
    OpenHeap { closes: bit & !HEAP.open_for.fetch_or(bit, Ordering::Relaxed) }
}

impl Drop for OpenHeap {
    fn drop(&mut self) {
        HEAP.open_for.fetch_and(!self.closes, Ordering::Relaxed);
    }
}

// SAFETY: the inner heap is an allocator behind a lock; counting changes nothing about what it returns.
unsafe impl GlobalAlloc for KernelHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.closed.load(Ordering::Relaxed)
            && self.open_for.load(Ordering::Relaxed) >> cpu::index() & 1 == 0
        {
            self.after_boot.fetch_add(1, Ordering::Relaxed);
            if cfg!(debug_assertions) {
                panic!("{} bytes are allocated after boot", layout.size());
            }
        }
        self.heap.lock().allocate_first_fit(layout).map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            // SAFETY: the caller got the pointer from `alloc` with this layout.
            unsafe { self.heap.lock().deallocate(pointer, layout) };
        }
    }
}

pub(super) fn init(physical: u64, len: usize) {
    // SAFETY: the range is mapped, unused, and handed to the heap alone, once.
    unsafe { HEAP.heap.lock().init((DIRECT_MAP + physical) as *mut u8, len) };
}
