//! Page tables: how they are walked, and the kernel's own.
//!
//! Conserved: no page is both writable and executable, for users or for the kernel, in any of its mappings. The upper half
//! of every address space is the kernel's, complete before the first process exists and never changed at its top level.

use super::frames::{Frame, PAGE, kernel_end};
use super::{DEVICES_START, DIRECT_MAP, DIRECT_MAP_SIZE, KERNEL_BASE};
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_kernel_core::ledger::Refused;

pub(super) const PRESENT: u64 = 1;
pub(super) const WRITE: u64 = 1 << 1;
pub(super) const USER: u64 = 1 << 2;
pub(super) const UNCACHED: u64 = 1 << 4 | 1 << 3;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
pub(super) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// User addresses end below this; the last pages stay unmapped, so that no system call can be at the very end.
pub const USER_END: u64 = 0x7fff_ffff_0000;
/// Kernel stacks, each with an unmapped page below it.
const STACKS: u64 = 0xffff_c000_0000_0000;
const STACK_STRIDE: u64 = 1 << 20;

static KERNEL_TABLE: AtomicU64 = AtomicU64::new(0);

/// What a user page may be used for. There is no way to ask for both writing and execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flags {
    /// Read.
    Read,
    /// Read and write.
    Write,
    /// Read and execute.
    Execute,
}

impl Flags {
    /// What the bits of an entry allow.
    pub(super) fn of(bits: u64) -> Self {
        match (bits & WRITE != 0, bits & NO_EXECUTE == 0) {
            (true, _) => Self::Write,
            (false, true) => Self::Execute,
            (false, false) => Self::Read,
        }
    }

    /// Whether a page that has the one may not have the other at the same time.
    #[must_use]
    pub fn excludes(self, other: Self) -> bool {
        matches!((self, other), (Self::Write, Self::Execute) | (Self::Execute, Self::Write))
    }

    pub(super) fn bits(self) -> u64 {
        PRESENT
            | USER
            | match self {
                Self::Read => NO_EXECUTE,
                Self::Write => WRITE | NO_EXECUTE,
                Self::Execute => 0,
            }
    }
}

/// Why a mapping was refused; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// Not a page of user space.
    BadAddress,
    /// Something is mapped there.
    Occupied,
    /// Another operation is under way there: try again.
    Busy,
    /// The object has been writable and may not be executed, or the other way round.
    Denied,
    /// The ledger refuses it.
    Refused(Refused),
    /// No memory for the tables.
    NoMemory,
}

/// The tables of an address space, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceRoot(pub(super) u64);

impl SpaceRoot {
    /// As a number, to be kept in an atomic.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From [`SpaceRoot::to_bits`].
    pub(super) fn load(bits: u64) {
        load(bits);
    }
}

fn table(physical: u64) -> *mut u64 {
    (DIRECT_MAP + physical) as *mut u64
}

/// # Safety
///
/// `physical` is a page table that no other code changes meanwhile.
pub(super) unsafe fn entry(physical: u64, index: u64) -> *mut u64 {
    // SAFETY: an index below 512 stays in the table.
    unsafe { table(physical).add((index & 511) as usize) }
}

/// The entry of `address` at `level` (0 for 4 KiB pages, 1 for 2 MiB), with missing tables made on the way.
///
/// # Safety
///
/// As for [`entry`]; `root` is a top-level table.
pub(super) unsafe fn walk(root: u64, address: u64, level: u32, make: u64) -> Option<*mut u64> {
    let mut at = root;
    for step in (level + 1..4).rev() {
        // SAFETY: each step goes to a table that the one above points to.
        unsafe {
            let slot = entry(at, address >> (12 + 9 * step));
            if *slot & PRESENT == 0 {
                if make == 0 {
                    return None;
                }
                *slot = Frame::new()?.into_address() | make;
            }
            if *slot & LARGE != 0 {
                return None;
            }
            at = *slot & ADDRESS;
        }
    }
    // SAFETY: as above.
    Some(unsafe { entry(at, address >> (12 + 9 * level)) })
}

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_start: u8;
    static __rodata_end: u8;
}

