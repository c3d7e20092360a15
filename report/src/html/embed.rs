//! Putting data into a page so that it stays data, and so that it fits.
//!
//! The JSON written here holds no `<`, `>` or `&`, hence neither `</script` nor `<!--`, whatever its strings say.
//!
//! Conserved: the JSON is at most as long as its limit. Lists that are too long are cut, each to the same share of what it
//! may have, and the page is told how long they were; strings that are too long keep their end, by which names differ.

use super::Parts;
use crate::{Event, Report, Telemetry};
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// How many CPUs may have counters of their own in the page.
const COUNTED_APART: usize = 64;
/// How long a string may be; notices are sentences and may be longer.
const LONGEST: usize = 240;
const LONGEST_NOTICE: usize = 2_000;

/// How many rows of each kind a page holds at most.
#[derive(Clone, Copy, Debug)]
struct Caps {
    threads: usize,
    cpus: usize,
    events: usize,
    misses: usize,
    others: usize,
}

impl Caps {
    const MOST: Self =
        Self { threads: 10_000, cpus: 10_000, events: super::EVENT_LIMIT, misses: 2_000, others: 5_000 };

    fn scaled(self, by: f64) -> Self {
        let less = |n: usize| (n as f64 * by) as usize;
        Self {
            threads: less(self.threads),
            cpus: less(self.cpus),
            events: less(self.events),
            misses: less(self.misses),
            others: less(self.others),
        }
    }
}

/// The JSON of the page, in at most `limit` bytes.
pub(super) fn report(report: &Report, parts: &Parts<'_>, limit: usize) -> Vec<u8> {
    let mut share = 1.0;
    loop {
        let mut embedded = embedded(report, parts, Caps::MOST.scaled(share));
        shorten(&mut embedded, LONGEST);
        let mut out = Vec::new();
        let written = embedded.serialize(&mut serde_json::Serializer::with_formatter(&mut out, ScriptSafe));
        if (out.len() <= limit && written.is_ok()) || share < 1e-6 {
            return out;
        }
        share *= (limit as f64 / out.len() as f64 * 0.95).min(0.8);
    }
}

fn embedded(report: &Report, parts: &Parts<'_>, caps: Caps) -> Value {
    let threads: Vec<_> =
        parts.chosen.rows.iter().map(|row| &report.threads[*row]).take(caps.threads).collect();
    let events = report.events.as_deref().unwrap_or_default();
    let shown_events = first_events(events, caps.events);
    let others = |length: usize| length.min(caps.others);
    let mut page = json!({
        "machine": report.machine,
        "config": report.config,
        // As text: a number in a page keeps only 53 bits.
        "seed": report.seed.to_string(),
        "duration_ns": report.duration_ns,
        "decisions": report.decisions,
        "wall_ns": report.wall_ns,
        "digest": report.digest,
        "cpus": report.cpus[..report.cpus.len().min(caps.cpus)],
        "threads": threads,
        "contexts": report.contexts[..others(report.contexts.len())],
        "leases": report.leases[..others(report.leases.len())],
        "islands": report.islands[..others(report.islands.len())],
        "rings": report.rings[..others(report.rings.len())],
        "endpoints": report.endpoints[..others(report.endpoints.len())],
        "misses": report.misses[..report.misses.len().min(caps.misses)],
        "expectations": report.expectations[..others(report.expectations.len())],
        "misses_total": report.misses_total,
        "notices": report.notices[..report.notices.len().min(caps.others / 10 + 1)],
        "telemetry": counters(&report.telemetry, report.cpus.len()),
        "events": shown_events,
    });
    let totals = json!({
        "threads": report.threads.len(),
        "cpus": report.cpus.len(),
        "contexts": report.contexts.len(),
        "events": events.len(),
        "intervals": report.schedule.as_ref().map(Vec::len),
        "states": report.states.as_ref().map(|states| states.entries.len()),
    });
    let timeline = json!({
        // Names of the threads by number: those of `threads`, then those that only the schedule knows, then groups.
        "names": parts.chosen.names,
        "first_group": parts.chosen.first_group,
        "reasons": parts.cpus.reasons,
        "row_cpus": parts.cpus.cpus,
        "intervals": parts.cpus.intervals,
        "grain_ns": parts.cpus.grain_ns,
        "thread_rows": parts.threads.rows,
        "state_intervals": parts.threads.intervals,
        "state_grain_ns": parts.threads.grain_ns,
        "totals": totals,
    });
    if let (Value::Object(page), Value::Object(timeline)) = (&mut page, timeline) {
        page.extend(timeline);
    }
    page
}

/// The first events; misses come before others, since they are what is looked for.
fn first_events(events: &[Event], most: usize) -> Vec<&Event> {
    if events.len() <= most {
        return events.iter().collect();
    }
    let misses = events.iter().filter(|event| event.kind == "miss").count().min(most / 2);
    let (mut missed, mut others) = (0, 0);
    let keep = |event: &&Event| {
        let (count, room) =
            if event.kind == "miss" { (&mut missed, misses) } else { (&mut others, most - misses) };
        *count += 1;
        *count <= room
    };
    events.iter().filter(keep).collect()
}

/// The counters; of many CPUs, all together under their labels.
fn counters(telemetry: &Telemetry, cpus: usize) -> Value {
    let mut counters = json!(telemetry);
    if cpus > COUNTED_APART
        && let Value::Object(counters) = &mut counters
    {
        counters.values_mut().filter_map(Value::as_object_mut).for_each(sum_by_label);
    }
    counters
}

fn sum_by_label(counts: &mut Map<String, Value>) {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (key, count) in counts.iter() {
        let label = key.split_once(',').map_or_else(|| "all".to_owned(), |(_, label)| format!("all,{label}"));
        let sum = sums.entry(label).or_default();
        *sum = sum.saturating_add(count.as_u64().unwrap_or(0));
    }
    *counts = sums.into_iter().map(|(label, sum)| (label, sum.into())).collect();
}

/// Cuts strings that are too long, in front.
fn shorten(value: &mut Value, longest: usize) {
    match value {
        Value::String(text) if text.len() > longest => {
            let from = text.len() - longest;
            let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(from);
            *text = format!("…{}", &text[from..]);
        }
        Value::Array(list) => list.iter_mut().for_each(|value| shorten(value, longest)),
        Value::Object(object) => {
            for (name, value) in object.iter_mut() {
                shorten(value, if name == "notices" { LONGEST_NOTICE } else { longest });
            }
        }
        _ => {}
    }
}

/// Writes text as the content of an element.
pub(super) fn text(text: &str, out: &mut dyn Write) -> io::Result<()> {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    out.write_all(escaped.as_bytes())
}

/// Compact JSON with the characters that mean something to an HTML parser written as escapes. Outside strings
/// JSON has none of them.
struct ScriptSafe;

impl Formatter for ScriptSafe {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&']) {
            CompactFormatter.write_string_fragment(out, &rest[..at])?;
            write!(out, "\\u{:04x}", rest.as_bytes()[at])?;
            rest = &rest[at + 1..];
        }
        CompactFormatter.write_string_fragment(out, rest)
    }
}
