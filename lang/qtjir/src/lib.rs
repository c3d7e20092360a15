//! QTJIR: a typed SSA form whose programs run under budgets.
//!
//! A [`Module`] is made by a front end or read from text ([`text::parse`]). [`verify()`] says where it is wrong. The passes of
//! [`pass`] insert the yield checks and make them cheap. [`Program`] runs the result: in a task of the runtime, or alone for
//! programs of the core profile.
//!
//! ```
//! use mainspring_qtjir::{Limits, Program, Quiet, text};
//!
//! let module = text::parse(
//!     "profile core
//!      fn @twice(%0: i64) -> i64 {
//!      b0:
//!        %1: i64 = Add %0, %0
//!        Return %1
//!      }",
//! )?;
//! let program = Program::compile(module)?;
//! let ended = program.run_alone("twice", &[21], Limits::MAX, &Quiet)?;
//! assert_eq!(ended.value, Some(42));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calls;
mod ir;
pub mod launch;
mod nests;
pub mod pass;
mod run;
pub mod text;
mod verify;

pub use calls::reaching;
pub use ir::{
    Binary, Block, BlockId, ERRORS_OF_THE_LANGUAGE, Function, Instr, MAX_TYPE_DEPTH, Module, Op, Pos,
    StructDef, Target, Tenancy, Terminator, Type, Unary, Value, error_code,
};
pub use nests::{escaping, open_at, over};
pub use run::{
    Account, Ended, FRAME_OVERHEAD_WORDS, Fault, FaultKind, Interrupt, Limits, Native, NativeCall, Nest,
    Output, Program, Quiet, STACK_WORDS, TaskEnv, TaskState, Trap, binary, task_fault,
};
pub use verify::{Complaint, MAX_FUNCTIONS, MAX_PARAMS, VerifyError, verify};
