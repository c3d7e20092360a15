//! Names: which thread or endpoint a step means.
//!
//! `batch` names a table, `batch.3` one instance of a table with a `count`. Every instance name belongs to one
//! table only, so that a report never shows two threads under one name.

use crate::ThreadTarget;
use crate::error::{Report, Reported, clipped, did_you_mean};
use crate::source::At;
use crate::thread::RawThread;
use std::collections::HashMap;
use std::fmt;

/// Why a name cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Two tables of one name.
    Duplicate {
        /// The name.
        name: String,
        /// The line of the other table's name.
        line: usize,
    },
    /// A table named like an instance of another, such as `a.0` beside `a` with a `count`.
    Clash {
        /// The name.
        name: String,
        /// The table whose instance has it.
        table: String,
        /// The line of that table's name.
        line: usize,
    },
    /// No thread of this name.
    UnknownThread {
        /// The name.
        name: String,
        /// Which was probably meant.
        suggestion: Option<String>,
    },
    /// The table exists, the instance does not.
    NoSuchInstance {
        /// The name.
        name: String,
        /// The table.
        table: String,
        /// Its `count`.
        count: Option<u32>,
    },
    /// `spawn` of one instance; it takes a table.
    SpawnsInstance {
        /// The table.
        table: String,
    },
    /// `spawn` of a thread that starts by itself.
    NotSpawnable {
        /// Its name.
        name: String,
    },
    /// A thread that waits to be spawned by nobody who runs.
    NeverSpawned {
        /// Its name.
        name: String,
    },
    /// A call that nobody would ever take.
    NobodyReceives {
        /// The endpoint.
        endpoint: String,
        /// Which was probably meant.
        suggestion: Option<String>,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { name, line } => {
                write!(f, "a thread named {name:?} exists already (line {line})")
            }
            Self::Clash { name, table, line } => {
                write!(f, "{name:?} is also an instance of thread {table:?} (line {line})")
            }
            Self::UnknownThread { name, .. } => write!(f, "no thread is named {name:?}"),
            Self::NoSuchInstance { name, .. } => write!(f, "no thread instance is named {name:?}"),
            Self::SpawnsInstance { .. } => f.write_str("spawn takes a thread table, not one instance of it"),
            Self::NotSpawnable { name } => {
                write!(f, "thread {name:?} starts by itself and cannot be spawned")
            }
            Self::NeverSpawned { name } => write!(f, "no thread that runs ever spawns {name:?}"),
            Self::NobodyReceives { endpoint, .. } => write!(f, "nobody receives on endpoint {endpoint:?}"),
        }
    }
}

impl NameError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Duplicate { .. } => "give each [[thread]] its own name, or use `count` for copies".into(),
            Self::Clash { .. } => "choose another name".into(),
            Self::UnknownThread { suggestion, .. } => {
                did_you_mean(suggestion.as_ref(), "write the name of a [[thread]] of this file")
            }
            Self::NoSuchInstance { table, count: None, .. } => {
                format!("{table:?} has no `count`; write {table:?}")
            }
            Self::NoSuchInstance { table, count: Some(count), .. } => {
                let last = format!("{table}.{}", count.saturating_sub(1));
                format!("the last is {last:?}; {table:?} means all of them")
            }
            Self::SpawnsInstance { table } => format!("write \"spawn {table}\""),
            Self::NotSpawnable { name } => format!("write start = \"spawn\" in the table of {name:?}"),
            Self::NeverSpawned { name } => {
                format!("add the step \"spawn {name}\" to another thread, or give it a time to start")
            }
            Self::NobodyReceives { endpoint, suggestion } => did_you_mean(
                suggestion.as_ref(),
                &format!("add a thread with program = [\"recv {endpoint}\", \"run 100us\", \"reply\"]"),
            ),
        }
    }
}

/// The threads of a file by name.
pub(crate) struct Names<'t, 'd> {
    threads: &'t [RawThread<'d>],
    index: HashMap<&'d str, usize>,
    /// Set when a name could not be read: any unknown name may be that one, and is not blamed.
    unreadable: Option<Reported>,
}

