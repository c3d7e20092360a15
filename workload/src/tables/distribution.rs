//! `[[distribution]]`.

use super::{TableError, each, list, own_name};
use crate::document::Section;
use crate::error::{Report, Reported, clipped};
use crate::scope::{Named, NamedTable};
use crate::sections::HOUR;
use crate::value::{Kind, choice, fixed, text};
use crate::{Distribution, DistributionSpec, parse_duration};
use mainspring_abi::Nanos;
use std::path::Path;

const KEYS: [&str; 8] = ["name", "kind", "mean", "deviation", "least", "shape", "values", "file"];
const SOME: std::ops::RangeInclusive<Nanos> = Nanos::new(1)..=HOUR;
/// How many values a file may have.
const MOST_VALUES: usize = 1_000_000;
const LARGEST_FILE: u64 = 16 << 20;

#[derive(Clone, Copy)]
enum What {
    Exponential,
    Normal,
    Pareto,
    Values,
}

const KINDS: [(&str, What); 4] = [
    ("exponential", What::Exponential),
    ("normal", What::Normal),
    ("pareto", What::Pareto),
    ("values", What::Values),
];

/// Reads the distributions.
pub(crate) fn distributions(
    named: &Named<'_>,
    report: &mut Report<'_>,
) -> Result<Vec<DistributionSpec>, Reported> {
    each(named, |_, table| {
        Ok(DistributionSpec { kind: distribution(table, report)?, name: own_name(table)? })
    })
}

fn distribution(table: &NamedTable<'_>, report: &mut Report<'_>) -> Result<Distribution, Reported> {
    let mut section = Section::open("[[distribution]]", &KEYS, table.table.clone(), report);
    let kind = section
        .require("kind", "kind = \"exponential\"", |value, report| choice(value, "kind", &KINDS, report))?;
    let mut needed = |key: &'static str, example: &'static str| {
        section.require(key, example, |value, report| fixed(value, key, SOME, report))
    };
    match kind {
        What::Exponential => Ok(Distribution::Exponential { mean: needed("mean", "mean = \"2ms\"")? }),
        What::Normal => {
            let (mean, deviation) =
                (needed("mean", "mean = \"2ms\""), needed("deviation", "deviation = \"500us\""));
            Ok(Distribution::Normal { mean: mean?, deviation: deviation? })
        }
        What::Pareto => {
            let least = needed("least", "least = \"1ms\"");
            let shape = section.require("shape", "shape = \"1.5\"", |value, report| {
                let text = text(value, Kind::Text, report)?;
                let shape = text.value.parse::<f64>().ok().filter(|shape| (0.1..=100.0).contains(shape));
                shape.ok_or_else(|| report.push(&value.at, TableError::Shape { shape: clipped(text.value) }))
            });
            Ok(Distribution::Pareto { least: least?, shape_thousandths: (shape? * 1_000.0).round() as u32 })
        }
        What::Values => values(section),
    }
}

fn values(mut section: Section<'_, '_, '_>) -> Result<Distribution, Reported> {
    let listed = section.read("values", |value, report| {
        list(value, Kind::Duration, report, |item, report| fixed(item, "value", Nanos::ZERO..=HOUR, report))
    });
    let filed = section.read("file", |value, report| {
        let path = text(value, Kind::Text, report)?;
        // Beside the workload, wherever that is read from.
        let folder = Path::new(report.source.name).parent().unwrap_or(Path::new(""));
        read(&folder.join(path.value))
            .map_err(|why| report.push(&value.at, TableError::ValuesFile { path: clipped(path.value), why }))
    });
    let values = match (listed?, filed?) {
        (Some(values), None) | (None, Some(values)) => values,
        _ => return Err(section.refuse(TableError::NoValues)),
    };
    if values.iter().all(|value| value.is_zero()) {
        return Err(section.refuse(TableError::NoValues));
    }
    Ok(Distribution::Values(values))
}

/// The durations of a file, one on each line; empty lines and comments are passed over.
fn read(path: &Path) -> Result<Vec<Nanos>, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() || metadata.len() > LARGEST_FILE {
        return Err("it is no file of at most 16 MiB".to_owned());
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut values = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let value = parse_duration(line).ok().filter(|value| *value <= HOUR);
        values.push(value.ok_or_else(|| format!("line {}: expected a duration, such as 1.5ms", number + 1))?);
        if values.len() > MOST_VALUES {
            return Err(format!("more than {MOST_VALUES} values"));
        }
    }
    Ok(values)
}

/// A duration that a table names: a span, or a distribution.
pub(super) fn drawn(
    value: &crate::value::Found<'_>,
    named: &Named<'_>,
    report: &mut Report<'_>,
) -> Result<crate::Drawn, Reported> {
    let text = text(value, Kind::Duration, report)?;
    if named.tables.is_empty() || !text.value.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return crate::value::span(value, report).map(crate::Drawn::Span);
    }
    named.find(&text, report).map(crate::Drawn::Distribution)
}
