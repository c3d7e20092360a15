//! What user programs of the Mainspring kernel share: entry, memory, a ring client, typed capabilities, threads, printing.
//!
//! ```ignore
//! mainspring_user::program!(main);
//!
//! fn main() -> i64 {
//!     say!("hello from ring 3 at {} ns", mainspring_user::caps::now());
//!     0
//! }
//! ```
#![no_std]

extern crate alloc;

pub mod arch;
pub mod caps;
pub mod client;
pub mod net;
pub mod sync;

use core::fmt::{Arguments, Write};
use core::panic::PanicInfo;
use heapless::String;

pub use mainspring_abi::ring::CapError;
pub use mainspring_schema as schema;

/// Prints one line in one piece; what does not fit into 256 bytes is left out.
pub fn line(text: Arguments<'_>) {
    let mut line: String<256> = String::new();
    let _ = line.write_fmt(text);
    if line.push('\n').is_err() {
        line.pop();
        let _ = line.push('\n');
    }
    caps::print(line.as_bytes());
}

/// Prints one line, as `println!` would.
#[macro_export]
macro_rules! say {
    ($($arguments:tt)*) => { $crate::line(format_args!($($arguments)*)) };
}

/// Makes a function the program's beginning.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[unsafe(no_mangle)]
        #[expect(unsafe_code, reason = "the symbol that the library starts")]
        fn mainspring_main() -> i64 {
            $main()
        }
    };
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    line(format_args!("PANIC in a program: {info}"));
    arch::exit(mainspring_abi::kernel::EXIT_PROCESS, -1)
}
