//! The report as one self-contained HTML page: the timeline, and the tables below it.
//!
//! The page loads nothing, and its content security policy forbids it to: all it needs is inside. Whatever comes
//! from outside (names, paths) enters as JSON with every `<`, `>` and `&` escaped, so that no name can end the
//! script element it stands in; the page puts it into the document as text, never as markup.
//!
//! Conserved: a page is at most [`PAGE_LIMIT`] bytes, whatever the run. What does not fit is coarser, and the page says so.

mod base64;
mod chosen;
mod cpu_rows;
#[cfg(test)]
mod decode;
mod embed;
mod thread_rows;

use crate::Report;
use crate::names::Names;
use chosen::{Chosen, SHOWN_MOST};
use cpu_rows::CpuRows;
use std::io::{self, BufWriter, Write};
use thread_rows::ThreadRows;

/// How many bytes a page has at most.
pub const PAGE_LIMIT: usize = 8_000_000;

/// How many events a page holds at most.
pub const EVENT_LIMIT: usize = 20_000;

const PAGE: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/page.css");
/// In the order of their dependence; they share one scope.
const SCRIPTS: [&str; 17] = [
    include_str!("html/units.js"),
    include_str!("html/data.js"),
    include_str!("html/colour.js"),
    include_str!("html/patterns.js"),
    include_str!("html/rows.js"),
    include_str!("html/events.js"),
    include_str!("html/arrows.js"),
    include_str!("html/overview.js"),
    include_str!("html/pointer.js"),
    include_str!("html/timeline.js"),
    include_str!("html/tables.js"),
    include_str!("html/facts.js"),
    include_str!("html/authority.js"),
    include_str!("html/waits.js"),
    include_str!("html/explain.js"),
    include_str!("html/key.js"),
    include_str!("html/page.js"),
];

/// What a page is made of.
struct Parts<'a> {
    chosen: Chosen<'a>,
    cpus: CpuRows,
    threads: ThreadRows,
}

/// Writes the page, in at most [`PAGE_LIMIT`] bytes. A report without a schedule gives the tables alone.
///
/// # Errors
/// When `out` fails.
pub fn html(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let fixed: usize = SCRIPTS.iter().map(|script| script.len()).sum::<usize>() + PAGE.len() + STYLE.len();
    html_with_limit(report, PAGE_LIMIT - fixed - 2 * title(report).len().min(1_000), out)
}

/// As [`html`], but with so many bytes of data.
///
/// # Errors
/// When `out` fails.
pub fn html_with_limit(report: &Report, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let names = Names::of(report);
    let chosen = Chosen::of(report, &names, SHOWN_MOST);
    let schedule = report.schedule.as_deref().unwrap_or_default();
    let ids: Vec<u32> = report.cpus.iter().map(|cpu| cpu.id).collect();
    // A third each: the rows of CPUs, the rows of threads, and the tables with the events.
    let cpus = CpuRows::of(schedule, &ids, &chosen, limit / 3);
    let threads = ThreadRows::of(report, &chosen, &cpus.reasons, limit / 3);
    let parts = Parts { chosen, cpus, threads };
    let mut rest = PAGE;
    while let Some((before, slot, after)) = next_slot(rest) {
        out.write_all(before.as_bytes())?;
        match slot {
            "title" => embed::text(&title(report), &mut out)?,
            "style" => out.write_all(STYLE.as_bytes())?,
            "report" => out.write_all(&embed::report(report, &parts, limit / 3))?,
            "cpu-rows" => out.write_all(parts.cpus.text.as_bytes())?,
            "thread-rows" => out.write_all(parts.threads.text.as_bytes())?,
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
    let workload: String = report.config.workload.chars().take(200).collect();
    format!("{workload} on {} · Mainspring", report.machine)
}
