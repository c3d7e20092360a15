//! The kernel from the host's side: boot images, QEMU, and the proofs that run in it.

pub mod baseline;
pub mod fuzz;
pub mod image;
pub mod network;
pub mod proof;
pub mod qemu;
pub mod trace;
