//! Lines for people, on the serial port. Every line of the kernel begins with the part that speaks.

use crate::arch::{ExitCode, Serial, cpu, exit};
use crate::measure::{self, Counter};
use core::fmt::{Arguments, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};
use spin::Mutex;

static SERIAL: Mutex<Serial> = Mutex::new(Serial);
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Prints one line. Whole lines are kept together whichever CPU prints them.
pub fn line(text: Arguments<'_>) {
    debug_assert_eq!(cpu::held(), 0, "a line is printed with a scheduler core locked");
    let mut serial = SERIAL.lock();
    let _ = writeln!(Counted(&mut serial), "{text}");
}

/// Counts what goes through it.
struct Counted<'s>(&'s mut Serial);

impl Write for Counted<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        measure::add(Counter::SerialBytes, text.len() as u64);
        self.0.write_str(text)
    }
}

/// Prints bytes of a user program.
pub fn bytes(bytes: &[u8]) {
    measure::add(Counter::SerialBytes, bytes.len() as u64);
    SERIAL.lock().send(bytes);
}

/// A byte that was typed, if any.
pub fn typed() -> Option<u8> {
    SERIAL.lock().receive()
}

/// Prints one line, as `println!` would.
#[macro_export]
macro_rules! say {
    ($($arguments:tt)*) => { $crate::log::line(format_args!($($arguments)*)) };
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if !PANICKED.swap(true, Ordering::AcqRel) {
        // The holder of the lock may have panicked: the line goes out in any case.
        let _ = writeln!(Serial, "\nPANIC cpu={}: {info}", cpu::index());
    }
    exit(ExitCode::Panic)
}
