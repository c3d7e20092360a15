//! Durations (`300us`, `1.5ms`) and spans of them (`1ms..4ms`).

use crate::Span;
use crate::decimal::{DecimalError, scaled};
use crate::suggest::nearest;
use mainspring_abi::Nanos;
use std::fmt;

/// Both micro signs that keyboards make, beside the plain letter.
const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
];

/// Units of other tools that people write by mistake.
const OTHER_NAMES: [(&str, &str); 13] = [
    ("nsec", "ns"),
    ("usec", "us"),
    ("u", "us"),
    ("msec", "ms"),
    ("millis", "ms"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
];

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// Nothing there.
    Empty,
    /// A number without a unit.
    NoUnit {
        /// The number.
        number: String,
    },
    /// A unit that does not exist.
    UnknownUnit {
        /// What stands where the unit should.
        unit: String,
        /// The whole duration with the unit that was probably meant.
        suggestion: Option<String>,
    },
    /// The number is not digits, optionally with a point and more digits.
    BadNumber,
    /// Not a whole number of nanoseconds.
    TooFine,
    /// More nanoseconds than 64 bits hold.
    TooLong,
    /// A span whose end is before its beginning.
    Reversed {
        /// The span the right way round.
        suggestion: String,
    },
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a duration is missing"),
            Self::NoUnit { .. } => f.write_str("the duration has no unit"),
            Self::UnknownUnit { unit, .. } => write!(f, "unknown unit {unit:?}"),
            Self::BadNumber => f.write_str("the duration does not begin with a number"),
            Self::TooFine => f.write_str("the duration is not a whole number of nanoseconds"),
            Self::TooLong => f.write_str("the duration does not fit in 64 bits of nanoseconds"),
            Self::Reversed { .. } => f.write_str("the span ends before it begins"),
        }
    }
}

impl DurationError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Empty => "write a duration such as 300us, 1.5ms or 2s".into(),
            Self::NoUnit { number } => format!("add a unit (ns, us, ms, s or m): for example {number}ms"),
            Self::UnknownUnit { suggestion: Some(text), .. } => format!("did you mean {text:?}?"),
            Self::UnknownUnit { .. } => "the units are ns, us, ms, s and m".into(),
            Self::BadNumber => {
                "write digits and a unit, such as 300us, 1.5ms or 2s; a duration is never negative".into()
            }
            Self::TooFine => "time is counted in whole nanoseconds; leave digits out".into(),
            Self::TooLong => "choose a shorter duration; the longest run is one hour (60m)".into(),
            Self::Reversed { suggestion } => format!("did you mean {suggestion:?}?"),
        }
    }
}

/// Reads one duration. Zero needs no unit: it is the same in all of them.
pub(crate) fn duration(text: &str) -> Result<Nanos, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    let unit_start = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_start);
    if number.is_empty() {
        return Err(DurationError::BadNumber);
    }
    if unit.is_empty() {
        return match scaled(number, 1) {
            Ok(0) => Ok(Nanos::ZERO),
            Err(DecimalError::Malformed) => Err(DurationError::BadNumber),
            _ => Err(DurationError::NoUnit { number: number.into() }),
        };
    }
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(unknown_unit(number, unit));
    };
    scaled(number, *scale).map(Nanos::new).map_err(|error| match error {
        DecimalError::Malformed => DurationError::BadNumber,
        DecimalError::TooFine => DurationError::TooFine,
        DecimalError::TooLarge => DurationError::TooLong,
    })
}

fn unknown_unit(number: &str, unit: &str) -> DurationError {
    let wanted = unit.trim().to_lowercase();
    let meant = UNITS
        .iter()
        .map(|(name, _)| (*name, *name))
        .chain(OTHER_NAMES)
        .find(|(name, _)| *name == wanted)
        .map(|(_, meant)| meant)
        .or_else(|| nearest(unit, ["ns", "us", "ms"]));
    DurationError::UnknownUnit {
        unit: unit.into(),
        suggestion: meant.map(|meant| format!("{number}{meant}")),
    }
}

/// Reads a duration, or a span of two.
pub(crate) fn span(text: &str) -> Result<Span, DurationError> {
    let Some((from, to)) = text.split_once("..") else {
        return duration(text).map(|fixed| Span { min: fixed, max: fixed });
    };
    let (min, max) = (duration(from)?, duration(to)?);
    if max < min {
        return Err(DurationError::Reversed { suggestion: format!("{to}..{from}") });
    }
    Ok(Span { min, max })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_read_as_they_are_said() {
        for (text, ns) in [
            ("17ns", 17),
            ("300us", 300_000),
            ("300\u{b5}s", 300_000),
            ("300\u{3bc}s", 300_000),
            ("1.5ms", 1_500_000),
            ("2s", 2_000_000_000),
            ("1m", 60_000_000_000),
            ("0.000001ms", 1),
            ("0", 0),
            ("0ms", 0),
        ] {
            assert_eq!(duration(text), Ok(Nanos::new(ns)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_says_why_and_what_to_write() {
        for (text, message, help) in [
            ("", "missing", "300us"),
            ("300", "no unit", "300ms"),
            ("3sec", "unknown unit \"sec\"", "did you mean \"3s\"?"),
            ("3MS", "unknown unit \"MS\"", "did you mean \"3ms\"?"),
            ("3 ms", "unknown unit \" ms\"", "did you mean \"3ms\"?"),
            ("3fortnights", "unknown unit", "ns, us, ms, s and m"),
            ("-3ms", "begin with a number", "never negative"),
            ("ms", "begin with a number", "300us"),
            ("1.ms", "begin with a number", "300us"),
            ("1.5ns", "whole number of nanoseconds", "leave digits out"),
            ("18446744074s", "64 bits", "shorter"),
            ("99999999999999999999999999999999999999999m", "64 bits", "shorter"),
        ] {
            let error = duration(text).expect_err(text);
            assert!(error.to_string().contains(message), "{text}: {error}");
            assert!(error.help().contains(help), "{text}: {}", error.help());
        }
    }

    #[test]
    fn spans_keep_both_ends() {
        let (one, four) = (Nanos::from_millis(1), Nanos::from_millis(4));
        assert_eq!(span("1ms..4ms"), Ok(Span { min: one, max: four }));
        assert_eq!(span("4ms"), Ok(Span { min: four, max: four }));
        assert_eq!(span("0..1ms"), Ok(Span { min: Nanos::ZERO, max: one }));
        assert_eq!(span("4ms..1ms"), Err(DurationError::Reversed { suggestion: "1ms..4ms".into() }));
        assert!(span("1..4ms").is_err() && span("1ms..").is_err() && span("1ms...4ms").is_err());
    }

    proptest! {
        #[test]
        fn any_number_of_any_unit_is_exact(value in 0..1_000_000_u64, unit in 0..UNITS.len()) {
            let (name, scale) = UNITS[unit];
            prop_assert_eq!(duration(&format!("{value}{name}")), Ok(Nanos::new(value * scale)));
        }

        #[test]
        fn times_below_a_second_survive_being_printed(micros in 0..1_000_000_u64) {
            let time = Nanos::from_micros(micros);
            prop_assert_eq!(duration(&time.to_string()), Ok(time));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*") {
            let _ = span(&text);
        }
    }
}
