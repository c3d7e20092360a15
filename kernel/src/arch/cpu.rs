//! What each CPU has for itself: its block behind GS, its segments, its stacks.

use super::boot_info::BootInfo;
use super::context::{Context, FRAME_SIZE};
use super::paging::{self, SpaceRoot};
use super::{apic, fallback, features, traps};
use crate::sched::per_cpu::PerCpu;
use alloc::boxed::Box;
use core::arch::asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use x86_64::VirtAddr;
use x86_64::registers::model_specific::{FsBase, GsBase, KernelGsBase};
use x86_64::registers::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::tss::TaskStateSegment;

/// The largest machine that the kernel runs on.
pub const MAX_CPUS: usize = 16;

/// Boot takes most of it, where the tables of processes and threads are built. After boot no frame is larger than 4 KiB.
pub(super) const STACK_BYTES: usize = 128 << 10;
const FAULT_STACK_BYTES: usize = 16 << 10;
const STACKS_PER_CPU: usize = 4;

/// In the order that the entry code knows.
#[repr(C)]
pub(super) struct CpuBlock {
    this: *const CpuBlock,
    user_stack: u64,
    frame_end: u64,
    kernel_stack: u64,
    pending: AtomicU32,
    index: u32,
    held: AtomicU32,
    /// Whether the processor has SMAP, for the entry code.
    smap: u32,
    per_cpu: AtomicPtr<PerCpu>,
    tss: TaskStateSegment,
    gdt: GlobalDescriptorTable,
}

pub(super) const USER_STACK: usize = offset_of!(CpuBlock, user_stack);
pub(super) const FRAME_END: usize = offset_of!(CpuBlock, frame_end);
pub(super) const KERNEL_STACK: usize = offset_of!(CpuBlock, kernel_stack);
pub(super) const SMAP: usize = offset_of!(CpuBlock, smap);
pub(super) const PENDING: usize = offset_of!(CpuBlock, pending);

/// Interrupt stack table entries.
pub(super) const IST_DOUBLE_FAULT: u8 = 1;
pub(super) const IST_NMI: u8 = 2;
pub(super) const IST_MACHINE_CHECK: u8 = 3;

static ONLINE: AtomicUsize = AtomicUsize::new(0);
static APIC_IDS: [AtomicU8; MAX_CPUS] = [const { AtomicU8::new(u8::MAX) }; MAX_CPUS];

fn block() -> *mut CpuBlock {
    let block;
    // SAFETY: GS points to this CPU's block in all kernel code after `load_tables`.
    unsafe { asm!("mov {}, gs:[0]", out(reg) block, options(nostack, preserves_flags, readonly)) };
    block
}

/// Which CPU this is.
#[must_use]
#[inline]
pub fn index() -> usize {
    let index: u32;
    // SAFETY: as in `block`.
    unsafe {
        asm!("mov {0:e}, gs:[{1}]", out(reg) index, const offset_of!(CpuBlock, index),
            options(nostack, preserves_flags, readonly, pure));
    }
    index as usize
}

/// The `PerCpu` that this CPU was given, see [`set_per_cpu`].
#[must_use]
#[inline]
pub fn per_cpu() -> Option<&'static PerCpu> {
    let per_cpu: *const PerCpu;
    // SAFETY: as in `block`; the word only ever gets references that live for ever.
    unsafe {
        asm!("mov {0}, gs:[{1}]", out(reg) per_cpu, const offset_of!(CpuBlock, per_cpu),
            options(nostack, preserves_flags, readonly));
        per_cpu.as_ref()
    }
}

/// This CPU schedules by `per_cpu` from now on.
pub fn set_per_cpu(per_cpu: &'static PerCpu) {
    // SAFETY: this CPU's own block, an atomic in it.
    unsafe { (*block()).per_cpu.store(core::ptr::from_ref(per_cpu).cast_mut(), Ordering::Relaxed) };
}

/// How many CPUs have come up.
#[must_use]
pub fn online() -> usize {
    ONLINE.load(Ordering::Acquire)
}

pub(super) fn apic_id(cpu: usize) -> Option<u8> {
    let id = APIC_IDS.get(cpu)?.load(Ordering::Relaxed);
    (id != u8::MAX).then_some(id)
}

/// While it lives, this CPU has a scheduler core locked. Only builds with debug assertions count that.
#[derive(Debug)]
pub struct Held(());

