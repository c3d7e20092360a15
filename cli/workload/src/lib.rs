//! Workload files: the one input of all three machines.
//!
//! A file is TOML; [`parse`] turns it into a [`Workload`] whose every name is resolved and whose every number has
//! been checked, or says where the file is wrong and what to write instead. Nothing is guessed: an unknown key or
//! step is an error, not a default.

mod model;

pub use model::{
    Costs, Faults, MAX_THREADS, Machine, Network, Span, Start, Step, ThreadSpec, ThreadTarget, Workload,
};
