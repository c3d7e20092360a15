//! Linux's own schedule of a recording beside another one, and how faithful the imported workload is to what was recorded.

use crate::timeline::{Act, Timelines};
use crate::{Recording, Waker, workload};
use mainspring_abi::Nanos;
use std::fmt::Write;

/// What another schedule gave a thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ours {
    /// Its name in the workload.
    pub name: String,
    /// CPU time.
    pub cpu_ns: u64,
    /// How often it was woken.
    pub wakeups: u64,
    /// From wakeup to running: the median, the 99th percentile and the greatest.
    pub latency_ns: [u64; 3],
    /// How often it moved.
    pub migrations: u64,
    /// How often it was preempted.
    pub preemptions: u64,
}

/// The share of the times that a sorted list has at most this value.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied().unwrap_or(0)
}

fn time(ns: u64) -> String {
    // Three digits are enough to compare.
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (1_000.0, "us"),
        1_000_000..1_000_000_000 => (1_000_000.0, "ms"),
        _ => (1_000_000_000.0, "s"),
    };
    let value = ns as f64 / unit;
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$}{name}")
}

/// Both schedules as a table: the `shown` threads that used most CPU time, and all of them together.
#[must_use]
pub fn compare(recording: &Recording, timelines: &Timelines, ours: &[Ours], shown: usize) -> String {
    let names = workload::names(timelines);
    let mut rows: Vec<_> = timelines
        .threads
        .iter()
        .filter(|thread| thread.cpu_ns > 0)
        .map(|thread| {
            let name = &names[&thread.tid];
            let other = ours.iter().find(|ours| ours.name == *name).cloned().unwrap_or_default();
            let mut latencies = thread.latencies_ns.clone();
            latencies.sort_unstable();
            (thread, name, latencies, other)
        })
        .collect();
    rows.sort_by_key(|(thread, ..)| std::cmp::Reverse(thread.cpu_ns));
    let mut out = String::new();
    let widest = rows.iter().take(shown).map(|(_, name, ..)| name.len()).max().unwrap_or(0).max(12);
    let _ = writeln!(
        out,
        "{:widest$}  {:^23}  {:^23}  {:^13}  {:^13}",
        "", "CPU time", "wake latency p99", "migrations", "preemptions"
    );
    let head = ["Linux", "ours", "off"];
    let _ = writeln!(
        out,
        "{:widest$}  {:>8} {:>8} {:>5}  {:>11} {:>11}  {:>6} {:>6}  {:>6} {:>6}",
        "thread", head[0], head[1], head[2], head[0], head[1], head[0], head[1], head[0], head[1]
    );
    for (thread, name, latencies, other) in rows.iter().take(shown) {
        let off = (other.cpu_ns as f64 - thread.cpu_ns as f64) * 100.0 / thread.cpu_ns as f64;
        let _ = writeln!(
            out,
            "{name:widest$}  {:>8} {:>8} {off:>+4.0}%  {:>11} {:>11}  {:>6} {:>6}  {:>6} {:>6}",
            time(thread.cpu_ns),
            time(other.cpu_ns),
            if latencies.is_empty() { "-".to_owned() } else { time(quantile(latencies, 99)) },
            if other.wakeups == 0 { "-".to_owned() } else { time(other.latency_ns[1]) },
            thread.migrations,
            other.migrations,
            thread.preemptions,
            other.preemptions,
        );
    }
    if rows.len() > shown {
        let more = rows.len() - shown;
        let threads = if more == 1 { "thread" } else { "threads" };
        let _ = writeln!(out, "({more} more {threads}, which used less)");
    }
    let (mut linux, mut other) = (0, 0);
    let (mut linux_stops, mut other_stops) = (0, 0);
    for (thread, _, _, ours) in &rows {
        (linux, other) = (linux + thread.migrations, other + ours.migrations);
        (linux_stops, other_stops) = (linux_stops + thread.preemptions, other_stops + ours.preemptions);
    }
    let _ = writeln!(
        out,
        "{:widest$}  {:>8} {:>8} {:>5}  {:>11} {:>11}  {linux:>6} {other:>6}  {linux_stops:>6} {other_stops:>6}",
        "all threads", "", "", "", "", ""
    );
    out.push('\n');
    faithful(
        recording,
        timelines,
        &rows.iter().map(|(thread, _, _, other)| (thread.cpu_ns, other.cpu_ns)).collect::<Vec<_>>(),
        &mut out,
    );
    out
}

/// How far the workload is what was recorded.
fn faithful(recording: &Recording, timelines: &Timelines, cpu_ns: &[(u64, u64)], out: &mut String) {
    let recorded: u128 = cpu_ns.iter().map(|(linux, _)| u128::from(*linux)).sum();
    let apart: u128 = cpu_ns.iter().map(|(linux, ours)| u128::from(linux.abs_diff(*ours))).sum();
    let same = 100.0 - apart as f64 * 100.0 / recorded.max(1) as f64;
    let near = cpu_ns.iter().filter(|(linux, ours)| linux.abs_diff(*ours) <= *linux / 20).count();
    let waits = timelines.threads.iter().flat_map(|thread| &thread.acts).filter_map(|act| match act {
        Act::Wait { by, .. } => Some(*by),
        _ => None,
    });
    let (mut by_thread, mut others) = (0u64, 0u64);
    for by in waits {
        if matches!(by, Waker::Thread(_)) { by_thread += 1 } else { others += 1 }
    }
    let _ = writeln!(
        out,
        "faithful: {same:.1}% of the CPU time is given to the threads that had it ({near} of {} threads within 5%), of {} in {} on {} CPUs",
        cpu_ns.len(),
        Nanos::new(u64::try_from(recorded).unwrap_or(u64::MAX)),
        Nanos::new(timelines.duration_ns),
        timelines.cpus,
    );
    let _ = writeln!(
        out,
        "waits: {by_thread} ended by another thread (park), {others} by time or devices (sleep)"
    );
    if !recording.has_wakeups {
        out.push_str("! no wakeups were recorded (sched_waking): a wait ends when the thread runs again, and Linux's latency shows as none\n");
    } else if !recording.knows_interrupts {
        out.push_str(
            "! this form does not tell interrupts from threads: a wakeup counts as the running thread's\n",
        );
    }
    if timelines.missing_switches > 0 {
        let missing = timelines.missing_switches;
        let _ = writeln!(
            out,
            "! {missing} switches are missing from the recording: threads that Linux hides have no CPU time here"
        );
    }
    if recording.lost {
        out.push_str("! the recorder lost events: some bursts and waits are longer than they were\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_quantiles_are_of_the_list() {
        assert_eq!(
            ["12ns", "1.23us", "12.3ms", "123ms", "2.00s"].to_vec(),
            [12, 1_234, 12_345_000, 123_456_000, 2_000_000_000].map(time)
        );
        let list: Vec<u64> = (1..=200).collect();
        assert_eq!([quantile(&list, 50), quantile(&list, 99), quantile(&[], 99)], [100, 198, 0]);
    }
}