impl Held {
    /// Another one.
    #[must_use]
    #[inline(always)]
    pub fn new() -> Self {
        #[cfg(debug_assertions)]
        // SAFETY: this CPU's own block, an atomic in it.
        unsafe {
            (*block()).held.fetch_add(1, Ordering::Relaxed)
        };
        Self(())
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { (*block()).held.fetch_sub(1, Ordering::Relaxed) };
    }
}

/// How many scheduler cores this CPU has locked, see [`Held`].
#[must_use]
pub fn held() -> u32 {
    // SAFETY: this CPU's own block, an atomic in it.
    unsafe { (*block()).held.load(Ordering::Relaxed) }
}

pub(super) fn set_fs_base(base: u64) {
    FsBase::write(VirtAddr::new_truncate(base));
}

/// Clears the selectors that a thread can set and that the kernel does not keep with it. The FS base goes with its selector, and is to
/// be set afterwards.
pub fn clear_selectors() {
    // SAFETY: nothing is addressed through DS, ES and FS in the kernel. The base that goes with GS is the user's at that moment, which
    // is always 0. Interrupts are off, and what comes all the same never goes on (`traps.rs`).
    unsafe {
        asm!("mov ds, {0:e}", "mov es, {0:e}", "mov fs, {0:e}", "swapgs", "mov gs, {0:e}", "swapgs", in(reg) 0_u32,
            options(nostack, preserves_flags));
    }
}

/// The one place where entries from user mode are aimed: the processor's and the system call's together.
pub(super) fn set_entry(context: &mut Context) {
    let end = core::ptr::from_mut(context) as u64 + FRAME_SIZE as u64;
    let block = block();
    // SAFETY: this CPU's own block; interrupts are off, so nothing enters the kernel meanwhile.
    unsafe {
        (*block).frame_end = end;
        // The address of a Rust value is canonical.
        (&raw mut (*block).tss.privilege_stack_table[0]).write_unaligned(VirtAddr::new_truncate(end));
    }
}

/// Where system calls and where interrupts put what they save.
pub(super) fn entries() -> (u64, u64) {
    let block = block();
    // SAFETY: this CPU's own block.
    unsafe {
        let interrupts = (&raw const (*block).tss.privilege_stack_table[0]).read_unaligned();
        ((*block).frame_end, interrupts.as_u64())
    }
}

/// The context that entries are aimed at.
pub(super) fn entry() -> *mut Context {
    // SAFETY: this CPU's own block.
    unsafe { ((*block()).frame_end - FRAME_SIZE as u64) as *mut Context }
}

/// Goes over to the address space with these tables.
pub fn load_space(root: u64) {
    SpaceRoot::load(root);
}

/// Goes over to the kernel's own tables.
pub fn load_kernel_space() {
    paging::load_kernel();
}

/// Forgets the translations of user addresses.
pub fn flush_translations() {
    paging::flush();
}

/// What came while the CPU halted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// The timer.
    pub timer: bool,
    /// A message of another CPU.
    pub message: bool,
    /// Messages of devices, a bit for each line.
    pub devices: u8,
}

/// Halts until an interrupt. Here and in [`take_interrupts`] the kernel can be interrupted; what came was only noted.
#[must_use]
pub fn halt() -> Pending {
    // SAFETY: `sti` takes effect after the next instruction, so no interrupt is lost between the two; the entry code
    // saves what it uses, and all registers that a call may change are given up besides.
    unsafe { asm!("sti", "hlt", "cli", clobber_abi("sysv64")) };
    take_pending()
}

/// Takes the interrupts that have come, which are only noted, and goes on. No lock is held.
#[must_use]
pub fn take_interrupts() -> Pending {
    // SAFETY: as in `halt`; the instruction in the middle is there because `sti` takes effect after it.
    unsafe { asm!("sti", "nop", "cli", clobber_abi("sysv64")) };
    take_pending()
}

/// What has been noted and not taken yet.
#[must_use]
pub fn take_pending() -> Pending {
    // SAFETY: this CPU's own block, an atomic in it.
    let bits = unsafe { (*block()).pending.swap(0, Ordering::Relaxed) };
    let fallback_tick = bits & 4 != 0;
    if fallback_tick {
        fallback::pass_on();
    }
    let devices = (bits >> (apic::DEVICE_VECTOR - apic::TIMER_VECTOR)) as u8;
    Pending { timer: bits & 1 != 0 || fallback_tick, message: bits & 2 != 0, devices }
}

