//! Which threads a page shows one by one, and under which number.
//!
//! A page of a few thousand threads holds all of them. Of more, it holds those that people look for: the ones that missed
//! deadlines, the ones that waited longest, and some of each table. The others are told together, a group per table.
//!
//! Conserved: each thread of the report has one number, its own or its group's.

use crate::names::{Names, stem};
use crate::{Report, ThreadReport};
use std::collections::HashMap;

/// How many threads are shown one by one, if there are more than so many.
pub(super) const SHOWN_MOST: usize = 4_000;
const SHOWN_OF_MANY: usize = 2_000;
/// How many groups there are at most; the last is of all others.
const GROUPS_MOST: usize = 1_000;

/// The threads that are shown, and the groups of the others.
pub(super) struct Chosen<'a> {
    /// Rows of the report's threads that are shown, in their order.
    pub(super) rows: Vec<usize>,
    /// Names by number: those of `rows`, then names that no row has, then groups.
    pub(super) names: Vec<String>,
    /// Which of the numbers are groups.
    pub(super) first_group: usize,
    /// The number that stands for each name of the report.
    number_of: Vec<u32>,
    /// The number of the group that each name belongs to, for stretches of several threads.
    group_of: Vec<u32>,
    all: &'a Names<'a>,
}

impl<'a> Chosen<'a> {
    /// Chooses at most `most` threads of `report`, whose names are `all`.
    pub(super) fn of(report: &'a Report, all: &'a Names<'a>, most: usize) -> Self {
        let count = all.list().len();
        let mut kept = vec![count <= most.max(1); count];
        if count > most {
            choose(&report.threads, count, most.min(SHOWN_OF_MANY), &mut kept);
        }
        let (mut names, mut number_of) = (Vec::new(), vec![u32::MAX; count]);
        for (at, name) in all.list().iter().enumerate().filter(|(at, _)| kept[*at]) {
            number_of[at] = names.len() as u32;
            names.push((*name).to_owned());
        }
        let first_group = names.len();
        let (mut groups, mut group_of) = (HashMap::new(), vec![0; count]);
        for (at, name) in all.list().iter().enumerate() {
            let table = stem(name);
            let full = groups.len() >= GROUPS_MOST;
            let (key, shown) = match table {
                _ if full && !groups.contains_key(table.unwrap_or(name)) => ("", "(others)".to_owned()),
                Some(table) => (table, format!("{table}.*")),
                None => (*name, (*name).to_owned()),
            };
            let group = *groups.entry(key).or_insert_with(|| {
                names.push(shown);
                names.len() as u32 - 1
            });
            group_of[at] = group;
            if !kept[at] {
                number_of[at] = group;
            }
        }
        let rows = (0..report.threads.len()).filter(|row| kept[*row]).collect();
        Self { rows, names, first_group, number_of, group_of, all }
    }

    /// The number of the thread of that name, or of its group.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.all.find(name).map(|at| self.number_of[at])
    }

    /// The number of the group of the thread of that name.
    pub(super) fn group(&self, name: &str) -> Option<u32> {
        self.all.find(name).map(|at| self.group_of[at])
    }

    /// Whether that number is a thread's own.
    pub(super) fn is_thread(&self, number: u32) -> bool {
        (number as usize) < self.first_group
    }
}

/// Marks the threads that are kept: a quarter by misses, a quarter by the longest wait, the rest from all tables in turn.
fn choose(threads: &[ThreadReport], count: usize, most: usize, kept: &mut [bool]) {
    let mut left = most;
    let mut by = |size: fn(&ThreadReport) -> u64, room: usize, left: &mut usize| {
        let mut rows: Vec<usize> = (0..threads.len()).filter(|row| size(&threads[*row]) > 0).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(size(&threads[*row])), *row));
        for row in rows.into_iter().take(room) {
            *left -= usize::from(!std::mem::replace(&mut kept[row], true));
        }
    };
    by(|thread| thread.misses, most / 4, &mut left);
    by(|thread| thread.wake_latency_ns.max, most / 4, &mut left);
    let mut tables: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut order = Vec::new();
    for (row, thread) in threads.iter().enumerate() {
        let stem = stem(&thread.name).unwrap_or(&thread.name);
        tables.entry(stem).or_insert_with(|| {
            order.push(stem);
            Vec::new()
        });
        tables.entry(stem).or_default().push(row);
    }
    for round in 0..count {
        for stem in &order {
            let Some(&row) = tables[stem].get(round) else { continue };
            if left == 0 {
                return;
            }
            left -= usize::from(!std::mem::replace(&mut kept[row], true));
        }
        if left == 0 {
            return;
        }
    }
}
