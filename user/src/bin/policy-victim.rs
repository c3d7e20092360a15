//! A program that computes until it is killed: it wants as much of a CPU as it can get.
#![no_std]
#![no_main]

use mainspring_user::arch;

mainspring_user::program!(main);

fn main() -> i64 {
    loop {
        arch::spin(10_000);
    }
}
