//! The report as one self-contained HTML page: the timeline, and the tables below it.
//!
//! The page loads nothing, and its content security policy forbids it to: all it needs is inside. Whatever comes
//! from outside (names, paths) enters as JSON with every `<`, `>` and `&` escaped, so that no name can end the
//! script element it stands in; the page puts it into the document as text, never as markup.

mod embed;
mod intervals;

use crate::Report;
use crate::names::Names;
use std::io::{self, BufWriter, Write};

/// How many schedule entries a page holds at most.
pub const SCHEDULE_LIMIT: usize = 2_000_000;

/// How many events a page holds at most.
pub const EVENT_LIMIT: usize = 100_000;

/// How many misses the page's table holds at most.
const MISS_LIMIT: usize = 200;

const PAGE: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/page.css");
/// In the order of their dependence; they share one scope.
const SCRIPTS: [&str; 13] = [
    include_str!("html/units.js"),
    include_str!("html/data.js"),
    include_str!("html/colour.js"),
    include_str!("html/lanes.js"),
    include_str!("html/events.js"),
    include_str!("html/overview.js"),
    include_str!("html/pointer.js"),
    include_str!("html/timeline.js"),
    include_str!("html/tables.js"),
    include_str!("html/facts.js"),
    include_str!("html/authority.js"),
    include_str!("html/waits.js"),
    include_str!("html/page.js"),
];

/// Writes the page, with the first [`SCHEDULE_LIMIT`] entries of the schedule. A report without a schedule gives
/// the tables alone.
///
/// # Errors
/// When `out` fails.
pub fn html(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    html_with_limit(report, SCHEDULE_LIMIT, out)
}

/// As [`html`], but with at most `limit` schedule entries. The page says so if there were more.
///
/// # Errors
/// When `out` fails.
pub fn html_with_limit(report: &Report, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let names = Names::of(report);
    let schedule = report.schedule.as_deref().unwrap_or_default();
    let kept = &schedule[..schedule.len().min(limit)];
    let reasons = intervals::reasons(kept);
    let mut rest = PAGE;
    while let Some((before, slot, after)) = next_slot(rest) {
        out.write_all(before.as_bytes())?;
        match slot {
            "title" => embed::text(&title(report), &mut out)?,
            "style" => out.write_all(STYLE.as_bytes())?,
            "report" => embed::report(report, &names, &reasons, kept.len(), &mut out)?,
            "intervals" => intervals::write(kept, &names, &reasons, &mut out)?,
            "script" => SCRIPTS.iter().try_for_each(|script| out.write_all(script.as_bytes()))?,
            unknown => unreachable!("page.html names the slot {unknown:?}, which nothing fills"),
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    out.flush()
}

/// Splits at the next `{{slot}}`. Only the template is searched, never what has been filled in.
fn next_slot(page: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = page.split_once("{{")?;
    let (slot, after) = rest.split_once("}}")?;
    Some((before, slot, after))
}

fn title(report: &Report) -> String {
    format!("{} on {} · Mainspring", report.config.workload, report.machine)
}
