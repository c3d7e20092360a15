//! Values: from a TOML value to a number, duration, chance, choice or name, within limits.

use crate::decimal::scaled;
use crate::duration::{self, DurationError};
use crate::error::{Report, Reported, clipped, did_you_mean};
use crate::source::At;
use crate::{MAX_THREADS, Span};
use mainspring_abi::Nanos;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use toml::de::DeValue;

/// The greatest number that TOML can write.
pub(crate) const ENDLESS: u64 = i64::MAX as u64;

/// A TOML value with its place.
pub(crate) type Found<'d> = At<&'d DeValue<'d>>;

/// What a value can be asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the name of what is expected")]
pub enum Kind {
    Text,
    Integer,
    Flag,
    Duration,
    Chance,
    Speeds,
    Cpus,
    Program,
    Step,
    Names,
    Memory,
    MemoryItem,
    Operation,
    LateFault,
    StallFault,
    Budget,
    Share,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "a text in quotes",
            Self::Integer => "a whole number",
            Self::Flag => "true or false",
            Self::Duration => "a duration in quotes",
            Self::Chance => "a percentage in quotes",
            Self::Speeds => "a list of percentages",
            Self::Cpus => "a list of CPUs",
            Self::Program => "a list of steps",
            Self::Step => "a step in quotes",
            Self::Names => "a list of names",
            Self::Memory => "a list of tables",
            Self::Operation => "an operation in quotes",
            Self::Share => "two percentages in quotes",
            Self::MemoryItem | Self::LateFault | Self::StallFault | Self::Budget => "a table",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Text => "\"name\"",
            Self::Integer => "8, without quotes or a point",
            Self::Flag => "true or false, without quotes",
            Self::Duration => "\"5ms\"",
            Self::Chance => "\"0.1%\"",
            Self::Speeds => "one for each CPU, such as [\"100%\", \"50%\"]",
            Self::Cpus => "[0, 2] or \"0-3,8\"",
            Self::Program => "[\"run 300us\", \"sleep 16ms\"]",
            Self::Step => "\"run 300us\"",
            Self::Names => "[\"one\", \"two\"]",
            Self::Memory => "[{ name = \"buffers\", bytes = 65536 }]",
            Self::MemoryItem => "{ name = \"buffers\", bytes = 65536 }",
            Self::Operation => "\"revoke NAME\"",
            Self::Share => "\"20%..30%\"",
            Self::LateFault => "{ chance = \"1%\", by = \"2ms\" }",
            Self::Budget => "{ ops = 100000, spawns = 10 }",
            Self::StallFault => "{ chance = \"0.01%\", for = \"5ms\" }",
        }
    }
}

/// Why a value cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// A value of another type.
    WrongType {
        /// What is needed.
        expected: Kind,
        /// What TOML calls what is there.
        found: &'static str,
        /// A number that stands in quotes.
        quoted: Option<i64>,
    },
    /// A whole number outside its limits.
    OutOfRange {
        /// The key or step.
        what: &'static str,
        /// As the file has it.
        value: String,
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// More thread instances in the whole file than [`MAX_THREADS`].
    TooManyThreads {
        /// How many there are up to this table.
        total: usize,
    },
    /// Not a duration.
    Duration {
        /// As the file has it.
        text: String,
        /// What is wrong with it.
        cause: DurationError,
    },
    /// A duration outside its limits.
    DurationOutOfRange {
        /// The key or step.
        what: &'static str,
        /// What the file says.
        value: Nanos,
        /// The shortest.
        min: Nanos,
        /// The longest.
        max: Nanos,
    },
    /// A span where only one duration makes sense.
    NotFixed {
        /// The key or step.
        what: &'static str,
        /// The span.
        text: String,
    },
    /// Not a percentage.
    BadChance {
        /// As the file has it.
        text: String,
    },
    /// Not a share with a least and a greatest.
    BadShare {
        /// As the file has it.
        text: String,
    },
    /// The value is none of the words that the key takes.
    UnknownChoice {
        /// The key.
        what: &'static str,
        /// As the file has it.
        value: String,
        /// The words, for a message.
        choices: String,
        /// Which was probably meant.
        suggestion: Option<String>,
    },
    /// Not a name of letters, digits, `_`, `.` and `-`.
    BadName {
        /// What it should name.
        what: &'static str,
        /// As the file has it.
        text: String,
    },
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongType { expected, found, .. } => {
                write!(f, "expected {}, found {found}", expected.name())
            }
            Self::OutOfRange { what, value, .. } => write!(f, "{what} {value} is out of range"),
            Self::TooManyThreads { total } => write!(f, "the file makes {total} threads and more"),
            Self::Duration { text, cause } => write!(f, "{cause}: {text:?}"),
            Self::DurationOutOfRange { what, value, min, .. } => {
                let direction = if value < min { "short" } else { "long" };
                write!(f, "{what} {value} is too {direction}")
            }
            Self::NotFixed { what, text } => write!(f, "{what} takes one duration, not the span {text:?}"),
            Self::BadChance { text } => write!(f, "not a percentage: {text:?}"),
            Self::BadShare { text } => write!(f, "not a share with two limits: {text:?}"),
            Self::UnknownChoice { what, value, .. } => write!(f, "unknown {what} {value:?}"),
            Self::BadName { what, text } => write!(f, "{text:?} is not a valid {what} name"),
        }
    }
}