impl<'t, 'd> Names<'t, 'd> {
    /// Gathers the names and reports those that stand for two things.
    pub fn collect(threads: &'t [RawThread<'d>], report: &mut Report<'_>) -> Self {
        let mut names = Self { threads, index: HashMap::new(), unreadable: None };
        for (n, thread) in threads.iter().enumerate() {
            match &thread.name {
                Err(reported) => names.unreadable = Some(*reported),
                Ok(name) => {
                    let first = *names.index.entry(name.value).or_insert(n);
                    if first != n {
                        let error = NameError::Duplicate {
                            name: clipped(name.value),
                            line: names.line(first, report),
                        };
                        report.push(&name.at, error);
                    }
                }
            }
        }
        names.report_clashes(report);
        names
    }

    fn report_clashes(&self, report: &mut Report<'_>) {
        for name in self.threads.iter().filter_map(|thread| thread.name.as_ref().ok()) {
            let Some((table, instance)) = self.instance(name.value) else { continue };
            if self.count(table).is_some_and(|count| instance < count) {
                let line = self.line(table, report);
                let error = NameError::Clash { name: clipped(name.value), table: self.name(table), line };
                report.push(&name.at, error);
            }
        }
    }

    /// The name of table `n`, as far as it can be read.
    pub fn name(&self, n: usize) -> String {
        let name = self.threads.get(n).and_then(|thread| thread.name.as_ref().ok());
        name.map_or_else(String::new, |name| clipped(name.value))
    }

    fn line(&self, n: usize, report: &Report<'_>) -> usize {
        let name = self.threads.get(n).and_then(|thread| thread.name.as_ref().ok());
        name.map_or(1, |name| report.source.line_of(name.at.start))
    }

    fn count(&self, n: usize) -> Option<u32> {
        let count = self.threads.get(n)?.count.as_ref().ok()?.as_ref()?;
        Some(count.value)
    }

    /// Splits `batch.3` into its table and number, whether or not that instance exists.
    fn instance(&self, name: &str) -> Option<(usize, u32)> {
        let (table, number) = name.rsplit_once('.')?;
        let instance: u32 = number.parse().ok()?;
        // "a.01" and "a.+1" are no instance names.
        let canonical = instance.to_string() == number;
        canonical.then_some((*self.index.get(table)?, instance))
    }

    /// The table that `spawn` names.
    pub fn spawnable(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<usize, Reported> {
        let target = self.target(name, report)?;
        let error = match (target.instance, self.threads.get(target.thread).map(|thread| &thread.start)) {
            (Some(_), _) => NameError::SpawnsInstance { table: self.name(target.thread) },
            (None, Some(Ok(Some(crate::Start::Spawned)))) => return Ok(target.thread),
            (None, Some(Err(reported))) => return Err(*reported),
            (None, _) => NameError::NotSpawnable { name: clipped(name.value) },
        };
        Err(report.push(&name.at, error))
    }

    /// The table or instance that a step names.
    pub fn target(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<ThreadTarget, Reported> {
        if let Some(&thread) = self.index.get(name.value) {
            return Ok(ThreadTarget { thread, instance: None });
        }
        let error = match (self.instance(name.value), self.unreadable) {
            (Some((thread, instance)), _) => match self.threads.get(thread).map(|thread| &thread.count) {
                Some(Err(reported)) => return Err(*reported),
                Some(Ok(Some(count))) if instance < count.value => {
                    return Ok(ThreadTarget { thread, instance: Some(instance) });
                }
                _ => NameError::NoSuchInstance {
                    name: clipped(name.value),
                    table: self.name(thread),
                    count: self.count(thread),
                },
            },
            (None, Some(reported)) => return Err(reported),
            (None, None) => {
                let known = self.threads.iter().filter_map(|thread| thread.name.as_ref().ok());
                let suggestion = report.guess(name.value, known.map(|known| known.value));
                NameError::UnknownThread { name: clipped(name.value), suggestion }
            }
        };
        Err(report.push(&name.at, error))
    }
}

/// Gives each name of a kind that is declared by use (endpoints, processes) a number, in the order of first use.
#[derive(Default)]
pub(crate) struct Interner {
    names: Vec<String>,
    index: HashMap<String, usize>,
}

impl Interner {
    /// The number of `name`.
    pub fn number(&mut self, name: &str) -> usize {
        if let Some(&number) = self.index.get(name) {
            return number;
        }
        let number = self.names.len();
        self.names.push(name.into());
        self.index.insert(name.into(), number);
        number
    }

    /// The names by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The names by number, for good.
    pub fn into_names(self) -> Vec<String> {
        self.names
    }
}
