//! What deserves attention, in words: colour alone would tell a pipe, and some readers, nothing.

use super::style::{TextStyle, Tone};
use crate::units::{count, duration};
use crate::{Report, ThreadReport};
use mainspring_abi::Nanos;

/// More than this many of one kind are counted, not listed.
const LISTED: usize = 4;
/// More notices than this are counted, not shown.
const NOTICES: usize = 12;
const LONGEST_NOTICE: usize = 400;

pub(super) fn render(report: &Report, style: TextStyle) -> String {
    let mut out = String::new();
    for notice in report.notices.iter().take(NOTICES) {
        style.wrap(&mut out, Tone::Warn, &format!("! {}", style.fit(notice, LONGEST_NOTICE)), 2);
    }
    if report.notices.len() > NOTICES {
        let more = count((report.notices.len() - NOTICES) as u64);
        style.wrap(&mut out, Tone::Warn, &format!("! and {more} more notices, all in the JSON report"), 2);
    }
    let missed = report.contexts.iter().map(|c| (c.name.as_str(), c.misses));
    worst(&mut out, style, Tone::Bad, "missed deadlines of contexts", counted(missed));
    let beyond = report.contexts.iter().filter(|c| c.overshoot_max_ns > 0);
    let beyond = beyond.map(|c| (c.overshoot_max_ns, duration(c.overshoot_max_ns), c.name.as_str()));
    worst(&mut out, style, Tone::Warn, "used beyond the budget", beyond.collect());
    let quantum_ns = report.config.quantum_ns;
    list(&mut out, style, Tone::Bad, "missed periods", &report.threads, |t| {
        (t.misses > 0).then(|| (t.misses, count(t.misses)))
    });
    if let Some(first) = super::jobs::first_miss(report) {
        style.wrap(&mut out, Tone::Bad, &format!("! {first}"), 2);
    }
    for (title, calls) in [
        ("calls answered late", (|t| t.late) as fn(&ThreadReport) -> u64),
        ("calls dropped as late", |t| t.dropped),
        ("calls that failed", |t| t.failures),
    ] {
        let threads = report.threads.iter().map(|t| (t.name.as_str(), calls(t)));
        worst(&mut out, style, Tone::Warn, title, counted(threads));
    }
    list(&mut out, style, Tone::Bad, "refused steps", &report.threads, |t| {
        (t.refusals > 0).then(|| (t.refusals, count(t.refusals)))
    });
    let refused = report.threads.iter().filter_map(|t| t.first_refusal.as_ref().map(|step| (step, t)));
    if let Some((step, thread)) = refused.min_by_key(|(step, _)| step.time_ns) {
        let at = Nanos::new(step.time_ns);
        let first = format!("! first refused: {} at {at}: {}", style.fit(&thread.name, 32), step.reason);
        style.wrap(&mut out, Tone::Bad, &first, 2);
    }
    // A thread that is handed the CPU may run out of order for a slice, so that the bound is two quanta then.
    let (quanta, bound_ns) = match report.telemetry.handoffs {
        0 => ("one quantum", quantum_ns),
        _ => ("two quanta, the bound with direct handoffs", quantum_ns.saturating_mul(2)),
    };
    let title = format!("|lag| beyond {quanta} ({})", Nanos::new(bound_ns));
    list(&mut out, style, Tone::Warn, &title, &report.threads, |t| {
        let beyond = quantum_ns > 0 && t.lag_max_ns > bound_ns;
        beyond.then(|| (t.lag_max_ns, duration(t.lag_max_ns)))
    });
    out
}

fn list(
    out: &mut String,
    style: TextStyle,
    tone: Tone,
    title: &str,
    threads: &[ThreadReport],
    of: impl Fn(&ThreadReport) -> Option<(u64, String)>,
) {
    let found = threads.iter().filter_map(|t| of(t).map(|(size, shown)| (size, shown, t.name.as_str())));
    worst(out, style, tone, title, found.collect());
}

/// The rows that counted anything: how much, as text, and the name.
fn counted<'a>(rows: impl Iterator<Item = (&'a str, u64)>) -> Vec<(u64, String, &'a str)> {
    rows.filter(|(_, n)| *n > 0).map(|(name, n)| (n, count(n), name)).collect()
}

/// One line per kind: the worst by name, and how many more there are.
fn worst(out: &mut String, style: TextStyle, tone: Tone, title: &str, mut found: Vec<(u64, String, &str)>) {
    if found.is_empty() {
        return;
    }
    // Stable: of equally bad ones the first in the file is named first.
    found.sort_by_key(|&(size, ..)| std::cmp::Reverse(size));
    let mut named: Vec<String> = found
        .iter()
        .take(LISTED)
        .map(|(_, shown, name)| format!("{} {shown}", style.fit(name, 32)))
        .collect();
    if found.len() > LISTED {
        named.push(format!("and {} more", count((found.len() - LISTED) as u64)));
    }
    style.wrap(out, tone, &format!("! {title}: {}", named.join(", ")), 2);
}
