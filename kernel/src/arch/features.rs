//! What the processor is told once per CPU: protections, and where system calls enter.

use super::traps;
use raw_cpuid::CpuId;
use x86_64::PrivilegeLevel::{Ring0, Ring3};
use x86_64::VirtAddr;
use x86_64::registers::control::{Cr4, Cr4Flags, Efer, EferFlags};
use x86_64::registers::model_specific::{LStar, SFMask, Star};
use x86_64::registers::rflags::RFlags;
use x86_64::structures::gdt::SegmentSelector;

/// Turns on what there is: no execution and no access of user pages by the kernel, and no peeking at tables by users.
pub(super) fn init() {
    let id = CpuId::new();
    let features = id.get_extended_feature_info();
    let mut flags = Cr4Flags::PAGE_GLOBAL;
    if features.as_ref().is_some_and(raw_cpuid::ExtendedFeatures::has_smep) {
        flags |= Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION;
    }
    if features.as_ref().is_some_and(raw_cpuid::ExtendedFeatures::has_smap) {
        flags |= Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION;
    }
    if features.as_ref().is_some_and(raw_cpuid::ExtendedFeatures::has_umip) {
        flags |= Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION;
    }
    // SAFETY: the flags are supported, and the kernel never touches a page that users can.
    unsafe { Cr4::update(|old| *old |= flags) };
}

/// Where and how system calls enter on this CPU.
pub(super) fn init_syscalls() {
    // SAFETY: the entry is the kernel's, and every CPU has its per-CPU block before it runs user code.
    unsafe { Efer::update(|flags| *flags |= EferFlags::SYSTEM_CALL_EXTENSIONS) };
    LStar::write(VirtAddr::new(traps::syscall_entry_address()));
    SFMask::write(
        RFlags::INTERRUPT_FLAG
            | RFlags::TRAP_FLAG
            | RFlags::DIRECTION_FLAG
            | RFlags::ALIGNMENT_CHECK
            | RFlags::NESTED_TASK
            | RFlags::IOPL_LOW
            | RFlags::IOPL_HIGH,
    );
    Star::write(
        SegmentSelector::new(4, Ring3),
        SegmentSelector::new(3, Ring3),
        SegmentSelector::new(1, Ring0),
        SegmentSelector::new(2, Ring0),
    )
    .expect("the GDT has the order that syscall and sysret need");
}
