//! `mainspring ps`.

use crate::args::host::PsArgs;
use crate::failure::Failure;
use crate::output::Output;
use mainspring_abi::Nanos;
use mainspring_host::registry::{Registry, granted_by_others};
use mainspring_host::{GrantReport, HostError};

/// Lists what is granted. What a crash has left behind is ended first.
pub fn ps(args: &PsArgs, output: Output) -> Result<(), Failure> {
    let grants = live().map_err(|error| Failure::Host { name: "ps".to_owned(), error })?;
    if args.json {
        return output.write(|stdout| {
            serde_json::to_writer_pretty(&mut *stdout, &grants)?;
            writeln!(stdout)
        });
    }
    if grants.is_empty() {
        output.note("nothing is granted");
        return Ok(());
    }
    output.line(table(&grants))
}

fn live() -> Result<Vec<GrantReport>, HostError> {
    let mut entries = Registry::open()?.lock_swept()?.entries()?;
    entries.extend(granted_by_others());
    Ok(entries.into_iter().map(GrantReport::from).collect())
}

fn table(grants: &[GrantReport]) -> String {
    let header = [
        "pid",
        "user",
        "name",
        "budget",
        "period",
        "deadline",
        "cpus",
        "held by",
        "used",
        "held back",
        "processes",
    ]
    .map(str::to_owned);
    let rows: Vec<[String; 11]> = std::iter::once(header).chain(grants.iter().map(row)).collect();
    let mut widths = [0; 11];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; 11]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn row(grant: &GrantReport) -> [String; 11] {
    let GrantReport { entry, usage, processes } = grant;
    let time = |ns: u64| Nanos::new(ns).to_string();
    let unknown = || "-".to_owned();
    let held_back = match (usage.throttled_periods, usage.periods) {
        (Some(throttled), Some(periods)) => format!("{throttled}/{periods}"),
        _ => unknown(),
    };
    let held_by = if entry.enforced.is_empty() { "nothing".to_owned() } else { entry.enforced.join("+") };
    [
        entry.owner.pid.to_string(),
        entry.uid.to_string(),
        entry.name.clone(),
        time(entry.budget_ns),
        time(entry.period_ns),
        time(entry.deadline_ns),
        entry.cpus.clone(),
        held_by,
        usage.used_ns.map_or_else(unknown, time),
        held_back,
        processes.len().to_string(),
    ]
}
