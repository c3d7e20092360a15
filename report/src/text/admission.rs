//! The verdict of admission, for a terminal.

use super::grid::{Cell, Column, Grid, label, number};
use super::style::{TextStyle, Tone};
use super::threads::note_hidden;
use crate::model::{AdmissionCpu, AdmissionReport, AdmissionTask, MissTrace};
use crate::units::instant as time;

/// How much of a trace is shown: what ran last before the miss.
const SHOWN: usize = 16;

/// The verdict as a table for people.
#[must_use]
pub fn admission_text(report: &AdmissionReport, style: TextStyle) -> String {
    let mut out = String::new();
    let (tone, verdict) = if report.admitted { (Tone::Good, "admitted") } else { (Tone::Bad, "refused") };
    style.wrap(&mut out, tone, &format!("{}: {verdict}: {}", report.workload, report.reason), 2);
    out.push('\n');
    cpus(report, style, &mut out);
    tasks(report, style, &mut out);
    islands(report, style, &mut out);
    for trace in &report.traces {
        out.push('\n');
        show_trace(trace, style, &mut out);
    }
    out
}

fn verdict(admitted: bool) -> Cell {
    if admitted { Cell::new(Tone::Good, "admitted") } else { Cell::new(Tone::Bad, "refused") }
}

fn name(style: TextStyle, text: &str) -> Cell {
    Cell::plain(style.fit(text, (style.columns / 4).max(12)))
}

fn cpus(report: &AdmissionReport, style: TextStyle, out: &mut String) {
    const COLUMNS: [Column; 4] =
        [number("cpu", 0), label("verdict", 0), number("used%", 1), label("what decides", 2)];
    let mut grid = Grid::new(&COLUMNS);
    for cpu in &report.cpus {
        let used = format!("{}.{:02}", cpu.utilization_ppm / 10_000, cpu.utilization_ppm / 100 % 100);
        let why = style.fit(&decides(cpu), style.columns.saturating_sub(28).max(20));
        grid.row(vec![
            Cell::plain(cpu.id.to_string()),
            verdict(cpu.admitted),
            Cell::plain(used),
            Cell::plain(why),
        ]);
    }
    let hidden = grid.render(style, out);
    note_hidden(style, &hidden, out);
}

/// With three digits, rounded up, so that nothing looks like less than it is.
fn millionths(ppm: u64) -> String {
    let thousandths = ppm.div_ceil(1_000);
    format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
}

fn decides(cpu: &AdmissionCpu) -> String {
    let exact = if cpu.admitted || cpu.exact { "" } else { " (sufficient only)" };
    match (&cpu.deciding, &cpu.reason) {
        (Some(found), _) => format!(
            "{} due within {} of a common release, {} there{exact}",
            time(found.demand_ns),
            time(found.interval_ns),
            time(found.supply_ns),
        ),
        (None, Some(why)) => format!("{why}{exact}"),
        (None, None) => format!("density {}: at most 1 is enough", millionths(cpu.density_ppm)),
    }
}

fn tasks(report: &AdmissionReport, style: TextStyle, out: &mut String) {
    const COLUMNS: [Column; 8] = [
        label("context", 0),
        number("cpu", 0),
        number("budget", 2),
        number("period", 3),
        number("crit", 5),
        number("response", 0),
        number("deadline", 0),
        label("island", 4),
    ];
    if report.tasks.is_empty() {
        return;
    }
    out.push('\n');
    // Without islands no task is in one.
    let columns = COLUMNS.len() - usize::from(report.islands.is_empty());
    let mut grid = Grid::new(&COLUMNS[..columns]);
    for task in &report.tasks {
        let mut cells = task_cells(task, report.responses_left_out, style);
        cells.truncate(columns);
        grid.row(cells);
    }
    let hidden = grid.render(style, out);
    note_hidden(style, &hidden, out);
    if report.responses_left_out {
        style.wrap(
            out,
            Tone::Dim,
            "(the worst responses of so many take long: --responses computes them)",
            2,
        );
    }
}

fn task_cells(task: &AdmissionTask, without_response: bool, style: TextStyle) -> Vec<Cell> {
    let late = task.response_ns.is_none_or(|response| response > task.deadline_ns);
    let tone = if late { Tone::Bad } else { Tone::Plain };
    let response = task.response_ns.map_or_else(|| "no bound".to_owned(), time);
    vec![
        name(style, &task.name),
        task.cpu.map_or_else(Cell::none, |cpu| Cell::plain(cpu.to_string())),
        Cell::plain(time(task.budget_ns)),
        Cell::plain(time(task.period_ns)),
        Cell::plain(task.criticality.to_string()),
        if task.cpu.is_none() || without_response { Cell::none() } else { Cell::new(tone, response) },
        Cell::plain(time(task.deadline_ns)),
        task.island.as_deref().map_or_else(|| Cell::plain(""), |island| name(style, island)),
    ]
}

fn islands(report: &AdmissionReport, style: TextStyle, out: &mut String) {
    if report.islands.is_empty() {
        return;
    }
    out.push('\n');
    let mut grid = Grid::new(&[label("island", 0), label("verdict", 0), label("reason", 1)]);
    for island in &report.islands {
        let room = style.columns.saturating_sub(30).max(12);
        let reason = Cell::plain(style.fit(&island.reason, room));
        grid.row(vec![name(style, &island.name), verdict(island.admitted), reason]);
    }
    let hidden = grid.render(style, out);
    note_hidden(style, &hidden, out);
}

fn show_trace(trace: &MissTrace, style: TextStyle, out: &mut String) {
    let Some(miss) = &trace.miss else {
        let what = format!(
            "{}, everything released together: nobody was late up to {}; the refusal is no proof of a miss",
            trace.refused,
            time(trace.until_ns)
        );
        style.wrap(out, Tone::Plain, &what, 2);
        return;
    };
    let heading = format!("{}, everything released together and using its budget:", trace.refused);
    style.wrap(out, Tone::Strong, &heading, 2);
    let hidden = trace.schedule.len().saturating_sub(SHOWN);
    if hidden > 0 {
        style.wrap(out, Tone::Dim, &format!("({hidden} earlier pieces are left out)"), 2);
    }
    let mut grid = Grid::new(&[number("from", 0), number("to", 0), label("runs", 0), label("then", 1)]);
    for piece in &trace.schedule[hidden..] {
        let end = piece.end_ns.min(miss.due_ns);
        let then = if piece.end_ns > miss.due_ns { "goes on" } else { ending(&piece.reason) };
        let who = name(style, &piece.thread);
        grid.row(vec![Cell::plain(time(piece.start_ns)), Cell::plain(time(end)), who, Cell::plain(then)]);
    }
    grid.render(style, out);
    let late = format!(
        "{} is late: due at {}, it still wants {}",
        style.fit(&miss.who, (style.columns / 3).max(12)),
        time(miss.due_ns),
        time(miss.short_ns)
    );
    style.wrap(out, Tone::Bad, &late, 2);
}

fn ending(reason: &str) -> &'static str {
    match reason {
        "preempted" => "is preempted",
        "depleted" => "has used its budget",
        "blocked" => "is done",
        _ => "",
    }
}
