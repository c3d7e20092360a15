//! Everything that can go wrong, and what the program's caller learns from it: a message that begins with the file
//! concerned and ends with what to do, and an exit code.

use crate::args::Machine;
use crate::jan::JanError;
use crate::machine_run::MachineError;
use crate::refuse::Cannot;
use mainspring_host::HostError;
use mainspring_import::ImportError;
use mainspring_record::explain::ExplainError;
use mainspring_record::replay::ReplayError;
use mainspring_report::Expected;
use mainspring_sim::RunError;
use mainspring_workload::{LoadError, SettingError};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::{fmt, io};

/// Why the program did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// Workload files that are no workloads. Never empty.
    Load(Vec<LoadError>),
    /// A workload that the settings of the command line make no workload. Never empty.
    LoadSet(Vec<LoadError>),
    /// An output path names a file that has another part to play.
    Taken {
        /// The option that named it.
        option: &'static str,
        /// The path as given.
        path: PathBuf,
        /// What the file is already.
        by: &'static str,
    },
    /// An output file cannot be written.
    Write {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Standard output cannot be written.
    Print(io::Error),
    /// The run ended early.
    Run {
        /// The workload, as errors call it.
        name: String,
        /// The seed of the run.
        seed: u64,
        /// Why.
        error: RunError,
    },
    /// A recorded run broke a rule.
    Verify {
        /// The workload or the record, as errors call it.
        name: String,
        /// Which.
        error: ReplayError,
    },
    /// A setting of the command line cannot be made.
    Setting {
        /// The workload, as errors call it.
        name: String,
        /// Why.
        error: SettingError,
    },
    /// A run is not as expected.
    Unmet {
        /// The workload, as errors call it.
        name: String,
        /// What did not hold. Never empty.
        expected: Vec<Expected>,
    },
    /// Two records differ, and it has been said where.
    Differs,
    /// Some runs of a sweep are not as expected.
    UnmetRuns {
        /// The workload, as errors call it.
        name: String,
        /// How many.
        runs: u64,
    },
    /// The program that talks to a NATS server does not start.
    NoCluster {
        /// What the system said.
        cause: io::Error,
    },
    /// The program that talks to a NATS server has ended, and has said why.
    Cluster {
        /// How it ended.
        status: ExitStatus,
    },
    /// A worker's run is not what this host's is.
    WorkerFailed {
        /// The seed.
        seed: u64,
        /// What the worker said.
        why: String,
    },
    /// There is nothing to admit.
    NothingPromised {
        /// The workload, as errors call it.
        name: String,
    },
    /// Admission refused the workload, and has said why.
    NotAdmitted {
        /// The workload, as errors call it.
        name: String,
    },
    /// The workload asks for what the machine does not have.
    Cannot {
        /// The workload, as errors call it.
        name: String,
        /// What.
        cannot: Cannot,
    },
    /// The machine did not run it.
    Machine {
        /// The workload, as errors call it.
        name: String,
        /// Why.
        error: MachineError,
    },
    /// A run cannot be shown.
    Live {
        /// Where the page was to be.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// No thread can be started.
    Thread(io::Error),
    /// The machine has nothing to show while it runs.
    NotLive {
        /// Which machine.
        machine: Machine,
    },
    /// A program cannot be run under its grant, or grants cannot be listed.
    Host {
        /// The grant, as errors call it.
        name: String,
        /// Why.
        error: HostError,
    },
    /// There is no such command.
    NoCommand {
        /// As given.
        name: String,
    },
    /// A recording cannot be imported.
    Import {
        /// The recording, as errors call it.
        name: String,
        /// Why.
        error: ImportError,
    },
    /// A Janus program cannot be run, or failed.
    Jan(JanError),
    /// A flight record cannot be opened.
    Open {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A recording of Linux cannot be opened.
    OpenRecording {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file is not one in which a sweep keeps its results.
    NotResults {
        /// The path as given.
        path: PathBuf,
        /// The first line that is no result.
        line: usize,
    },
    /// A flight record does not replay.
    Replay {
        /// The record, as errors call it.
        name: String,
        /// Why.
        error: ReplayError,
    },
    /// A flight record does not answer the question.
    Explain {
        /// The record, as errors call it.
        name: String,
        /// Why.
        error: ExplainError,
    },
}

impl Failure {
    /// What the shell gets.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status())
    }

    /// 1 if the scheduler is to blame, 2 if the input or the system is, 3 if admission refused, 4 if a run is not as expected, 5 if there is
    /// nothing to admit.
    fn status(&self) -> u8 {
        match self {
            Self::Unmet { .. } | Self::UnmetRuns { .. } => 4,
            Self::NothingPromised { .. } => 5,
            Self::NotAdmitted { .. } | Self::Host { error: HostError::NotAdmitted(_), .. } => 3,
            Self::Run { error: RunError::Violation(_), .. } | Self::Differs => 1,
            Self::Replay { error, .. }
            | Self::Verify { error, .. }
            | Self::Explain { error: ExplainError::Replay(error), .. }
                if error.is_difference() =>
            {
                1
            }
            _ => 2,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(errors) => load_errors(errors, f),
            Self::LoadSet(errors) => {
                load_errors(errors, f)?;
                f.write_str("\nnote: the line is as the command line sets it; the file itself is fine")
            }
            Self::Taken { option, path, by } => {
                let path = path.display();
                write!(f, "{path}: is {by}, which {option} would overwrite\nhelp: give {option} another path")
            }
            Self::Write { path, cause } => {
                write!(f, "{}: cannot write: {cause}\nhelp: {}", path.display(), write_help(cause))
            }
            Self::Print(cause) => write!(f, "standard output: cannot write: {cause}"),
            Self::Run { name, error: error @ RunError::Violation(_), seed } => write!(
                f,
                "{name}: {error}\nhelp: this is a fault of the scheduler, please report it; the same file with \
                 --seed {seed} shows it again"
            ),
            Self::Verify { name, error: error @ ReplayError::Violation(_) } => write!(
                f,
                "{name}: {error}\nhelp: this is a fault of the scheduler or of the machine that drives it; please report \
                 it with the flight record"
            ),
            Self::Run { name, error, .. } => write!(f, "{name}: {error}"),
            Self::Setting { name, error } => write!(f, "{name}: --set: {error}"),
            Self::Unmet { name, expected } => {
                let mut gap = "";
                expected.iter().try_for_each(|Expected { what, found, line, .. }| {
                    let line = line.map_or_else(String::new, |line| format!(":{line}"));
                    write!(f, "{gap}{name}{line}: expected {what}; found {found}")?;
                    gap = "\n";
                    Ok(())
                })
            }
            Self::Differs => f.write_str("the two runs differ"),
            Self::UnmetRuns { name, runs: 1 } => write!(f, "{name}: one run is not as expected"),
            Self::UnmetRuns { name, runs } => write!(f, "{name}: {runs} runs are not as expected"),
            Self::NoCluster { cause } => write!(
                f,
                "mainspring-cluster: {cause}\nhelp: `make install-cluster` installs the program that talks to NATS servers; it must be \
                 beside this one or on the PATH"
            ),
            Self::Cluster { status } => write!(f, "the sweep over NATS has ended early: {status}"),
            Self::WorkerFailed { seed, why } => write!(
                f,
                "seed {seed}: a worker's run is not what it is here: {why}\nhelp: run the same version of mainspring on every host"
            ),
            Self::NothingPromised { name } => write!(
                f,
                "{name}: nothing here has a context: nothing is promised\nhelp: add a [[context]] with a budget and a period"
            ),
            Self::NotAdmitted { name } => write!(
                f,
                "{name}: not admitted\nhelp: grant less, for longer periods or later deadlines, or let contexts use more CPUs"
            ),
            Self::Cannot { name, cannot } => cannot.describe(name, f),
            Self::Machine { name, error } => write!(f, "{name}: {error}"),
            Self::Live { address, cause } => write!(
                f,
                "--live: {address}: {cause}\nhelp: give another port, or none: `--live` takes one that is free"
            ),
            Self::Thread(cause) => write!(f, "cannot start a thread: {cause}\nhelp: end other programs, or raise `ulimit -u`"),
            Self::NotLive { machine: Machine::Sim } => f.write_str(
                "--live: the simulator's time is not the time on the wall\nhelp: add `--on linux`, or write a record with \
                 `--record OUT.msr` and play it back with `mainspring top OUT.msr`",
            ),
            Self::NotLive { .. } => f.write_str(
                "--live: the kernel hands over its record when it stops, and nothing before\nhelp: add `--on linux`, or write a \
                 record with `--record OUT.msr` and play it back with `mainspring top OUT.msr`",
            ),
            // A refusal names the grant itself.
            Self::Host { error: error @ HostError::NotAdmitted(_), .. } => write!(f, "{error}"),
            Self::Host { name, error } => write!(f, "{name}: {error}"),
            Self::NoCommand { name } => {
                write!(f, "there is no command {name:?}\nhelp: `mainspring --help` lists the commands")
            }
            Self::Import { name, error } => write!(f, "{name}: {error}"),
            Self::Jan(error) => error.fmt(f),
            Self::Open { path, cause } => write!(
                f,
                "{}: {cause}\nhelp: give the path of a flight record, which `mainspring run FILE --record OUT` writes",
                path.display()
            ),
            Self::OpenRecording { path, cause } => write!(
                f,
                "{}: {cause}\nhelp: give the path of a recording: `perf sched record` writes one",
                path.display()
            ),
            Self::NotResults { path, line } => write!(
                f,
                "{}:{line}: is no result of a sweep, and --save appends to its file\nhelp: give --save a new path, or that of a \
                 sweep's results",
                path.display()
            ),
            Self::Replay { name, error } | Self::Explain { name, error: ExplainError::Replay(error) }
                if error.is_difference() =>
            {
                write!(
                    f,
                    "{name}: {error}\nhelp: the scheduler that recorded this decided otherwise; replay with the \
                     same version, or look for what changed"
                )
            }
            Self::Replay { name, error } | Self::Verify { name, error } => write!(f, "{name}: {error}"),
            Self::Explain { name, error } => write!(f, "{name}: {error}"),
        }
    }
}

fn load_errors(errors: &[LoadError], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut gap = "";
    errors.iter().try_for_each(|error| {
        write!(f, "{gap}{error}")?;
        gap = "\n\n";
        Ok(())
    })
}

fn write_help(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => "make its directory first",
        io::ErrorKind::IsADirectory => "give the path of a file in it",
        io::ErrorKind::BrokenPipe => "let its reader read to the end",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room, or give a path elsewhere",
        _ => "give a path that you may write",
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Load(errors) | Self::LoadSet(errors) => errors.first().map(|error| error as _),
            Self::Taken { .. }
            | Self::NoCommand { .. }
            | Self::NotAdmitted { .. }
            | Self::NothingPromised { .. }
            | Self::Unmet { .. }
            | Self::NotResults { .. }
            | Self::UnmetRuns { .. } => None,
            Self::Differs | Self::NotLive { .. } | Self::Cluster { .. } | Self::WorkerFailed { .. } => None,
            Self::NoCluster { cause } => Some(cause),
            Self::Setting { error, .. } => Some(error),
            Self::Write { cause, .. }
            | Self::Print(cause)
            | Self::Open { cause, .. }
            | Self::OpenRecording { cause, .. }
            | Self::Live { cause, .. }
            | Self::Thread(cause) => Some(cause),
            Self::Run { error, .. } => Some(error),
            Self::Cannot { cannot, .. } => Some(cannot),
            Self::Machine { error, .. } => Some(error),
            Self::Host { error, .. } => Some(error),
            Self::Replay { error, .. } | Self::Verify { error, .. } => Some(error),
            Self::Explain { error, .. } => Some(error),
            Self::Import { error, .. } => Some(error),
            Self::Jan(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainspring_abi::{CpuId, Nanos};
    use mainspring_record::Violation;

    #[test]
    fn a_violation_is_the_schedulers_fault_and_tells_how_to_see_it_again() {
        let cpu = CpuId::new(1).expect("a CPU");
        let violation =
            RunError::Violation(Violation { at: Nanos::from_millis(3), cpu, what: "two owners".into() });
        let failure = Failure::Run { name: "w.toml".into(), seed: 42, error: violation };
        assert_eq!(failure.status(), 1);
        let told = failure.to_string();
        assert!(told.starts_with("w.toml: at 3ms on CPU 1: two owners\nhelp: "), "{told}");
        assert!(told.contains("--seed 42"), "{told}");
    }

    #[test]
    fn a_workload_that_cannot_run_is_not() {
        let error = RunError::NoRoom { cpus: 4096, threads: 1 };
        assert_eq!(Failure::Run { name: "w.toml".into(), seed: 0, error }.status(), 2);
        let error = RunError::Standstill { at: Nanos::ZERO, thread: "a".into() };
        assert_eq!(Failure::Run { name: "w.toml".into(), seed: 0, error }.status(), 2);
    }
}
