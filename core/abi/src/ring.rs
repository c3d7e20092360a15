//! Capability rings: the layouts that two sides of a shared mapping agree on.
//!
//! One side submits requests ([`CapSqe`] or [`CapSqeV2`]) and reads completions ([`CapCqe`]); the other consumes
//! requests and posts completions. Both see one [`RingHeader`] followed by the slots of the submission queue and
//! then the slots of the completion queue. Everything is little-endian and has a fixed size, asserted when this
//! crate is compiled, so that another language can mirror it.
//!
//! There is no logic here but encoding, decoding and [`negotiate`]. What a request's deadline means is
//! in [`crate::request`]; `mainspring-ring` decides which side may touch which word when.

mod codes;
mod entry;
mod header;
mod version;

pub use codes::{CapError, CompletionStatus, UnknownCode};
pub use entry::{CapCqe, CapSqe, CapSqeV2, QosFlags, SQE_AFTER_PREVIOUS, UnknownFlags, op};
pub use header::{
    CQ_HELD_BACK, CQ_WAITING, HEADER_WORDS, MAX_ENTRIES, NEED_WAKEUP, RING_MAGIC, RingHeader, SLOTS_OFFSET,
    word,
};
pub use version::{ABI_VERSION_MAX, ABI_VERSION_MIN, RingAbi, RuntimeBootInfo, negotiate};
