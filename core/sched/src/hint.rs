//! Which way a branch mostly goes, for those that every decision passes.
//!
//! The compiler lays that way out straight, and puts the other elsewhere. A jump that is not taken costs next to nothing, and
//! what a decision needs lies in fewer cache lines. A wrong hint costs a jump, never more.

use core::hint::cold_path;

/// `condition`, which mostly does not hold.
#[inline(always)]
#[must_use]
pub fn unlikely(condition: bool) -> bool {
    if condition {
        cold_path();
    }
    condition
}

/// `condition`, which mostly holds.
#[inline(always)]
#[must_use]
pub fn likely(condition: bool) -> bool {
    if !condition {
        cold_path();
    }
    condition
}
