//! CPU time as authority.
//!
//! [`Refills`] says when how much of a budget may be used.

mod refill;

pub use refill::{MAX_REFILLS, Refill, Refills};
