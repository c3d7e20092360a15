//! QTJIR as machine code, by Cranelift.
//!
//! A function is compiled if it and all that it calls are not too large: the interpreter runs the others, and calls the compiled
//! ones. Both charge the same ops, since both execute the same checks, and what reaches outside of a task is done by one piece of
//! code for both ([`TaskState`](mainspring_qtjir::TaskState)). The inside of a nursery is a function of its own, which the host calls while the nursery is open.
//!
//! Generated code never unwinds, and faults in one place only: where it polls, if time is its meter. What could trap is looked at
//! before, and ends the call with a status that each caller passes on. A payment that the runtime ends by unwinding is caught in the function that the
//! generated code calls, and resumed where the interpreter called the generated code.

// Much is for the code generator alone.
#![cfg_attr(not(feature = "codegen"), allow(dead_code))]

mod code;
mod context;
#[cfg(feature = "codegen")]
mod emit;
#[cfg(feature = "codegen")]
mod facts;
#[cfg(feature = "codegen")]
mod interval;
#[cfg(feature = "codegen")]
mod jit;
#[cfg(feature = "codegen")]
mod loops;
#[cfg(feature = "codegen")]
mod object;
#[cfg(feature = "codegen")]
mod shape;
mod start;
mod stop;

pub use code::{Metering, NativeError, Options};
pub use context::take_longest_gap;
#[cfg(feature = "codegen")]
pub use jit::{compile, compile_shifted};
#[cfg(feature = "codegen")]
pub use object::object;
pub use start::{Table, mainspring_jan_main};
pub use stop::{TICK, stop_all, stops};
