//! Commands about this host and the programs on it.

use super::{ReportForm, out_path, time};
use clap::Args;
use mainspring_abi::{CpuSet, Nanos};
use mainspring_host::{CpuListError, parse_cpu_list};
use mainspring_workload::{DurationError, parse_duration};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// Examples of `mainspring exec`.
pub const EXEC_EXAMPLES: &str = "\
Examples:
  mainspring exec --budget 20ms/100ms -- make              a fifth of one CPU for make and its children
  mainspring exec --budget 150ms/100ms --memory 2G -- cargo build
  mainspring exec --budget 20ms/100ms --cpus 1 -- sh -c 'sort big | uniq -c'
  mainspring exec --budget 2ms/10ms --deadline 5ms -- ./control-loop
  mainspring exec --budget 20ms/100ms --report json --output use.json -- ./job

Exit codes:
  2    wrong usage, or rights are missing, or the system failed: the program was not run
  3    the grant does not fit beside those of `mainspring ps`: the program was not run
  126  the program could not be run
  127  the program was not found
  else the program's own, or 128 and the signal that ended it";

/// Examples of `mainspring ps`.
pub const PS_EXAMPLES: &str = "\
Examples:
  mainspring ps
  mainspring ps --json | jq '.[].usage.used_ns'";

/// Examples of `mainspring doctor`.
pub const DOCTOR_EXAMPLES: &str = "\
Examples:
  mainspring doctor
  mainspring doctor --json | jq '.[] | select(.status != \"good\")'";

/// `mainspring exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// CPU time in each period, over all CPUs, for the program and its children: 20ms/100ms.
    #[arg(long, value_name = "TIME/PERIOD", value_parser = budget)]
    pub budget: Budget,

    /// Have the kernel give the program's first thread its budget by this time after the start of each period
    /// (SCHED_DEADLINE). Its children and other threads share as much again, without a promise.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub deadline: Option<Nanos>,

    /// The CPUs that the program and its children may use: 0-3,5.
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<Cpus>,

    /// Keep other groups off the CPUs of --cpus, as far as the host's cgroups can. A CPU is left for the rest.
    #[arg(long, requires = "cpus")]
    pub exclusive: bool,

    /// The most memory that the program and its children may use: 512M, 2G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    /// What to call the grant, instead of the program's name.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Go on without the rights to enforce all of it, and say what is not enforced.
    #[arg(long)]
    pub best_effort: bool,

    /// Show use, throttling and missed periods every second on standard error. Without this it is shown where standard
    /// error is a terminal and standard output is not.
    #[arg(long)]
    pub stats: bool,

    /// The report's form: a few lines for people, or JSON for programs. It goes to standard error: standard output is
    /// the program's.
    #[arg(long, value_enum, value_name = "FORM", default_value_t = ReportForm::Text)]
    pub report: ReportForm,

    /// Write the report to a file instead.
    #[arg(long, value_name = "OUT", value_parser = out_path())]
    pub output: Option<PathBuf>,

    /// Write a record of the use that `mainspring report` reads. It has no decisions: they are the kernel's.
    #[arg(long, value_name = "OUT", value_parser = out_path())]
    pub record: Option<PathBuf>,

    /// Write the report as a page that opens in a browser.
    #[arg(long, value_name = "OUT", value_parser = out_path())]
    pub html: Option<PathBuf>,

    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `mainspring ps`.
#[derive(Debug, Args)]
pub struct PsArgs {
    /// Print JSON for programs.
    #[arg(long)]
    pub json: bool,
}

/// `mainspring doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON for programs.
    #[arg(long)]
    pub json: bool,
}

/// CPU time in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How much.
    pub budget: Nanos,
    /// In each of these.
    pub period: Nanos,
}

/// A set of CPUs, on the heap: an option's value is moved about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(pub Box<CpuSet>);

/// Why a value of one of these commands is none.
#[derive(Debug, PartialEq, Eq)]
enum BadGrant {
    NoPeriod,
    Time(DurationError),
    Cpus(CpuListError),
    Size,
    SizeTooLarge,
}

impl fmt::Display for BadGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeriod => f.write_str("no period; write how much in each period, such as 20ms/100ms"),
            Self::Time(error) => write!(f, "{error}; {}", error.help()),
            Self::Cpus(error) => error.fmt(f),
            Self::Size => f.write_str("no size; write a whole number and K, M, G or T, such as 512M"),
            Self::SizeTooLarge => f.write_str("more bytes than 64 bits count; write a smaller size"),
        }
    }
}

impl std::error::Error for BadGrant {}

fn budget(text: &str) -> Result<Budget, BadGrant> {
    let (budget, period) = text.split_once('/').ok_or(BadGrant::NoPeriod)?;
    let part = |text: &str| parse_duration(text.trim()).map_err(BadGrant::Time);
    Ok(Budget { budget: part(budget)?, period: part(period)? })
}

fn cpus(text: &str) -> Result<Cpus, BadGrant> {
    parse_cpu_list(text).map(|cpus| Cpus(Box::new(cpus))).map_err(BadGrant::Cpus)
}

/// Bytes, in powers of 1024: `64M`, `64MB` and `64MiB` are the same.
fn size(text: &str) -> Result<u64, BadGrant> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = match number.parse() {
        Ok(number) => number,
        Err(_) if number.is_empty() => return Err(BadGrant::Size),
        Err(_) => return Err(BadGrant::SizeTooLarge),
    };
    let unit = unit.trim().to_ascii_lowercase();
    let power = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(BadGrant::Size),
    };
    number.checked_mul(1 << (10 * power)).ok_or(BadGrant::SizeTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_time_in_each_period() {
        let asked = budget("20ms/100ms").expect("a budget");
        assert_eq!((asked.budget, asked.period), (Nanos::from_millis(20), Nanos::from_millis(100)));
        assert_eq!(budget("20ms"), Err(BadGrant::NoPeriod));
        assert!(matches!(budget("20/100ms"), Err(BadGrant::Time(_))));
        assert!(matches!(budget("/"), Err(BadGrant::Time(_))));
    }

    #[test]
    fn a_size_is_a_number_and_a_unit() {
        for (text, bytes) in
            [("4096", 4096), ("1K", 1024), ("64M", 64 << 20), ("64 MiB", 64 << 20), ("2gb", 2 << 30)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "1.5G", "-1", "1X", "12 parsecs"] {
            assert_eq!(size(text), Err(BadGrant::Size), "{text}");
        }
        assert_eq!(size("99999999999999999999"), Err(BadGrant::SizeTooLarge));
        assert_eq!(size("99999999T"), Err(BadGrant::SizeTooLarge));
    }
}
