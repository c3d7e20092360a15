//! What the machine says of itself: read by the checks of `sched::check`, changed by nothing here.

use super::context::{Context, ContextCell, FRAME_SIZE};
use super::{apic, cpu, paging};
use x86_64::registers::control::{Cr3, Cr4, Cr4Flags};
use x86_64::registers::model_specific::FsBase;
use x86_64::registers::rflags::{self, RFlags};
use x86_64::registers::segmentation::{CS, SS, Segment};

/// The kernel's code segment, with privilege level 0.
const KERNEL_CODE: u16 = 0x08;
/// Its stack segment. The processor leaves none at all when it interrupts user mode, which is as good.
const KERNEL_STACKS: [u16; 2] = [0x10, 0];

/// Whether this CPU runs with the kernel's selectors, at privilege level 0, on its own kernel stack.
#[must_use]
pub fn runs_as_kernel() -> bool {
    let here = 0_u8;
    let (at, top) = ((&raw const here) as u64, cpu::stack_top());
    CS::get_reg().0 == KERNEL_CODE
        && KERNEL_STACKS.contains(&SS::get_reg().0)
        && (top - cpu::STACK_BYTES as u64..top).contains(&at)
}

/// Whether interrupts can come.
#[must_use]
pub fn interrupts_are_on() -> bool {
    x86_64::instructions::interrupts::are_enabled()
}

/// The page tables that the processor uses; 0 for the kernel's own.
#[must_use]
pub fn tables() -> u64 {
    let root = Cr3::read().0.start_address().as_u64();
    if root == paging::kernel_table() { 0 } else { root }
}

/// Whether touching a user page would be a fault of the kernel here.
#[must_use]
pub fn user_pages_are_shut() -> bool {
    Cr4::read().contains(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION)
        && !rflags::read().contains(RFlags::ALIGNMENT_CHECK)
}

/// Whether the kernel runs without any flag of the thread that it was entered from which would change what it does.
#[must_use]
pub fn flags_are_the_kernels() -> bool {
    let foreign = RFlags::ALIGNMENT_CHECK
        | RFlags::DIRECTION_FLAG
        | RFlags::NESTED_TASK
        | RFlags::TRAP_FLAG
        | RFlags::INTERRUPT_FLAG;
    !rflags::read().intersects(foreign)
}

/// Whether the processor can leave to the context that `cell` has, which this CPU has, without a fault: user selectors, and
/// addresses of user memory. Nothing but the processor itself and [`Context::start`] writes them.
#[must_use]
pub fn can_leave_to(cell: &ContextCell) -> bool {
    cell.mine().is_of_user_mode()
}

/// What belongs to user threads and is not saved: the FS base, and where entries go.
#[must_use]
pub fn user_side() -> (u64, (u64, u64)) {
    (FsBase::read().as_u64(), cpu::entries())
}

/// Whether system calls and interrupts both enter into `cell`'s context, which this CPU has.
#[must_use]
pub fn enters_into(cell: &ContextCell) -> bool {
    let end = core::ptr::from_mut::<Context>(cell.mine()) as u64 + FRAME_SIZE as u64;
    cpu::entries() == (end, end)
}

/// Whether the FS base that is loaded is the one of `cell`'s context, which this CPU has.
#[must_use]
pub fn has_base_of(cell: &ContextCell) -> bool {
    cell.mine().has_fs_base(FsBase::read().as_u64())
}

/// Whether the one-shot that was armed last has not come yet.
#[must_use]
pub fn timer_is_counting() -> bool {
    apic::is_counting()
}
