//! QTJIR as machine code, by Cranelift.
//!
//! A function is compiled if it and all that it calls do without the scheduler: the interpreter runs the others, and calls the
//! compiled ones. Both charge the same ops, since both execute the same checks.
//!
//! Generated code never unwinds and never traps by a fault of the processor. What could do either is looked at before, and ends the
//! call with a status that each caller passes on. A payment that the runtime ends by unwinding is caught in the function that the
//! generated code calls, and resumed where the interpreter called the generated code.

mod code;
mod context;
mod emit;

pub use code::{Metering, NativeError, Options, compile};
pub use context::take_longest_gap;
