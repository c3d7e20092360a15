//! The CPU table; for many CPUs the least, the median and the greatest of each column, which is what one looks
//! for in a long list.

use super::bar;
use super::grid::{Cell, Column, Grid, label, number};
use super::style::{TextStyle, Tone};
use super::threads::note_hidden;
use crate::units::{fraction, percent};
use crate::{CpuReport, Report};

/// More CPUs than this are summarised unless the style says otherwise.
pub const SUMMARISE_ABOVE: usize = 16;

const COLUMNS: [Column; 11] = [
    label("cpu", 0),
    number("busy%", 0),
    label("", 7),
    number("idle ", 1),
    number("overhead ", 2),
    number("ticks", 3),
    number("suppressed", 4),
    number("reschedules", 6),
    number("steals", 5),
    number("timer irqs", 8),
    number("queue max", 9),
];

pub(super) fn render(report: &Report, style: TextStyle) -> String {
    if report.cpus.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(&COLUMNS);
    let summarised = !style.expand && report.cpus.len() > SUMMARISE_ABOVE;
    if summarised {
        for (name, cpu) in summary(&report.cpus) {
            grid.row(cells(style, name.to_owned(), &cpu));
        }
    } else {
        for cpu in &report.cpus {
            grid.row(cells(style, cpu.id.to_string(), cpu));
        }
    }
    let mut out = String::new();
    let hidden = grid.render(style, &mut out);
    if summarised {
        let note = format!("of {} CPUs, each column by itself", report.cpus.len());
        style.wrap(&mut out, Tone::Dim, &note, 0);
    }
    note_hidden(style, &hidden, &mut out);
    out
}

fn cells(style: TextStyle, name: String, cpu: &CpuReport) -> Vec<Cell> {
    let busy = fraction(cpu.busy_ns, cpu.busy_ns.saturating_add(cpu.idle_ns));
    vec![
        Cell::plain(name),
        Cell::plain(percent(busy)),
        bar::filled(style, busy, bar::width(style)),
        Cell::duration(cpu.idle_ns),
        Cell::duration(cpu.overhead_ns.values().sum()),
        Cell::count(cpu.ticks),
        Cell::count(cpu.ticks_suppressed),
        Cell::count(cpu.reschedules),
        Cell::count(cpu.steals),
        Cell::count(cpu.timer_interrupts),
        Cell::count(cpu.queue_depth_max),
    ]
}

/// The least, median and greatest of every column, as if each were a CPU. Idle time goes the other way than
/// busy time, so that the two of one row still add up to the duration.
fn summary(cpus: &[CpuReport]) -> [(&'static str, CpuReport); 3] {
    let middle = cpus.len() / 2;
    [("min", 0), ("median", middle), ("max", cpus.len() - 1)].map(|(name, rank)| {
        let at = |field: fn(&CpuReport) -> u64, rank: usize| {
            let mut values: Vec<u64> = cpus.iter().map(field).collect();
            values.sort_unstable();
            values[rank]
        };
        let row = CpuReport {
            id: 0,
            busy_ns: at(|c| c.busy_ns, rank),
            idle_ns: at(|c| c.idle_ns, cpus.len() - 1 - rank),
            overhead_ns: [(String::new(), at(|c| c.overhead_ns.values().sum(), rank))].into(),
            ticks: at(|c| c.ticks, rank),
            ticks_suppressed: at(|c| c.ticks_suppressed, rank),
            reschedules: at(|c| c.reschedules, rank),
            timer_interrupts: at(|c| c.timer_interrupts, rank),
            steals: at(|c| c.steals, rank),
            queue_depth_max: at(|c| c.queue_depth_max, rank),
        };
        (name, row)
    })
}
