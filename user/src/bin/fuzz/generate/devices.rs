//! Requests of a process that has a device.
//!
//! There is no IOMMU: a device writes wherever its driver tells it to, and the kernel trusts a driver with that
//! (docs/security.md). A fuzzer that told it an address would find what is known. So it may ask for everything, registers
//! included, but never writes a register: a process with a device has no address space to map them into (`boss.rs`).
//! `driver.rs` maps them, to read.

use super::{Params, edge, schema, small_or_edge};
use crate::random::Random;
use schema::DeviceMethod;

/// The parameters of a method of a device.
pub fn parameters(random: &mut Random, method: DeviceMethod) -> Params {
    match method {
        DeviceMethod::Info => Params::none(),
        DeviceMethod::Config => number(small_or_edge(random, 256)),
        // A card has registers at a few of six places.
        DeviceMethod::Memory => number(small_or_edge(random, 6)),
        DeviceMethod::CreateDma => {
            let pages = match random.below(8) {
                0 => edge(random) & 0xffff_ffff,
                1 => 250 + random.below(10),
                _ => 1 + random.below(64),
            };
            Params::with(&[edge(random), pages], 0)
        }
        DeviceMethod::Interrupt => number(small_or_edge(random, 4)),
    }
}

/// A page of memory that a device can reach.
pub fn page_number(random: &mut Random) -> Params {
    number(small_or_edge(random, 64))
}

fn number(number: u64) -> Params {
    Params::of::<schema::device_number::Owned>(|mut params| params.set_number(number as u32))
}
