//! The document: TOML to tables with known keys. Unknown tables and keys are errors, never ignored.

use crate::error::{Field, Problem, Report, Reported, clipped, did_you_mean};
use crate::names::Noun;
use crate::source::At;
use crate::value::{Found, Kind, ValueError, name};
use std::fmt;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// The tables of a file.
const TABLES: [&str; 20] = [
    "machine",
    "costs",
    "faults",
    "network",
    "policy",
    "thread",
    "context",
    "endpoint",
    "session",
    "lease",
    "island",
    "ring",
    "mutex",
    "semaphore",
    "barrier",
    "condition",
    "distribution",
    "interrupt",
    "at",
    "expect",
];

/// Why the tables and keys of a file cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentError {
    /// Not TOML.
    Syntax {
        /// What the TOML reader says.
        message: String,
        /// What the mistake looks like.
        slip: Slip,
    },
    /// The file has neither a machine nor a thread.
    Empty,
    /// A table that does not exist.
    UnknownTable {
        /// Its name.
        name: String,
        /// Which was probably meant.
        suggestion: Option<String>,
    },
    /// A key that its table does not have.
    UnknownKey {
        /// The key.
        key: String,
        /// Its table.
        table: &'static str,
        /// Which was probably meant.
        suggestion: Option<String>,
        /// What the table has.
        known: &'static [&'static str],
    },
    /// A key that its table must have.
    MissingKey {
        /// The key.
        key: &'static str,
        /// Its table.
        table: &'static str,
        /// A line to write.
        example: &'static str,
    },
    /// `[thread]` instead of `[[thread]]`.
    NotAList {
        /// Its name.
        name: &'static str,
    },
    /// `[[machine]]`, or `machine = 3`.
    NotATable {
        /// Its name.
        name: &'static str,
    },
}

/// What a mistake in the TOML looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    /// A value that should stand in quotes.
    Unquoted,
    /// The same key, or the same table, twice.
    Duplicate,
    /// A bracket or a quote that is opened and not closed.
    Unclosed,
    /// Two items of a list without a comma between them.
    Comma,
    /// Anything else.
    Other,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { message, .. } => write!(f, "not valid TOML: {message}"),
            Self::Empty => f.write_str("the file describes neither a machine nor a thread"),
            Self::UnknownTable { name, .. } => write!(f, "unknown table {name:?}"),
            Self::UnknownKey { key, table, .. } => write!(f, "unknown key {key:?} in {table}"),
            Self::MissingKey { key, table, .. } => write!(f, "{table} has no {key:?}"),
            Self::NotAList { name } => write!(f, "{name} tables form a list"),
            Self::NotATable { name } => write!(f, "{name:?} must be one table"),
        }
    }
}

impl DocumentError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Syntax { slip: Slip::Unquoted, .. } => {
                "put texts and durations in quotes, such as \"5ms\"".into()
            }
            Self::Syntax { slip: Slip::Duplicate, .. } => {
                "remove one of the two; only tables with two brackets, as [[thread]], may be repeated".into()
            }
            Self::Syntax { slip: Slip::Unclosed, .. } => {
                "close what is open: add the bracket or quote".into()
            }
            Self::Syntax { slip: Slip::Comma, .. } => "put a comma between the items".into(),
            Self::Syntax { slip: Slip::Other, .. } => {
                "write `key = value` lines under a [table] header; see https://toml.io".into()
            }
            Self::Empty => {
                "add a [[thread]] with a name and a program, such as program = [\"run forever\"]".into()
            }
            Self::UnknownTable { suggestion, .. } => did_you_mean(
                suggestion.as_ref(),
                "the tables are [machine], [costs], [faults], [network], [policy], [[thread]], [[context]], \
                 [[endpoint]], [[session]], [[lease]], [[island]], [[ring]], [[at]] and [[expect]]",
            ),
            Self::UnknownKey { suggestion, known, table, .. } => {
                did_you_mean(suggestion.as_ref(), &format!("{table} has the keys {}", known.join(", ")))
            }
            Self::MissingKey { example, .. } => format!("add {example}"),
            Self::NotAList { name } => format!("write [[{name}]], with two brackets on each side"),
            Self::NotATable { name } => format!("write [{name}], once, with one bracket on each side"),
        }
    }
}

