//! Numbers for the instances of tables.

use crate::model::{ContextTarget, ThreadTarget, Workload};
use std::ops::Range;

/// The numbers of the instances of all tables of a kind: those of a table follow those of the table before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbering {
    /// The first number of each table, and the first that none has.
    firsts: Vec<usize>,
}

impl Numbering {
    fn new(counts: impl Iterator<Item = usize>) -> Self {
        let ends = counts.scan(0, |end, count| {
            *end += count;
            Some(*end)
        });
        Self { firsts: std::iter::once(0).chain(ends).collect() }
    }

    /// The first instance of a table.
    #[must_use]
    pub fn first(&self, table: usize) -> usize {
        self.firsts[table]
    }

    /// The threads that a step or table names.
    #[must_use]
    pub fn threads(&self, target: ThreadTarget) -> Range<usize> {
        self.named(target.thread, target.instance)
    }

    /// The contexts that a step or table names.
    #[must_use]
    pub fn contexts(&self, target: ContextTarget) -> Range<usize> {
        self.named(target.context, target.instance)
    }

    fn named(&self, table: usize, instance: Option<u32>) -> Range<usize> {
        let first = self.firsts[table];
        match instance {
            Some(instance) => first + instance as usize..first + instance as usize + 1,
            None => first..self.firsts[table + 1],
        }
    }
}

impl Workload {
    /// Numbers for the instances of its threads.
    #[must_use]
    pub fn thread_numbers(&self) -> Numbering {
        Numbering::new(self.threads.iter().map(|table| table.instances()))
    }

    /// Numbers for the instances of its contexts.
    #[must_use]
    pub fn context_numbers(&self) -> Numbering {
        Numbering::new(self.contexts.iter().map(|table| table.instances()))
    }
}

/// The name of instance `n` of a table.
pub(crate) fn instance_name(name: &str, count: Option<u32>, n: usize) -> String {
    match count {
        None => name.to_owned(),
        Some(_) => format!("{name}.{n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_of_a_table_follow_those_of_the_table_before() {
        let numbers = Numbering::new([2, 1, 3].into_iter());
        let of = |thread, instance| numbers.threads(ThreadTarget { thread, instance });
        assert_eq!([of(0, None), of(1, None), of(2, None)], [0..2, 2..3, 3..6]);
        assert_eq!([of(0, Some(1)), of(2, Some(2))], [1..2, 5..6]);
        assert_eq!(numbers.first(2), 3);
        assert_eq!(numbers.contexts(ContextTarget { context: 2, instance: Some(0) }), 3..4);
    }
}
