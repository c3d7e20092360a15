//! `mainspring diff`: where two recorded runs part, and what that did to shares, latencies and misses.

use crate::args::DiffArgs;
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use crate::report::{read, report_of};
use mainspring_record::diff::{Parting, parting};
use mainspring_report::{Report, instant};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Compares two records; a difference is also a [`Failure`], so that scripts see it.
pub fn diff(args: &DiffArgs, output: Output) -> Result<(), Failure> {
    let (header_a, log_a) = read(&args.a, output)?;
    let (header_b, log_b) = read(&args.b, output)?;
    let parting = parting((&header_a, &log_a), (&header_b, &log_b));
    let a = report_of(&args.a, &header_a, log_a)?;
    let b = report_of(&args.b, &header_b, log_b)?;
    let names = [input::name(&args.a), input::name(&args.b)];
    let mut text = settings(&names, &a, &b);
    match &parting {
        None => text += "the same decisions throughout\n",
        Some(Parting { same, decisions }) => {
            let _ = writeln!(text, "the first {same} decisions are the same; then");
            for (name, decision) in names.iter().zip(decisions) {
                let decision = decision.as_deref().unwrap_or("the run was over");
                let _ = writeln!(text, "  {name}: {decision}");
            }
        }
    }
    let rows = rows(&a, &b);
    if !rows.is_empty() {
        text += "\n";
        text += &table(&names, &rows);
    }
    output.line(text)?;
    if parting.is_none() && rows.is_empty() { Ok(()) } else { Err(Failure::Differs) }
}

/// What was asked of the two, where that differs.
fn settings(names: &[String; 2], a: &Report, b: &Report) -> String {
    let facts = |report: &Report| {
        [
            ("workload", report.config.workload.clone()),
            ("seed", report.seed.to_string()),
            ("policy", report.config.policy.clone()),
            ("quantum", instant(report.config.quantum_ns)),
            ("tick", instant(report.config.tick_ns)),
            ("CPUs", report.cpus.len().to_string()),
            ("duration", instant(report.duration_ns)),
        ]
    };
    let mut text = String::new();
    for ((what, one), (_, other)) in facts(a).into_iter().zip(facts(b)) {
        if one != other {
            let _ = writeln!(text, "{what}: {one} in {}, {other} in {}", names[0], names[1]);
        }
    }
    text
}

/// A number of something, in each of the two runs; `None` where it is not.
type Row = (String, &'static str, [Option<String>; 2]);

/// Everything that people look at first, where it differs.
fn rows(a: &Report, b: &Report) -> Vec<Row> {
    let (one, other) = (measures(a), measures(b));
    let mut keys: Vec<&(usize, String, &'static str)> = one.keys().chain(other.keys()).collect();
    keys.sort();
    keys.dedup();
    let row = |key: &(usize, String, &'static str)| {
        let values = [one.get(key).cloned(), other.get(key).cloned()];
        (values[0] != values[1]).then(|| (key.1.clone(), key.2, values))
    };
    keys.into_iter().filter_map(row).collect()
}

type Measures = BTreeMap<(usize, String, &'static str), String>;

fn measures(report: &Report) -> Measures {
    let mut found = Measures::new();
    let duration = report.duration_ns.max(1) as f64;
    found.insert((0, "the run".to_owned(), "misses"), report.misses_total.to_string());
    for thread in &report.threads {
        let mut add = |what, value| found.insert((1, thread.name.clone(), what), value);
        add("share", format!("{:.1}%", thread.runtime_ns as f64 / duration * 100.0));
        add("wake latency p99", instant(thread.wake_latency_ns.p99));
        if let Some(response) = thread.jobs.as_ref().and_then(|jobs| jobs.response_ns.as_ref()) {
            add("response p99", instant(response.p99));
            add("response max", instant(response.max));
            add("misses", thread.misses.to_string());
        }
    }
    for context in &report.contexts {
        let name = format!("context {}", context.name);
        found.insert((2, name.clone(), "used"), instant(context.used_ns));
        found.insert((2, name, "misses"), context.misses.to_string());
    }
    for endpoint in &report.endpoints {
        let name = format!("endpoint {}", endpoint.name);
        found.insert((3, name.clone(), "replies"), endpoint.replies.to_string());
        if let Some(latency) = &endpoint.latency_ns {
            found.insert((3, name.clone(), "call to reply p99"), instant(latency.p99));
            found.insert((3, name, "call to reply max"), instant(latency.max));
        }
    }
    found
}

fn table(names: &[String; 2], rows: &[Row]) -> String {
    let width = |of: &dyn Fn(&Row) -> usize, title: &str| {
        rows.iter().map(of).max().unwrap_or(0).max(title.chars().count())
    };
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let of = width(&|row| row.0.chars().count(), "of");
    let what = width(&|row| row.1.len(), "what");
    let first = width(&|row| shown(&row.2[0]).chars().count(), &names[0]);
    let second = width(&|row| shown(&row.2[1]).chars().count(), &names[1]);
    let mut text = format!("{:of$}  {:what$}  {:>first$}  {:>second$}\n", "of", "what", names[0], names[1]);
    for (name, about, values) in rows {
        let [one, other] = values.each_ref().map(shown);
        let _ = writeln!(text, "{name:of$}  {about:what$}  {one:>first$}  {other:>second$}");
    }
    text
}
