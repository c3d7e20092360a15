//! The kernel's heap, and the count of allocations on paths that must not allocate.

use super::{DIRECT_MAP, cpu};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use linked_list_allocator::Heap;
use spin::Mutex;

struct KernelHeap {
    heap: Mutex<Heap>,
    on_hard_paths: AtomicU64,
}

#[global_allocator]
static HEAP: KernelHeap = KernelHeap { heap: Mutex::new(Heap::empty()), on_hard_paths: AtomicU64::new(0) };

/// What the heap has been asked for.
#[derive(Clone, Copy, Debug)]
pub struct AllocationCount {
    /// Those on interrupt, wake, timeout and exit paths: always zero.
    pub on_hard_paths: u64,
    /// Bytes in use.
    pub used: u64,
}

/// What the heap has been asked for so far.
#[must_use]
pub fn allocations() -> AllocationCount {
    AllocationCount {
        on_hard_paths: HEAP.on_hard_paths.load(Ordering::Relaxed),
        used: HEAP.heap.lock().used() as u64,
    }
}

// SAFETY: the inner heap is an allocator behind a lock; counting changes nothing about what it returns.
unsafe impl GlobalAlloc for KernelHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if cpu::on_hard_path() {
            self.on_hard_paths.fetch_add(1, Ordering::Relaxed);
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
