//! What the kernel decides without touching the machine. The kernel links this crate; the host tests it.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`ledger`] | what each process makes the kernel hold: charged before, refunded with it |
#![no_std]
#![forbid(unsafe_code)]

pub mod ledger;
