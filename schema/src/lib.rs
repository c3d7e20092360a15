//! The interfaces of the kernel's capabilities.
//!
//! `mainspring_capnp.rs` is generated from `mainspring.capnp` by `make schema`; a test says when it is out of date.
#![no_std]

extern crate alloc;

#[allow(clippy::all, missing_docs, unsafe_code, unused)]
#[rustfmt::skip]
pub mod mainspring_capnp;

pub use mainspring_capnp::*;
