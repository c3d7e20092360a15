//! Everything that can stand in the way of a grant, with what to do about it.

use crate::cgroup::GroupError;
use mainspring_abi::Nanos;
use std::path::PathBuf;
use std::{fmt, io};

/// Why a program was not run under a grant.
#[derive(Debug)]
pub enum HostError {
    /// What was asked for makes no sense on this host.
    Request(RequestError),
    /// Rights are missing. Never empty.
    Rights(Vec<MissingRight>),
    /// The grant does not fit beside those that were made before.
    NotAdmitted(Refusal),
    /// The registry of grants cannot be used.
    Registry {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file of the registry is not what a Mainspring of this version writes.
    ForeignEntry {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There are more grants than the registry keeps.
    TooMany {
        /// How many it keeps.
        most: usize,
    },
    /// A group could not be made, entered or removed.
    Group(GroupError),
    /// The kernel refused the reservation.
    Deadline(io::Error),
    /// A process could not be started or waited for.
    Process {
        /// What was to be done.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
}

/// A request that no host could grant, or that this one has no CPUs for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The budget is zero, or shorter than the kernel measures.
    BudgetTooShort {
        /// What was asked for.
        budget: Nanos,
        /// The shortest that there is.
        least: Nanos,
    },
    /// The period is shorter or longer than the kernel takes.
    Period {
        /// What was asked for.
        period: Nanos,
        /// The shortest.
        least: Nanos,
        /// The longest.
        most: Nanos,
    },
    /// The deadline is shorter than the budget or longer than the period.
    Deadline {
        /// What was asked for.
        deadline: Nanos,
        /// The budget.
        budget: Nanos,
        /// The period.
        period: Nanos,
    },
    /// More in each period than the CPUs have.
    MoreThanCpus {
        /// The budget.
        budget: Nanos,
        /// The period.
        period: Nanos,
        /// How many CPUs there are for it.
        cpus: usize,
    },
    /// CPUs that this process may not use.
    NoSuchCpus {
        /// What was asked for, as a list.
        asked: String,
        /// What there is, as a list.
        allowed: String,
    },
    /// All CPUs for one program alone.
    NothingLeft {
        /// What there is, as a list.
        allowed: String,
    },
    /// A deadline and a list of CPUs, which the kernel does not take together.
    DeadlineAndCpus,
    /// Less memory than a process needs to start.
    MemoryTooSmall {
        /// What was asked for.
        bytes: u64,
        /// The least.
        least: u64,
    },
}

/// A right that this process lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRight {
    /// What cannot be enforced without it.
    pub what: String,
    /// Why it is missing.
    pub why: String,
    /// How to get it.
    pub help: String,
}

/// Why a grant does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was asked for, in words.
    pub asked: String,
    /// Everything that stands against it, one reason each.
    pub reasons: Vec<String>,
    /// What is granted already, one line each.
    pub granted: Vec<String>,
}

impl From<RequestError> for HostError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl From<GroupError> for HostError {
    fn from(error: GroupError) -> Self {
        Self::Group(error)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BudgetTooShort { budget, least } => write!(
                f,
                "a budget of {budget} is too short\nhelp: the kernel enforces {least} and more; grant the same share \
                 of a longer period"
            ),
            Self::Period { period, least, most } => write!(
                f,
                "a period of {period} is out of range\nhelp: the kernel takes periods from {least} to {most}; grant the \
                 same share of such a period"
            ),
            Self::Deadline { deadline, budget, period } => write!(
                f,
                "a deadline of {deadline} is out of range\nhelp: choose one from {budget}, the budget, to {period}, the \
                 period"
            ),
            Self::MoreThanCpus { budget, period, cpus } => {
                let most = Nanos::new(period.get().saturating_mul(*cpus as u64));
                let s = if *cpus == 1 { "" } else { "s" };
                write!(
                    f,
                    "{budget} in each {period} is more than {cpus} CPU{s} can give\nhelp: grant less than {most}, or \
                     let it use more CPUs"
                )
            }
            Self::NoSuchCpus { asked, allowed } => write!(
                f,
                "CPUs {asked} are not all usable here\nhelp: choose among {allowed}"
            ),
            Self::NothingLeft { allowed } => write!(
                f,
                "a CPU has to be left for everything else\nhelp: choose with --cpus some of {allowed}, but not all"
            ),
            Self::DeadlineAndCpus => f.write_str(
                "--deadline and --cpus exclude each other: the kernel does not pin SCHED_DEADLINE threads\nhelp: leave \
                 one of them out",
            ),
            Self::MemoryTooSmall { bytes, least } => {
                write!(f, "{bytes} bytes of memory are too few to start a program\nhelp: grant {least} or more")
            }
        }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Rights(missing) => {
                f.write_str("rights are missing to enforce the grant")?;
                for right in missing {
                    write!(f, "\n  {}: {}\n    {}", right.what, right.why, right.help)?;
                }
                f.write_str(
                    "\nhelp: get the rights (`mainspring doctor` tells more), or give --best-effort to go on without",
                )
            }
            Self::NotAdmitted(refusal) => refusal.fmt(f),
            Self::Registry { path, cause } => write!(
                f,
                "{}: {cause}\nhelp: the registry of grants is kept there; make it yours to write, or set \
                 MAINSPRING_RUN_DIR to a directory that is",
                path.display()
            ),
            Self::ForeignEntry { path, why } => write!(
                f,
                "{}: no entry of the registry: {why}\nhelp: another version may have written it; remove it once nobody \
                 uses that grant",
                path.display()
            ),
            Self::TooMany { most } => {
                write!(f, "{most} grants are live already\nhelp: let some end; `mainspring ps` lists them")
            }
            Self::Group(GroupError { path, cause }) => {
                write!(f, "{}: {cause}\nhelp: {}", path.display(), group_help(cause))
            }
            Self::Deadline(cause) => {
                let (why, help) = crate::doctor::deadline_refusal(cause);
                write!(f, "{why}\nhelp: {help}")
            }
            Self::Process { what, cause } => {
                write!(f, "{what}: {cause}\nhelp: see `ulimit -a` for limits of this user")
            }
        }
    }
}

fn group_help(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::InvalidInput => {
            "the group above may allow less than that; grant less, or see the limits of the groups above it"
        }
        io::ErrorKind::PermissionDenied => "run as root, or let the administrator delegate that group to you",
        io::ErrorKind::ResourceBusy => "somebody else put processes into it; end them",
        _ => "`mainspring doctor` tells what this host allows",
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: not admitted", self.asked)?;
        for reason in &self.reasons {
            write!(f, "\n  {reason}")?;
        }
        if !self.granted.is_empty() {
            f.write_str("\ngranted already:")?;
            for line in &self.granted {
                write!(f, "\n  {line}")?;
            }
        }
        f.write_str("\nhelp: ask for less, or for a longer period, or wait until one of those ends")
    }
}

impl std::error::Error for RequestError {}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request(error) => Some(error),
            Self::Registry { cause, .. } | Self::Deadline(cause) | Self::Process { cause, .. } => Some(cause),
            Self::Group(error) => Some(&error.cause),
            Self::Rights(_) | Self::NotAdmitted(_) | Self::ForeignEntry { .. } | Self::TooMany { .. } => None,
        }
    }
}
