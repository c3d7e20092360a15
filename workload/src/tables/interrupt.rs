//! `[[interrupt]]`.

use super::distribution::drawn;
use super::{Known, TableError, each, own_name};
use crate::document::Section;
use crate::error::{Report, Reported};
use crate::scope::Named;
use crate::value::{integer, name};
use crate::{DistributionSpec, Drawn, InterruptSpec, Span};
use mainspring_abi::Nanos;

const KEYS: [&str; 6] = ["name", "cpu", "every", "burst", "work", "wakes"];
const NOTHING: Span = Span { min: Nanos::ZERO, max: Nanos::ZERO };

/// Reads the devices that interrupt.
pub(crate) fn interrupts(
    named: &Named<'_>,
    known: &Known<'_, '_, '_>,
    distributions: &Result<Vec<DistributionSpec>, Reported>,
    report: &mut Report<'_>,
) -> Result<Vec<InterruptSpec>, Reported> {
    each(named, |_, table| {
        let mut section = Section::open("[[interrupt]]", &KEYS, table.table.clone(), report);
        let cpu = section.read("cpu", |value, report| {
            integer(value, "cpu", 0..=known.cpus.saturating_sub(1) as u64, report)
        });
        let every = section.require("every", "every = \"1ms\"", |value, report| {
            let every = drawn(value, &known.scope.distributions, report)?;
            // Time must pass between two bursts.
            let lasts = match (every, distributions) {
                (Drawn::Span(span), _) => !span.min.is_zero(),
                (Drawn::Distribution(number), Ok(all)) => {
                    all.get(number).is_some_and(|spec| spec.kind.lasts())
                }
                (Drawn::Distribution(_), Err(reported)) => return Err(*reported),
            };
            if lasts { Ok(every) } else { Err(report.push(&value.at, TableError::NeverRests)) }
        });
        let burst = section.read("burst", |value, report| integer(value, "burst", 1..=10_000, report));
        let work = section.read("work", |value, report| drawn(value, &known.scope.distributions, report));
        let wakes = section.read("wakes", |value, report| {
            known.scope.threads.target(&name(value, "thread", report)?, report)
        });
        Ok(InterruptSpec {
            name: own_name(table)?,
            cpu: cpu?.unwrap_or(0) as usize,
            every: every?,
            burst: burst?.unwrap_or(1) as u32,
            work: work?.unwrap_or(Drawn::Span(NOTHING)),
            wakes: wakes?,
        })
    })
}
