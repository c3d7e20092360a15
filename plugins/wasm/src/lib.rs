//! WebAssembly plugins in tasks of the runtime: under budgets, capabilities and grants of CPU time.
//!
//! A [`Plugin`] is a module that was checked and compiled once. A [`Guest`] is an instance of it in one task: it has a memory of its
//! own, the imports that its host grants, and nothing else. What it uses is charged to the task:
//!
//! * [`Meter::Ops`] counts instructions (Wasmtime's fuel) as ops of the task's budget. The sum is the same on every run.
//! * [`Meter::Time`] counts nothing. Once per [`TICK`] the task looks up (Wasmtime's epochs): it gives way, waits for the refill of its
//!   scheduling context, or ends. A [`Rate`] is a share of one CPU for one guest or for several together; who has used it up waits.
//! * Memory is charged as it grows, and each call of an import as a system call.
//!
//! An import runs in the guest's task with its [`Cx`](mainspring::Cx), and may wait there: the task waits, and the worker goes on with
//! others.
//!
//! # Where guests run
//!
//! Wasmtime keeps the calls that are open on a thread in a chain that belongs to the thread. Two tasks of one worker that were both
//! inside of Wasmtime on their own stacks would tear it. So a guest runs on a stack that Wasmtime makes for it, with a guard page
//! below, and the task goes there and comes back at each tick and each import. Its frames and its traps stay there; its depth is bounded
//! by [`STACK_BYTES`]. No signal is used: traps are tests in the code, so that the runtime's handlers stay the only ones.

mod error;
mod guest;
mod import;
mod plugin;
mod rate;

pub use error::{GuestError, PluginError};
pub use guest::{Guest, Limits, Used};
pub use import::{HostCall, ImportError, Imports};
pub use plugin::{MOST_MODULE_BYTES, Meter, Plugin, Plugins, STACK_BYTES, TICK};
pub use rate::Rate;
