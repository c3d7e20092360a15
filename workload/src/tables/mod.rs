//! The tables that stand for authority, read once all names are known.

mod context;
mod distribution;
mod endpoint;
mod expect;
mod interrupt;
mod island;
mod lease;
mod operation;
mod policy;
mod ring;
mod sync;

pub(crate) use context::contexts;
pub(crate) use distribution::distributions;
pub(crate) use endpoint::endpoints;
pub(crate) use expect::expectations;
pub(crate) use interrupt::interrupts;
pub(crate) use island::islands;
pub(crate) use lease::leases;
pub(crate) use operation::operations;
pub(crate) use policy::policy;
pub(crate) use ring::rings;
pub(crate) use sync::sync;

use crate::document::Section;
use crate::error::{Report, Reported, clipped};
use crate::names::{Interner, NameError, Noun};
use crate::scope::{Named, NamedTable, Scope};
use crate::sections::PERIOD;
use crate::source::At;
use crate::value::{Found, Kind, ValueError, fixed};
use crate::{MAX_TABLES, Overrun};
use mainspring_abi::Nanos;
use std::fmt;
use toml::de::DeValue;

/// Why the keys of a table do not fit together, or tables do not fit each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableError {
    /// Best effort would keep more than half of each CPU.
    FloorTooHigh,
    /// Speeds for another number of CPUs than there are.
    SpeedsDiffer {
        /// How many speeds.
        speeds: usize,
        /// How many CPUs.
        cpus: usize,
    },
    /// A CPU that hardly computes.
    TooSlow,
    /// More tables of one kind than there may be.
    TooMany {
        /// The kind.
        what: Noun,
    },
    /// More `[[at]]` tables than there may be.
    TooManyOperations,
    /// A budget that could not be used up in time.
    BudgetTooLarge {
        /// The budget.
        budget: Nanos,
        /// What bounds it.
        bound: &'static str,
        /// How long that is.
        limit: Nanos,
    },
    /// A deadline behind the next release.
    DeadlineAfterPeriod {
        /// The deadline.
        deadline: Nanos,
        /// The period.
        period: Nanos,
    },
    /// A context that two thread tables are bound to.
    BoundTwice {
        /// The context.
        context: String,
        /// The thread that names it first.
        other: String,
    },
    /// A context of a thread that is also the default of a process or of an endpoint.
    BoundElsewhere {
        /// The context.
        context: String,
        /// The thread that is bound to it.
        thread: String,
    },
    /// A thread and its context have no CPU in common.
    NoCommonCpu {
        /// The context.
        context: String,
    },
    /// A ring whose number of entries is no power of two.
    NotPowerOfTwo {
        /// The number.
        entries: u64,
    },
    /// A lease that names a ring without being a poller of the kernel.
    RingWithoutSqpoll,
    /// A kernel poller without a ring.
    SqpollWithoutRing,
    /// A kernel poller of a ring that is not made for one.
    NotSqpoll {
        /// The ring.
        ring: String,
    },
    /// A context that is in two islands, or twice in one.
    InTwoIslands {
        /// The context.
        context: String,
        /// The island that has it already.
        island: String,
    },
    /// An island without a context.
    EmptyIsland,
    /// An operation of a policy service that does not exist.
    NoPolicy,
    /// More `[[expect]]` tables than there may be.
    TooManyExpectations,
    /// An `[[expect]]` table without a condition.
    ExpectsNothing,
    /// A shape that no Pareto distribution has here.
    Shape {
        /// As written.
        shape: String,
    },
    /// A file of values that cannot be read.
    ValuesFile {
        /// As written.
        path: String,
        /// Why.
        why: String,
    },
    /// A distribution of values without any, or with nothing but zero.
    NoValues,
    /// Interrupts without time between them.
    NeverRests,
    /// An `[[expect]]` table with two subjects.
    ExpectsOfSeveral,
    /// A condition that its subject cannot have.
    ExpectedElsewhere {
        /// What can have it.
        of: &'static str,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SpeedsDiffer { speeds, cpus } => {
                let s = |n: &usize| if *n == 1 { "" } else { "s" };
                write!(f, "{speeds} speed{} for {cpus} CPU{}", s(speeds), s(cpus))
            }
            Self::TooSlow => f.write_str("a CPU computes at 1% of full speed or more"),
            Self::FloorTooHigh => f.write_str("the floor of best effort is more than half of each CPU"),
            Self::TooMany { what } => write!(f, "more than {MAX_TABLES} [[{what}]] tables"),
            Self::TooManyOperations => write!(f, "more than {MAX_TABLES} [[at]] tables"),
            Self::BudgetTooLarge { budget, bound, limit } => {
                write!(f, "the budget {budget} is longer than the {bound} {limit}")
            }
            Self::DeadlineAfterPeriod { deadline, period } => {
                write!(f, "the deadline {deadline} is longer than the period {period}")
            }
            Self::BoundTwice { context, other } => {
                write!(f, "context {context:?} is the one of thread {other:?} already")
            }
            Self::BoundElsewhere { context, thread } => {
                write!(f, "context {context:?} is the one of thread {thread:?}, which does not lend it")
            }
            Self::NoCommonCpu { context } => {
                write!(f, "the thread may use no CPU of its context {context:?}, so it could never run")
            }
            Self::NotPowerOfTwo { entries } => write!(f, "{entries} entries are no power of two"),
            Self::RingWithoutSqpoll => f.write_str("only a lease of mode \"kernel-sqpoll\" has a ring"),
            Self::SqpollWithoutRing => f.write_str("a lease of mode \"kernel-sqpoll\" needs a ring to poll"),
            Self::NotSqpoll { ring } => write!(f, "ring {ring:?} is not made for a poller"),
            Self::InTwoIslands { context, island } => {
                write!(f, "context {context:?} is in island {island:?} already")
            }
            Self::EmptyIsland => f.write_str("the island has no nodes"),
            Self::NoPolicy => f.write_str("the file has no policy service"),
            Self::TooManyExpectations => write!(f, "more than {MAX_TABLES} [[expect]] tables"),
            Self::ExpectsNothing => f.write_str("the table expects nothing"),
            Self::Shape { shape } => write!(f, "{shape:?} is no shape of a Pareto distribution"),
            Self::ValuesFile { path, why } => write!(f, "{path:?}: {why}"),
            Self::NoValues => f.write_str("a distribution of values needs values, in the table or in a file"),
            Self::NeverRests => f.write_str("no time passes between two interrupts"),
            Self::ExpectsOfSeveral => f.write_str("the table expects something of several things"),
            Self::ExpectedElsewhere { .. } => f.write_str("the condition cannot be expected of that"),
        }
    }
}

