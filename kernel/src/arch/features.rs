//! What the processor is told once per CPU: protections, and where system calls enter.

use super::traps;
use raw_cpuid::CpuId;
use x86_64::PrivilegeLevel::{Ring0, Ring3};
use x86_64::VirtAddr;
use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags, Efer, EferFlags};
use x86_64::registers::model_specific::{LStar, Msr, SFMask, Star};
use x86_64::registers::rflags::RFlags;
use x86_64::structures::gdt::SegmentSelector;

/// Whether the processor can be kept from touching user pages.
pub(super) fn has_smap() -> bool {
    CpuId::new().get_extended_feature_info().is_some_and(|features| features.has_smap())
}

/// Sets the control registers of the calling CPU, whatever the loader left in them.
///
/// On: write protection in the kernel too, x87 errors as exceptions rather than as an interrupt of the old controller, and
/// where there are such things no execution and no access of user pages by the kernel, no peeking at tables by users, and
/// machine checks. Off: alignment checks, which users could make the kernel's business; performance counters, the bases of FS
/// and GS, and extended state in user mode, none of which is saved with a thread. Users may read the time stamp counter.
pub(super) fn init() {
    let id = CpuId::new();
    let (features, basic) = (id.get_extended_feature_info(), id.get_feature_info());
    let mut on = Cr4Flags::PAGE_GLOBAL;
    let has = |look: fn(&raw_cpuid::ExtendedFeatures) -> bool| features.as_ref().is_some_and(look);
    if has(raw_cpuid::ExtendedFeatures::has_smep) {
        on |= Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION;
    }
    if has_smap() {
        on |= Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION;
    }
    if has(raw_cpuid::ExtendedFeatures::has_umip) {
        on |= Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION;
    }
    if basic.is_some_and(|features| features.has_mce()) {
        on |= Cr4Flags::MACHINE_CHECK_EXCEPTION;
    }
    let off = Cr4Flags::PERFORMANCE_MONITOR_COUNTER
        | Cr4Flags::FSGSBASE
        | Cr4Flags::OSXSAVE
        | Cr4Flags::PROTECTION_KEY_USER
        | Cr4Flags::TIMESTAMP_DISABLE
        | Cr4Flags::VIRTUAL_8086_MODE_EXTENSIONS
        | Cr4Flags::PROTECTED_MODE_VIRTUAL_INTERRUPTS;
    // SAFETY: the flags are supported, the kernel never touches a page that users can, and writes to no page that is
    // read-only; it uses none of what is turned off.
    unsafe {
        Cr4::update(|flags| *flags = (*flags | on) & !off);
        Cr0::update(|flags| {
            *flags |= Cr0Flags::WRITE_PROTECT | Cr0Flags::NUMERIC_ERROR | Cr0Flags::MONITOR_COPROCESSOR;
            *flags &= !(Cr0Flags::EMULATE_COPROCESSOR | Cr0Flags::TASK_SWITCHED | Cr0Flags::ALIGNMENT_MASK);
        });
        // No other way in than `syscall`.
        Msr::new(SYSENTER_CS).write(0);
    }
}

const SYSENTER_CS: u32 = 0x174;

/// Where and how system calls enter on this CPU.
pub(super) fn init_syscalls() {
    // SAFETY: the entry is the kernel's, and every CPU has its per-CPU block before it runs user code.
    unsafe { Efer::update(|flags| *flags |= EferFlags::SYSTEM_CALL_EXTENSIONS) };
    LStar::write(VirtAddr::new(traps::syscall_entry_address()));
    // The kernel begins with no flag of the caller's.
    SFMask::write(RFlags::all());
    Star::write(
        SegmentSelector::new(4, Ring3),
        SegmentSelector::new(3, Ring3),
        SegmentSelector::new(1, Ring0),
        SegmentSelector::new(2, Ring0),
    )
    .expect("the GDT has the order that syscall and sysret need");
}
