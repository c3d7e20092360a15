//! The Mainspring kernel: `core/sched` on real CPUs, user threads in ring 3, everything through capability rings.
//!
//! | folder | one idea |
//! | --- | --- |
//! | `arch/` | the machine; all unsafe code |
//! | `boot/` | what happens once: boot image, manifest, CPUs, the end |
//! | `measure` | what a build that measures counts |
//! | `entry` | from user mode into the kernel and back |
//! | `sched/` | the driver of `core/sched`: one `PerCpu` for each CPU |
//! | `object/` | processes, threads, endpoints, park lists: tables of fixed size |
//! | `devices.rs` | devices that programs drive, and their messages |
//! | `method/` | requests from rings, and what each capability does |
//!
//! A CPU has one kernel stack. An entry from user mode saves the thread into its context, runs to its end without being
//! interrupted, and leaves to whatever context is installed then: no kernel code ever waits in the middle.
#![no_std]
#![no_main]

extern crate alloc;

mod arch;
mod boot;
mod devices;
mod entry;
mod frames;
mod log;
mod measure;
mod method;
mod object;
mod sched;

/// The boot CPU, on its own stack, with memory, page tables and clocks in place.
fn kernel_main(info: &arch::BootInfo) -> ! {
    boot::run(info)
}

/// Any other CPU.
fn secondary_main() -> ! {
    boot::run_secondary()
}