impl TableError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::SpeedsDiffer { cpus, .. } => {
                format!("write {cpus}, one for each CPU, or leave `speeds` out")
            }
            Self::TooSlow => "choose 1% to 100%".into(),
            Self::FloorTooHigh => "choose 0% to 50%, such as floor = \"5%\"".into(),
            Self::TooMany { what } => format!("use fewer; one [[{what}]] may serve many threads"),
            Self::TooManyOperations => "use fewer".into(),
            Self::BudgetTooLarge { limit, .. } => format!("choose a budget of {limit} or less"),
            Self::DeadlineAfterPeriod { period, .. } => {
                format!("choose {period} or less, or leave `deadline` out for the period")
            }
            Self::BoundTwice { .. } => {
                "give each [[thread]] its own [[context]]; with a `count` each instance gets one".into()
            }
            Self::BoundElsewhere { .. } => "add a [[context]] of its own".into(),
            Self::NoCommonCpu { .. } => "let the `cpus` of the two overlap, or leave one out".into(),
            Self::NotPowerOfTwo { entries } => {
                format!("choose {} or another power of two from 2 to 4096", nearest_power(*entries))
            }
            Self::RingWithoutSqpoll => "remove `ring`, or write mode = \"kernel-sqpoll\"".into(),
            Self::SqpollWithoutRing => "add ring = \"NAME\", the name of a [[ring]]".into(),
            Self::NotSqpoll { ring } => format!("write sqpoll = true in the table of {ring:?}"),
            Self::InTwoIslands { .. } => "name each context in one island, once".into(),
            Self::EmptyIsland => "add nodes = [\"NAME\"], the names of [[context]] tables".into(),
            Self::TooManyExpectations => "use fewer; one table may have many conditions".into(),
            Self::ExpectsNothing => "add a condition, such as misses = 0 or response_p99 = \"5ms\"".into(),
            Self::Shape { .. } => "choose a number from 0.1 to 100, such as shape = \"1.5\"".into(),
            Self::ValuesFile { .. } => "write one duration on each line".into(),
            Self::NoValues => {
                "add values = [\"1ms\", \"5ms\"] or file = \"PATH\", with at least one above zero".into()
            }
            Self::NeverRests => "choose at least 1ns".into(),
            Self::ExpectsOfSeveral => {
                "name one of `thread`, `context` and `endpoint`, or none for the run".into()
            }
            Self::ExpectedElsewhere { of } => format!("it is {of}"),
            Self::NoPolicy => "add [policy] with service = \"NAME\", the name of a [[thread]]".into(),
        }
    }
}