impl ValueError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::WrongType { expected: Kind::Integer, quoted: Some(number), .. } => {
                format!("write {number} without quotes")
            }
            Self::WrongType { expected, .. } => format!("write {}", expected.example()),
            // The ends of the types are no limits that a file would choose.
            Self::OutOfRange { min, max: ENDLESS, .. } => format!("choose {min} or more"),
            Self::OutOfRange { min, max, .. } => format!("choose {min} to {max}"),
            Self::TooManyThreads { .. } => format!("lower the counts to {MAX_THREADS} in all"),
            Self::Duration { cause, .. } => cause.help(),
            Self::DurationOutOfRange { min, max: Nanos::MAX, .. } => format!("choose {min} or more"),
            Self::DurationOutOfRange { min, max, .. } => format!("choose {min} to {max}"),
            Self::NotFixed { .. } => "write one duration, such as \"20ms\"".into(),
            Self::BadChance { .. } => {
                "write 0% to 100% with at most four decimals, such as \"1%\" or \"0.01%\"".into()
            }
            Self::BadShare { .. } => "write the least and the greatest, such as \"20%..30%\"".into(),
            Self::UnknownChoice { choices, suggestion, .. } => {
                did_you_mean(suggestion.as_ref(), &format!("choose {choices}"))
            }
            Self::BadName { .. } => {
                "a name has letters, digits, '_', '.' and '-' only, and is not empty".into()
            }
        }
    }
}

fn wrong_type(value: &Found<'_>, expected: Kind, report: &mut Report<'_>) -> Reported {
    let quoted = value.value.as_str().and_then(|text| text.trim().parse().ok());
    report.push(&value.at, ValueError::WrongType { expected, found: value.value.type_str(), quoted })
}

/// A string; `expected` says what for, if it is none.
pub(crate) fn text<'d>(
    value: &Found<'d>,
    expected: Kind,
    report: &mut Report<'_>,
) -> Result<At<&'d str>, Reported> {
    match value.value.as_str() {
        Some(text) => Ok(At { value: text, at: value.at.clone() }),
        None => Err(wrong_type(value, expected, report)),
    }
}

/// `true` or `false`.
pub(crate) fn flag(value: &Found<'_>, report: &mut Report<'_>) -> Result<bool, Reported> {
    value.value.as_bool().ok_or_else(|| wrong_type(value, Kind::Flag, report))
}

/// A whole number within limits.
pub(crate) fn integer(
    value: &Found<'_>,
    what: &'static str,
    limits: RangeInclusive<u64>,
    report: &mut Report<'_>,
) -> Result<u64, Reported> {
    let Some(number) = value.value.as_integer() else {
        return Err(wrong_type(value, Kind::Integer, report));
    };
    let read = u64::from_str_radix(number.as_str(), number.radix()).ok();
    read.filter(|number| limits.contains(number)).ok_or_else(|| {
        let value_text = clipped(&number.to_string());
        report.push(&value.at, out_of_range(what, value_text, &limits))
    })
}

