//! A subset of Janus, compiled to QTJIR.
//!
//! Functions, integers, floats, slices, structs, loops, errors, nurseries, spawned and asynchronous calls, channels, capabilities
//! as parameters, and a profile as the file's header:
//!
//! ```
//! let module = mainspring_janus::compile(
//!     "{.profile: service.}
//!      fn compute(x: i64) -> i64 { return x * x }
//!      fn main() -> i64 {
//!          var sum = 0
//!          nursery {
//!              let a = spawn compute(3)
//!              let b = spawn compute(4)
//!              sum = await a + await b
//!          }
//!          return sum
//!      }",
//! )?;
//! assert!(module.function("main").is_some());
//! # Ok::<(), mainspring_janus::Diagnostics>(())
//! ```

mod ast;
mod diagnostic;
mod lexer;
mod lower;
mod parser;
#[doc(hidden)]
pub mod testing;

pub use diagnostic::{Code, Diagnostic, Diagnostics};
pub use lexer::MAX_SOURCE_BYTES;

use mainspring_qtjir::Module;

/// Compiles a source file to a module without yield checks.
pub fn compile(source: &str) -> Result<Module, Diagnostics> {
    let tokens = lexer::tokens(source)?;
    let file = parser::parse(&tokens)?;
    lower::lower(&file)
}
