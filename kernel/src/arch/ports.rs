//! Devices behind I/O ports: the serial line, QEMU's exit device and debug console, the timer chip and the old PICs.

use super::calibrate::PIT_HZ;
use core::fmt;
use x86_64::instructions::port::{Port, PortReadOnly, PortWriteOnly};

const COM1: u16 = 0x3f8;
const EXIT: u16 = 0xf4;
const DEBUGCON: u16 = 0xe9;

/// How the machine ends. QEMU's own exit code is twice this plus one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ExitCode {
    /// All that was to be done was done.
    Success = 0x10,
    /// The boot image or the machine is unusable.
    BadBoot = 0x11,
    /// A process that had to succeed did not.
    Failed = 0x12,
    /// The kernel broke one of its own rules.
    Panic = 0x13,
}

/// Ends the machine.
pub fn exit(code: ExitCode) -> ! {
    let mut port = PortWriteOnly::<u32>::new(EXIT);
    loop {
        // SAFETY: the port belongs to QEMU's isa-debug-exit; where there is none, the write does nothing.
        unsafe { port.write(code as u32) };
        x86_64::instructions::hlt();
    }
}

pub(super) fn init_serial() {
    let set = |offset: u16, value: u8| {
        // SAFETY: the registers of the first serial port, which no other code drives.
        unsafe { PortWriteOnly::<u8>::new(COM1 + offset).write(value) };
    };
    set(1, 0); // no interrupts
    set(3, 0x80); // divisor
    set(0, 1);
    set(1, 0);
    set(3, 3); // 8 bits
    set(2, 0xc7); // queues
    set(4, 3);
}

/// The first serial port.
#[derive(Debug)]
pub struct Serial;

impl Serial {
    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        let mut status = PortReadOnly::<u8>::new(COM1 + 5);
        let mut data = PortWriteOnly::<u8>::new(COM1);
        for byte in bytes {
            // SAFETY: the serial port's own registers; reading the status has no effect.
            unsafe {
                while status.read() & 0x20 == 0 {
                    core::hint::spin_loop();
                }
                data.write(*byte);
            }
        }
    }

    /// A byte that has come in, if any.
    pub fn receive(&mut self) -> Option<u8> {
        // SAFETY: the serial port's own registers.
        unsafe {
            let waiting = PortReadOnly::<u8>::new(COM1 + 5).read() & 1 != 0;
            waiting.then(|| PortReadOnly::<u8>::new(COM1).read())
        }
    }
}

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.send(text.as_bytes());
        Ok(())
    }
}

/// Sends bytes to the debug console, where the host keeps them in a file.
pub fn record_out(bytes: &[u8]) {
    // SAFETY: `rep outsb` reads the slice and writes to QEMU's debugcon; where there is none, nothing happens.
    unsafe {
        core::arch::asm!(
            "rep outsb",
            inout("rsi") bytes.as_ptr() => _, inout("rcx") bytes.len() => _, in("dx") DEBUGCON,
            options(nostack, readonly, preserves_flags)
        );
    }
}

/// Sets both PICs to vectors 32 and up and masks all of their lines: the local APIC delivers everything.
pub(super) fn mask_pics() {
    let write = |port: u16, value: u8| {
        // SAFETY: the command and data ports of the two PICs.
        unsafe { Port::<u8>::new(port).write(value) };
    };
    for (command, first, wiring) in [(0x20, 32, 4), (0xa0, 40, 2)] {
        write(command, 0x11);
        write(command + 1, first);
        write(command + 1, wiring);
        write(command + 1, 1);
        write(command + 1, 0xff);
    }
}

/// Opens the first line of the old controllers, which is the PIT's.
pub(super) fn open_pit_line() {
    // SAFETY: the mask register of the first PIC.
    unsafe { PortWriteOnly::<u8>::new(0x21).write(0xfe) };
}

/// Ends an interrupt of the first PIC.
pub(super) fn end_of_pic_interrupt() {
    // SAFETY: the command register of the first PIC.
    unsafe { PortWriteOnly::<u8>::new(0x20).write(0x20) };
}

/// Lets channel 0 of the PIT interrupt every `counts`.
pub(super) fn pit_tick(counts: u16) {
    // SAFETY: channel 0 interrupts and does nothing else; its line is masked until it is used.
    unsafe {
        PortWriteOnly::<u8>::new(0x43).write(0x34); // channel 0, both bytes, again and again
        let [low, high] = counts.to_le_bytes();
        PortWriteOnly::<u8>::new(0x40).write(low);
        PortWriteOnly::<u8>::new(0x40).write(high);
    }
}

const PIT_GATE: u16 = 0x61;

/// Lets channel 2 of the PIT count down from the top; it takes 54 ms and needs no interrupt.
pub(super) fn pit_start() {
    let mut gate = Port::<u8>::new(PIT_GATE);
    // SAFETY: channel 2 drives the speaker only; its gate and output are bits of port 0x61.
    unsafe {
        let off = gate.read() & !3;
        gate.write(off);
        PortWriteOnly::<u8>::new(0x43).write(0xb0); // channel 2, both bytes, count down once
        PortWriteOnly::<u8>::new(0x42).write(0xff);
        PortWriteOnly::<u8>::new(0x42).write(0xff);
        gate.write(off | 1);
    }
}

/// How far it has counted since [`pit_start`], or `None` if it has reached its end.
pub(super) fn pit_elapsed() -> Option<u64> {
    // SAFETY: as above; latching and reading disturb nothing.
    unsafe {
        PortWriteOnly::<u8>::new(0x43).write(0x80);
        let low = Port::<u8>::new(0x42).read();
        let high = Port::<u8>::new(0x42).read();
        let over = Port::<u8>::new(PIT_GATE).read() & 0x20 != 0;
        (!over).then(|| u64::from(u16::MAX - u16::from_le_bytes([low, high])))
    }
}

/// Waits for `ms` milliseconds, at most 50.
pub(super) fn pit_wait(ms: u64) {
    pit_start();
    while pit_elapsed().is_some_and(|counts| counts * 1000 < ms * PIT_HZ) {
        core::hint::spin_loop();
    }
}