/// The error of a number outside its limits.
pub(crate) fn out_of_range(what: &'static str, value: String, limits: &RangeInclusive<u64>) -> ValueError {
    ValueError::OutOfRange { what, value, min: *limits.start(), max: *limits.end() }
}

/// A duration or a span of two.
pub(crate) fn span(value: &Found<'_>, report: &mut Report<'_>) -> Result<Span, Reported> {
    let text = text(value, Kind::Duration, report)?;
    span_in(&text, 0..text.value.len(), report)
}

/// A duration or span that is a part of a longer string.
pub(crate) fn span_in(
    text: &At<&str>,
    part: Range<usize>,
    report: &mut Report<'_>,
) -> Result<Span, Reported> {
    let word = text.value.get(part.clone()).unwrap_or("");
    duration::span(word).map_err(|cause| {
        let at = report.source.within(text, part);
        report.push(&at, ValueError::Duration { text: clipped(word), cause })
    })
}

/// One duration within limits.
pub(crate) fn fixed(
    value: &Found<'_>,
    what: &'static str,
    limits: RangeInclusive<Nanos>,
    report: &mut Report<'_>,
) -> Result<Nanos, Reported> {
    let text = text(value, Kind::Duration, report)?;
    fixed_in(&text, 0..text.value.len(), what, limits, report)
}

/// One duration within limits that is a part of a longer string.
pub(crate) fn fixed_in(
    text: &At<&str>,
    part: Range<usize>,
    what: &'static str,
    limits: RangeInclusive<Nanos>,
    report: &mut Report<'_>,
) -> Result<Nanos, Reported> {
    let span = span_in(text, part.clone(), report)?;
    let word = text.value.get(part.clone()).unwrap_or("");
    let error = if word.contains("..") {
        ValueError::NotFixed { what, text: clipped(word) }
    } else if limits.contains(&span.min) {
        return Ok(span.min);
    } else {
        ValueError::DurationOutOfRange { what, value: span.min, min: *limits.start(), max: *limits.end() }
    };
    let at = report.source.within(text, part);
    Err(report.push(&at, error))
}

/// A percentage, in parts per million.
pub(crate) fn chance(value: &Found<'_>, report: &mut Report<'_>) -> Result<u32, Reported> {
    let text = text(value, Kind::Chance, report)?;
    percentage(text.value)
        .ok_or_else(|| report.push(&text.at, ValueError::BadChance { text: clipped(text.value) }))
}

/// `0.5%` in parts per million, if it is from none to all.
pub(crate) fn percentage(text: &str) -> Option<u32> {
    const PPM_PER_PERCENT: u64 = 10_000;
    let ppm = scaled(text.strip_suffix('%')?, PPM_PER_PERCENT).ok()?;
    u32::try_from(ppm).ok().filter(|ppm| *ppm <= 1_000_000)
}

/// One of a few words.
pub(crate) fn choice<T: Copy>(
    value: &Found<'_>,
    what: &'static str,
    choices: &[(&'static str, T)],
    report: &mut Report<'_>,
) -> Result<T, Reported> {
    let text = text(value, Kind::Text, report)?;
    let found = choices.iter().find(|(word, _)| *word == text.value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let suggestion = report.guess(text.value, words.iter().copied());
        let value = clipped(text.value);
        report.push(&text.at, ValueError::UnknownChoice { what, value, choices: quoted(&words), suggestion })
    })
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ")
}

/// The name of a thread, process or endpoint.
pub(crate) fn name<'d>(
    value: &Found<'d>,
    what: &'static str,
    report: &mut Report<'_>,
) -> Result<At<&'d str>, Reported> {
    let text = text(value, Kind::Text, report)?;
    name_in(&text, 0..text.value.len(), what, report)
}

/// A name that is a part of a longer string.
pub(crate) fn name_in<'d>(
    text: &At<&'d str>,
    part: Range<usize>,
    what: &'static str,
    report: &mut Report<'_>,
) -> Result<At<&'d str>, Reported> {
    let word = text.value.get(part.clone()).unwrap_or("");
    let at = report.source.within(text, part);
    let fits = |letter: char| letter.is_alphanumeric() || "_.-".contains(letter);
    if !word.is_empty() && word.chars().all(fits) {
        return Ok(At { value: word, at });
    }
    Err(report.push(&at, ValueError::BadName { what, text: clipped(word) }))
}
