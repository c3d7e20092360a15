//! Starting the other CPUs, one at a time.

use super::cpu::{self, MAX_CPUS};
use super::ports::pit_wait;
use super::{DIRECT_MAP, apic};

/// The page below 1 MiB at which a starting CPU begins.
pub const TRAMPOLINE: u64 = 0x8000;

unsafe extern "C" {
    static ap_trampoline: u8;
    static ap_trampoline_end: u8;
    static ap_stack: u8;
    static ap_table: u8;
}

fn offset(symbol: *const u8) -> u64 {
    symbol as u64 - (&raw const ap_trampoline) as u64
}

fn write_word(at: u64, value: u64) {
    // SAFETY: the trampoline's page is below the memory that other code uses.
    unsafe { ((DIRECT_MAP + TRAMPOLINE + at) as *mut u64).write_volatile(value) };
}

/// How long a CPU is waited for. Where CPUs are virtual, the host may let one wait for its turn longer than any
/// processor takes.
const PATIENCE_MS: u64 = 20_000;
/// When it is told once more.
const AGAIN_MS: u64 = 100;
const LOOK_MS: u64 = 5;

/// What came of starting a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a CPU that is late may still come, on the stack that was made for it"]
pub enum Started {
    /// It is up.
    Online,
    /// It is the one that asks, or there are as many as the kernel can have.
    NotWanted,
    /// It never came. No other may be started: the two would share a stack if it comes after all.
    Late,
}

/// Starts the CPU with this APIC id as the next number.
pub fn start(apic_id: u8) -> Started {
    let number = cpu::online();
    if number >= MAX_CPUS || apic_id == apic::id() {
        return Started::NotWanted;
    }
    let stack = cpu::prepare_next(number);
    let len = offset(&raw const ap_trampoline_end) as usize;
    // SAFETY: source and target are mapped, apart from each other, and no CPU executes the target yet.
    unsafe {
        let from = ((&raw const ap_trampoline) as u64 + DIRECT_MAP) as *const u8;
        core::ptr::copy_nonoverlapping(from, (DIRECT_MAP + TRAMPOLINE) as *mut u8, len);
    }
    write_word(offset(&raw const ap_stack), stack);
    write_word(offset(&raw const ap_table), super::paging::kernel_table());
    apic::send_init(apic_id);
    pit_wait(10);
    for waited_ms in (0..PATIENCE_MS).step_by(LOOK_MS as usize) {
        if waited_ms == 0 || waited_ms == AGAIN_MS {
            apic::send_startup(apic_id, (TRAMPOLINE >> 12) as u8);
        }
        if cpu::online() > number {
            return Started::Online;
        }
        pit_wait(LOOK_MS);
    }
    Started::Late
}

/// Where a started CPU arrives in Rust: on its own stack, with the kernel's page tables.
pub(super) extern "C" fn ap_start() -> ! {
    cpu::init_started_cpu();
    crate::secondary_main()
}
