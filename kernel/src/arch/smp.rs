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
    // SAFETY: the trampoline's page is below the memory that anybody else uses.
    unsafe { ((DIRECT_MAP + TRAMPOLINE + at) as *mut u64).write_volatile(value) };
}

/// Starts the CPU with this APIC id as the next number; whether it came up within its time.
pub fn start(apic_id: u8) -> bool {
    let number = cpu::online();
    if number >= MAX_CPUS || apic_id == apic::id() {
        return false;
    }
    let stack = cpu::prepare_next(number);
    let len = offset(&raw const ap_trampoline_end) as usize;
    // SAFETY: source and target are mapped, apart from each other, and nobody executes the target yet.
    unsafe {
        let from = ((&raw const ap_trampoline) as u64 + DIRECT_MAP) as *const u8;
        core::ptr::copy_nonoverlapping(from, (DIRECT_MAP + TRAMPOLINE) as *mut u8, len);
    }
    write_word(offset(&raw const ap_stack), stack);
    write_word(offset(&raw const ap_table), super::paging::kernel_table());
    apic::send_init(apic_id);
    pit_wait(10);
    for _ in 0..2 {
        apic::send_startup(apic_id, (TRAMPOLINE >> 12) as u8);
        for _ in 0..20 {
            if cpu::online() > number {
                return true;
            }
            pit_wait(5);
        }
    }
    false
}

/// Where a started CPU arrives in Rust: on its own stack, with the kernel's page tables.
pub(super) extern "C" fn ap_start() -> ! {
    cpu::settle_started();
    crate::secondary_main()
}
