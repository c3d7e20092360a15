//! A fuzzer of the kernel from ring 3. `boss SEED CALLS`: starts copies of itself with random subsets of its capabilities,
//! kills and replaces them until so many calls have been made, and then looks whether everything came back. `child SEED
//! DEPTH`: calls everything with anything, from several threads.
//!
//! What a thread asks for depends on the seed, its process and its number alone. When its requests meet other threads'
//! requests depends on the machine; on one CPU with counted instructions that repeats too.
#![no_std]
#![no_main]

extern crate alloc;

mod boss;
mod child;
mod generate;
mod random;

use mainspring_user::{arch, caps};

mainspring_user::program!(main);

fn main() -> i64 {
    let mut words = caps::arguments().split(' ');
    let role = words.next();
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    match (role, number(), number()) {
        (Some("boss"), Some(seed), Some(calls)) => boss::run(seed, calls),
        (Some("child"), Some(seed), Some(depth)) => child::run(seed, depth),
        (Some("witness"), _, _) => witness(),
        // A copy that was started with garbage for its arguments.
        _ => 0,
    }
}

/// What a witness ends with, unless a process ends it that may not.
pub const WITNESS: i64 = 42;

/// A short life that no other process has a right to end.
fn witness() -> i64 {
    for _ in 0..20 {
        arch::spin(5_000);
        let _ = arch::cap_enter(1, 100_000);
    }
    WITNESS
}

/// What the boss and its descendants share: words of one page.
pub mod shared {
    /// Calls made so far.
    pub const CALLS: u64 = 0;
    /// Not zero when every process is to end.
    pub const STOP: u64 = 8;
    /// Processes started by others than the boss.
    pub const STARTED: u64 = 16;
    /// Requests that were carried out, and those that were refused.
    pub const DONE: u64 = 24;
    /// See [`DONE`].
    pub const REFUSED: u64 = 32;
    /// Entries that were refused as a whole.
    pub const BAD_RING: u64 = 40;
}
