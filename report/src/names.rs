//! Thread names as small numbers, for the formats that mention a thread once per interval.
//!
//! The threads of the report come first and keep their order, so that a number means the same in the tables and
//! in the schedule. A name that only the schedule or the states know is added behind them rather than lost.

use crate::Report;
use std::collections::HashMap;

/// All thread names of a report, numbered.
pub(crate) struct Names<'a> {
    list: Vec<&'a str>,
    index: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    /// Numbers the names of the report's threads, then the names in its schedule and its states.
    pub(crate) fn of(report: &'a Report) -> Self {
        let mut names = Self { list: Vec::new(), index: HashMap::new() };
        for thread in &report.threads {
            // Rows keep their position even if two share a name; the schedule then means the first of them.
            names.index.entry(&thread.name).or_insert(names.list.len());
            names.list.push(&thread.name);
        }
        let scheduled = report.schedule.iter().flatten().map(|entry| entry.thread.as_str());
        let states = report.states.iter().flat_map(|states| {
            let mut occurs = vec![false; states.names.len()];
            for entry in &states.entries {
                if let Some(occurs) = occurs.get_mut(entry.thread as usize) {
                    *occurs = true;
                }
            }
            states.names.iter().zip(occurs).filter(|(_, occurs)| *occurs).map(|(name, _)| name.as_str())
        });
        for name in scheduled.chain(states) {
            if !names.index.contains_key(name) {
                names.index.insert(name, names.list.len());
                names.list.push(name);
            }
        }
        names
    }

    /// Every name, by number.
    pub(crate) fn list(&self) -> &[&'a str] {
        &self.list
    }

    /// The number of a name, if the report's threads, its schedule or its states have it.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// The number of a name that occurs in the schedule.
    pub(crate) fn number(&self, name: &str) -> usize {
        self.index[name]
    }
}

/// The name without its instance number: `batch` of `batch.7`.
pub(crate) fn stem(name: &str) -> Option<&str> {
    let (stem, instance) = name.rsplit_once('.')?;
    let number = !instance.is_empty() && instance.bytes().all(|b| b.is_ascii_digit());
    (number && !stem.is_empty()).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trailing_number_makes_an_instance() {
        assert_eq!(stem("batch.7"), Some("batch"));
        assert_eq!(stem("a.b.12"), Some("a.b"));
        assert_eq!(stem("batch"), None);
        assert_eq!(stem("v1.x"), None);
        assert_eq!(stem("batch."), None);
        assert_eq!(stem(".7"), None);
    }
}
