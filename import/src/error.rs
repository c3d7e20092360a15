//! Why something could not be imported, where, and what to do about it.

use std::fmt;

/// Where in the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// A line of a text, from 1.
    Line(usize),
    /// A byte of a file, from 0.
    Byte(usize),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// Why something could not be imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImportError {
    /// It has no event of the scheduler.
    NoEvents,
    /// It has events, and none of them between the times that were asked for.
    NoneBetween {
        /// How long the recording is.
        length_ns: u64,
    },
    /// It is a file of trace-cmd.
    TraceDat,
    /// An event of the scheduler is not written as Linux writes it.
    Malformed {
        /// Where.
        place: Position,
        /// What was expected there.
        expected: &'static str,
    },
    /// A `perf.data` file has a part that is not read here.
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// Time goes back on a CPU.
    Backwards {
        /// Where.
        place: Position,
    },
    /// It is more than a workload can say.
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How many at most.
        most: u64,
    },
    /// It is no JSON.
    Json {
        /// The line.
        line: usize,
        /// Why.
        why: String,
    },
    /// An rt-app description says what cannot be imported.
    RtApp {
        /// The path of the key: `tasks.thread0.run`.
        key: String,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEvents => f.write_str(
                "no sched_switch event found\nhelp: record with `perf sched record`, or ftrace with the events sched_switch and \
                 sched_waking",
            ),
            Self::NoneBetween { length_ns } => write!(
                f,
                "--between: no thread ran then; the recording goes from 0ms to {}.{:06}ms",
                length_ns / 1_000_000,
                length_ns % 1_000_000
            ),
            Self::TraceDat => f.write_str(
                "a file of trace-cmd is not read directly\nhelp: `trace-cmd report FILE > FILE.txt`, and import FILE.txt",
            ),
            Self::Malformed { place, expected } => write!(
                f,
                "{place}: expected {expected}\nhelp: the recording is damaged or was cut short there; take the part before it, or \
                 record anew"
            ),
            Self::Unsupported { what } => {
                write!(f, "{what}\nhelp: `perf script -i FILE > FILE.txt`, and import FILE.txt")
            }
            Self::Backwards { place } => {
                write!(f, "{place}: time goes back on this CPU\nhelp: import one recording at a time")
            }
            Self::TooMuch { what, most } => {
                write!(f, "more than {most} {what}\nhelp: take a part of it with --between FROM TO")
            }
            Self::Json { line, why } => {
                write!(f, "line {line}: {why}\nhelp: an rt-app description is one JSON object with `tasks`")
            }
            Self::RtApp { key, why } => write!(f, "{key}: {why}"),
        }
    }
}

impl std::error::Error for ImportError {}
