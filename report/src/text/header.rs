//! The first lines: what ran, on what, and how fast.

use super::style::{TextStyle, Tone};
use crate::Report;
use crate::units::{count, duration, instant, rate};

pub(super) fn render(report: &Report, style: TextStyle) -> String {
    let config = &report.config;
    let mut out = String::new();
    let workload = style.fit(&config.workload, style.columns.saturating_sub(20).max(12));
    style.paint(&mut out, Tone::Strong, &workload);
    style.paint(&mut out, Tone::Dim, " on ");
    style.paint(&mut out, Tone::Strong, &style.fit(&report.machine, 16));
    out.push('\n');
    let asked = [
        style.fit(&config.policy, 16),
        format!("quantum {}", instant(config.quantum_ns)),
        format!("tick {}", instant(config.tick_ns)),
        format!("seed {}", report.seed),
    ];
    let decisions = format!("{} decision{}", count(report.decisions), plural(report.decisions as usize));
    // How long it took is known of a run, and not of its record.
    let timed = report.wall_ns > 0;
    let decisions = if timed { format!("{decisions} in {}", duration(report.wall_ns)) } else { decisions };
    let mut got = vec![
        format!("{} on {} CPU{}", instant(report.duration_ns), report.cpus.len(), plural(report.cpus.len())),
        format!("{} thread{}", count(report.threads.len() as u64), plural(report.threads.len())),
        decisions,
    ];
    got.extend(timed.then(|| rate(report.decisions, report.wall_ns)));
    got.push(format!("digest {}", style.fit(&report.digest, 16)));
    for facts in [&asked[..], &got[..]] {
        style.wrap_items(&mut out, Tone::Plain, facts.iter().map(String::as_str), style.dot(), 0);
    }
    out
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}
