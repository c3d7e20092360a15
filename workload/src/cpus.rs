//! CPU masks: `[0, 2]` or `"0-3,8"`, never empty and never beyond the machine.

use crate::error::{Report, Reported, clipped};
use crate::source::At;
use crate::value::{ENDLESS, Found, Kind, ValueError, integer};
use mainspring_abi::{CpuId, CpuSet};
use std::fmt;
use std::ops::Range;
use toml::de::DeValue;

/// Why CPUs cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuError {
    /// A CPU that the machine does not have.
    Beyond {
        /// Its number.
        cpu: u64,
        /// How many the machine has.
        cpus: usize,
    },
    /// A mask without a CPU: nothing could ever run there.
    Empty,
    /// Not numbers and ranges with commas between them.
    BadList {
        /// The part that is neither.
        text: String,
    },
    /// A range that ends before it begins.
    Reversed {
        /// The range the right way round.
        suggestion: String,
    },
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond { cpu, cpus: 1 } => write!(f, "CPU {cpu} does not exist; the machine has one CPU"),
            Self::Beyond { cpu, cpus } => write!(f, "CPU {cpu} does not exist; the machine has {cpus} CPUs"),
            Self::Empty => f.write_str("the CPU mask is empty, so nothing could ever run there"),
            Self::BadList { text } => write!(f, "{text:?} is neither a CPU nor a range of CPUs"),
            Self::Reversed { .. } => f.write_str("the range of CPUs ends before it begins"),
        }
    }
}

impl CpuError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Beyond { cpu, cpus } => format!(
                "choose 0 to {}, or set cpus = {} in [machine]",
                cpus.saturating_sub(1),
                cpu.saturating_add(1)
            ),
            Self::Empty => "name at least one CPU, or leave `cpus` out to allow all".into(),
            Self::BadList { .. } => "write CPUs as [0, 2] or \"0-3,8\"".into(),
            Self::Reversed { suggestion } => format!("did you mean {suggestion:?}?"),
        }
    }
}

/// A mask on a machine of `cpus` CPUs.
pub(crate) fn mask(value: &Found<'_>, cpus: usize, report: &mut Report<'_>) -> Result<CpuSet, Reported> {
    let set = match value.value {
        DeValue::Array(list) => {
            let numbers = list.iter().map(|item| At { value: item.get_ref(), at: item.span() });
            let read: Vec<_> = numbers.map(|item| cpu(&item, cpus, report)).collect();
            read.into_iter().collect::<Result<CpuSet, Reported>>()?
        }
        DeValue::String(text) => listed(&At { value: text, at: value.at.clone() }, cpus, report)?,
        other => {
            let error = ValueError::WrongType { expected: Kind::Cpus, found: other.type_str(), quoted: None };
            return Err(report.push(&value.at, error));
        }
    };
    if set.is_empty() { Err(report.push(&value.at, CpuError::Empty)) } else { Ok(set) }
}

/// One CPU of a machine of `cpus` CPUs.
pub(crate) fn cpu(value: &Found<'_>, cpus: usize, report: &mut Report<'_>) -> Result<CpuId, Reported> {
    let number = integer(value, "CPU", 0..=ENDLESS, report)?;
    existing(number, cpus).map_err(|error| report.push(&value.at, error))
}

fn existing(number: u64, cpus: usize) -> Result<CpuId, CpuError> {
    let beyond = CpuError::Beyond { cpu: number, cpus };
    let index = usize::try_from(number).ok().filter(|index| *index < cpus);
    index.and_then(|index| CpuId::new(index).ok()).ok_or(beyond)
}

fn listed(text: &At<&str>, cpus: usize, report: &mut Report<'_>) -> Result<CpuSet, Reported> {
    let mut set = Ok(CpuSet::EMPTY);
    if text.value.trim().is_empty() {
        return set;
    }
    let mut start = 0;
    for part in text.value.split(',') {
        let place = start..start + part.len();
        start = place.end + 1;
        match range(part.trim(), cpus) {
            Ok(range) => {
                if let Ok(set) = &mut set {
                    range.filter_map(|cpu| CpuId::new(cpu).ok()).for_each(|cpu| set.insert(cpu));
                }
            }
            Err(error) => {
                let at = report.source.within(text, place);
                set = Err(report.push(&at, error));
            }
        }
    }
    set
}

/// `3` or `0-3`; both ends exist, so that walking the range is bounded.
fn range(text: &str, cpus: usize) -> Result<Range<usize>, CpuError> {
    let number = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| part.parse::<u64>().unwrap_or(u64::MAX));
        number.ok_or_else(|| CpuError::BadList { text: clipped(text) })
    };
    let (first, last) = match text.split_once('-') {
        None => (number(text)?, number(text)?),
        Some((first, last)) => (number(first.trim())?, number(last.trim())?),
    };
    if last < first {
        return Err(CpuError::Reversed { suggestion: format!("{last}-{first}") });
    }
    existing(last, cpus).map(|last| first as usize..last.index() + 1)
}
