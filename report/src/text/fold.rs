//! Rows of the thread table: a thread, or a group of instances folded into one.
//!
//! In a folded row counts are sums over the members. Times and the median latency are means, so that they compare
//! with a single thread's; p99, max and lag are the worst of any member, because a mean would hide the one that
//! suffered.

use crate::ThreadReport;
use crate::names::stem;
use std::collections::HashMap;

/// Groups of more instances than this are folded unless the style says otherwise.
pub const FOLD_ABOVE: usize = 12;

/// One row.
pub(super) struct Row {
    pub(super) name: String,
    /// How many threads stand in this row.
    pub(super) members: u64,
    /// The members' weight; `None` if they differ.
    pub(super) weight: Option<u16>,
    pub(super) runtime_ns: u64,
    pub(super) entitled_ns: u64,
    pub(super) ready_ns: u64,
    pub(super) blocked_ns: u64,
    pub(super) wakeups: u64,
    pub(super) wake_p50_ns: u64,
    pub(super) wake_p99_ns: u64,
    pub(super) wake_max_ns: u64,
    pub(super) lag_max_ns: u64,
    pub(super) preemptions: u64,
    pub(super) migrations: u64,
    pub(super) misses: u64,
}

/// The table's rows. A group stands where its first instance stood.
pub(super) fn rows(threads: &[ThreadReport], expand: bool) -> Vec<Row> {
    let mut groups: HashMap<&str, Vec<&ThreadReport>> = HashMap::new();
    if !expand {
        for thread in threads {
            if let Some(stem) = stem(&thread.name) {
                groups.entry(stem).or_default().push(thread);
            }
        }
        groups.retain(|_, members| members.len() > FOLD_ABOVE);
    }
    let mut rows = Vec::new();
    for thread in threads {
        match stem(&thread.name).and_then(|stem| Some((stem, groups.get_mut(stem)?))) {
            None => rows.push(row(thread.name.clone(), &[thread])),
            // Taken at the first instance; the later ones find it empty.
            Some((stem, members)) => match std::mem::take(members) {
                members if members.is_empty() => {}
                members => rows.push(row(format!("{stem}.* (x{})", members.len()), &members)),
            },
        }
    }
    rows
}

fn row(name: String, members: &[&ThreadReport]) -> Row {
    let count = members.len() as u64;
    let total = |field: fn(&ThreadReport) -> u64| {
        members.iter().fold(0_u64, |sum, thread| sum.saturating_add(field(thread)))
    };
    let mean = |field| total(field) / count;
    let worst = |field: fn(&ThreadReport) -> u64| members.iter().map(|t| field(t)).max().unwrap_or(0);
    let woken = members.iter().filter(|t| t.wakeups > 0).count() as u64;
    let weight = members[0].weight;
    Row {
        name,
        members: count,
        weight: members.iter().all(|t| t.weight == weight).then_some(weight),
        runtime_ns: mean(|t| t.runtime_ns),
        entitled_ns: mean(|t| t.entitled_ns),
        ready_ns: mean(|t| t.ready_ns),
        blocked_ns: mean(|t| t.blocked_ns),
        wakeups: total(|t| t.wakeups),
        // A member that never woke has no latency, rather than one of zero.
        wake_p50_ns: total(|t| t.wake_latency_ns.p50) / woken.max(1),
        wake_p99_ns: worst(|t| t.wake_latency_ns.p99),
        wake_max_ns: worst(|t| t.wake_latency_ns.max),
        lag_max_ns: worst(|t| t.lag_max_ns),
        preemptions: total(|t| t.preemptions),
        migrations: total(|t| t.migrations),
        misses: total(|t| t.misses),
    }
}
