//! The tables of granted CPU time: contexts, islands, leases and rings, each only if the run had any.

use super::grid::{Cell, Column, Grid, label, number};
use super::style::{TextStyle, Tone};
use super::threads::note_hidden;
use crate::units::{count, duration, fraction, instant, percent};
use crate::{ContextReport, LeaseReport, Report, RingReport};

/// More rows than this of one table are counted unless the style says otherwise.
const ROWS: usize = 40;

const CONTEXTS: [Column; 14] = [
    label("context", 0),
    label("cpu", 3),
    number("budget", 4),
    number("period", 5),
    number("deadline", 9),
    number("crit", 10),
    number("prio", 11),
    number("granted ", 6),
    number("used ", 0),
    number("used%", 7),
    number("donated ", 2),
    number("depleted", 8),
    number("miss", 1),
    label("state", 6),
];

/// The greatest overshoot is named in a note if there was any; in the table it would be a column of zeros.
pub(super) fn contexts(report: &Report, style: TextStyle) -> String {
    table(style, &CONTEXTS, &report.contexts, |context| context_cells(context, style))
}

pub(super) fn islands(report: &Report, style: TextStyle) -> String {
    let columns = [label("island", 0), label("admitted", 0), label("reason", 1)];
    table(style, &columns, &report.islands, |island| {
        let verdict = if island.admitted { Cell::new(Tone::Good, "yes") } else { Cell::new(Tone::Bad, "no") };
        let room = style.columns.saturating_sub(30).max(12);
        vec![name(style, &island.name), verdict, Cell::plain(style.fit(&island.reason, room))]
    })
}

pub(super) fn leases(report: &Report, style: TextStyle) -> String {
    const COLUMNS: [Column; 8] = [
        label("lease", 0),
        label("cpus", 2),
        label("thread", 3),
        label("state", 0),
        number("tickless ", 0),
        number("suppressed", 4),
        number("activated", 5),
        label("exits", 6),
    ];
    table(style, &COLUMNS, &report.leases, |lease| lease_cells(lease, style))
}

pub(super) fn sync(report: &Report, style: TextStyle) -> String {
    const COLUMNS: [Column; 7] = [
        label("waited at", 0),
        label("kind", 1),
        number("taken", 0),
        number("waits", 0),
        number("mean wait", 2),
        number("longest wait", 0),
        number("timeouts", 3),
    ];
    let time = |ns: u64| Cell::plain(duration(ns));
    table(style, &COLUMNS, &report.sync, |row| {
        let mean = row.waited_ns.checked_div(row.waits.saturating_sub(row.timeouts)).unwrap_or(0);
        vec![
            name(style, &row.name),
            Cell::plain(row.kind.clone()),
            Cell::plain(row.taken.to_string()),
            Cell::plain(row.waits.to_string()),
            time(mean),
            time(row.wait_max_ns),
            Cell::plain(row.timeouts.to_string()),
        ]
    })
}

pub(super) fn rings(report: &Report, style: TextStyle) -> String {
    const COLUMNS: [Column; 11] = [
        label("ring", 0),
        label("mode", 3),
        number("submitted", 0),
        number("completed", 0),
        number("dropped", 4),
        number("late", 5),
        number("overflow", 6),
        number("wakeups", 7),
        number("sleeps", 8),
        number("spun ", 9),
        number("busy ", 2),
    ];
    table(style, &COLUMNS, &report.rings, |ring| ring_cells(ring, style))
}

pub(super) fn table<T>(
    style: TextStyle,
    columns: &[Column],
    rows: &[T],
    cells: impl Fn(&T) -> Vec<Cell>,
) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let shown = if style.expand { rows.len() } else { rows.len().min(ROWS) };
    let mut grid = Grid::new(columns);
    rows.iter().take(shown).for_each(|row| grid.row(cells(row)));
    let mut out = String::new();
    let hidden = grid.render(style, &mut out);
    if shown < rows.len() {
        let more = count((rows.len() - shown) as u64);
        style.wrap(&mut out, Tone::Dim, &format!("and {more} more rows; expand to see them"), 0);
    }
    note_hidden(style, &hidden, &mut out);
    out
}

fn name(style: TextStyle, text: &str) -> Cell {
    Cell::plain(style.fit(text, (style.columns / 4).max(12)))
}

fn context_cells(context: &ContextReport, style: TextStyle) -> Vec<Cell> {
    let fixed = |ns| Cell::plain(instant(ns));
    let failed = context.misses > 0;
    let small = |n: u64| Cell::new(if n == 0 { Tone::Dim } else { Tone::Plain }, n.to_string());
    vec![
        name(style, &context.name),
        context.cpu.map_or_else(Cell::none, |cpu| Cell::plain(cpu.to_string())),
        fixed(context.budget_ns),
        fixed(context.period_ns),
        fixed(context.deadline_ns),
        small(context.criticality.into()),
        small(context.priority.into()),
        Cell::duration(context.granted_ns),
        Cell::duration(context.used_ns),
        Cell::plain(percent(fraction(context.used_ns, context.granted_ns))),
        Cell::duration(context.donated_ns),
        Cell::count(context.depletions),
        if failed { Cell::new(Tone::Bad, count(context.misses)) } else { Cell::count(0) },
        Cell::plain(style.fit(&context.state, 16)),
    ]
}

fn lease_cells(lease: &LeaseReport, style: TextStyle) -> Vec<Cell> {
    let exits: Vec<String> =
        lease.exits.iter().map(|(reason, n)| format!("{} {}", style.fit(reason, 24), count(*n))).collect();
    vec![
        name(style, &lease.name),
        Cell::plain(style.fit(&ranges(&lease.cpus), 16)),
        name(style, &lease.thread),
        Cell::plain(style.fit(&lease.state, (style.columns / 3).max(12))),
        Cell::duration(lease.tickless_ns),
        Cell::count(lease.ticks_suppressed),
        Cell::count(lease.activations),
        Cell::new(Tone::Dim, style.fit(&exits.join(", "), 60)),
    ]
}

fn ring_cells(ring: &RingReport, style: TextStyle) -> Vec<Cell> {
    vec![
        name(style, &ring.name),
        Cell::plain(style.fit(&ring.mode, 16)),
        Cell::count(ring.submitted),
        Cell::count(ring.completed),
        Cell::count(ring.dropped),
        Cell::count(ring.late),
        Cell::count(ring.overflow),
        Cell::count(ring.wakeups),
        Cell::count(ring.sleeps),
        Cell::duration(ring.spins_ns),
        Cell::duration(ring.busy_ns),
    ]
}

/// CPU numbers as a person writes them: `0-3,8`.
fn ranges(cpus: &[u32]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let shown: Vec<String> = runs
        .map(|run| match (run.first(), run.last()) {
            (Some(first), Some(last)) if first != last => format!("{first}-{last}"),
            (Some(first), _) => first.to_string(),
            _ => String::new(),
        })
        .collect();
    shown.join(",")
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn neighbouring_cpus_are_a_range() {
        assert_eq!(ranges(&[8, 0, 2, 1, 3]), "0-3,8");
        assert_eq!(ranges(&[7]), "7");
        assert_eq!(ranges(&[u32::MAX]), "4294967295");
        assert_eq!(ranges(&[]), "");
    }
}
