//! Lists of CPUs as Linux writes them: `0-3,5`.

use mainspring_abi::{CpuId, CpuIdError, CpuSet};
use std::fmt;

/// Why a text is no list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuListError {
    /// The list names no CPU.
    Empty,
    /// A part is neither a number nor two numbers with a dash between them.
    BadPart {
        /// The part.
        part: String,
    },
    /// A range ends before it begins.
    Backwards {
        /// The range.
        part: String,
    },
    /// A number is beyond every machine.
    Cpu(CpuIdError),
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no CPU is named; write a list such as 0-3,5"),
            Self::BadPart { part } => {
                write!(f, "{part:?} is neither a CPU nor a range of them; write a list such as 0-3,5")
            }
            Self::Backwards { part } => {
                write!(f, "the range {part} ends before it begins; write the smaller number first")
            }
            Self::Cpu(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CpuListError {}

/// Reads a list such as `0-3,5`.
///
/// # Errors
/// If the text is no such list.
pub fn parse_cpu_list(text: &str) -> Result<CpuSet, CpuListError> {
    let mut cpus = CpuSet::EMPTY;
    for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let number = |text: &str| -> Result<usize, CpuListError> {
            text.trim().parse().map_err(|_| CpuListError::BadPart { part: part.to_owned() })
        };
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(CpuListError::Backwards { part: part.to_owned() });
        }
        // The end is checked first: the loop is then bounded by the largest machine.
        CpuId::new(last).map_err(CpuListError::Cpu)?;
        for cpu in first..=last {
            cpus.insert(CpuId::new(cpu).map_err(CpuListError::Cpu)?);
        }
    }
    if cpus.is_empty() { Err(CpuListError::Empty) } else { Ok(cpus) }
}

/// Writes a list such as `0-3,5`.
#[must_use]
pub fn cpu_list(cpus: &CpuSet) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus.iter().map(CpuId::index) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_as_it_was_written() {
        for text in ["0", "0-3", "0-3,5", "1,3,5-6", "4095"] {
            assert_eq!(cpu_list(&parse_cpu_list(text).expect("a list")), text);
        }
        assert_eq!(cpu_list(&parse_cpu_list(" 2,0,1 \n").expect("a list")), "0-2");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert_eq!(parse_cpu_list(""), Err(CpuListError::Empty));
        assert_eq!(parse_cpu_list(","), Err(CpuListError::Empty));
        assert_eq!(parse_cpu_list("1,x"), Err(CpuListError::BadPart { part: "x".into() }));
        assert_eq!(parse_cpu_list("-1"), Err(CpuListError::BadPart { part: "-1".into() }));
        assert_eq!(parse_cpu_list("3-1"), Err(CpuListError::Backwards { part: "3-1".into() }));
        assert!(matches!(parse_cpu_list("0-99999999999"), Err(CpuListError::Cpu(_))));
    }
}