/// Builds the kernel's own tables and goes over to them.
pub(super) fn init() {
    let root = Frame::new().expect("memory for the first table").into_address();
    let text = ((&raw const __text_start) as u64)..((&raw const __text_end) as u64);
    let rodata = ((&raw const __rodata_start) as u64)..((&raw const __rodata_end) as u64);
    let kernel = |address: u64, level: u32, bits: u64| {
        // SAFETY: the tables are being built and no CPU uses them yet.
        let slot =
            unsafe { walk(root, address, level, PRESENT | WRITE) }.expect("memory for the kernel's tables");
        // SAFETY: as above.
        unsafe { *slot = bits | PRESENT | GLOBAL };
    };
    let image_end = kernel_end();
    // The image: code cannot be written, data cannot be executed.
    let mut at = text.start - KERNEL_BASE;
    while at < image_end {
        let linked = at + KERNEL_BASE;
        let bits = if text.contains(&linked) {
            0
        } else if rodata.contains(&linked) {
            NO_EXECUTE
        } else {
            NO_EXECUTE | WRITE
        };
        kernel(linked, 0, at | bits);
        at += PAGE as u64;
    }
    // Everything else once more, never executable; what the image cannot write is not writable here either.
    let split_end = image_end.next_multiple_of(2 << 20);
    for at in (0..split_end).step_by(PAGE) {
        let linked = at + KERNEL_BASE;
        let fixed = text.contains(&linked) || rodata.contains(&linked);
        kernel(DIRECT_MAP + at, 0, at | NO_EXECUTE | if fixed { 0 } else { WRITE });
    }
    for at in (split_end..DIRECT_MAP_SIZE).step_by(2 << 20) {
        let device = if at >= DEVICES_START { UNCACHED } else { 0 };
        kernel(DIRECT_MAP + at, 1, at | NO_EXECUTE | WRITE | LARGE | device);
    }
    // The tables of the stacks' region exist from now on, so that all address spaces share them.
    // SAFETY: as above.
    let _ = unsafe { walk(root, STACKS, 0, PRESENT | WRITE) };
    KERNEL_TABLE.store(root, Ordering::Release);
    load(root);
}

/// Makes `root` the tables of this CPU.
fn load(root: u64) {
    // SAFETY: every root has the kernel's upper half, where this code and its stack are.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

/// The kernel's own tables, for a CPU that starts.
pub(super) fn kernel_table() -> u64 {
    KERNEL_TABLE.load(Ordering::Acquire)
}

/// The kernel's own tables, for a thread that has no address space any more.
#[must_use]
pub fn kernel_root() -> SpaceRoot {
    SpaceRoot(kernel_table())
}

/// Loads the kernel's own tables, which have no user half, on this CPU.
pub(super) fn load_kernel() {
    load(KERNEL_TABLE.load(Ordering::Acquire));
}

/// Forgets all translations of user addresses on this CPU.
pub(super) fn flush() {
    let root: u64;
    // SAFETY: reading the register changes nothing, and writing it back flushes.
    unsafe { core::arch::asm!("mov {}, cr3", out(reg) root, options(nostack, preserves_flags)) };
    load(root);
}

/// A new kernel stack; its top. Below it a page is missing: running over ends in a fault, not in other data.
pub(super) fn kernel_stack(number: usize, bytes: usize) -> u64 {
    let base = STACKS + number as u64 * STACK_STRIDE;
    let root = KERNEL_TABLE.load(Ordering::Acquire);
    for at in (PAGE..PAGE + bytes).step_by(PAGE) {
        let frame = Frame::new().expect("memory for a kernel stack").into_address();
        // SAFETY: stacks are made by the boot CPU alone, before others use their region.
        unsafe {
            let slot =
                walk(root, base + at as u64, 0, PRESENT | WRITE).expect("memory for a kernel stack's tables");
            *slot = frame | PRESENT | WRITE | NO_EXECUTE | GLOBAL;
        }
    }
    base + (PAGE + bytes) as u64
}