/// Reads the TOML of a file, or reports every place where it is none.
///
/// The reader can go on after a syntax error, but what it makes of the rest is a guess (a broken header moves the
/// keys below it to another table), so nothing else is checked then.
pub(crate) fn read_toml<'d>(text: &'d str, report: &mut Report<'_>) -> Result<DeTable<'d>, Reported> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reported = Ok(());
    for error in errors {
        let at = error.span().unwrap_or(0..0);
        let slip = slip(error.message());
        reported = Err(report.push(&at, DocumentError::Syntax { message: clipped(error.message()), slip }));
    }
    reported.map(|()| document.into_inner())
}

/// The TOML reader gives its reasons as text only; a text that is not known here costs a better hint, no more.
fn slip(message: &str) -> Slip {
    const SLIPS: [(&str, Slip); 5] = [
        ("duplicate", Slip::Duplicate),
        ("must be quoted", Slip::Unquoted),
        ("unclosed", Slip::Unclosed),
        ("string, expected", Slip::Unclosed),
        ("missing comma", Slip::Comma),
    ];
    SLIPS.iter().find(|(part, _)| message.contains(part)).map_or(Slip::Other, |(_, slip)| *slip)
}

/// The tables of a file, all of which may be absent.
pub(crate) struct Document<'d> {
    pub machine: Field<At<&'d DeTable<'d>>>,
    pub costs: Field<At<&'d DeTable<'d>>>,
    pub faults: Field<At<&'d DeTable<'d>>>,
    pub network: Field<At<&'d DeTable<'d>>>,
    pub policy: Field<At<&'d DeTable<'d>>>,
    pub threads: TableList<'d>,
    pub contexts: TableList<'d>,
    pub endpoints: TableList<'d>,
    pub sessions: TableList<'d>,
    pub leases: TableList<'d>,
    pub islands: TableList<'d>,
    pub rings: TableList<'d>,
    pub distributions: TableList<'d>,
    pub interrupts: TableList<'d>,
    pub mutexes: TableList<'d>,
    pub semaphores: TableList<'d>,
    pub barriers: TableList<'d>,
    pub conditions: TableList<'d>,
    pub operations: TableList<'d>,
    pub expectations: TableList<'d>,
}

/// The tables of one name, in the order of the file.
pub(crate) type TableList<'d> = Result<Vec<At<&'d DeTable<'d>>>, Reported>;

impl<'d> Document<'d> {
    /// Sorts the top-level tables out.
    pub fn split(root: &'d DeTable<'d>, report: &mut Report<'_>) -> Self {
        for key in root.keys().filter(|key| !TABLES.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref();
            let suggestion = report.guess(name, TABLES);
            report.push(&key.span(), DocumentError::UnknownTable { name: clipped(name), suggestion });
        }
        if root.is_empty() {
            report.push(&(0..0), DocumentError::Empty);
        }
        Self {
            machine: one_table(root, "machine", report),
            costs: one_table(root, "costs", report),
            faults: one_table(root, "faults", report),
            network: one_table(root, "network", report),
            policy: one_table(root, "policy", report),
            threads: table_list(root, "thread", report),
            contexts: table_list(root, "context", report),
            endpoints: table_list(root, "endpoint", report),
            sessions: table_list(root, "session", report),
            leases: table_list(root, "lease", report),
            islands: table_list(root, "island", report),
            rings: table_list(root, "ring", report),
            distributions: table_list(root, "distribution", report),
            interrupts: table_list(root, "interrupt", report),
            mutexes: table_list(root, "mutex", report),
            semaphores: table_list(root, "semaphore", report),
            barriers: table_list(root, "barrier", report),
            conditions: table_list(root, "condition", report),
            operations: table_list(root, "at", report),
            expectations: table_list(root, "expect", report),
        }
    }
}

fn found<'d>(table: &'d DeTable<'d>, key: &str) -> Option<Found<'d>> {
    table.get(key).map(|value| At { value: value.get_ref(), at: value.span() })
}

