//! Workload files: the one input of all three machines.
//!
//! A file is TOML; [`parse`] turns it into a [`Workload`] whose every name is resolved and whose every number has
//! been checked, or says where the file is wrong and what to write instead. Nothing is guessed: an unknown key or
//! step is an error, not a default.
//!
//! ```
//! let text = r#"
//!     [[thread]]
//!     name = "editor"
//!     program = ["run 300us", "slep 16ms"]
//! "#;
//! let errors = mainspring_workload::parse("editor.toml", text).unwrap_err();
//! assert!(errors.to_string().starts_with("editor.toml:4:30: unknown step \"slep 16ms\""));
//! assert!(errors.to_string().ends_with("help: did you mean \"sleep 16ms\"?"));
//! ```
//!
//! The stages, each a module: `document` (TOML to tables with known keys), `value` (a TOML value to a number or
//! duration within limits), `sections` and `thread` (tables to fields), `grammar`, `words` and `step` (a step's
//! text), `names` and `scope` (what a name stands for), `program` and `tables` (names to indices), `progress` (time
//! must pass) and `check` (the whole).

mod check;
mod cpus;
mod decimal;
mod document;
mod duration;
mod error;
mod grammar;
mod livelock;
mod model;
mod names;
mod nesting;
mod numbering;
mod overrides;
mod program;
mod scope;
mod sections;
mod source;
mod step;
mod suggest;
mod tables;
mod thread;
mod value;
mod warnings;
mod words;

pub use cpus::CpuError;
pub use document::{DocumentError, Slip};
pub use duration::DurationError;
pub use error::{Error, Errors, LoadError, Problem};
pub use grammar::{Phrase, StepError};
pub use model::{
    Account, Batch, Call, Calls, Condition, ContextSpec, ContextTarget, Costs, Distribution,
    DistributionSpec, Drawn, EndpointSpec, Expectation, Faults, InterruptSpec, IslandSpec, Lateness,
    LeaseMode, LeaseSpec, LeaseStart, Locks, MAX_TABLES, MAX_THREADS, Machine, MemorySpec, Network,
    Operation, Overrun, Phases, Places, PolicySpec, Quantile, Residency, RingSpec, Span, Start, Step,
    Subject, SyncKind, SyncSpec, TaskBudget, ThreadSpec, ThreadTarget, TimedOperation, Way, Workload,
};
pub use names::{NameError, Noun};
pub use numbering::Numbering;
pub use overrides::{Setting, SettingError, apply};
pub use program::ProgramError;
pub use tables::TableError;
pub use value::{Kind, ValueError};
pub use warnings::Warning;

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A workload file may have this many bytes; 100,000 different threads fit.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads a workload from the text of a file. `name` is what errors call the file.
pub fn parse(name: &str, text: &str) -> Result<Workload, Errors> {
    let mut report = error::Report::new(source::Source::new(name, text));
    let workload =
        document::read_toml(text, &mut report).and_then(|root| check::workload(&root, &mut report));
    report.finish(workload)
}

/// Reads one duration as workload files write it: `300us`, `1.5ms`.
pub fn parse_duration(text: &str) -> Result<mainspring_abi::Nanos, DurationError> {
    duration::duration(text)
}

/// Reads a workload file.
pub fn load(path: impl AsRef<Path>) -> Result<Workload, LoadError> {
    let path = path.as_ref();
    parse(&path.display().to_string(), &read_text(path)?).map_err(LoadError::Invalid)
}

/// Reads the text of a workload file.
pub fn read_text(path: impl AsRef<Path>) -> Result<String, LoadError> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|cause| LoadError::Read { path: path.into(), cause })?;
    text_of(path, file)
}

/// Reads the text of a workload from `input`, which errors call `path`.
pub fn text_of(path: &Path, input: impl Read) -> Result<String, LoadError> {
    let mut bytes = Vec::new();
    // A limit on what is read, not on what the file system says: a pipe has no length.
    let read = input.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|cause| LoadError::Read { path: path.into(), cause })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(LoadError::TooLarge { path: path.into(), limit: MAX_FILE_BYTES });
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        LoadError::NotText { path: path.into(), line: 1 + good.filter(|byte| **byte == b'\n').count() }
    })
}
