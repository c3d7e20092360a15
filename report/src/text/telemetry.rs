//! The permanent counters that are not zero; those kept per CPU as their sum, with the labels' sums behind it.

use super::grid::{Cell, Grid, label, number};
use super::style::TextStyle;
use crate::units::count;
use crate::{Report, Telemetry};
use std::collections::BTreeMap;

pub(super) fn render(report: &Report, style: TextStyle) -> String {
    let counters: Vec<Counter> = counters(&report.telemetry).into_iter().filter(|c| c.total > 0).collect();
    if counters.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(&[label("counter", 0), number("value", 0), label("", 1)]);
    for counter in counters {
        grid.row(vec![
            Cell::plain(counter.name),
            Cell::plain(count(counter.total)),
            Cell::new(super::style::Tone::Dim, counter.detail()),
        ]);
    }
    let mut out = String::new();
    // Only the breakdown can be dropped, and the sums stand without it.
    let _ = grid.render(style, &mut out);
    out
}

struct Counter {
    name: &'static str,
    total: u64,
    labels: BTreeMap<String, u64>,
}

impl Counter {
    fn detail(&self) -> String {
        let parts: Vec<String> = self
            .labels
            .iter()
            .filter(|(_, n)| **n > 0)
            .map(|(name, n)| format!("{name} {}", count(*n)))
            .collect();
        parts.join(", ")
    }
}

/// All counters in the order of the report. Taken apart by name: a new one cannot be forgotten here.
fn counters(telemetry: &Telemetry) -> Vec<Counter> {
    let Telemetry {
        scheduler_tick_count,
        ticks_suppressed,
        nohz_enter_count,
        nohz_exit_count,
        oneshot_deadline_miss_count,
        sqpoll_busy_ns,
        sqpoll_sleep_count,
        deadline_expired_count,
        budget_exhausted_count,
        realtime_overrun_count,
        donation_depth_max,
        donation_inflight_skipped,
        housekeeping_offload_count,
        queue_depth_max,
        steals,
        handoffs,
        handoffs_queued,
        reschedules_sent,
        reschedules_pending,
        reschedules_lost,
    } = telemetry;
    vec![
        labelled("scheduler_tick_count", scheduler_tick_count),
        labelled("ticks_suppressed", ticks_suppressed),
        labelled("nohz_enter_count", nohz_enter_count),
        labelled("nohz_exit_count", nohz_exit_count),
        single("oneshot_deadline_miss_count", *oneshot_deadline_miss_count),
        single("sqpoll_busy_ns", *sqpoll_busy_ns),
        single("sqpoll_sleep_count", *sqpoll_sleep_count),
        single("deadline_expired_count", *deadline_expired_count),
        single("budget_exhausted_count", *budget_exhausted_count),
        single("realtime_overrun_count", *realtime_overrun_count),
        single("donation_depth_max", *donation_depth_max),
        single("donation_inflight_skipped", *donation_inflight_skipped),
        single("housekeeping_offload_count", *housekeeping_offload_count),
        single("queue_depth_max", *queue_depth_max),
        single("steals", *steals),
        single("handoffs", *handoffs),
        single("handoffs_queued", *handoffs_queued),
        single("reschedules_sent", *reschedules_sent),
        single("reschedules_pending", *reschedules_pending),
        single("reschedules_lost", *reschedules_lost),
    ]
}

fn single(name: &'static str, total: u64) -> Counter {
    Counter { name, total, labels: BTreeMap::new() }
}

/// Sums over the CPUs: the key is a CPU number, or a CPU number and a label.
fn labelled(name: &'static str, values: &BTreeMap<String, u64>) -> Counter {
    let mut counter = single(name, 0);
    for (key, n) in values {
        counter.total = counter.total.saturating_add(*n);
        if let Some((_, label)) = key.split_once(',') {
            let sum = counter.labels.entry(label.to_owned()).or_default();
            *sum = sum.saturating_add(*n);
        }
    }
    counter
}
