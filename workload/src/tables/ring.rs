//! `[[ring]]`.

use super::{Known, TableError, each, own_name};
use crate::RingSpec;
use crate::document::Section;
use crate::error::{Report, Reported};
use crate::scope::NamedTable;
use crate::sections::{COST, SECOND, time};
use crate::value::{flag, integer, name};
use mainspring_abi::Nanos;
use mainspring_abi::request::WINDOW_MAX;
use std::ops::RangeInclusive;

const KEYS: [&str; 8] = ["name", "owner", "entries", "sqpoll", "idle_spin", "cost", "reorder", "window"];
/// An entry that costs nothing would let submitter and poller go round within one instant.
const ENTRY_COST: RangeInclusive<Nanos> = Nanos::new(1)..=SECOND;

/// Reads the rings.
pub(crate) fn rings(known: &Known<'_, '_, '_>, report: &mut Report<'_>) -> Result<Vec<RingSpec>, Reported> {
    each(&known.scope.rings, |_, table| ring(table, known, report))
}

fn ring(
    table: &NamedTable<'_>,
    known: &Known<'_, '_, '_>,
    report: &mut Report<'_>,
) -> Result<RingSpec, Reported> {
    let mut section = Section::open("[[ring]]", &KEYS, table.table.clone(), report);
    let owner = section.require("owner", "owner = \"NAME\", the thread that submits", |value, report| {
        known.scope.threads.one(&name(value, "thread", report)?, report)
    });
    let entries = section.read("entries", |value, report| {
        let entries = integer(value, "entries", 2..=4_096, report)?;
        if !entries.is_power_of_two() {
            return Err(report.push(&value.at, TableError::NotPowerOfTwo { entries }));
        }
        Ok(entries)
    });
    let sqpoll = section.read("sqpoll", flag);
    let idle_spin = time(&mut section, "idle_spin", COST);
    let cost = time(&mut section, "cost", ENTRY_COST);
    let reorder = section.read("reorder", flag);
    let window =
        section.read("window", |value, report| integer(value, "window", 1..=WINDOW_MAX as u64, report));
    Ok(RingSpec {
        name: own_name(table)?,
        owner: owner?,
        entries: entries?.unwrap_or(64) as u32,
        sqpoll: sqpoll?.unwrap_or(false),
        idle_spin: idle_spin?.unwrap_or(Nanos::from_micros(50)),
        cost: cost?.unwrap_or(Nanos::from_micros(1)),
        reorder: reorder?.unwrap_or(false),
        window: window?.unwrap_or(1) as u8,
    })
}
