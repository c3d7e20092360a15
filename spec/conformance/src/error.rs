//! What can go wrong, each with what the caller can do about it, and its exit code.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::args::UsageError;
use crate::audit::Problem;
use crate::licences::Offender;

/// Why the tool ends without success.
#[derive(Debug)]
pub enum Error {
    /// The command line is wrong. Exit code 2; all others are 1.
    Usage(UsageError),
    /// A file cannot be read or written.
    Io { path: PathBuf, source: io::Error },
    /// A file is not the TOML that we expect.
    Toml { path: PathBuf, source: toml::de::Error },
    /// The requirements are TOML, but contradict themselves.
    Requirement { path: PathBuf, line: usize, what: String },
    /// No directory upwards holds the requirements.
    NoProject { from: PathBuf },
    /// Citations or exceptions that the audit rejects.
    Problems(Vec<Problem>),
    /// `cargo metadata` failed, with what it said.
    Metadata(String),
    /// Packages whose licence is not allowed.
    Licences(Vec<Offender>),
}

impl Error {
    /// 2 for bad usage, 1 for everything that was found wrong.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Error::Usage(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(error) => write!(f, "{error}; try --help"),
            Error::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Toml { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Requirement { path, line, what } => write!(f, "{}:{line}: {what}", path.display()),
            Error::NoProject { from } => write!(
                f,
                "no spec/requirements.toml in {} or above; run inside the project or give --root DIR",
                from.display()
            ),
            Error::Problems(problems) => {
                write!(f, "{} to mend", count(problems.len(), "problem"))?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
            Error::Metadata(said) => write!(f, "cargo metadata failed:\n{}", said.trim_end()),
            Error::Licences(offenders) => {
                write!(f, "{} not allowed by deny.toml", count(offenders.len(), "licence"))?;
                offenders.iter().try_for_each(|offender| write!(f, "\n  {offender}"))
            }
        }
    }
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
