//! A fuzzer of the kernel from ring 3. `boss SEED CALLS`: starts copies of itself with random subsets of its capabilities,
//! kills and replaces them until so many calls have been made, and then looks whether everything came back. `child SEED
//! DEPTH`: calls everything with anything, from several threads. `driver SEED`: has the machine's card. `lodger SEED`: begins with
//! a session of its own, which its fuzzers get.
//!
//! What a thread asks for depends on the seed, its process and its number alone. When its requests meet other threads'
//! requests depends on the machine; on one CPU with counted instructions that repeats too.
#![no_std]
#![no_main]

extern crate alloc;

mod boss;
mod child;
mod driver;
mod generate;
mod methods;
mod random;
mod settle;
mod shared;

use mainspring_user::{arch, caps};

mainspring_user::program!(main);

fn main() -> i64 {
    let mut words = caps::arguments().split(' ');
    let role = words.next();
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    match (role, number(), number()) {
        (Some("boss"), Some(seed), Some(calls)) => boss::run(seed, calls),
        (Some("child"), Some(seed), Some(depth)) => child::run(seed, depth),
        (Some("driver"), Some(seed), None) => driver::run(seed),
        (Some("lodger"), Some(seed), None) => boss::lodge(seed),
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
