//! Thread names as small numbers, for the formats that mention a thread once per interval.
//!
//! The threads of the report come first and keep their order, so that a number means the same in the tables and
//! in the schedule. A name that only the schedule knows is added behind them rather than lost.

use crate::Report;
use std::collections::HashMap;

/// All thread names of a report, numbered.
pub(crate) struct Names<'a> {
    list: Vec<&'a str>,
    index: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    /// Numbers the names of the report's threads, then the names in its schedule.
    pub(crate) fn of(report: &'a Report) -> Self {
        let mut names = Self { list: Vec::new(), index: HashMap::new() };
        for thread in &report.threads {
            // Rows keep their position even if two share a name; the schedule then means the first of them.
            names.index.entry(&thread.name).or_insert(names.list.len());
            names.list.push(&thread.name);
        }
        for entry in report.schedule.iter().flatten() {
            if !names.index.contains_key(entry.thread.as_str()) {
                names.index.insert(&entry.thread, names.list.len());
                names.list.push(&entry.thread);
            }
        }
        names
    }

    /// Every name, by number.
    pub(crate) fn list(&self) -> &[&'a str] {
        &self.list
    }

    /// The number of a name, if the report's threads or its schedule have it.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// The number of a name that occurs in the schedule.
    pub(crate) fn number(&self, name: &str) -> usize {
        self.index[name]
    }
}
