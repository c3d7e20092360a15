//! The tables of what people wait for: periods of threads, and calls through endpoints.

use super::fold;
use super::grid::{Cell, Column, Grid, label, number};
use super::style::{TextStyle, Tone};
use super::threads::note_hidden;
use crate::units::{count, instant, rate};
use crate::{EndpointReport, Report, ThreadReport, Worst};
use std::collections::HashMap;

const RESPONSE: &str = "response";
const LATENCY: &str = "call to reply";

pub(super) fn jobs(report: &Report, style: TextStyle) -> String {
    const COLUMNS: [Column; 9] = [
        label("periods of", 0),
        number("jobs", 4),
        Column { group: RESPONSE, ..number("p50 ", 2) },
        Column { group: RESPONSE, ..number("p99 ", 1) },
        Column { group: RESPONSE, ..number("max ", 0) },
        number("released at", 3),
        number("least slack ", 5),
        number("miss", 0),
        number("first miss at", 1),
    ];
    let rows = rows(&report.threads, style.expand);
    if rows.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(&COLUMNS);
    for row in &rows {
        let response = |part: fn(&Worst) -> u64| cell(row.response.as_ref(), part);
        let missed = if row.misses == 0 { Tone::Dim } else { Tone::Bad };
        grid.row(vec![
            Cell::new(
                if row.misses == 0 { Tone::Plain } else { Tone::Bad },
                style.fit(&row.name, (style.columns / 4).max(12)),
            ),
            Cell::count(row.jobs),
            response(|r| r.p50),
            response(|r| r.p99),
            response(|r| r.max),
            at(row.response.as_ref().map(|response| response.max_at_ns)),
            row.slack_min_ns.map_or_else(Cell::none, slack),
            Cell::new(missed, count(row.misses)),
            at(row.first_miss_ns),
        ]);
    }
    let mut out = String::new();
    let hidden = grid.render(style, &mut out);
    note_hidden(style, &hidden, &mut out);
    out
}

pub(super) fn endpoints(report: &Report, style: TextStyle) -> String {
    const COLUMNS: [Column; 9] = [
        label("calls to", 0),
        number("calls", 0),
        number("replies/s", 3),
        Column { group: LATENCY, ..number("p50 ", 2) },
        Column { group: LATENCY, ..number("p99 ", 1) },
        Column { group: LATENCY, ..number("max ", 0) },
        number("called at", 4),
        number("failed", 5),
        number("unanswered", 6),
    ];
    let cells = |endpoint: &EndpointReport| {
        let latency = |part: fn(&Worst) -> u64| cell(endpoint.latency_ns.as_ref(), part);
        vec![
            Cell::plain(style.fit(&endpoint.name, (style.columns / 4).max(12))),
            Cell::count(endpoint.calls),
            Cell::plain(rate(endpoint.replies, report.duration_ns).trim_end_matches("/s").to_owned()),
            latency(|l| l.p50),
            latency(|l| l.p99),
            latency(|l| l.max),
            at(endpoint.latency_ns.as_ref().map(|latency| latency.max_at_ns)),
            Cell::count(endpoint.failures),
            Cell::count(endpoint.pending),
        ]
    };
    super::authority::table(style, &COLUMNS, &report.endpoints, cells)
}

/// A line per expectation.
pub(super) fn expectations(report: &Report, style: TextStyle) -> String {
    let mut out = String::new();
    for expected in &report.expectations {
        let (tone, verdict) = if expected.held { (Tone::Good, "held  ") } else { (Tone::Bad, "FAILED") };
        style.wrap(&mut out, tone, &format!("{verdict}  {}: {}", expected.what, expected.found), 8);
    }
    out
}

fn cell(worst: Option<&Worst>, part: fn(&Worst) -> u64) -> Cell {
    worst.map_or_else(Cell::none, |worst| Cell::duration(part(worst)))
}

/// When something was, exactly: to be looked at there.
fn at(time_ns: Option<u64>) -> Cell {
    time_ns.map_or_else(|| Cell::new(Tone::Dim, "-"), |ns| Cell::plain(instant(ns)))
}

fn slack(ns: i64) -> Cell {
    let shown = crate::units::aligned_duration(ns.unsigned_abs());
    if ns < 0 { Cell::new(Tone::Bad, format!("-{shown}")) } else { Cell::plain(shown) }
}

/// Where and when the first deadline was missed.
pub(super) fn first_miss(report: &Report) -> Option<String> {
    let first = report.misses.first()?;
    let whose = match (&first.context, &first.thread) {
        (Some(context), _) => format!("context {context}"),
        (None, Some(thread)) => thread.clone(),
        (None, None) => return None,
    };
    Some(format!("the first of {}: {whose} at {}", count(report.misses_total), instant(first.time_ns)))
}

/// A thread, or the instances of a table folded into one.
struct Row {
    name: String,
    jobs: u64,
    response: Option<Worst>,
    slack_min_ns: Option<i64>,
    misses: u64,
    first_miss_ns: Option<u64>,
}

/// The table's rows, as [`fold`] has them.
fn rows(threads: &[ThreadReport], expand: bool) -> Vec<Row> {
    let periodic = || threads.iter().filter(|thread| thread.jobs.is_some());
    let mut groups: HashMap<&str, Vec<&ThreadReport>> = HashMap::new();
    for thread in periodic() {
        groups.entry(crate::names::stem(&thread.name).unwrap_or(&thread.name)).or_default().push(thread);
    }
    let mut rows = Vec::new();
    for thread in periodic() {
        let stem = crate::names::stem(&thread.name).unwrap_or(&thread.name);
        match groups.get(stem) {
            Some(members) if members.len() > fold::FOLD_ABOVE && !expand => {
                let members = groups.remove(stem).unwrap_or_default();
                rows.push(row(format!("{stem}.* (x{})", members.len()), &members));
            }
            Some(_) => rows.push(row(thread.name.clone(), &[thread])),
            // Folded at its first instance.
            None => {}
        }
    }
    rows
}

fn row(name: String, members: &[&ThreadReport]) -> Row {
    let jobs = || members.iter().filter_map(|member| member.jobs.as_ref());
    let responses: Vec<&Worst> = jobs().filter_map(|jobs| jobs.response_ns.as_ref()).collect();
    let worst = responses.iter().max_by_key(|response| response.max);
    Row {
        name,
        jobs: jobs().map(|jobs| jobs.finished).sum(),
        response: worst.map(|worst| Worst {
            p50: responses.iter().map(|r| r.p50).sum::<u64>() / responses.len() as u64,
            p99: responses.iter().map(|r| r.p99).max().unwrap_or(0),
            ..(*worst).clone()
        }),
        slack_min_ns: jobs().filter_map(|jobs| jobs.slack_min_ns).min(),
        misses: members.iter().map(|member| member.misses).sum(),
        first_miss_ns: jobs().filter_map(|jobs| jobs.first_miss_ns).min(),
    }
}
