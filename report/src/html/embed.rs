//! Putting data into a page so that it stays data.
//!
//! The JSON written here holds no `<`, `>` or `&`, hence neither `</script` nor `<!--`, whatever its strings say.

use crate::names::Names;
use crate::{
    Config, ContextReport, CpuReport, EndpointReport, Event, Expected, IslandReport, LeaseReport, Miss,
    Report, RingReport, Telemetry, ThreadReport,
};
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};
use std::io::{self, Write};

/// The report without its schedule, and what the page needs to read the intervals.
#[derive(Serialize)]
struct Embedded<'a> {
    machine: &'a str,
    config: &'a Config,
    /// As text: a number in a page keeps only 53 bits.
    seed: String,
    duration_ns: u64,
    decisions: u64,
    wall_ns: u64,
    digest: &'a str,
    cpus: &'a [CpuReport],
    threads: &'a [ThreadReport],
    contexts: &'a [ContextReport],
    leases: &'a [LeaseReport],
    islands: &'a [IslandReport],
    rings: &'a [RingReport],
    endpoints: &'a [EndpointReport],
    misses: &'a [Miss],
    expectations: &'a [Expected],
    misses_total: u64,
    notices: &'a [String],
    telemetry: &'a Telemetry,
    /// Names of the threads by number: those of `threads`, then those that only the schedule knows.
    names: &'a [&'a str],
    reasons: &'a [&'a str],
    /// Intervals in the page, and in the run; `None` if the run kept no schedule.
    intervals: usize,
    intervals_total: Option<usize>,
    /// The first events, and how many the run had.
    events: &'a [Event],
    events_total: usize,
}

/// Writes the JSON of the page.
pub(super) fn report(
    report: &Report,
    names: &Names<'_>,
    reasons: &[&str],
    kept: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let events = report.events.as_deref().unwrap_or_default();
    let embedded = Embedded {
        machine: &report.machine,
        config: &report.config,
        seed: report.seed.to_string(),
        duration_ns: report.duration_ns,
        decisions: report.decisions,
        wall_ns: report.wall_ns,
        digest: &report.digest,
        cpus: &report.cpus,
        threads: &report.threads,
        contexts: &report.contexts,
        leases: &report.leases,
        islands: &report.islands,
        rings: &report.rings,
        endpoints: &report.endpoints,
        misses: &report.misses[..report.misses.len().min(super::MISS_LIMIT)],
        misses_total: report.misses_total,
        expectations: &report.expectations,
        notices: &report.notices,
        telemetry: &report.telemetry,
        names: names.list(),
        reasons,
        intervals: kept,
        intervals_total: report.schedule.as_ref().map(Vec::len),
        events: &events[..events.len().min(super::EVENT_LIMIT)],
        events_total: events.len(),
    };
    embedded.serialize(&mut serde_json::Serializer::with_formatter(out, ScriptSafe))?;
    Ok(())
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