fn nearest_power(entries: u64) -> u64 {
    entries.clamp(2, 4_096).next_power_of_two()
}

/// What every table may name.
pub(crate) struct Known<'k, 't, 'd> {
    pub scope: &'k Scope<'t, 'd>,
    pub processes: &'k Interner,
    pub endpoints: &'k Interner,
    /// Whether a thread receives on an endpoint, by its number.
    pub received: &'k [bool],
    /// Set when a program could not be read, which may be the one that an unknown endpoint stands in.
    pub unreadable: Option<Reported>,
    pub cpus: usize,
}

impl Known<'_, '_, '_> {
    fn endpoint(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<usize, Reported> {
        match (self.endpoints.has(name.value), self.unreadable) {
            (false, Some(reported)) => Err(reported),
            _ => self.endpoints.known(Noun::Endpoint, name, report),
        }
    }

    /// An endpoint that a thread receives on, as far as can be told.
    fn received_endpoint(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<usize, Reported> {
        let endpoint = self.endpoint(name, report)?;
        if self.unreadable.is_none() && self.received.get(endpoint) == Some(&false) {
            let known = self.endpoints.names().iter().zip(self.received).filter(|(_, received)| **received);
            let suggestion = report.guess(name.value, known.map(|(name, _)| name.as_str()));
            let error = NameError::NobodyReceives { endpoint: clipped(name.value), suggestion };
            return Err(report.push(&name.at, error));
        }
        Ok(endpoint)
    }
}

const OVERRUNS: [(&str, Overrun); 4] = [
    ("throttle", Overrun::Throttle),
    ("fault", Overrun::Fault),
    ("notify", Overrun::Notify),
    ("shutdown", Overrun::Shutdown),
];

/// Reads every table of a kind before the first failure counts.
fn each<'d, T>(
    named: &Named<'d>,
    mut read: impl FnMut(usize, &NamedTable<'d>) -> Result<T, Reported>,
) -> Result<Vec<T>, Reported> {
    let all: Vec<_> = named.tables.iter().enumerate().map(|(n, table)| read(n, table)).collect();
    named.names()?;
    all.into_iter().collect()
}

/// The name of a table, which has been reported if there is none.
fn own_name(table: &NamedTable<'_>) -> Result<String, Reported> {
    table.name.as_ref().map(|name| name.value.into()).map_err(|reported| *reported)
}

/// A period, and a deadline within it which defaults to it.
fn cycle(section: &mut Section<'_, '_, '_>) -> Result<(Nanos, Nanos), Reported> {
    let period = section
        .require("period", "period = \"10ms\"", |value, report| fixed(value, "period", PERIOD, report));
    let deadline = section.read("deadline", |value, report| {
        let deadline = fixed(value, "deadline", PERIOD, report)?;
        let period = period?;
        if deadline > period {
            return Err(report.push(&value.at, TableError::DeadlineAfterPeriod { deadline, period }));
        }
        Ok(deadline)
    });
    let period = period?;
    Ok((period, deadline?.unwrap_or(period)))
}

/// A list. Each item is read before the first failure counts.
fn list<'d, T>(
    value: &Found<'d>,
    expected: Kind,
    report: &mut Report<'_>,
    mut read: impl FnMut(&Found<'d>, &mut Report<'_>) -> Result<T, Reported>,
) -> Result<Vec<T>, Reported> {
    let DeValue::Array(items) = value.value else {
        let error = ValueError::WrongType { expected, found: value.value.type_str(), quoted: None };
        return Err(report.push(&value.at, error));
    };
    let items = items.iter().map(|item| read(&At { value: item.get_ref(), at: item.span() }, report));
    items.collect::<Vec<_>>().into_iter().collect()
}
