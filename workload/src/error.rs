//! What is wrong with a file, where, and what to write instead.
//!
//! Each stage has its own enum of problems; [`Problem`] is their sum. Nothing here decides: stages push problems
//! into a [`Report`] and get a [`Reported`] for it, which they pass on in place of the value that they could not
//! read. Holding one proves that the file is refused already, so no later stage complains about the same thing.

use crate::cpus::CpuError;
use crate::document::DocumentError;
use crate::grammar::StepError;
use crate::names::NameError;
use crate::program::ProgramError;
use crate::source::{Position, Source};
use crate::suggest::nearest;
use crate::tables::TableError;
use crate::value::ValueError;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// How many errors of one file are kept; a file with more is not a workload, and only their number is told.
const MAX_ERRORS: usize = 1_000;

/// Everything that can be wrong with a workload file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The TOML, its tables and its keys.
    Document(DocumentError),
    /// A value of a key.
    Value(ValueError),
    /// A CPU number or list.
    Cpu(CpuError),
    /// The text of a step or an operation.
    Step(StepError),
    /// What the keys of a table say together, or tables of each other.
    Table(TableError),
    /// Names.
    Name(NameError),
    /// What a program does as a whole.
    Program(ProgramError),
}

impl Problem {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Document(error) => error.help(),
            Self::Value(error) => error.help(),
            Self::Cpu(error) => error.help(),
            Self::Step(error) => error.help(),
            Self::Table(error) => error.help(),
            Self::Name(error) => error.help(),
            Self::Program(error) => error.help(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document(error) => error.fmt(f),
            Self::Value(error) => error.fmt(f),
            Self::Cpu(error) => error.fmt(f),
            Self::Step(error) => error.fmt(f),
            Self::Table(error) => error.fmt(f),
            Self::Name(error) => error.fmt(f),
            Self::Program(error) => error.fmt(f),
        }
    }
}

macro_rules! problem_from {
    ($($variant:ident($error:ty)),+ $(,)?) => {
        $(impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })+
    };
}

problem_from!(
    Document(DocumentError),
    Value(ValueError),
    Cpu(CpuError),
    Step(StepError),
    Table(TableError),
    Name(NameError),
    Program(ProgramError),
);

/// One thing wrong with a file.
///
/// Displays as `file:line:column: what`, the line with the place underlined, and `help:` with what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    file: Arc<str>,
    place: Position,
    problem: Problem,
}

impl Error {
    /// The file as the caller named it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.place.line
    }

    /// The column, from 1, in characters.
    #[must_use]
    pub fn column(&self) -> usize {
        self.place.column
    }

    /// What is wrong.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        self.problem.help()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}:{}: {}", self.file, self.line(), self.column(), self.problem)?;
        writeln!(f, "{}", self.place)?;
        write!(f, "help: {}", self.help())
    }
}

impl std::error::Error for Error {}

/// All that is wrong with a file, in the order of the file. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    list: Vec<Error>,
    omitted: usize,
}

impl Errors {
    /// The errors, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.list.iter()
    }

    /// How many there are, those that were too many to keep included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len() + self.omitted
    }
}

impl<'e> IntoIterator for &'e Errors {
    type Item = &'e Error;
    type IntoIter = std::slice::Iter<'e, Error>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.list.iter().enumerate() {
            let gap = if n == 0 { "" } else { "\n\n" };
            write!(f, "{gap}{error}")?;
        }
        match self.omitted {
            0 => Ok(()),
            more => write!(f, "\n\nand {more} more errors"),
        }
    }
}

impl std::error::Error for Errors {}

/// Why a file did not become a workload.
#[derive(Debug)]
pub enum LoadError {
    /// The file could not be read; check the path and its permissions.
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file is not UTF-8 text.
    NotText {
        /// Which file.
        path: PathBuf,
        /// The line of the first byte that is wrong.
        line: usize,
    },
    /// The file is larger than any workload.
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// How many bytes a workload file may have.
        limit: u64,
    },
    /// The file was read, and is wrong.
    Invalid(Errors),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, cause } => {
                write!(f, "{}: {cause}\nhelp: give the path of a workload file", path.display())
            }
            Self::NotText { path, line } => write!(
                f,
                "{}:{line}: not UTF-8 text\nhelp: a workload is TOML; save it as UTF-8",
                path.display()
            ),
            Self::TooLarge { path, limit } => write!(
                f,
                "{}: larger than {limit} bytes\nhelp: use `count` for threads that do the same",
                path.display()
            ),
            Self::Invalid(errors) => errors.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { cause, .. } => Some(cause),
            Self::NotText { .. } | Self::TooLarge { .. } => None,
            Self::Invalid(errors) => Some(errors),
        }
    }
}

/// Proof that a problem has been reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported(());

/// A value that a file may leave out.
pub(crate) type Field<T> = Result<Option<T>, Reported>;

/// Collects the problems of one file.
pub(crate) struct Report<'s> {
    pub source: Source<'s>,
    found: Vec<(Range<usize>, Problem)>,
}

impl<'s> Report<'s> {
    pub fn new(source: Source<'s>) -> Self {
        Self { source, found: Vec::new() }
    }

    /// Notes a problem at a place.
    pub fn push(&mut self, at: &Range<usize>, problem: impl Into<Problem>) -> Reported {
        self.found.push((at.clone(), problem.into()));
        Reported(())
    }

    /// The line that a part of the file begins on.
    pub fn line(&self, at: &Range<usize>) -> usize {
        self.source.line_of(at.start)
    }

    /// The candidate that `word` was probably meant to be. A file whose errors are too many to be kept gets no more
    /// guesses, since each costs a search.
    pub fn guess<'c>(&self, word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
        if self.found.len() >= MAX_ERRORS {
            return None;
        }
        nearest(word, candidates).map(String::from)
    }

    /// The value if nothing was reported. A value can only be missing because something was.
    pub fn finish<T>(mut self, value: Result<T, Reported>) -> Result<T, Errors> {
        match value {
            Ok(value) if self.found.is_empty() => Ok(value),
            _ => {
                self.found.sort_by_key(|(at, _)| (at.start, at.end));
                self.found.dedup();
                Err(self.errors())
            }
        }
    }

    fn errors(self) -> Errors {
        let file: Arc<str> = self.source.name.into();
        let omitted = self.found.len().saturating_sub(MAX_ERRORS);
        let list = self
            .found
            .into_iter()
            .take(MAX_ERRORS)
            .map(|(at, problem)| Error { file: file.clone(), place: self.source.locate(&at), problem })
            .collect();
        Errors { list, omitted }
    }
}

/// A text from the file, short enough for a message.
pub(crate) fn clipped(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        None => text.into(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// "did you mean" if there is a guess, else `otherwise`.
pub(crate) fn did_you_mean(suggestion: Option<&String>, otherwise: &str) -> String {
    suggestion.map_or_else(|| otherwise.into(), |meant| format!("did you mean {meant:?}?"))
}
