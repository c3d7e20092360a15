//! The machine: everything that touches hardware, and all unsafe code of the kernel.
//!
//! What leaves this folder is safe to use in any order: a [`Frame`] is memory that no other owner has, an
//! [`AddressSpace`] reads and writes user memory by its own tables, a [`ContextCell`] is bound to one CPU at a time and
//! says so loudly if it is not. Interrupts are off in the whole kernel but for the `hlt` of [`cpu::halt`], so kernel
//! code is never interrupted and may use the red zone and SSE as compiled for the host.
#![allow(unsafe_code)]

mod apic;
mod boot;
mod boot_info;
mod builtins;
mod calibrate;
mod clock;
mod context;
pub mod cpu;
pub mod examine;
pub mod fallback;
mod features;
mod frames;
mod heap;
mod paging;
pub mod pci;
mod ports;
mod ring_page;
pub mod smp;
mod space;
mod static_ref;
mod timeline;
mod traps;

pub use apic::{DEVICE_LINES, DEVICE_VECTOR, LapicTimer, send_reschedule, sending_failed, timer_scale};
pub use boot_info::{BootInfo, physical_bytes};
pub use calibrate::{TickSource, counts_per_ms};
pub use clock::{
    SLACK as CLOCK_SLACK, counter as time_stamp, is_running as clock_is_running, now, steps as clock_steps,
    timer_came,
};
pub use context::{Context, ContextCell, USER_END};
pub use frames::{Frame, FrameList, PAGE, free_frames, total_frames};
pub use heap::{allocations, close as close_heap, open as open_heap};
pub use paging::{Flags, MapError, SpaceRoot, kernel_root};
pub use ports::{ExitCode, Serial, exit, record_out};
pub use ring_page::Ring;
pub use space::{AddressSpace, Owner, Reserve};
pub use static_ref::StaticRef;
pub use traps::Trap;

/// Where the kernel is linked; the linker script says the same.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// Where all physical memory below 4 GiB appears, not executable.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;

/// From here on it has devices and no memory, and is not cached.
const DEVICES_START: u64 = 0xc000_0000;

/// How much of it there is.
pub const DIRECT_MAP_SIZE: u64 = 4 << 30;

/// Whether a device interrupts CPU `number`, and cannot be made to interrupt another.
#[must_use]
pub fn has_fixed_interrupt(number: usize) -> bool {
    fallback::is_active() && number == 0
}

/// The kernel's first Rust: on the boot stack, with the first page tables.
extern "C" fn start(start_info: u32) -> ! {
    ports::init_serial();
    let info = boot_info::parse(start_info);
    let plan = frames::plan(&info);
    heap::init(plan.heap_start, plan.heap_len);
    frames::init(&info, &plan);
    paging::init();
    features::init();
    apic::init();
    cpu::init_boot_cpu(info)
}
