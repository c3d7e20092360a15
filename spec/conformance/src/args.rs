//! The command line, by hand: two commands and five flags do not pay for a parser crate's build time.

use std::fmt;
use std::path::PathBuf;

/// What `--help` prints.
pub const USAGE: &str = "\
Which requirements have a citing test, and which licences we depend on.

usage: mainspring-conformance [report] [--part P] [--group N] [--summary | --missing] [--root DIR]
       mainspring-conformance licences [--root DIR]

report     per part how many rows have a citing test, then the rows that have none (the default)
licences   check the licence of every third-party package against deny.toml

--part P     only rows of this part, e.g. core
--group N    only rows of this group of spec/requirements.toml, e.g. 14
--summary    only the table
--missing    only the rows without a citing test
--root DIR   the project; default: the nearest directory upwards with spec/requirements.toml

exit code: 0 all well; 1 an unknown id, a wrong exception or a licence not allowed; 2 bad usage
";

/// Which sections of the report are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sections {
    /// The table and the list.
    #[default]
    Both,
    /// The table alone.
    Summary,
    /// The list alone.
    Missing,
}

/// Which rows to report, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportOptions {
    /// Only rows of this part.
    pub part: Option<String>,
    /// Only rows of this group.
    pub group: Option<u32>,
    /// Table, list or both.
    pub sections: Sections,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Print the coverage of requirements.
    Report(ReportOptions),
    /// Check licences.
    Licences,
    /// Print [`USAGE`].
    Help,
}

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The project directory, when given.
    pub root: Option<PathBuf>,
    /// What to do there.
    pub command: Command,
}

/// Why a command line is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum UsageError {
    /// Neither a command nor a flag of the command.
    Unexpected(String),
    /// A flag at the end that needs a value.
    NoValue(&'static str),
    /// `--group` takes a number.
    NotANumber(String),
    /// `--summary` and `--missing` exclude each other.
    SummaryAndMissing,
    /// No row has this part; the parts that exist.
    UnknownPart { part: String, known: Vec<String> },
    /// No heading has this number; the greatest that exists.
    UnknownGroup { group: u32, last: u32 },
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsageError::Unexpected(word) => write!(f, "unexpected argument `{word}`"),
            UsageError::NoValue(flag) => write!(f, "{flag} needs a value"),
            UsageError::NotANumber(word) => write!(f, "--group needs a number, not `{word}`"),
            UsageError::SummaryAndMissing => write!(f, "--summary and --missing exclude each other"),
            UsageError::UnknownPart { part, known } => {
                write!(f, "no row has part `{part}`; parts are {}", known.join(", "))
            }
            UsageError::UnknownGroup { group, last } => write!(f, "no group {group}; groups end at {last}"),
        }
    }
}

/// Reads the arguments that follow the program name.
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Invocation, UsageError> {
    let mut args = args.into_iter().peekable();
    let licences = match args.peek().map(String::as_str) {
        Some("licences") => args.next().is_some(),
        Some("report") => args.next().is_none(),
        _ => false,
    };
    let (mut root, mut options) = (None, ReportOptions::default());
    while let Some(word) = args.next() {
        match word.as_str() {
            "--help" | "-h" | "help" => return Ok(Invocation { root, command: Command::Help }),
            "--root" => root = Some(PathBuf::from(args.next().ok_or(UsageError::NoValue("--root"))?)),
            _ if licences => return Err(UsageError::Unexpected(word)),
            "--part" => options.part = Some(args.next().ok_or(UsageError::NoValue("--part"))?),
            "--group" => {
                let number = args.next().ok_or(UsageError::NoValue("--group"))?;
                options.group = Some(number.parse().map_err(|_| UsageError::NotANumber(number))?);
            }
            "--summary" => options.sections = options.sections.narrow(Sections::Summary)?,
            "--missing" => options.sections = options.sections.narrow(Sections::Missing)?,
            _ => return Err(UsageError::Unexpected(word)),
        }
    }
    let command = if licences { Command::Licences } else { Command::Report(options) };
    Ok(Invocation { root, command })
}

impl Sections {
    fn narrow(self, to: Sections) -> Result<Sections, UsageError> {
        if self == Sections::Both || self == to { Ok(to) } else { Err(UsageError::SummaryAndMissing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Invocation, UsageError> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn report_is_the_default_command() {
        assert_eq!(parse_line(""), parse_line("report"));
        assert_eq!(parse_line("--part core"), parse_line("report --part core"));
    }

    #[test]
    fn flags_select_rows_and_sections() {
        let Ok(Invocation { root, command: Command::Report(options) }) =
            parse_line("report --part core --group 14 --missing --root /x")
        else {
            panic!("a report was asked for");
        };
        assert_eq!(root, Some(PathBuf::from("/x")));
        assert_eq!((options.part.as_deref(), options.group), (Some("core"), Some(14)));
        assert_eq!(options.sections, Sections::Missing);
    }

    #[test]
    fn licences_takes_no_report_flags() {
        assert_eq!(parse_line("licences"), Ok(Invocation { root: None, command: Command::Licences }));
        assert_eq!(parse_line("licences --missing"), Err(UsageError::Unexpected("--missing".into())));
    }

    #[test]
    fn bad_usage_is_named() {
        assert_eq!(parse_line("audit"), Err(UsageError::Unexpected("audit".into())));
        assert_eq!(parse_line("report report"), Err(UsageError::Unexpected("report".into())));
        assert_eq!(parse_line("--part"), Err(UsageError::NoValue("--part")));
        assert_eq!(parse_line("--group x"), Err(UsageError::NotANumber("x".into())));
        assert_eq!(parse_line("--summary --missing"), Err(UsageError::SummaryAndMissing));
    }
}
