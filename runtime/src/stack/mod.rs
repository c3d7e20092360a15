//! Stacks: where they come from, how one is left for another, and what happens when one overflows.

pub(crate) mod arena;
mod memcheck;
pub(crate) mod overflow;
mod report;
pub(crate) mod roomy;
pub(crate) mod switch;
