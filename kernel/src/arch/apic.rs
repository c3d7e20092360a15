//! The local APIC, in plain xAPIC mode: the timer of each CPU, and messages between CPUs.

use super::calibrate::{Measured, PIT_HZ, Sample};
use super::ports::{mask_pics, pit_elapsed, pit_start};
use super::{DIRECT_MAP, clock, cpu};
use core::sync::atomic::{AtomicU64, Ordering};
use mainspring_abi::{CpuId, Nanos};
use mainspring_sched::ClockEvent;

pub(super) const BASE: u64 = 0xfee0_0000;
const ID: u64 = 0x20;
const EOI: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const ERRORS: u64 = 0x280;
const COMMAND_LOW: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
const TIMER: u64 = 0x320;
const LINE_0: u64 = 0x350;
const INITIAL: u64 = 0x380;
const CURRENT: u64 = 0x390;
const DIVIDE: u64 = 0x3e0;

const MASKED: u32 = 1 << 16;
const PERIODIC: u32 = 1 << 17;
const DELIVERING: u32 = 1 << 12;
/// The old controller says which vector.
const EXTERNAL: u32 = 7 << 8;
const ALL_OTHERS: u32 = 3 << 18;
/// Checksum, acceptance and vector of what was sent.
const SEND_ERRORS: u32 = 1 << 0 | 1 << 2 | 1 << 5;
const DIVIDE_BY_16: u32 = 3;

/// The timer's interrupt.
pub const TIMER_VECTOR: u8 = 48;
/// Another CPU asks for something: a look at the queue, or at pending flushes.
pub const MESSAGE_VECTOR: u8 = 49;
/// The first of the lines on which devices' messages come. The entry code notes vector 48 + n of a halted CPU in bit n.
pub const DEVICE_VECTOR: u8 = 56;
/// How many lines there are.
pub const DEVICE_LINES: usize = 8;
/// Nothing happened after all.
pub const SPURIOUS_VECTOR: u8 = 255;
/// Where the PIT arrives if it is the tick, see [`super::fallback`].
pub const PIT_VECTOR: u8 = 32;
/// What the first PIC says when a line was withdrawn before it could say which.
pub const PIC_SPURIOUS_VECTOR: u8 = 39;

/// Physical address of the register that ends an interrupt, for the entry code.
pub const EOI_ADDRESS: u64 = DIRECT_MAP + BASE + EOI;

/// Timer counts per nanosecond, with 32 binary places.
static SCALE: AtomicU64 = AtomicU64::new(0);

fn read(register: u64) -> u32 {
    // SAFETY: the page of this CPU's local APIC, mapped uncached; reads have no side effects.
    unsafe { ((DIRECT_MAP + BASE + register) as *const u32).read_volatile() }
}

fn write(register: u64, value: u32) {
    // SAFETY: as above; what is written is decided in this file alone.
    unsafe { ((DIRECT_MAP + BASE + register) as *mut u32).write_volatile(value) };
}

/// The old interrupt controllers are shut, this CPU's APIC is on, and the clocks have been measured.
pub(super) fn init() {
    mask_pics();
    init_cpu();
    measure();
}

/// Turns on the APIC of the calling CPU.
pub(super) fn init_cpu() {
    write(SPURIOUS, 0x100 | u32::from(SPURIOUS_VECTOR));
    write(TIMER, MASKED | u32::from(TIMER_VECTOR));
    write(DIVIDE, DIVIDE_BY_16);
}

const ROUND_MS: u64 = 10;
const ROUNDS: usize = 5;
/// A round fails when the host holds the machine up for longer than the PIT can count.
const ATTEMPTS: usize = 200;

fn sample() -> Option<Sample> {
    let stamp = clock::counter();
    let pit = pit_elapsed()?;
    let timer = u64::from(u32::MAX - read(CURRENT));
    Some(Sample { pit, stamp, timer, gap: clock::counter() - stamp })
}

