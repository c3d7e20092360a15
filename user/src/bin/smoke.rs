//! The boot smoke.
#![no_std]
#![no_main]

use mainspring_user::{caps, say};

mainspring_user::program!(main);

fn main() -> i64 {
    say!("smoke: hello from ring 3 at {} ns", caps::now());
    0
}
