//! The interpreter: what a program means.
//!
//! Each task has a heap of its own, which ends with it. What a task does is charged to its budget: turns of loops and calls by
//! the checks that the compiler inserted, the rest by the runtime. The charges of a task depend on the program and its input
//! alone: not on the worker, nor on other tasks.

mod account;
mod arith;
mod exec;
mod fault;
mod parcel;
mod program;
mod task;
mod tasks;

pub use account::{Account, Limits};
pub use arith::binary;
pub use exec::{FRAME_OVERHEAD_WORDS, STACK_WORDS};
pub use fault::{Fault, FaultKind, Trap, task_fault};
pub use program::{Ended, Native, NativeCall, Output, Program, Quiet, TaskEnv};
pub use task::{Interrupt, TaskState};
pub use tasks::Nest;
