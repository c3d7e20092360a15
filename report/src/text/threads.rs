//! The thread table: what each had against what it was owed, how long it waited, and what went wrong.

use super::bar;
use super::fold::{self, Row};
use super::grid::{Cell, Column, Grid, label, number};
use super::style::{TextStyle, Tone};
use crate::Report;
use crate::units::{aligned_duration, fraction, percent};

const WAKE: &str = "wake latency";
const COLUMNS: [Column; 14] = [
    label("thread", 0),
    number("weight", 5),
    number("share%", 0),
    number("owed%", 0),
    label("", 8),
    number("ready ", 6),
    number("blocked ", 9),
    Column { group: WAKE, ..number("p50 ", 7) },
    Column { group: WAKE, ..number("p99 ", 2) },
    Column { group: WAKE, ..number("max ", 4) },
    number("|lag| ", 1),
    number("preempt", 10),
    number("migr", 11),
    number("miss", 3),
];

pub(super) fn render(report: &Report, style: TextStyle) -> String {
    let mut out = String::new();
    if report.threads.is_empty() {
        style.paint(&mut out, Tone::Dim, "No threads.");
        out.push('\n');
        return out;
    }
    let rows = fold::rows(&report.threads, style.expand);
    let table = Table::new(report, style, &rows);
    let mut grid = Grid::new(&COLUMNS);
    for row in &rows {
        grid.row(table.cells(row));
    }
    let hidden = grid.render(style, &mut out);
    legend(style, &rows, &hidden, &mut out);
    out
}

/// What all rows have in common.
struct Table {
    style: TextStyle,
    duration_ns: u64,
    quantum_ns: u64,
    /// The share that fills a bar: the greatest, so that rows compare with each other.
    scale: f64,
    bar_width: usize,
    name_width: usize,
}

impl Table {
    fn new(report: &Report, style: TextStyle, rows: &[Row]) -> Self {
        let greatest = rows.iter().map(|row| row.runtime_ns.max(row.entitled_ns)).max().unwrap_or(0);
        Self {
            style,
            duration_ns: report.duration_ns,
            quantum_ns: report.config.quantum_ns,
            scale: fraction(greatest, report.duration_ns),
            bar_width: bar::width(style),
            name_width: (style.columns / 4).max(12),
        }
    }

    fn cells(&self, row: &Row) -> Vec<Cell> {
        let share = fraction(row.runtime_ns, self.duration_ns);
        let entitled = fraction(row.entitled_ns, self.duration_ns);
        let weight = row.weight.map_or_else(|| "mixed".to_owned(), |weight| weight.to_string());
        let latency = |ns| if row.wakeups == 0 { Cell::none() } else { Cell::duration(ns) };
        vec![
            Cell::new(self.name_tone(row), self.style.fit(&row.name, self.name_width)),
            Cell::plain(weight),
            Cell::plain(percent(share)),
            Cell::plain(percent(entitled)),
            bar::entitlement(self.style, share, entitled, self.scale, self.bar_width),
            Cell::duration(row.ready_ns),
            Cell::duration(row.blocked_ns),
            latency(row.wake_p50_ns),
            latency(row.wake_p99_ns),
            latency(row.wake_max_ns),
            self.lag(row),
            Cell::count(row.preemptions),
            Cell::count(row.migrations),
            misses(row.misses),
        ]
    }

    fn name_tone(&self, row: &Row) -> Tone {
        if row.misses > 0 { Tone::Bad } else { Tone::Plain }
    }

    fn lag(&self, row: &Row) -> Cell {
        if self.quantum_ns > 0 && row.lag_max_ns > self.quantum_ns {
            Cell::new(Tone::Warn, aligned_duration(row.lag_max_ns))
        } else {
            Cell::duration(row.lag_max_ns)
        }
    }
}

fn misses(n: u64) -> Cell {
    if n == 0 { Cell::count(0) } else { Cell::new(Tone::Bad, crate::units::count(n)) }
}

/// What the table does not say by itself. Shares are of one CPU: a thread cannot run on two.
fn legend(style: TextStyle, rows: &[Row], hidden: &[&str], out: &mut String) {
    let mut notes = vec!["share and owed are of one CPU".to_owned()];
    if !hidden.contains(&"") {
        notes.push(bar::legend(style));
    }
    style.wrap_items(out, Tone::Dim, notes.iter().map(String::as_str), style.dot(), 0);
    if rows.iter().any(|row| row.members > 1) {
        let folded = "folded rows (xN): times are means per thread, counts are sums; p99, max and |lag| are the \
                      worst of any";
        style.wrap(out, Tone::Dim, folded, 0);
    }
    note_hidden(style, hidden, out);
}

/// Names the columns that the terminal was too narrow for.
pub(super) fn note_hidden(style: TextStyle, hidden: &[&str], out: &mut String) {
    let named: Vec<&str> =
        hidden.iter().map(|title| title.trim()).filter(|title| !title.is_empty()).collect();
    if !named.is_empty() {
        style.wrap(out, Tone::Dim, &format!("hidden at this width: {}", named.join(", ")), 0);
    }
}
