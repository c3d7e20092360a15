//! The steps of a program of a workload, and how every machine plays them: the simulator, the Linux runtime's players and the
//! kernel's workload program.
//!
//! Conserved: a program with a seed draws the same amounts and takes the same ways on each machine. A thread draws what a step
//! needs when it comes to the step, once, and nothing else.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod batch;
mod distribution;
mod phases;
mod release;
mod step;
mod sync;
mod words;

pub use batch::Batch;
pub use distribution::Distribution;
pub use phases::{Phases, Way};
pub use release::{Release, next_release};
pub use step::{Call, ContextTarget, Drawn, Lateness, Span, Step, ThreadTarget};
pub use sync::{Came, GivenUp, MutexWait, SyncKind, SyncMachine, SyncObjects, SyncStats};
pub use words::{Coded, Words};