/// Makes what CPU `number` will need: its stacks and its block. Done by the boot CPU, which has a heap to make it from.
fn prepare(number: usize) -> &'static mut CpuBlock {
    let stack = paging::kernel_stack(number * STACKS_PER_CPU, STACK_BYTES);
    let mut tss = TaskStateSegment::new();
    for ist in 1..STACKS_PER_CPU {
        let top = paging::kernel_stack(number * STACKS_PER_CPU + ist, FAULT_STACK_BYTES);
        tss.interrupt_stack_table[ist - 1] = VirtAddr::new(top);
    }
    Box::leak(Box::new(CpuBlock {
        this: core::ptr::null(),
        user_stack: 0,
        frame_end: 0,
        kernel_stack: stack,
        pending: AtomicU32::new(0),
        index: number as u32,
        held: AtomicU32::new(0),
        smap: 0,
        per_cpu: AtomicPtr::new(core::ptr::null_mut()),
        tss,
        gdt: GlobalDescriptorTable::new(),
    }))
}

/// Makes the calling CPU the one that `block` was made for: segments, interrupts, system calls.
fn load_tables(block: &'static mut CpuBlock) {
    block.this = block;
    block.smap = u32::from(features::has_smap());
    // In the order that syscall, sysret and the selectors of `context.rs` need.
    let code = block.gdt.append(Descriptor::kernel_code_segment());
    let data = block.gdt.append(Descriptor::kernel_data_segment());
    block.gdt.append(Descriptor::user_data_segment());
    block.gdt.append(Descriptor::user_code_segment());
    // SAFETY: the block is leaked, so the segment's base lives for ever.
    let task = block.gdt.append(unsafe { Descriptor::tss_segment_unchecked(&raw const block.tss) });
    // SAFETY: the tables are complete and live for ever; the selectors are theirs.
    unsafe {
        block.gdt.load_unsafe();
        CS::set_reg(code);
        SS::set_reg(data);
        DS::set_reg(data);
        ES::set_reg(data);
        x86_64::instructions::tables::load_tss(task);
    }
    GsBase::write(VirtAddr::from_ptr(block));
    KernelGsBase::write(VirtAddr::zero());
    traps::load();
    features::init_syscalls();
    APIC_IDS[block.index as usize].store(apic::id(), Ordering::Relaxed);
}

/// The block of the CPU that is being started.
static STARTING: AtomicPtr<CpuBlock> = AtomicPtr::new(core::ptr::null_mut());

/// Makes what the next CPU will need; the top of its stack.
pub(super) fn prepare_next(number: usize) -> u64 {
    let block = prepare(number);
    let stack = block.kernel_stack;
    STARTING.store(block, Ordering::Release);
    stack
}

pub(super) fn init_boot_cpu(info: BootInfo) -> ! {
    let block = prepare(0);
    let stack = block.kernel_stack;
    load_tables(block);
    ONLINE.store(1, Ordering::Release);
    let info = Box::into_raw(Box::new(info));
    // SAFETY: the new stack is mapped and empty; nothing on the boot stack is used again.
    unsafe {
        asm!("mov rsp, {}", "xor ebp, ebp", "call {}", "ud2",
            in(reg) stack, sym on_own_stack, in("rdi") info, options(noreturn));
    }
}

extern "C" fn on_own_stack(info: *mut BootInfo) -> ! {
    // SAFETY: `init_boot_cpu` made it from a box and gave it away.
    let info = unsafe { Box::from_raw(info) };
    crate::kernel_main(&info)
}

/// A CPU that was started has arrived, on the stack made for it.
pub(super) fn init_started_cpu() {
    features::init();
    apic::init_cpu();
    // SAFETY: `prepare_next` leaked the block for this CPU alone, which is the only one being started.
    load_tables(unsafe { &mut *STARTING.load(Ordering::Acquire) });
    ONLINE.fetch_add(1, Ordering::AcqRel);
}

/// Leaves the kernel to the installed context, never to return here. The boot and idle stack is used again by the
/// next entry.
pub fn enter_user() -> ! {
    traps::resume_user(entry())
}

/// The top of this CPU's kernel stack.
pub(super) fn stack_top() -> u64 {
    // SAFETY: this CPU's own block.
    unsafe { (*block()).kernel_stack }
}
