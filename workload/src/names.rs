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

/// What a name can stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the name of what is named")]
pub enum Noun {
    Thread,
    Process,
    Session,
    Endpoint,
    Context,
    Lease,
    Island,
    Ring,
    Mutex,
    Semaphore,
    Barrier,
    Condition,
    Distribution,
    Interrupt,
}

impl Noun {
    /// The word for it, which is also the name of its table.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Process => "process",
            Self::Session => "session",
            Self::Endpoint => "endpoint",
            Self::Context => "context",
            Self::Lease => "lease",
            Self::Island => "island",
            Self::Ring => "ring",
            Self::Mutex => "mutex",
            Self::Semaphore => "semaphore",
            Self::Barrier => "barrier",
            Self::Condition => "condition",
            Self::Distribution => "distribution",
            Self::Interrupt => "interrupt",
        }
    }

    /// How its table is written, and a name for it.
    pub(crate) const fn naming(self) -> (&'static str, &'static str) {
        match self {
            Self::Thread => ("[[thread]]", "name = \"worker\""),
            Self::Process => ("the process", "name = \"shop\""),
            Self::Session => ("[[session]]", "name = \"alice\""),
            Self::Endpoint => ("[[endpoint]]", "name = \"orders\""),
            Self::Context => ("[[context]]", "name = \"audio\""),
            Self::Lease => ("[[lease]]", "name = \"isolated\""),
            Self::Island => ("[[island]]", "name = \"graph\""),
            Self::Ring => ("[[ring]]", "name = \"disk\""),
            Self::Mutex => ("[[mutex]]", "name = \"table\""),
            Self::Semaphore => ("[[semaphore]]", "name = \"slots\""),
            Self::Barrier => ("[[barrier]]", "name = \"frame\""),
            Self::Condition => ("[[condition]]", "name = \"full\""),
            Self::Distribution => ("[[distribution]]", "name = \"think\""),
            Self::Interrupt => ("[[interrupt]]", "name = \"disk\""),
        }
    }

    fn with_article(self) -> String {
        let article =
            if matches!(self, Self::Endpoint | Self::Island | Self::Interrupt) { "an" } else { "a" };
        format!("{article} {self}")
    }

    fn whereabouts(self) -> String {
        match self {
            Self::Process => "write the process of a [[thread]] of this file".into(),
            Self::Endpoint => {
                "write the name of an [[endpoint]], or of one that a step calls or receives on".into()
            }
            _ => format!(
                "write the name of {} of this file",
                self.with_article().replace(self.word(), self.naming().0)
            ),
        }
    }
}