fn one_table<'d>(
    root: &'d DeTable<'d>,
    name: &'static str,
    report: &mut Report<'_>,
) -> Field<At<&'d DeTable<'d>>> {
    let Some(value) = found(root, name) else { return Ok(None) };
    match value.value.as_table() {
        Some(table) => Ok(Some(At { value: table, at: value.at })),
        None => Err(report.push(&value.at, DocumentError::NotATable { name })),
    }
}

fn table_list<'d>(root: &'d DeTable<'d>, name: &'static str, report: &mut Report<'_>) -> TableList<'d> {
    let Some(value) = found(root, name) else { return Ok(Vec::new()) };
    let DeValue::Array(list) = value.value else {
        return Err(report.push(&value.at, DocumentError::NotAList { name }));
    };
    let tables = list.iter().map(|item| match item.get_ref().as_table() {
        Some(table) => Ok(At { value: table, at: item.span() }),
        None => Err(report.push(&item.span(), DocumentError::NotAList { name })),
    });
    // Every item is looked at before the first failure counts.
    tables.collect::<Vec<_>>().into_iter().collect()
}

/// The name of a table, which it must have.
pub(crate) fn name_of<'d>(
    table: &At<&'d DeTable<'d>>,
    what: Noun,
    report: &mut Report<'_>,
) -> Result<At<&'d str>, Reported> {
    match found(table.value, "name") {
        Some(value) => name(&value, what.word(), report),
        None => {
            let (table_name, example) = what.naming();
            let error = DocumentError::MissingKey { key: "name", table: table_name, example };
            Err(report.push(&table.at, error))
        }
    }
}

/// One table while its keys are read.
pub(crate) struct Section<'d, 'r, 's> {
    title: &'static str,
    keys: &'static [&'static str],
    table: At<&'d DeTable<'d>>,
    report: &'r mut Report<'s>,
}

impl<'d, 'r, 's> Section<'d, 'r, 's> {
    /// Opens a table, and reports the keys that it should not have.
    pub fn open(
        title: &'static str,
        keys: &'static [&'static str],
        table: At<&'d DeTable<'d>>,
        report: &'r mut Report<'s>,
    ) -> Self {
        for key in table.value.keys().filter(|key| !keys.contains(&key.get_ref().as_ref())) {
            let text = key.get_ref();
            let suggestion = report.guess(text, keys.iter().copied());
            let error =
                DocumentError::UnknownKey { key: clipped(text), table: title, suggestion, known: keys };
            report.push(&key.span(), error);
        }
        Self { title, keys, table, report }
    }

    /// Where the table begins.
    pub fn at(&self) -> Range<usize> {
        self.table.at.clone()
    }

    /// Refuses the table as a whole.
    pub fn refuse(&mut self, error: impl Into<Problem>) -> Reported {
        self.report.push(&self.table.at, error)
    }

    /// Reads the value of a key, if it is there.
    pub fn read<T>(
        &mut self,
        key: &'static str,
        reader: impl FnOnce(&Found<'d>, &mut Report<'s>) -> Result<T, Reported>,
    ) -> Field<T> {
        debug_assert!(self.keys.contains(&key), "{key} is read but would be refused");
        found(self.table.value, key).map(|value| reader(&value, self.report)).transpose()
    }

    /// Reads the value of a key that must be there; `example` is what to add if it is not.
    pub fn require<T>(
        &mut self,
        key: &'static str,
        example: &'static str,
        reader: impl FnOnce(&Found<'d>, &mut Report<'s>) -> Result<T, Reported>,
    ) -> Result<T, Reported> {
        let value = self.read(key, reader)?;
        value.ok_or_else(|| {
            let error = DocumentError::MissingKey { key, table: self.title, example };
            self.report.push(&self.table.at, error)
        })
    }
}

/// A table as the value of a key.
pub(crate) fn table<'d>(
    value: &Found<'d>,
    expected: Kind,
    report: &mut Report<'_>,
) -> Result<At<&'d DeTable<'d>>, Reported> {
    match value.value.as_table() {
        Some(table) => Ok(At { value: table, at: value.at.clone() }),
        None => Err(report.push(
            &value.at,
            ValueError::WrongType { expected, found: value.value.type_str(), quoted: None },
        )),
    }
}