/// One stretch of time on all three clocks.
fn round() -> Option<(Sample, Sample)> {
    write(INITIAL, u32::MAX);
    pit_start();
    let first = sample()?;
    for _ in 0..LOOKS {
        let last = sample()?;
        if last.pit.saturating_sub(first.pit) * 1000 >= ROUND_MS * PIT_HZ {
            return Some((first, last));
        }
    }
    None
}

/// A PIT that does not count in so many looks does not count.
const LOOKS: usize = 10_000_000;

/// Measures the timer and the time stamp counter against the PIT. What cannot be measured stays at no counts at all.
fn measure() {
    let measured = Measured::tightest((0..ATTEMPTS).filter_map(|_| round()).take(ROUNDS));
    write(INITIAL, 0);
    if let Some(measured) = measured {
        SCALE.store(measured.timer_scale(), Ordering::Relaxed);
        clock::init(measured.stamps, measured.nanos);
    }
}

/// Timer counts per nanosecond as measured, with 32 binary places; none if it could not be.
#[must_use]
pub fn timer_scale() -> u64 {
    SCALE.load(Ordering::Relaxed)
}

/// Whether the calling CPU's timer is on its way to an interrupt.
pub(super) fn is_counting() -> bool {
    read(CURRENT) != 0
}

pub(super) fn end_of_interrupt() {
    write(EOI, 0);
}

pub(super) fn id() -> u8 {
    (read(ID) >> 24) as u8
}

fn command(target: u8, value: u32) {
    while read(COMMAND_LOW) & DELIVERING != 0 {
        core::hint::spin_loop();
    }
    write(COMMAND_HIGH, u32::from(target) << 24);
    write(COMMAND_LOW, value);
}

pub(super) fn send_init(target: u8) {
    command(target, 0x4500);
}

pub(super) fn send_startup(target: u8, page: u8) {
    command(target, 0x4600 | u32::from(page));
}

/// The calling CPU's timer interrupts no more.
pub(super) fn stop_timer() {
    LapicTimer.stop();
}

/// Lets the old interrupt controller's interrupts through to the calling CPU.
pub(super) fn open_old_controller() {
    write(LINE_0, EXTERNAL);
}

/// Interrupts all other CPUs as their timers would.
pub(super) fn send_tick_to_others() {
    command(0, ALL_OTHERS | 0x4000 | u32::from(TIMER_VECTOR));
}

/// Interrupts another CPU so that it looks at its queue and its pending flushes.
/// Nothing if there is no such CPU.
pub fn send_reschedule(cpu: CpuId) -> Option<()> {
    let target = cpu::apic_id(cpu.index())?;
    command(target, 0x4000 | u32::from(MESSAGE_VECTOR));
    Some(())
}

/// Whether something that this CPU sent since it was last asked was not accepted.
#[must_use]
pub fn sending_failed() -> bool {
    write(ERRORS, 0);
    read(ERRORS) & SEND_ERRORS != 0
}

/// The timer of the CPU that uses it.
#[derive(Debug)]
pub struct LapicTimer;

impl LapicTimer {
    fn counts(delta: Nanos) -> u32 {
        let counts = (u128::from(delta.get()) * u128::from(SCALE.load(Ordering::Relaxed))) >> 32;
        u32::try_from(counts).unwrap_or(u32::MAX).max(1)
    }
}

impl ClockEvent for LapicTimer {
    fn program_periodic(&mut self, period: Nanos) {
        write(TIMER, PERIODIC | u32::from(TIMER_VECTOR));
        write(INITIAL, Self::counts(period));
    }

    fn program_oneshot(&mut self, delta: Nanos) {
        write(TIMER, u32::from(TIMER_VECTOR));
        write(INITIAL, Self::counts(delta));
    }

    fn stop(&mut self) {
        write(TIMER, MASKED | u32::from(TIMER_VECTOR));
        write(INITIAL, 0);
    }

    fn min_delta(&self) -> Nanos {
        Nanos::from_micros(1)
    }

    fn max_delta(&self) -> Nanos {
        Nanos::from_secs(1)
    }
}