impl fmt::Display for Noun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Why a name cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Two tables of one name.
    Duplicate {
        /// What it names.
        what: Noun,
        /// The name.
        name: String,
        /// The line of the other table's name.
        line: usize,
    },
    /// A table named like an instance of another, such as `a.0` beside `a` with a `count`.
    Clash {
        /// What it names.
        what: Noun,
        /// The name.
        name: String,
        /// The table whose instance has it.
        table: String,
        /// The line of that table's name.
        line: usize,
    },
    /// No table has this name.
    Unknown {
        /// What it should name.
        what: Noun,
        /// The name.
        name: String,
        /// Which was probably meant.
        suggestion: Option<String>,
    },
    /// The table exists, the instance does not.
    NoSuchInstance {
        /// What it should name.
        what: Noun,
        /// The name.
        name: String,
        /// The table.
        table: String,
        /// Its `count`. A context has the `count` of the thread table that names it.
        count: Option<u32>,
    },
    /// A table of several instances where one is needed.
    NotOne {
        /// What it names.
        what: Noun,
        /// The name.
        name: String,
        /// How many instances there are.
        count: u32,
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
    /// A thread that waits to be spawned, which no running thread does.
    NeverSpawned {
        /// Its name.
        name: String,
    },
    /// A call that no thread would ever take.
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
            Self::Duplicate { what, name, line } => {
                write!(f, "{} named {name:?} exists already (line {line})", what.with_article())
            }
            Self::Clash { what, name, table, line } => {
                write!(f, "{name:?} is also an instance of {what} {table:?} (line {line})")
            }
            Self::Unknown { what, name, .. } => write!(f, "no {what} is named {name:?}"),
            Self::NoSuchInstance { what, name, .. } => write!(f, "no {what} instance is named {name:?}"),
            Self::NotOne { what, name, count } => {
                write!(f, "one {what} is needed here, and {name:?} stands for {count}")
            }
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
            Self::Duplicate { what: Noun::Thread, .. } => {
                "give each [[thread]] its own name, or use `count` for copies".into()
            }
            Self::Duplicate { what, .. } => format!("give each [[{what}]] its own name"),
            Self::Clash { .. } => "choose another name".into(),
            Self::Unknown { what, suggestion, .. } => did_you_mean(suggestion.as_ref(), &what.whereabouts()),
            Self::NotOne { name, count, .. } => {
                let last = format!("{name}.{}", count.saturating_sub(1));
                format!("choose \"{name}.0\" to {last:?}")
            }
            // A context has as many instances as the thread table that names it, and no count of its own.
            Self::NoSuchInstance { what: Noun::Context, table, count: None, .. } => {
                format!(
                    "{table:?} is one context, since no [[thread]] with a `count` has it; write {table:?}"
                )
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
                            what: Noun::Thread,
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
                let error = NameError::Clash {
                    what: Noun::Thread,
                    name: clipped(name.value),
                    table: self.name(table),
                    line,
                };
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
        let (table, instance) = split_instance(name)?;
        Some((*self.index.get(table)?, instance))
    }

    /// The one thread that a name stands for.
    pub fn one(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<ThreadTarget, Reported> {
        let target = self.target(name, report)?;
        match (target.instance, self.threads.get(target.thread).map(|thread| &thread.count)) {
            (None, Some(Err(reported))) => Err(*reported),
            (None, Some(Ok(Some(count)))) => {
                let instance = one_of(Noun::Thread, name, count.value, report)?;
                Ok(ThreadTarget { instance: Some(instance), ..target })
            }
            _ => Ok(target),
        }
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
                    what: Noun::Thread,
                    name: clipped(name.value),
                    table: self.name(thread),
                    count: self.count(thread),
                },
            },
            (None, Some(reported)) => return Err(reported),
            (None, None) => {
                let known = self.threads.iter().filter_map(|thread| thread.name.as_ref().ok());
                let suggestion = report.guess(name.value, known.map(|known| known.value));
                NameError::Unknown { what: Noun::Thread, name: clipped(name.value), suggestion }
            }
        };
        Err(report.push(&name.at, error))
    }
}

/// Splits `batch.3` into `batch` and 3.
pub(crate) fn split_instance(name: &str) -> Option<(&str, u32)> {
    let (table, number) = name.rsplit_once('.')?;
    let instance: u32 = number.parse().ok()?;
    // "a.01" and "a.+1" are no instance names.
    let canonical = instance.to_string() == number;
    canonical.then_some((table, instance))
}

/// The number of the only instance of a table of `count`.
pub(crate) fn one_of(
    what: Noun,
    name: &At<&str>,
    count: u32,
    report: &mut Report<'_>,
) -> Result<u32, Reported> {
    if count == 1 {
        return Ok(0);
    }
    Err(report.push(&name.at, NameError::NotOne { what, name: clipped(name.value), count }))
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

    /// Whether a name has a number.
    pub fn has(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    /// The number of a name that has one already.
    pub fn known(&self, what: Noun, name: &At<&str>, report: &mut Report<'_>) -> Result<usize, Reported> {
        self.index.get(name.value).copied().ok_or_else(|| {
            let suggestion = report.guess(name.value, self.names.iter().map(String::as_str));
            report.push(&name.at, NameError::Unknown { what, name: clipped(name.value), suggestion })
        })
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
